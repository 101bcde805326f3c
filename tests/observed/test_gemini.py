"""What is Gemini CLI's own: the directory is noted beside the chats and bound to the transcript by its hash."""

from __future__ import annotations

from pathlib import Path

from tests.driver import Acode
from tests.observed.test_inspect import inspected, only
from tests.transcripts import DIED, write_session


def test_a_directory_whose_hash_is_not_the_transcripts_is_not_believed(
    acode: Acode, home: Path, project: Path, tmp_path: Path
) -> None:
    path = write_session("gemini", home, project, DIED)
    assert only(acode)["directory"] == str(project)
    (path.parent.parent / ".project_root").write_text(str(tmp_path))
    session = only(acode)
    assert (session["directory"], session["resume"]["directory"]) == (None, None)
    (path.parent.parent / ".project_root").unlink()
    assert only(acode)["directory"] is None
    assert inspected(acode, project)["sessions"] == []
