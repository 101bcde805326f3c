"""A program killed at system calls, once and again while it goes on: its steps end as in an undisturbed run."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import acode
from tests.crash.harness import needs_ptrace
from tests.crash.harness.ptracer import killed, stops_of
from tests.crash.harness.snapshots import fast_directory

pytestmark = [needs_ptrace, pytest.mark.timeout(600)]
RUNS_MAX = 8


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with fast_directory() as directory:
        monkeypatch.setenv("ACODE_HOME", os.fspath(directory / "place" / "state"))
        monkeypatch.setenv("HOME", os.fspath(directory))
        yield directory / "place"


def fresh(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    (place / "workspace").mkdir(parents=True)


def program(place: Path) -> None:
    def note(what: str) -> str:
        fd = os.open(place / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, f"{what}\n".encode())
        os.close(fd)
        return what

    with acode.session("k", workspace=place / "workspace", force="it was killed") as s:
        first = s.step("fetch", note, "fetch", idempotent=True)
        s.write("a.txt", f"{first}\n")
        s.step("send", note, "send")
        s.step("outer", lambda: s.step("inner", note, "inner"), idempotent=True)
        s.write("a.txt", "the end\n", name="second")


def effects(place: Path) -> Counter[str]:
    path = place / "ledger"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def finish(place: Path) -> None:
    """Run it until it ends; what acode cannot know, the ledger says."""
    for _ in range(RUNS_MAX):
        try:
            return program(place)
        except acode.OutcomeUnknown as unknown:
            step = unknown.details["step"]
            answer = "applied" if effects(place)[step.rpartition(".")[2]] else "not_applied"
            acode.resolve("k", step, answer, workspace=place / "workspace")  # type: ignore[arg-type]
    raise AssertionError(f"not finished after {RUNS_MAX} runs")


def judge(place: Path, when: str) -> None:
    counts = effects(place)
    assert counts["send"] == counts["inner"] == 1, f"{counts} {when}"
    assert counts["fetch"] >= 1, f"{counts} {when}"
    assert (place / "workspace" / "a.txt").read_text() == "the end\n", when
    left = [path.name for path in (place / "workspace").iterdir() if path.name != ".agent"]
    assert left == ["a.txt"], f"{left} {when}"


def sweep(place: Path, every: int) -> int:
    fresh(place)
    program(place)
    judge(place, "undisturbed")
    fresh(place)
    stops = len(stops_of(lambda: program(place)))
    kills = 0
    for number in range(0, stops, every):
        fresh(place)
        killed(lambda: program(place), number)
        kills += 1
        finish(place)
        judge(place, f"after kill {number} of {stops}")
    return kills


def test_killed_at_system_calls_a_program_ends_as_an_undisturbed_one(place: Path) -> None:
    assert sweep(place, every=6) > 15


@pytest.mark.release
def test_killed_at_every_system_call_a_program_ends_as_an_undisturbed_one(place: Path) -> None:
    assert sweep(place, every=1) > 100


def test_killed_again_while_it_goes_on_it_still_repeats_nothing_unasked(place: Path) -> None:
    fresh(place)
    stops = len(stops_of(lambda: program(place)))
    kills = 0
    for first in range(stops // 3, stops, stops // 4):
        for second in range(2, 60, 19):
            fresh(place)
            killed(lambda: program(place), first)
            again = stops_of_again(place)
            if second >= again:
                continue
            fresh(place)
            killed(lambda: program(place), first)
            killed(lambda: _quietly(place), second)
            kills += 1
            finish(place)
            judge(place, f"killed at {first}, then at {second}")
    assert kills >= 5


def _quietly(place: Path) -> None:
    try:
        program(place)
    except acode.AcodeError:
        return


def stops_of_again(place: Path) -> int:
    return len(stops_of(lambda: _quietly(place)))
