"""The files that a grant covers beside the plan: those applied behind the gate, with their present content.

A command or a text stands in the plan, which is sealed; a file of statements only by its name. Nothing here asks or
answers: it computes the scope of a grant, and why a recorded one has another scope.
"""

from __future__ import annotations

import msgspec

from acode.engine.held_session import Held
from acode.errors import AcodeError
from acode.events import types as ev
from acode.events.definition import Sql, Step, execution_order
from acode.plan import approval_digest, covered_by
from acode.state import Session
from acode.state.session import Approval
from acode.workspace import hash_file


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """The scope of a grant that is given now."""

    digest: str
    files: tuple[ev.FileState, ...] = ()

    @property
    def contents(self) -> dict[str, str | None]:
        return {state.path: state.sha256 for state in self.files}


def allowed_by(run: Held, gate: Step) -> Allowed:
    assert run.session.plan is not None
    actions = [step.action for _, step in covered_by(execution_order(run.session.plan), gate)]
    files = tuple(as_it_is(run, name) for name in sorted({one.file for one in actions if isinstance(one, Sql)}))
    found = Allowed(digest="", files=files)
    return msgspec.structs.replace(found, digest=approval_digest(run.session, gate, found.contents))


def as_it_is(run: Held, path: str) -> ev.FileState:
    """A missing or unreadable file cannot be approved; its step will report it."""
    try:
        return hash_file(run.root, path)
    except (AcodeError, OSError):
        return ev.FileState(path=path)


def why_not(session: Session, gate: Step, on_record: Approval | None, allowed: Allowed) -> str | None:
    """Why a grant on record does not open the gate; None where there is none, or where it does."""
    if on_record is None or not on_record.granted or on_record.action_digest == allowed.digest:
        return None
    if allowed.files and on_record.action_digest == approval_digest(session, gate):
        names = ", ".join(allowed.contents)
        return f"the approval of {gate.id} was given by an earlier acode, which did not look into {names}"
    changed = [path for path, sha256 in allowed.contents.items() if on_record.contents.get(path) != sha256]
    if changed:
        return f"{', '.join(changed)} was changed after {gate.id} was approved"
    return f"the approval of {gate.id} was given for other steps or files than those behind it now"
