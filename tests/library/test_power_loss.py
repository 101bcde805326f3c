"""The power fails while a program works: what it was given is kept, and nothing is done twice that must not be.

Every state of the disk that the file system's promises allow after a cut is a start of the program's next run. What the
program did and what it was given has left the machine at once, so a state that knows less of it betrays itself.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import acode
from acode.engine.preview import rows, verify
from tests.crash.harness import needs_ptrace
from tests.crash.harness.power import PowerCut, Search, power_cuts
from tests.crash.harness.recording import Recording, record
from tests.crash.harness.snapshots import fast_directory
from tests.worlds import world

pytestmark = [needs_ptrace, pytest.mark.timeout(600)]

KEY = "job"
STEPS = {"look": True, "send": False, "count": True, "post": False, "close": True}  # and whether it is idempotent
RUNS_MAX = 8
SMALL = Search(sector_bytes=4096, exhaustive_pieces_max=1, random_choices=1, name_choices_max=2, every_op=2)

Tell = Callable[[str], object]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with fast_directory() as directory:
        monkeypatch.setenv("ACODE_HOME", os.fspath(directory / "place" / "state"))
        monkeypatch.setenv("HOME", os.fspath(directory))
        yield directory / "place"


def program(place: Path, tell: Tell) -> None:
    def work(name: str) -> str:
        tell(f"did {name}")
        return name.upper()

    with acode.session(KEY, workspace=place / "workspace", force="the power failed") as s:
        for name, idempotent in STEPS.items():
            assert s.step(name, work, name, idempotent=idempotent) == name.upper()
            tell(f"got {name}")


def recorded(place: Path) -> Recording:
    shutil.rmtree(place, ignore_errors=True)
    (place / "workspace").mkdir(parents=True)
    heard = place.parent / "heard"
    heard.unlink(missing_ok=True)

    def work() -> None:
        descriptor = os.open(heard, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        program(place, lambda line: os.write(descriptor, f"{line}\n".encode()))

    return record(work, place, heard=heard)


def kept(lines: list[str]) -> set[str]:
    """The steps whose results a power cut cannot take any more.

    The result of one that may be repeated is synced before it is given. That of any other is synced at the latest with
    the next step's sync, which is its start if it may not be repeated, and its end if it may.
    """
    given, synced = set[str](), set[str]()
    for line in lines:
        what, name = line.split()
        if what == "got":
            given.add(name)
        if STEPS[name] == (what == "got"):
            synced |= given
    return synced


def finish(place: Path, before: list[str]) -> list[str]:
    """Run it until it ends, a person answering from what really happened; what was done and given on the way."""
    after: list[str] = []
    for _ in range(RUNS_MAX):
        try:
            program(place, after.append)
        except acode.OutcomeUnknown as unknown:
            step = str(unknown.details["step"])
            assert not STEPS[step], f"a person was asked about {step}, which may be repeated"
            happened = f"did {step}" in before + after
            acode.resolve(
                KEY,
                step,
                "applied" if happened else "not_applied",
                result=step.upper() if happened else None,
                workspace=place / "workspace",
            )
        else:
            return after
    raise AssertionError(f"not finished after {RUNS_MAX} runs")


def wrong_after(place: Path, cut: PowerCut) -> list[str]:
    """What the state after this cut, and the run that begins there, do not keep of the promise."""
    cut.disk.put(place)
    (place / "workspace").mkdir(parents=True, exist_ok=True)  # the program's own directory is not acode's to keep
    before = cut.heard.decode().splitlines()
    try:
        after = finish(place, before)
    except acode.AcodeError as error:
        return [f"{type(error).__name__}: {error}"]
    done, again = Counter(before + after), Counter(after)
    wrong = [f"{name} was given, and is done again" for name in kept(before) if again[f"did {name}"]]
    wrong += [
        f"{name} took effect {done[f'did {name}']} times"
        for name, idempotent in STEPS.items()
        if done[f"did {name}"] < 1 or (done[f"did {name}"] > 1 and not idempotent)
    ]
    the_world = world(place)
    for row in rows(the_world):
        wrong += [str(problem) for problem in verify(the_world, row.session_id)[1].problems]
    return wrong


@pytest.mark.req("NFR-011c-005")
def test_after_a_power_cut_a_program_keeps_what_it_was_given_and_repeats_nothing_unasked(place: Path) -> None:
    seen = 0
    for cut in power_cuts(recorded(place), replace(SMALL, every_state=25)):
        assert wrong_after(place, cut) == [], f"cut after operation {cut.after}, {cut.op.kind} {cut.op.path}"
        seen += 1
    assert seen > 60


@pytest.mark.release
@pytest.mark.timeout(3600)
def test_after_any_power_cut_a_program_keeps_what_it_was_given_and_repeats_nothing_unasked(place: Path) -> None:
    search = Search(exhaustive_pieces_max=3, random_choices=3, name_choices_max=8, every_state=3)
    for cut in power_cuts(recorded(place), search):
        assert wrong_after(place, cut) == [], f"cut after operation {cut.after}, {cut.op.kind} {cut.op.path}"


def test_a_sync_of_a_programs_log_that_is_left_out_is_caught(place: Path) -> None:
    """Teeth: without the sync before a result is given, that result is lost in some state."""
    recording = recorded(place)
    given = next(index for index, op in enumerate(recording.ops) if op.data == b"got look\n")
    sync = max(index for index in recording.syncs() if index < given)
    assert recording.ops[sync].path.endswith("workspace.db-wal")
    cuts = power_cuts(recording.without(sync), SMALL)
    assert any(wrong_after(place, cut) for cut in cuts if cut.heard.endswith(b"got look\n"))
