"""Follow the log of a session that another process writes: its verified events, and what its steps print meanwhile.

Nothing is locked, appended or asked of the process. Output is read where the keeper writes it, redacted already; when
the step has ended, the rest comes from the log, so that no byte is missing or told twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from acode.disk.own_files import open_own
from acode.engine.session_list import lock_seen
from acode.engine.world import World
from acode.errors import AcodeError
from acode.events import Envelope
from acode.events import types as ev
from acode.state import InFlight
from acode.steps.keeper_notes import read_mark, run_directory, still_running
from acode.store.log_tail import events_after
from acode.store.store import Store

LOOK_EVERY_S = 0.2
# An attempt that is settled so is over without an end of its own: another one follows.
CUT_OFF = (ev.Settled.NOT_APPLIED, ev.Settled.ROLLED_BACK, ev.Settled.RETRY_ACCEPTED)


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what an attempt has printed."""

    step: str
    attempt: int
    data: bytes


class LogTail:
    """The log from one event on: each call of `entries` gives what has come since the last one."""

    def __init__(self, world: World, store: Store, session_id: str, *, after: int = 0) -> None:
        self._world = world
        self._store = store
        self.session_id = session_id
        self.seq = after
        self.ended = False
        self._head: bytes | None = None
        self._flights: dict[str, ev.StepStarted] = {}
        self._shown: dict[str, int] = {}  # bytes of each attempt's output, by its key

    def join(self, in_flight: dict[str, InFlight]) -> None:
        """Steps that began before the first event that is followed: their output is told from its beginning."""
        self._flights |= {step: flight.started for step, flight in in_flight.items() if flight.stopped is None}

    def entries(self) -> Iterator[Envelope | Printed]:
        """What was printed, and the events, in the order in which a person would have seen them."""
        for envelope, mac in self._new_events():
            self.seq, self._head = envelope.seq, mac
            event = envelope.event
            if isinstance(event, ev.StepCompleted | ev.StepFailed):
                yield from self._last_piece(event)
            elif isinstance(event, ev.StepSettled) and event.outcome in CUT_OFF:
                # The log has no output of such an attempt; its keeper's file has what it printed until then.
                yield from self._left_by(self._flights.pop(event.step, None))
            if isinstance(event, ev.StepStarted):
                self._flights[event.step] = event
            self.ended = isinstance(event, ev.SessionCompleted | ev.SessionFailed | ev.SessionCancelled)
            yield envelope
        for started in tuple(self._flights.values()):
            yield from self._left_by(started)

    def is_over(self) -> bool:
        """Nobody works on it any more: it has ended, or no process holds it and no command of it lives on."""
        if self.ended:
            return True
        generation = self._store.generation(self.session_id)
        if lock_seen(self._world, self.session_id, generation).held:
            return False
        return not any(self._lives(started) for started in self._flights.values())

    def _new_events(self) -> Iterator[tuple[Envelope, bytes]]:
        if self._head is None:
            yield from events_after(self._store, self.session_id, self.seq)
            return
        for envelope, mac, _ in self._store.events(self.session_id, self.seq, self._head):
            yield envelope, mac

    def _read_live(self, started: ev.StepStarted) -> bytes:
        shown = self._shown.get(started.key, 0)
        try:
            with open(open_own(self._place(started) / "output", os.O_RDONLY), "rb") as file:
                file.seek(shown)
                return file.read()
        except OSError:  # not there yet, or gone with its session; what it printed is in the log then
            return b""

    def _left_by(self, started: ev.StepStarted | None) -> Iterator[Printed]:
        if started is not None:
            yield from self._pieces(started, self._read_live(started))

    def _last_piece(self, event: ev.StepCompleted | ev.StepFailed) -> Iterator[Printed]:
        started = self._flights.pop(event.step, None)
        if event.output is None or event.output.blob is None:  # settled by somebody's word, perhaps
            yield from self._left_by(started)
            return
        key = started.key if started is not None and started.attempt == event.attempt else ""
        data = self._stored(event.output)
        if rest := data[self._shown.pop(key, 0) :]:
            yield Printed(step=event.step, attempt=event.attempt, data=rest)

    def _stored(self, output: ev.Output) -> bytes:
        assert output.blob is not None
        try:
            return self._store.blob(self.session_id, output.blob)
        except (AcodeError, OSError):
            return output.tail.encode()

    def _pieces(self, started: ev.StepStarted, data: bytes) -> Iterator[Printed]:
        if data:
            self._shown[started.key] = self._shown.get(started.key, 0) + len(data)
            yield Printed(step=started.step, attempt=started.attempt, data=data)

    def _lives(self, started: ev.StepStarted) -> bool:
        if started.kind != "run":
            return False
        place = self._place(started)
        with contextlib.suppress(OSError):
            return still_running(place, read_mark(place)) is not None
        return False

    def _place(self, started: ev.StepStarted) -> Path:
        return run_directory(self._world.agent_dir, started.key)


def followed(world: World, tail: LogTail, *, follow: bool) -> Iterator[Envelope | Printed]:
    """All that is there; with `follow` until nobody works on the session any more."""
    while True:
        over = not follow or tail.is_over()  # before the look: what was written last is still told
        yield from tail.entries()
        if over:
            return
        world.sleep(LOOK_EVERY_S)
