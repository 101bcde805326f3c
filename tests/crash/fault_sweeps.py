"""Calls that fail: each on its own, once and for ever, and an fsync that fails with a power cut behind it.

A command that meets a sick disk ends with a status that is documented, says why in a sentence with a code, and never
with a traceback or with the admission that nobody expected this. What was acknowledged stays, and a later start on a
healthy disk ends as if nothing had happened.
"""

from __future__ import annotations

import builtins
import itertools
import random
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from acode.engine import make_world
from acode.errors import AcodeError
from tests.crash.case import Prepared
from tests.crash.harness.faults import Failed, Fault, failing, possible_faults
from tests.crash.harness.power import Search
from tests.crash.harness.ptracer import Ended, NeverReached, trace
from tests.crash.sweeps import VIOLATIONS_MAX, Judge, Tally, power_sweep, recorded

EXIT_CODES = frozenset({0, 1, 2, 3, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 75, 130, 143})
NOBODY_EXPECTED = AcodeError.code
TRIES_MAX = 8


def faults_of(ready: Prepared, *, helpers: bool = False) -> list[Fault]:
    """Every (call, error) pair of the undisturbed command, or of the processes that work for it."""
    ready.fresh()
    return possible_faults(
        ready.act, ready.place.root, ends_with=ready.case.ends_with, helpers=helpers, alone=ready.case.alone
    )


def spread(faults: Sequence[Fault], wanted: int, *, seed: int = 1) -> list[Fault]:
    """So many of them, evenly over the run; with a dice of its own where in each stretch, so that all kinds occur."""
    if wanted >= len(faults):
        return list(faults)
    dice, share = random.Random(seed), len(faults) / wanted
    return [faults[min(len(faults) - 1, int((number + dice.random()) * share))] for number in range(wanted)]


def fault_sweep(ready: Prepared, faults: Sequence[Fault], *, limit: int = VIOLATIONS_MAX) -> Tally:
    tally = Tally(limit=limit)
    for fault in faults:
        failed = met(ready, fault)
        if failed is None:
            tally.calls["not met"] += 1
            continue
        tally.faults += 1
        tally.calls[fault.call] += 1
        said = ready.place.words_heard().decode(errors="replace") + ready.place.words_said()
        where = f"{fault}"
        judged = badly_raised(failed.ended) if ready.case.program else badly_ended(failed.ended, said)
        tally.violations += [f"{ready.case}, {where}: {wrong}" for wrong in judged]
        Judge(ready, tally).here(ready.place.words_heard(), where)
        if tally.enough:
            break
    return tally


def met(ready: Prepared, fault: Fault) -> Failed | None:
    """How often a file is looked at may depend on the clock: a fault that is not met is tried again."""
    for _ in range(TRIES_MAX):
        ready.fresh()
        try:
            return failing(ready.act, fault, ready.place.root, alone=ready.case.alone)
        except NeverReached:
            continue
    return None


def badly_ended(ended: Ended, said: str) -> list[str]:
    wrong = []
    if ended.exit_code not in EXIT_CODES:
        wrong.append(f"it ended with {ended.exit_code}")
    if ended.error or "Traceback (most recent" in said:
        wrong.append(f"a traceback: {ended.error or said}")
    if re.search(rf"\b{NOBODY_EXPECTED}\b", said):
        wrong.append(f"nobody expected it: {said[-900:]}")
    if ended.exit_code not in (0, 10, 143) and "ACODE-" not in said and "CKPT-" not in said and "FILE-" not in said:
        wrong.append(f"it ended with {ended.exit_code} and said no code: {said[-900:]}")
    return wrong


def badly_raised(ended: Ended) -> list[str]:
    """A program is told by an exception: one of acode's, or the system's own."""
    lines = ended.error.strip().split("\n")
    last = next((line for line in reversed(lines) if not line.startswith("hint:")), "")  # an error shows its hint last
    raised = last.partition(":")[0]
    if not raised or raised.startswith("acode.") or issubclass(getattr(builtins, raised, type), OSError):
        return []
    return [f"it raised {last}: {ended.error}"]


def lost_sync_sweep(ready: Prepared, search: Search, *, syncs_every: int = 1, limit: int = VIOLATIONS_MAX) -> Tally:
    """Each fsync fails in turn and loses what it should have kept; then the power fails."""
    tally = Tally(limit=limit)
    number = 0
    while not tally.enough:
        try:
            recording = recorded(ready, lost_sync=number)
        except NeverReached:
            return tally
        said = ready.place.words_heard().decode(errors="replace") + ready.place.words_said()
        tally.faults += 1
        judged = badly_raised(recording.ended) if ready.case.program else badly_ended(recording.ended, said)
        tally.violations += [f"{ready.case}, fsync {number}: {one}" for one in judged]
        lost = next(op.path for op in recording.ops if op.kind == "sync_lost")
        if lost != ready.place.ledger.name:  # whose effect does not outlast a sick disk is no fault of acode's
            tally.add(power_sweep(ready, search, recording=recording, limit=limit))
        number += syncs_every
    return tally


def clock_sweep(ready: Prepared, jump: timedelta, *, kills: int = 6, limit: int = VIOLATIONS_MAX) -> Tally:
    """Every other look at the clock is after the jump, and the command is killed here and there."""
    tally = Tally(limit=limit)

    def with_jumps() -> object:
        looks = itertools.count()
        make_world.now = lambda: datetime.now(UTC) + (jump if next(looks) % 2 else timedelta())
        return ready.act()

    ready.fresh()
    ended = trace(with_jumps, alone=ready.case.alone)
    Judge(ready, tally).here(ready.place.words_heard(), f"a jump of {jump}")
    for at in range(5, ended.stops, max(1, ended.stops // kills)):
        if tally.enough:
            break
        ready.fresh()
        assert trace(with_jumps, kill_at=at, alone=ready.case.alone).killed_at is not None
        tally.kills += 1
        Judge(ready, tally).here(ready.place.words_heard(), f"a jump of {jump} and killed at {at}")
    return tally
