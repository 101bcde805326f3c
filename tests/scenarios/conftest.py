"""What the scenarios share: plans that wait for a file instead of sleeping, and a ledger outside the workspace."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Acode

NOTE = 'echo "$ACODE_STEP_ID" >> "$LEDGER"'
# The command says that it has begun, notes its effect, and waits until the test opens the door.
AT_THE_DOOR = f'{NOTE}; echo at the door; while [ ! -e "$DOOR" ]; do sleep 0.02; done'


class Stage:
    """A workspace with a plan, a ledger of effects and a door that holds a command in its middle."""

    def __init__(self, place: Path, acode: Acode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.acode = acode
        self.workspace = acode.workspace
        self.ledger_file = place / "ledger"
        self.door = place / "door"
        monkeypatch.setenv("LEDGER", str(self.ledger_file))
        monkeypatch.setenv("DOOR", str(self.door))

    def plan(self, text: str, name: str = "plan.yml") -> Path:
        path = self.workspace / name
        path.write_text(textwrap.dedent(text))
        return path

    def open_door(self) -> None:
        self.door.touch()

    def ledger(self) -> Counter[str]:
        return Counter(self.ledger_file.read_text().split() if self.ledger_file.exists() else [])

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.workspace.rglob("*") if path.is_file() and ".agent" not in path.parts)
        return {str(path.relative_to(self.workspace)): path.read_bytes() for path in found}

    def history(self, session: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.acode("session", "history", session, "--json").json
        return events

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.acode("session", "list", "--all", "--json").json
        return found

    def log_lines(self) -> list[dict[str, Any]]:
        text = (self.workspace / ".agent/logs/acode.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def stage(tmp_path: Path, acode: Acode, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, acode, monkeypatch)
