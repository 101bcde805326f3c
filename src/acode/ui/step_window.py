"""The steps of a session as rows that can be asked for in pieces: the outline in memory, the times from the log.

The outline of a plan is the plan; that of a program is the index of its finished steps, followed by the steps that are
open. Only the rows that are shown cost a read of the log each.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from acode.events import types as ev
from acode.events.definition import Step, execution_order
from acode.state import Session
from acode.store.step_index import finished_steps
from acode.store.store import Store
from acode.ui.log_window import event_at
from acode.ui.timeline import Attempt, Status, StepTimes
from acode.ui.views import StepRow, Words, planned_steps, row_of

WINDOW_ROWS = 100


class Line(NamedTuple):
    """One line of the outline: the heading of a task, or a step with the number of its last event."""

    task: str  # the heading; empty for a step
    step: str
    seq: int | None


class Outline:
    """All lines of a session's steps in order. Of a program's finished steps, which may be very many, a line is made
    when it is shown."""

    def __init__(self, store: Store, session: Session, recent: Mapping[str, StepTimes]) -> None:
        self.session = session
        self._recent = recent  # steps whose every attempt is known from a part of the log that was read anyway
        self.planned: dict[str, tuple[str, Step]] = planned_steps(session)
        self._finished = [] if self.planned else list(finished_steps(store, session.session_id))
        self._lines = self._of_plan() if self.planned else self._of_open_steps()

    def __len__(self) -> int:
        return len(self._finished) + len(self._lines)

    def _of_plan(self) -> list[Line]:
        assert self.session.plan is not None
        lines = []
        for task in execution_order(self.session.plan):
            lines.append(Line(task=task.title or task.id, step="", seq=None))
            lines += [self._line(step.id) for step in task.steps]
        return lines

    def _of_open_steps(self) -> list[Line]:
        """Of a program: those that failed or are open stand behind the finished ones."""
        records = self.session.records.steps if self.session.records is not None else {}
        open_steps = dict.fromkeys([*records, *self.session.in_flight])
        known = dict(self._finished) if open_steps else {}
        return [self._line(step) for step in open_steps if step not in known]

    def _between(self, start: int, end: int) -> list[Line]:
        finished = len(self._finished)
        lines = [Line(task="", step=step, seq=seq) for step, seq in self._finished[start:end]]
        return lines + self._lines[max(start - finished, 0) : max(end - finished, 0)]

    def _line(self, step: str) -> Line:
        record = self.session.record(step)
        return Line(task="", step=step, seq=record.seq if record is not None else None)

    def window(self, store: Store, start: int, count: int, words: Words) -> list[str | StepRow]:
        """The lines from `start` on: a heading as text, a step as a row."""
        return [self._shown(store, line, words) for line in self._between(start, start + count)]

    def position(self, step: str) -> int:
        found = self._find(step)
        return found if found is not None else 0

    def line_of(self, step: str) -> Line | None:
        found = self._find(step)
        return self._between(found, found + 1)[0] if found is not None else None

    def _find(self, step: str) -> int | None:
        finished = len(self._finished)
        for number in reversed(range(finished)):  # mostly one of the last is asked for
            if self._finished[number][0] == step:
                return number
        return next((finished + number for number, line in enumerate(self._lines) if line.step == step), None)

    def _shown(self, store: Store, line: Line, words: Words) -> str | StepRow:
        if line.task:
            return words.line(line.task)
        return self.row(store, line, words)

    def row(self, store: Store, line: Line, words: Words) -> StepRow:
        times = self._times(store, line)
        return row_of(self.session, line.step, self.planned.get(line.step), times, words)

    def _times(self, store: Store, line: Line) -> StepTimes:
        known = self._recent.get(line.step)
        if known is not None and known.attempts:
            return known
        flight = self.session.in_flight.get(line.step)
        if flight is not None:
            started = flight.started
            status: Status = "unknown" if flight.unknown is not None else "running"
            open_attempt = Attempt(
                number=started.attempt,
                start=flight.at,
                seq=flight.seq,
                key=started.key,
                status=status,
                evidence=flight.unknown or "",
            )
            return StepTimes(
                id=line.step, task=started.task, kind=started.kind, shown=started.shown, attempts=[open_attempt]
            )
        envelope = event_at(store, self.session.session_id, line.seq) if line.seq is not None else None
        event = envelope.event if envelope is not None else None
        if envelope is None or not isinstance(event, ev.StepCompleted | ev.StepFailed):
            return StepTimes(id=line.step, task=line.step, kind="")
        ended: Status = "failed" if isinstance(event, ev.StepFailed) else "applied" if event.settled else "completed"
        attempt = Attempt(
            number=event.attempt,
            start=envelope.at - timedelta(milliseconds=event.duration_ms),
            end=envelope.at,
            seq=envelope.seq,
            key=getattr(event, "key", ""),
            status=ended,
            evidence=event.message if isinstance(event, ev.StepFailed) else "",
            output=event.output,
            duration_ms=event.duration_ms,
        )
        return StepTimes(id=line.step, task=event.task, kind="", attempts=[attempt])
