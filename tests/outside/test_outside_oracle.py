"""Random stories with real kills, judged from outside: the ledger, the files and the public JSON decide, not acode."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.harness import needs_ptrace
from tests.outside.oracle import judge
from tests.outside.story import SOURCES, story

ROOT = Path(__file__).resolve().parents[2]
# Each source, parallel tasks, a rollback, an edited plan, a moved workspace and an older copy are among them.
SEEDS_IN_GATE = (36, 40, 180, 213, 227, 232)
SEEDS_IN_SWEEP, SEEDS_IN_PORTION = 20_000, 50
SEEDS_TO_FIND = 30
Note = Callable[[str, object], None]


def outside(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.outside", *words]
    return subprocess.run(line, cwd=ROOT, check=False, capture_output=True, text=True)


def totals(ended: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert ended.stdout, ended.stderr
    found: dict[str, int] = json.loads(ended.stdout.splitlines()[-1])
    return found


@needs_ptrace
@pytest.mark.timeout(600)
def test_random_stories_end_as_undisturbed_ones_in_the_eyes_of_an_outsider(record_property: Note) -> None:
    ended = outside(*map(str, SEEDS_IN_GATE))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    record_property("sweep", f"stories judged from outside: {ended.stdout.splitlines()[-1]}")
    assert totals(ended)["kills"] >= len(SEEDS_IN_GATE) // 2


@needs_ptrace
@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", range(0, SEEDS_IN_SWEEP, SEEDS_IN_PORTION))
def test_many_random_stories_end_as_undisturbed_ones(first: int, record_property: Note) -> None:
    seeds = f"{first}-{first + SEEDS_IN_PORTION - 1}"
    ended = outside(seeds)
    record_property("sweep", f"stories judged from outside, seeds {seeds}: {ended.stdout.splitlines()[-1]}")
    record_property("figures", totals(ended))
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_seed_always_tells_the_same_story_and_the_gate_has_every_kind() -> None:
    chosen = [story(seed) for seed in SEEDS_IN_GATE]
    assert chosen == [story(seed) for seed in SEEDS_IN_GATE]
    assert {one.source for one in chosen} == set(SOURCES)
    assert any('"parallel": 2' in one.text or '"parallel": 3' in one.text for one in chosen)
    for has in ("rollback", "corrected", "moved", "older"):
        assert any(getattr(one, has) for one in chosen), has
    assert any(kill and kill.everything for one in chosen for kill in one.kills)


def test_the_outsider_loads_nothing_of_acode() -> None:
    query = "import sys, tests.outside.__main__; print([name for name in sys.modules if name.split('.')[0] == 'acode'])"
    asked = subprocess.run([sys.executable, "-c", query], cwd=ROOT, check=True, capture_output=True, text=True)
    assert asked.stdout.strip() == "[]"


# The oracle itself, on documents made by hand.


def event(seq: int, kind: str, step: str | None = None, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "type": kind, "step": step, "data": data}


def lived() -> dict[str, Any]:
    """One step was killed and settled as not applied, its second attempt had its effect."""
    history = [
        event(1, "session_created"),
        event(2, "step_started", "a.1", attempt=1),
        event(3, "step_settled", "a.1", attempt=1, outcome="not_applied"),
        event(4, "step_started", "a.1", attempt=2),
        event(5, "step_completed", "a.1", attempt=2),
        event(6, "session_completed"),
    ]
    row = {"state": "COMPLETED", "steps_done": 1, "steps_total": 1, "tasks_done": 1, "tasks_total": 1}
    session = {"row": row, "history": history, "verify": {"ok": True, "problems": []}}
    session["explain"] = {"state": "COMPLETED", "in_flight": []}
    return {
        "ledger": [["a.1", "2"]], "sessions": [session], "files": {"f": [420, "x"]}, "databases": {},
        "commits": [], "tree": "", "status": "", "heard": [{"event": "step_completed", "seq": 5, "step": "a.1"}],
        "wrong": [], "effects": {"a.1": {"once": True, "may_be_unknown": "machine"}},
    }  # fmt: skip


def history(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["sessions"][0]["history"]
    return found


def without_decision(document: dict[str, Any]) -> None:
    history(document)[2] = event(3, "resume_started")


def begun_after_its_completion(document: dict[str, Any]) -> None:
    history(document)[2] = event(3, "step_completed", "a.1", attempt=1)
    document["ledger"] = [["a.1", "1"], ["a.1", "2"]]


def settled_against_the_ledger(document: dict[str, Any]) -> None:
    document["ledger"] = [["a.1", "1"], ["a.1", "2"]]


FAULTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "begun again and nothing on record says why": without_decision,
    "was completed and begun again": begun_after_its_completion,
    "settled as not applied in attempt 1, and it was": settled_against_the_ledger,
    "was skipped": lambda one: one["ledger"].clear(),
    "is completed in attempt 2, without an effect": lambda one: one["ledger"].clear(),
    "was repeated": lambda one: one["ledger"].append(["a.1", "2"]),
    "had 2 effects in attempt 2": lambda one: one["ledger"].append(["a.1", "2"]),
    "had an effect in attempt 3, which is not on record": lambda one: one["ledger"].append(["a.1", "3"]),
    "an effect of nobody": lambda one: one["ledger"].append(["b.1", "1"]),
    "acknowledged and lost": lambda one: one["heard"].append({"event": "session_end", "seq": 9, "step": None}),
    "was acknowledged 2 times": lambda one: one["heard"].append(one["heard"][0]),
    "files: ": lambda one: one["files"].update(f=[420, "y"]),
    "sessions: ": lambda one: one["sessions"][0]["row"].update(steps_done=0),
    "verify: ": lambda one: one["sessions"][0]["verify"].update(ok=False),
    "explain contradicts the list": lambda one: one["sessions"][0]["explain"].update(in_flight=["a.1"]),
    "changes of nobody were accepted": lambda one: history(one).append(event(7, "changes_accepted")),
    "the history has gaps": lambda one: history(one).pop(0),
    "said by the person": lambda one: one["wrong"].append("said by the person"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_oracle_reports_a_fault_and_nothing_without_it(fault: str) -> None:
    undisturbed, found = lived(), copy.deepcopy(lived())
    assert judge(undisturbed, found) == []
    FAULTS[fault](found)
    assert any(fault in one for one in judge(undisturbed, found))


def test_the_oracle_is_a_program_of_its_own(tmp_path: Path) -> None:
    for name, ledger in (("first", [["a.1", "2"]]), ("second", [])):
        (tmp_path / name).write_text(json.dumps({**lived(), "ledger": ledger}))
    line = [
        sys.executable,
        "-I",
        str(ROOT / "tests" / "outside" / "oracle.py"),
        tmp_path / "first",
        tmp_path / "second",
    ]
    ended = subprocess.run(line, check=False, capture_output=True, text=True)
    assert ended.returncode == 1 and "a.1 was skipped: 0 effects instead of 1" in ended.stdout


@needs_ptrace
@pytest.mark.timeout(600)
def test_the_outsider_finds_a_step_that_is_skipped_after_a_kill() -> None:
    """Not the first story alone: a step without an effect shows in the progress only."""
    ended = outside("2-9", "--plant", "pending step skipped")
    assert ended.returncode == 1 and " was skipped: 0 effects instead of 1" in ended.stdout, ended.stderr


@needs_ptrace
@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "bug", ["pending step skipped", "attempt not grown", "unknown repeated unasked", "completed step repeated"]
)
def test_the_outsider_finds_a_planted_bug_within_a_few_stories(bug: str, record_property: Note) -> None:
    ended = outside(f"0-{SEEDS_TO_FIND - 1}", "--first", "--plant", bug)
    assert ended.returncode == 1, f"{bug} went unnoticed in {SEEDS_TO_FIND} stories: {ended.stdout}{ended.stderr}"
    record_property("sweep", f"planted: {bug}; found from outside: {ended.stdout[:300]!r}")
