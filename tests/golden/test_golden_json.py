"""Public JSON is that of version 0.1, field by field: a program that read it then reads it now.

Texts for people may be worded better. What else has changed since is listed here, and only that is allowed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Acode
from tests.golden import json_outputs

GOLDEN = json.loads((Path(__file__).parent / "json_v0.1.json").read_text(encoding="utf-8"))
TEXTS = {"message", "hint", "next_action", "evidence"}
ADDED_FIELDS = (
    {"arguments_version", "sync.release", "attention", "kind"}
    | {"started_at", "ended_at", "duration_ms"}
    | {*("hooks.on_error", "hooks.front", "hooks.unknown", "notify.on")}
    | {*("fleet.queue", "fleet.priority", "fleet.labels", "fleet.key", "fleet.source", "fleet.lease_seconds")}
    | {"fleet.store"}
)
ADDED_LINES = {"resume_completed"}
# The golden databases have no anchor. Since 0.2 a resume records that first, so that later events move by one.
MOVED_FIELDS = {"seq", "replay_last"}
MOVED_SCENARIOS = {"resume version 1", "settle version 1"}


def differences(old: Any, new: Any, where: str, *, moved: int) -> list[str]:
    """Every place at which the new value is not the old one, but for the changes that are listed above."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = [f"{where}.{key}: is new" for key in new.keys() - old.keys() - ADDED_FIELDS]
        found += [f"{where}.{key}: is gone" for key in old.keys() - new.keys()]
        for key in old.keys() & new.keys() - TEXTS:
            by = moved if key in MOVED_FIELDS and isinstance(old[key], int) else 0
            found += differences(old[key] + by if by else old[key], new[key], f"{where}.{key}", moved=moved)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [one for at, (a, b) in pairs for one in differences(a, b, f"{where}[{at}]", moved=moved)]
    return [] if old == new and type(old) is type(new) else [f"{where}: {old!r} is {new!r} now"]


def lines_of_0_1(lines: list[Any]) -> list[Any]:
    return [line for line in lines if not (isinstance(line, dict) and line.get("event") in ADDED_LINES)]


@pytest.mark.parametrize("name", json_outputs.SCENARIOS)
def test_public_json_is_that_of_0_1(name: str, tmp_path: Path) -> None:
    def in_this_process(workspace: Path, env: dict[str, str], arguments: list[str]) -> tuple[int, str]:
        ended = Acode(workspace)(*arguments, env=env)
        return ended.exit_code, ended.stdout

    found: list[str] = []
    moved = int(name in MOVED_SCENARIOS)
    for old, new in zip(GOLDEN[name], json_outputs.scenario(tmp_path.resolve(), name, in_this_process), strict=True):
        new["out"] = lines_of_0_1(new["out"])
        found += differences(old, new, old["command"], moved=moved)
    assert found == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"state": "PAUSED"}, {"state": "paused"}),
        ({"state": "PAUSED"}, {}),
        ({}, {"state": "PAUSED"}),
        ({"steps": [1, 2]}, {"steps": [1]}),
        ({"at": None}, {"at": False}),
        ({"seq": 7}, {"seq": 8}),
    ],
)
def test_a_changed_field_is_found(old: Any, new: Any) -> None:
    assert len(differences(old, new, "", moved=0)) == 1


def test_a_better_text_is_no_change() -> None:
    assert differences({"hint": "go"}, {"hint": "went", "arguments_version": 1}, "", moved=0) == []
