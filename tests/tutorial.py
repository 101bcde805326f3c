"""The tutorial as a person types it: each of its commands, in its order, in a real terminal."""

from __future__ import annotations

import re
from pathlib import Path

from tests.typed_terminal import TypedTerminal

TUTORIAL = Path(__file__).resolve().parent.parent / "docs" / "tutorial.md"
INSTALL, KILL = "pipx install acode-cli", 'pkill -9 -f "acode run"'


def commands() -> list[str]:
    text = TUTORIAL.read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def plan() -> str:
    found = re.search(r"```yaml\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def type_tutorial(terminal: TypedTerminal, place: Path) -> dict[str, str]:
    """What each command printed. acode is installed already; the tutorial's kill finds this acode and no other one."""
    typed = commands()
    assert typed[0] == INSTALL and KILL in typed
    shown: dict[str, str] = {}
    for line in typed[1:]:
        if line == KILL:
            continue
        if line == "acode run plan.yml":
            terminal.type(line)
            terminal.wait_for(r"● Task 2, Step 1: Count")
            terminal.kill_all_named(KILL.split('"')[1])
            terminal.wait_for("Killed")
            continue
        shown[line] = terminal.run(line)
        if line.startswith("mkdir"):
            (place / "tutorial" / "plan.yml").write_text(plan(), encoding="utf-8")
    return shown


def check_tutorial(shown: dict[str, str], place: Path) -> None:
    """What the tutorial promises."""
    workspace = place / "tutorial"
    assert "rolled back and repeated" in shown["acode check plan.yml"]
    assert "Resume completed" in shown["acode resume --last"]
    assert (workspace / "ledger.txt").read_text() == "published\n"
    assert "step_settled" in shown["acode session history"] or "settled" in shown["acode session history"]
    assert (workspace / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
