"""An agent's session killed with -9 at every boundary of every request and every tool call, and carried on each time.

One session dies at each boundary once: before and after the log hears of a start or an end. What it leaves must be what
an undisturbed one leaves, and the model must have been asked for nothing that it had answered.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acode.events import types as ev
from tests.agent.killing import lived
from tests.agent.town import GOAL, Town, call, plan_turn, served, task_turns
from tests.driver import Acode
from tests.variants import first_of

KILLS_MAX = 1_000
SETTINGS = """
resume: {max_resume_attempts: 1000}
tools: {run_command: allow, git_commit: allow}
"""


def turns(letter: str) -> list[dict[str, Any]]:
    """Eight turns with every kind of tool that needs no person; each command leaves a line outside the workspace."""

    def effect(number: int) -> dict[str, Any]:
        return call("run_command", command=f'echo {letter}{number} >> "$LEDGER"')

    return [
        {"text": "I look around.", "calls": [call("list_files"), call("read_file", path="notes.txt")]},
        {"calls": [call("search", text="note")]},
        {"calls": [call("write_file", path=f"{letter}.txt", content="one\n"), effect(1)]},
        {"calls": [call("edit_file", path=f"{letter}.txt", old="one", new="two")]},
        {"calls": [effect(2), call("edit_file", path="notes.txt", old="end", new=f"{letter}\nend")]},
        {"calls": [call("read_file", path=f"{letter}.txt"), effect(3)]},
        {"calls": [call("run_command", command=f'echo {letter}4 >> "$LEDGER"; exit 3')]},
        {"calls": [call("write_file", path=f"deep/{letter}.txt", content=f"{letter}\n" * 50)]},
        {"text": f"Task {letter} is done."},
    ]


SCRIPT: dict[str, Any] = {
    "models": ["scripted"],
    "turns": [
        plan_turn({"id": "first"}, {"id": "second", "needs": ["first"]}),
        task_turns("First", *turns("a")),
        task_turns("Second", turns("b")[2], turns("b")[-1]),
    ],
}


@pytest.fixture
def towns(acode: Acode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Town, Path]]:
    ledger = tmp_path / "effects"
    monkeypatch.setenv("LEDGER", str(ledger))
    with served(SCRIPT, tmp_path / "model") as (url, asked):
        for name, value in (("ACODE_MODEL", "scripted"), ("ACODE_MODEL_BASE_URL", url)):
            monkeypatch.setenv(name, value)
        yield Town(acode, url, asked), ledger


def prepare(town: Town) -> None:
    town.configure(SETTINGS)
    (town.workspace / "notes.txt").write_text("notes\nend\n")


def left_behind(town: Town, ledger: Path) -> tuple[dict[str, bytes], list[str]]:
    files = {name: data for name, data in town.files().items() if name != "effects"}
    lines = ledger.read_text().splitlines()
    ledger.unlink()
    return files, lines


def boundary(phase: str, events: tuple[Any, ...]) -> str | None:
    """Where a start or an end is being said, and of which step."""
    said = next((one for one in events if isinstance(one, ev.StepStarted | ev.StepCompleted)), None)
    return f"{phase} {type(said).__name__} {said.step}" if said is not None else None


def one_of(every: int) -> Callable[[str, tuple[Any, ...]], str | None]:
    """Of so many boundaries one, the same in each run."""

    def chosen(phase: str, events: tuple[Any, ...]) -> str | None:
        name = boundary(phase, events)
        return name if name is not None and zlib.crc32(name.encode()) % every == 0 else None

    return chosen


@pytest.mark.timeout(600)  # a busy machine gives each of its lives a second
@pytest.mark.parametrize("every", first_of(4, 1))
def test_killed_at_every_request_and_tool_boundary_nothing_is_asked_or_done_twice(
    towns: tuple[Town, Path], tmp_path: Path, every: int
) -> None:
    town, ledger = towns
    prepare(town)
    undisturbed = town.run("--approve-plan")  # in this process, so that all lives share what it has loaded
    assert undisturbed.exit_code == 0, undisturbed.stderr
    wanted, asked_once = left_behind(town, ledger), len(town.requests())
    calls = [made for entry in SCRIPT["turns"][1:] for turn in entry["turns"] for made in turn.get("calls", [])]
    assert asked_once + len(calls) > 25

    other = Town(Acode(tmp_path / "other"), town.base_url, town.ledger)
    other.workspace.mkdir()
    prepare(other)
    visited: set[str] = set()
    place = ["-C", str(other.workspace)]
    words = [*place, "run", GOAL, "--approve-plan"]
    for _ in range(KILLS_MAX):
        status, place_of_death = lived(words, one_of(every), visited)
        if not place_of_death:
            break
        visited.add(place_of_death)
        words = [*place, "resume", "--last"]
    assert status == 0, f"after {len(visited)} kills"
    assert left_behind(other, ledger) == wanted
    requests = [entry["digest"] for entry in town.requests()[asked_once:]]
    # An answer that arrived and was not recorded is asked for again: once for each life that ended there.
    lost = sum(one.startswith("before StepCompleted") and ".ask-" in one for one in visited)
    assert len(requests) == asked_once + lost
    assert len(set(requests)) == asked_once, "what the model is told is the same in every life"
    assert len(visited) > 95 if every == 1 else len(visited) > 15, "each request and each call has four boundaries"
