"""How far a session is, in one line: a bar over its steps, the time that they took, and what is likely left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from acode.engine.expected_time import earlier_durations_ms, remaining_ms
from acode.engine.step_times import StepTimes, step_times
from acode.engine.workspace_store import opened
from acode.engine.world import World
from acode.errors import AcodeError
from acode.state import Session
from acode.store.store import Store
from acode.text.durations import took

BAR_COLUMNS = 16
# Of a longer plan only the bar is shown at its run: the first step would wait until the logs of earlier runs are read.
TIMED_STEPS_MAX = 500


class Meter:
    """Of one session; told of each step that ends. Gates take a person's time, which is not counted."""

    def __init__(
        self,
        session: Session,
        times: Mapping[str, StepTimes],
        expected: Mapping[str, float],
        clock: Callable[[], datetime],
    ) -> None:
        self.session = session
        self._clock = clock
        self._expected = expected
        self._ended_ms = sum(one.duration_ms or 0 for one in times.values())

    def add(self, duration_ms: int) -> None:
        self._ended_ms += duration_ms

    def text(self) -> str:
        session = self.session
        running = {
            step: max((self._clock() - flight.at).total_seconds() * 1000, 0.0)
            for step, flight in session.in_flight.items()
            if flight.started.kind != "approve" and flight.unknown is None
        }
        words = [f"{session.steps_done:,}"]
        if session.steps_total:
            full = min(BAR_COLUMNS * session.steps_done // session.steps_total, BAR_COLUMNS)
            words = [f"{'█' * full}{'░' * (BAR_COLUMNS - full)} {session.steps_done:,}/{session.steps_total:,}"]
        words.append(f"{took(self._ended_ms + sum(running.values()))} worked")
        left = remaining_ms(session, self._expected, running)
        if left is not None:
            words.append(f"about {took(left)} left")
        return ", ".join(words)


def meter_of(world: World, store: Store, session: Session) -> Meter:
    times = step_times(envelope for envelope, _, _ in store.events(session.session_id))
    return Meter(session, times, earlier_durations_ms(store, session), world.clock)


def meter_of_run(world: World, session: Session) -> Meter | None:
    """For the process that runs the session, as it begins; None where a model decides how many steps there will be."""
    if session.plan is None or session.steps_from.follows_model:
        return None
    if session.steps_total <= TIMED_STEPS_MAX:
        try:
            with opened(world, look_only=True) as store:
                return meter_of(world, store, session)
        except AcodeError:
            pass  # a hint for people: whatever is wrong is reported where it matters
    return Meter(session, {}, {}, world.clock)
