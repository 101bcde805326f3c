"""A note beside a session whose resume was refused because somebody had changed its files.

A list looks at no file, and the log does not say what was found: without the note such a session would look paused, and
nobody would see that it needs a decision. The note counts until the session's log grows. Where it cannot be made, the
session is shown as before.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from acode.disk.own_files import open_own
from acode.disk.private_files import make_private_directory
from acode.errors import AcodeError
from acode.state import Session


def note_refusal(agent_dir: Path, session: Session) -> None:
    note = _note(agent_dir, session)
    with contextlib.suppress(OSError, AcodeError):
        make_private_directory(note.parent)
        os.close(open_own(note, os.O_WRONLY | os.O_CREAT))


def was_refused(agent_dir: Path, session: Session) -> bool:
    """Whether its last resume was refused for that reason, and nothing was recorded after it."""
    return os.path.lexists(f"{agent_dir}/{_name(session)}")  # for each row of a list: a path object would be felt


def _note(agent_dir: Path, session: Session) -> Path:
    return agent_dir / _name(session)


def _name(session: Session) -> str:
    """Among the notes of its commands, which are removed with the session."""
    return f"run/{session.session_id}+changed_files/{session.seq}"
