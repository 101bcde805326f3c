"""How long the rest of a session will take, by earlier runs of the same plan on this machine.

A hint for people: nothing is decided by it. Earlier sessions are verified as always; one that cannot be read is left
out.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping

from acode.engine.step_times import step_times
from acode.errors import AcodeError
from acode.events import types as ev
from acode.state import Session, State
from acode.store import session_index
from acode.store.store import Store

LOOKED_AT_MAX = 50
RUNS_MAX = 5


def earlier_durations_ms(store: Store, session: Session) -> dict[str, float]:
    """The median duration of each step in the latest completed runs of the same plan, or of the same plan file."""
    taken: dict[str, list[int]] = {}
    runs = 0
    for hint in itertools.islice(session_index.ended(store), LOOKED_AT_MAX):
        if hint.session_id == session.session_id or not _is_same_plan(store, session, hint.session_id):
            continue
        try:
            found = step_times(envelope for envelope, _, _ in store.events(hint.session_id))
        except AcodeError:
            continue
        for one in found.values():
            if one.status == "completed" and one.duration_ms is not None:
                taken.setdefault(one.step, []).append(one.duration_ms)
        runs += 1
        if runs == RUNS_MAX:
            break
    return {step: statistics.median(durations) for step, durations in taken.items()}


def _is_same_plan(store: Store, session: Session, other_id: str) -> bool:
    try:
        other, _ = store.peek(other_id)
        if other.state is not State.COMPLETED:
            return False
        created = store.first_event(other_id, other)[0].event
    except AcodeError:
        return False
    mine = session.created
    if mine is None or not isinstance(created, ev.SessionCreated):
        return False
    return created.plan_digest == mine.plan_digest or (
        mine.plan_path is not None and created.plan_path == mine.plan_path
    )


def remaining_ms(session: Session, expected: Mapping[str, float], running_ms: Mapping[str, float]) -> float | None:
    """None where a step that is still to be done has not been seen in any earlier run."""
    left = [step.id for step in session.steps() if not session.done(step.id)] if session.plan is not None else []
    if not left or any(step not in expected for step in left):
        return None
    return sum(max(expected[step] - running_ms.get(step, 0.0), 0.0) for step in left)
