"""The sweeps: what is done to a command, at every place where it can be done, and the judgement of what is left.

A sweep counts and collects; it asserts nothing itself, so that a planted bug can be shown to be caught by it. States
that no later start can tell apart (the same events on record, the same files around them) are carried on once.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

import pytest

from acode import lock
from tests.crash.case import Prepared
from tests.crash.harness.power import Search, power_cuts
from tests.crash.harness.ptracer import NeverReached, Stop, Work, killed, trace
from tests.crash.harness.recording import Recording, record
from tests.crash.harness.snapshots import Laid, Snapshot, State, States, at_rest, states_of
from tests.crash.oracle import LOG, differences, log_of, picture, right_after, shows_what_was_said
from tests.lives import end_all_in

STOPS_THAT_VARY = 40
TRIES_MAX = 3
VIOLATIONS_MAX = 20


@dataclass(kw_only=True)
class Tally:
    """What a sweep has done. Boundaries are the stops of a command, each (command, phase, call) once."""

    boundaries: int = 0
    states: int = 0
    kills: int = 0
    faults: int = 0
    carried_on: int = 0
    limit: int = VIOLATIONS_MAX  # a sweep that has found so many need not go on
    violations: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        for name in ("boundaries", "states", "kills", "faults", "carried_on"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.violations += other.violations
        self.calls += other.calls

    @property
    def enough(self) -> bool:
        return len(self.violations) >= self.limit

    @property
    def figures(self) -> dict[str, int]:
        return {
            "boundaries": self.boundaries,
            "states": self.states,
            "kills": self.kills,
            "faults": self.faults,
            "carried on": self.carried_on,
            "violations": len(self.violations),
        }

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {name}" for name, count in self.figures.items() if count or name == "violations")


class Judge:
    """Looks at what is left right after, carries on, and compares the end; remembers what it has carried on before."""

    def __init__(self, ready: Prepared, tally: Tally) -> None:
        self.ready = ready
        self.tally = tally
        self._laid = Laid(ready.place.root, LOG)
        self._carried_on: set[bytes] = set()

    def state(self, disk: Snapshot, heard: bytes, where: str, *, answered: bool = False) -> None:
        """A state that is laid in place first: the log alone, and the rest only where it is new."""
        self.tally.states += 1
        if self.ready.case.lively:
            end_all_in(self.ready.place.root)
        with self._noting(where):
            self._laid.lay(log_of(disk))
            wrong, key = right_after(self.ready, disk, heard)
            key += bytes([answered])
            if key not in self._carried_on:
                self._carried_on.add(key)
                self._laid.lay(disk.entries)
                self._laid.forget()
                wrong += shows_what_was_said(self.ready, heard)
                self._note(wrong, where)
                wrong = self._to_the_end(answered=answered)
            self._note(wrong, where)

    def forget(self) -> None:
        """Somebody else has worked in the place."""
        self._laid.forget()

    def here(self, heard: bytes, where: str) -> None:
        """What lies there now."""
        with self._noting(where):
            disk = at_rest(self.ready.place.root) if self.ready.case.lively else Snapshot.of(self.ready.place.root)
            wrong, _ = right_after(self.ready, disk, heard)
            self._note(wrong + shows_what_was_said(self.ready, heard), where)
            self._note(self._to_the_end(answered=self.ready.place.answered.exists()), where)

    def _to_the_end(self, *, answered: bool) -> list[str]:
        self.tally.carried_on += 1
        self.ready.carry_on(answered=answered)
        place, case = self.ready.place, self.ready.case
        refused = case.refused is not None and case.refused(place)
        return differences(picture(place, case), self.ready.expected, refused=refused)

    @contextlib.contextmanager
    def _noting(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever goes wrong while it is judged is what the sweep looks for
            self._laid.forget()
            self._note([f"{type(error).__name__}: {error}"], where)

    def _note(self, wrong: list[str], where: str) -> None:
        self.tally.violations += [f"{self.ready.case}, {where}: {one}" for one in wrong]


# Killed, as it is seen in one run that is stopped at every call.


def snapshot_sweep(
    ready: Prepared,
    *,
    every: int = 1,
    first: int = 0,
    limit: int = VIOLATIONS_MAX,
    everything: bool = False,
    only: Callable[[State], bool] = lambda state: True,
) -> Tally:
    """Every state that a kill of the command leaves; `everything`: with all that it started, wherever that stands.

    only: the states that are judged; all of them if not said.
    """
    tally = Tally(limit=limit)
    judge = Judge(ready, tally)
    try:
        seen = states_after(ready, everything=everything)
    except AssertionError as error:  # it does not even end as it should when nothing is done to it
        tally.violations.append(f"{ready.case}: {error}")
        return tally
    tally.boundaries = seen.stops
    for state in [state for state in seen.distinct if only(state)][first::every]:
        judge.state(state.disk, state.heard, f"killed at {state.stop.name} {state.stop.phase} #{state.stop.number}")
        if tally.enough:
            break
    return tally


def double_sweep(ready: Prepared, *, every: int = 1, judge_every: int = 1, first: int = 0) -> Tally:
    """Every state that a kill of the recovery leaves, from every state that a kill of the command leaves."""
    tally = Tally()
    judge = Judge(ready, tally)
    number = 0
    for state in states_after(ready).distinct[first::every]:
        if ready.case.lively:
            end_all_in(ready.place.root)
        state.disk.put(ready.place.root)
        ready.place.silence()
        where = f"killed at {state.stop.name} {state.stop.phase} #{state.stop.number}"
        try:
            again = states_of(
                _quietly(ready.carry_on),
                ready.place.root,
                heard=ready.place.answered,
                lively=ready.case.lively,
                everything=ready.case.followed,
                alone=ready.case.alone,
            )
        except AssertionError as error:
            tally.violations.append(f"{ready.case}, {where}: {error}")
            continue
        tally.boundaries += again.stops
        judge.forget()
        for second in again.distinct:
            number += 1
            if number % judge_every == 0:
                then = f"{where}, then at {second.stop.name} {second.stop.phase} #{second.stop.number} of the recovery"
                judge.state(second.disk, b"", then, answered=bool(second.heard))
        if tally.enough:
            break
    return tally


def states_after(ready: Prepared, *, everything: bool = False) -> States:
    ready.fresh()
    place, case = ready.place, ready.case
    return states_of(
        ready.act,
        place.root,
        heard=place.heard,
        lively=case.lively,
        everything=everything or case.followed,
        alone=case.alone,
        ends_with=case.ends_with,
    )


def _quietly(work: Work) -> Work:
    def quiet() -> None:
        work()

    return quiet


# Killed for real.


def kill_sweep(
    ready: Prepared,
    *,
    every: int = 1,
    first: int = 0,
    keeper_too: bool = False,
    limit: int = VIOLATIONS_MAX,
    only: Container[str] | None = None,
    most: int | None = None,
) -> Tally:
    """The command is killed with SIGKILL at its stops, one run each; a kill that does not hit is an error, unless the
    case waits: then that run had fewer stops, and was not disturbed.

    only: the calls at which it is killed; all of them if not said. most: so many kills, evenly over the run.
    """
    tally = Tally(limit=limit)
    ready.fresh()
    everything = keeper_too and ready.case.followed
    stops = _stops(ready, ready.act, ready.case.ends_with, everything=everything)
    chosen = [stop.number for stop in stops if only is None or stop.name in only]
    if most is not None:
        every = max(every, -(-len(chosen) // most))
        first %= every
    for number in chosen[first::every]:
        try:
            _kill_sooner_or_later(ready, number, tally, everything=everything)
        except NeverReached:
            if ready.case.waits:
                continue
            if varies(ready) and number > len(stops) - STOPS_THAT_VARY:
                break
            ready.fresh()
            if number >= len(_stops(ready, ready.act, ready.case.ends_with, everything=everything)):
                break  # it had more when they were counted: how often a file is looked at depends on the clock
            raise
        if keeper_too:
            end_all_in(ready.place.root)
        # A judge for each: what is on record may be the same, but the processes that live on are not.
        Judge(ready, tally).here(ready.place.words_heard(), f"killed for real at stop {number} of {len(stops)}")
        if tally.enough:
            break
    return tally


def varies(ready: Prepared) -> bool:
    """How often it looks after its command or a server depends on how long that takes."""
    return ready.case.lively or bool(ready.case.outside)


def _kill_sooner_or_later(ready: Prepared, number: int, tally: Tally, *, everything: bool) -> None:
    """On a busy machine a run may have fewer stops than when they were counted; one that never has them raises."""
    for _ in range(TRIES_MAX - 1):
        ready.fresh()
        with contextlib.suppress(NeverReached):
            _kill(ready, ready.act, number, tally, everything=everything)
            return
    ready.fresh()
    _kill(ready, ready.act, number, tally, everything=everything)


def double_kill_sweep(ready: Prepared, *, every: int, second_every: int) -> Tally:
    """Killed for real, and its recovery killed for real."""
    tally = Tally()
    ready.fresh()
    stops = _stops(ready, ready.act, ready.case.ends_with)
    for first in range(every // 2, len(stops), every):
        for second in _seconds(ready, first, second_every):
            try:
                _kill_sooner_or_later(ready, first, tally, everything=False)
            except NeverReached:
                if ready.case.waits:
                    continue
                raise
            try:
                _kill(ready, _quietly(ready.carry_on), second, tally)
            except NeverReached:
                continue  # this time less was left to do
            Judge(ready, tally).here(b"", f"killed at stop {first}, then at {second} of the recovery")
        if tally.enough:
            break
    return tally


def _seconds(ready: Prepared, first: int, every: int) -> range:
    ready.fresh()
    with contextlib.suppress(NeverReached) if ready.case.waits else contextlib.nullcontext():
        killed(ready.act, first, alone=ready.case.alone)
    return range(every // 2, len(_stops(ready, _quietly(ready.carry_on), (0,))), every)


def _stops(ready: Prepared, work: Work, ends_with: tuple[int, ...], *, everything: bool = False) -> list[Stop]:
    found: list[Stop] = []
    ended = trace(work, on_stop=found.append, everything=everything, alone=ready.case.alone)
    assert ended.exit_code in ends_with, f"it ended with {ended.exit_code}: {ended.error}"
    return found


def _kill(ready: Prepared, work: Work, number: int, tally: Tally, *, everything: bool = False) -> None:
    ended = killed(work, number, everything=everything, alone=ready.case.alone)
    assert ended.exit_code == -signal.SIGKILL and ended.killed_at is not None
    tally.kills += 1
    tally.boundaries += 1
    tally.calls["/".join(ended.killed_at.boundary)] += 1


# The power fails.


def recorded(ready: Prepared, *, lost_sync: int | None = None) -> Recording:
    ready.fresh()
    place, case = ready.place, ready.case
    return record(
        ready.act,
        place.root,
        heard=place.heard,
        lost_sync=lost_sync,
        ends_with=case.ends_with,
        everything=case.lively,
        alone=case.alone,
    )


@contextlib.contextmanager
def another_boot() -> Iterator[None]:
    """Whoever comes after a power cut comes after a start of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "boot_id", lambda: "the boot after the power cut")
        yield


def power_sweep(
    ready: Prepared, search: Search, *, recording: Recording | None = None, limit: int = VIOLATIONS_MAX
) -> Tally:
    """The legal states of the disk after a power cut, as many of them as are searched for."""
    tally = Tally(limit=limit)
    judge = Judge(ready, tally)
    cuts = power_cuts(recording or recorded(ready), search)
    with another_boot():
        for cut in cuts:
            judge.state(cut.disk, cut.heard, f"the power failed behind {cut.op.kind} {cut.op.path} #{cut.after}")
            if tally.enough:
                break
    return tally
