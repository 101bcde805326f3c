"""Answers given on the page: the same functions as the commands, bound to exactly what was shown.

A form carries a nonce made for the session, the act and the digest of what stood above its button. Where any of that
has changed meanwhile, nothing is recorded and the person looks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from acode.engine import session_commands
from acode.engine.preview import Preview
from acode.engine.session_list import is_at_work
from acode.engine.world import World
from acode.errors import Stale, Usage
from acode.plan import Action
from acode.state import Session

Act = Literal["approve", "deny", "applied", "not_applied", "retry", "pause", "cancel"]
ACTS: tuple[Act, ...] = ("approve", "deny", "applied", "not_applied", "retry", "pause", "cancel")
NOTE_CHARS_MAX = 2_000


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a person can answer now. `digest` names what was shown; another digest is another question."""

    kind: Literal["gate", "unknown", "running", "open"]
    target: str
    digest: str

    def bound(self, session_id: str, act: str) -> str:
        """What a nonce for this answer is bound to."""
        return "\0".join((session_id, act, self.kind, self.target, self.digest))


ACTS_OF: dict[str, tuple[Act, ...]] = {
    "gate": ("approve", "deny"),
    "unknown": ("applied", "not_applied", "retry"),
    "running": ("pause",),
    "open": ("cancel",),
}


def asked_now(found: Preview) -> list[Asked]:
    """What can be answered of this session now, the most urgent first."""
    session = found.session
    if session.terminal:
        return []
    if is_at_work(session):  # an agent that acode observes, and that takes no request
        return []
    if found.lock.held:
        holder = found.lock.holder
        return [Asked(kind="running", target="", digest=str(holder.pid) if holder is not None else "")]
    asked: list[Asked] = []
    waiting = session.waiting_for
    if waiting is not None and not is_granted(session, waiting.step, waiting.action_digest):
        asked.append(Asked(kind="gate", target=waiting.step, digest=waiting.action_digest))
    for one in found.survey.continuation.in_flight if found.survey is not None else ():
        if one.action is Action.ASK and one.step in session.in_flight:
            key = session.in_flight[one.step].started.key
            asked.append(Asked(kind="unknown", target=one.step, digest=key))
    asked.append(Asked(kind="open", target="", digest=str(session.seq)))
    return asked


def is_granted(session: Session, gate: str, digest: str) -> bool:
    """Whether a yes to exactly this is on record: the session only has to be resumed."""
    known = session.records.approvals.get(gate) if session.records is not None else None
    return known is not None and known.granted and known.action_digest == digest


def find(found: Preview, act: str, target: str) -> Asked:
    """The open question that this act answers; it may have been answered elsewhere meanwhile."""
    if act not in ACTS:
        raise Usage(f"{act} is no answer")
    for one in asked_now(found):
        if act in ACTS_OF[one.kind] and one.target == target:
            return one
    raise Stale("this question is not open any more: somebody else has answered it, or the session continued")


def give(world: World, session_id: str, asked: Asked, form: Mapping[str, str]) -> Session:
    """Record the answer; it is refused where the session is not what was shown."""
    act, note = form["act"], form.get("note", "")[:NOTE_CHARS_MAX]
    match asked.kind:
        case "gate":
            return session_commands.answer_gate(
                world, session_id, asked.target, granted=act == "approve", note=note, shown=asked.digest
            )[0]
        case "unknown":
            return session_commands.resolve(
                world, session_id, asked.target, act, note=note, force=False, shown=asked.digest
            )[0]
        case "running":
            return session_commands.pause(world, session_id)[0]
        case "open":
            return session_commands.end(
                world, session_id, cancelled=True, reason=note or "cancelled on the page", shown=int(asked.digest)
            )
