"""The policy loop around a child process: run or resume, wait for the cool-down to end, continue, and stop at the
limit.

The supervisor never touches a session itself. It looks, waits, and starts `acode resume --auto`, which records
its own decision; so a supervisor that is killed loses nothing, and two of them cannot do more than one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from acode.policy import Decision, Reason

COUNTDOWN_STEP_S = 1.0
LOCK_RETRY_S = 2.0
LOCKED = 16
FRUITLESS_MAX = 3  # children in a row that died before they had recorded an attempt: the limit cannot count those

# Ends that no automatic attempt can change: the child's exit status becomes the supervisor's.
FINAL = frozenset({0, 2, 3, 10, 12, 13, 14, 15, 17, 18, 19, 20, 130, 143})


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The session's state at a look."""

    decision: Decision | None  # None: the session has ended
    state: str
    exit_code: int = 0
    locked: bool = False  # another process works on it
    resumes: int = 0  # attempts on record


class ChildEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended: by itself with a code, or by a signal."""

    exit_code: int | None
    signal: str | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The next action, decided from the child's end and a fresh look."""

    do: Literal["start", "wait", "end"]
    seconds: float = 0.0
    exit_code: int = 0
    why: str = ""


class ChildStarts(msgspec.Struct, frozen=True, kw_only=True):
    why: str


class SupervisionEnds(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    why: str


SupervisorNotice = ChildStarts | ChildEnd | SupervisionEnds


def final_step(end: ChildEnd | None) -> Step | None:
    """The child's end, where nothing that a look could show would change what follows."""
    if end is None or end.exit_code not in FINAL:
        return None
    return Step(do="end", exit_code=end.exit_code or 0, why=f"the child ended with {end.exit_code}")


def next_step(end: ChildEnd | None, standing: Standing, *, fruitless: int = 0, waited: bool = False) -> Step:
    """Pure: the session first, then the policy. `fruitless`: children in a row that left no attempt on record.

    `waited`: the cool-down was just waited out. If it is not over, the clock was set back since the run ended: a child
    asks, and the refusal that it records is what the cool-down is counted from.
    """
    code = end.exit_code if end is not None else None
    if standing.decision is None:
        return Step(do="end", exit_code=standing.exit_code, why=f"the session is {standing.state}")
    if code == LOCKED or standing.locked:
        refused = "the child was refused, and has said who may be at work"
        why = "another process works on the session" if standing.locked else refused
        return Step(do="wait", seconds=LOCK_RETRY_S, why=why)
    if standing.decision.reason is Reason.COOLDOWN and not waited:
        return Step(do="wait", seconds=standing.decision.cooldown_s_remaining, why="cool-down")
    if fruitless and code not in (None, 75):
        return Step(do="end", exit_code=code or 0, why="the child could not even begin, and has said why")
    if fruitless >= FRUITLESS_MAX:
        return Step(do="end", exit_code=1, why=f"{fruitless} children in a row were killed before they had begun")
    return Step(do="start", why=standing.decision.describe)


def supervise(
    *,
    first: Callable[[], ChildEnd] | None,
    resume: Callable[[], ChildEnd],
    look: Callable[[], Standing],
    count_down: Callable[[float, str], bool],
    stopped: Callable[[], bool],
    emit: Callable[[SupervisorNotice], None],
    locked_s_max: float,
) -> int:
    """Go round until the session ends, is escalated, needs a person, or somebody stops it."""
    end = first() if first is not None else None
    locked_s, fruitless, known, waited = 0.0, 0, -1, False
    while True:
        if end is not None:
            emit(end)
        step = final_step(end)
        if step is None:
            standing = look()
            # One that was refused did not die: the lock, not the number of children, says how long that is waited for.
            begun = end is not None and end.exit_code != LOCKED
            fruitless = fruitless + begun if standing.resumes == known else 0
            step = next_step(end, standing, fruitless=fruitless, waited=waited)
        if step.do == "end":
            emit(SupervisionEnds(exit_code=step.exit_code, why=step.why))
            return step.exit_code
        if step.do == "wait":
            locked = standing.locked or (end is not None and end.exit_code == LOCKED)
            locked_s = locked_s + step.seconds if locked else 0.0
            if locked and locked_s > locked_s_max:
                return LOCKED
            if not count_down(step.seconds, step.why):
                return 130
            end, waited = None, not locked  # what is waited for is the lock or the cool-down
            continue
        if stopped():
            return 130
        emit(ChildStarts(why=step.why))
        known, waited = standing.resumes, False
        end = resume()
