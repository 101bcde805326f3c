"""What is opencode's own: many sessions in one database, helpers among them, and rows that nobody can read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.driver import Acode
from tests.observed.test_inspect import inspected
from tests.transcripts import DIED, FINISHED, Story, fill_opencode, open_opencode

NOW = datetime.now(UTC) - timedelta(minutes=10)


def timed(story: Story, minutes: int) -> list[tuple[datetime, object]]:
    return [(NOW + timedelta(minutes=minutes, seconds=number), event) for number, event in enumerate(story)]


def test_the_sessions_of_one_database_are_told_apart(acode: Acode, home: Path, project: Path) -> None:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    database = open_opencode(path)
    fill_opencode(database, project, timed(DIED, 1), "ses_a")
    fill_opencode(database, project, timed(FINISHED, 2), "ses_b")
    fill_opencode(database, project, timed(DIED[:3], 3), "ses_c", parent="ses_a")
    told = inspected(acode, "opencode")
    found = [(one["session_id"], one["ending"], one["resume"]["command"][-1]) for one in told["sessions"]]
    assert found == [("ses_c", "unfinished", "ses_a"), ("ses_a", "in_flight", "ses_a")]
    assert (told["looked_at"], told["finished"]) == (3, 1)
    database.close()


def test_a_part_that_cannot_be_read_may_be_a_call_in_flight(acode: Acode, home: Path, project: Path) -> None:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    database = open_opencode(path)
    fill_opencode(database, project, timed(DIED[:3], 1), "ses_a")
    deep = '{"state":{"status":"running"},"x":' + "[" * 20_000
    for number, data in enumerate((deep, '"running"' + "x" * 5_000_000, b'\xff"running"')):
        database.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", (f"prt{number}", "m", "ses_a", 1, 1, data))
    (session,) = inspected(acode, "opencode")["sessions"]
    assert sum("may be a call in flight" in note for note in session["notes"]) == 3
    database.close()


def test_text_that_is_no_text_is_shown_as_far_as_it_goes(acode: Acode, home: Path, project: Path) -> None:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    database = open_opencode(path)
    fill_opencode(database, project, timed(DIED, 1), "ses_a")
    database.execute("UPDATE session SET version = CAST(x'312ea2' AS TEXT), parent_id = CAST(x'ff' AS TEXT)")
    (session,) = inspected(acode, "opencode")["sessions"]
    assert (session["version"], session["ending"], session["resume"]) == ("1.\ufffd", "in_flight", None)
    database.close()
