"""What a session needs from a person, in one word for programs and in the same words for people everywhere.

Pure. A session whose process is dead is not executing, whatever the last event says; nobody would look at it then.
"""

from __future__ import annotations

from typing import Literal

from acode.policy import Decision
from acode.state import Session, State

Attention = Literal["approve", "resolve", "escalated", "changed_files", "crashed", "parked"]

IN_WORDS: dict[Attention, str] = {
    "approve": "needs you: approve",
    "resolve": "needs you: outcome unknown",
    "escalated": "needs you: escalated",
    "changed_files": "needs you: changed files",
    "crashed": "crashed",
    "parked": "needs you: parked",
}
APPROVED = "approved, to resume"
WORKING = frozenset({State.CREATED, State.PLANNING, State.EXECUTING})


def attention_of(
    session: Session, decision: Decision | None, *, running: bool, changed: bool = False
) -> Attention | None:
    """None: it has ended, it runs, or it was paused and waits for nothing but a resume.

    The order is that of the next actions: an outcome is told before an attempt is granted. `changed`: somebody has
    looked, and files are not what the session left.
    """
    if session.terminal:
        return None
    asks = is_asking(session)
    if running:
        return "approve" if asks else None
    if session.undoing is not None:
        return "crashed"
    if decision is not None and decision.unknown:
        return "resolve"
    if session.escalated or (decision is not None and decision.run_state == "resume_escalated"):
        return "escalated"
    if asks:
        return "approve"
    if changed:
        return "changed_files"
    return "crashed" if session.state in WORKING else None


def is_asking(session: Session) -> bool:
    """Whether a question has no answer, or a no that the next resume asks again."""
    if session.state is State.PAUSED and session.pause is not None:
        return session.pause.reason == "denied"
    waiting = session.waiting_for
    return session.state is State.AWAITING_APPROVAL and (waiting is None or waiting.step != session.answered_gate)


def is_approved(session: Session) -> bool:
    """Whether it stands at a question that a person has answered with yes, and nobody has resumed it since."""
    return session.state is State.AWAITING_APPROVAL and not is_asking(session)


def state_in_words(session: Session, attention: Attention | None, *, running: bool) -> str:
    """The state as people read it, in lists, status and explanations."""
    if attention is not None:
        return IN_WORDS[attention]
    if running:
        return f"{session.state} (running)"
    return APPROVED if is_approved(session) else str(session.state)
