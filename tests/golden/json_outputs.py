"""Write the golden JSON: the answers of one version of acode to a fixed set of commands over the golden databases.

    PYTHONPATH=OLD/src:. python3 tests/golden/json_outputs.py tests/golden/json_v0.1.json

The file in the repository was written with the source of version 0.1. A later version must give the same answers, see
`test_golden_json`. Each scenario has a workspace of its own, and its commands run one after the other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

SESSIONS = Path(__file__).resolve().parent / "sessions"
SECRET = "the secret of the golden databases"
WRITING = "01940000-0000-7000-8000-000000000001"
RUNNING = "01940000-0000-7000-8000-000000000002"
LOOKS = (
    "session list --json",
    "session list --all --json",
    "status {id} --json",
    "explain {id} --json",
    "session show {id} --json",
    "session show {id} --events --json",
    "session verify {id} --json",
    "resume {id} --dry-run --json",
    "sync status --json",
    "config show --json",
)
REFUSED = (
    "status nosuchid --json",
    "resume nosuchid --json",
    "session show nosuchid --json",
    "run nosuch.yml --json",
    "run --nosuch --json",
    "session resolve {id} nosuch --applied --json",
    "session deny {id} --json",
)
PLAN = """\
version: 1
title: A plan of the golden JSON
tasks:
  - id: first
    steps:
      - write: {path: a.txt, content: "a\\n"}
      - read: a.txt
      - {run: cp a.txt b.txt, outputs: [b.txt]}
  - id: second
    steps:
      - {run: "test -f never.txt", idempotent: true}
"""
GREETED = {"greeting.txt": "hello\n"}
SCENARIOS: dict[str, tuple[str | None, dict[str, str], str, tuple[str, ...]]] = {
    "look at version 1": ("v1", GREETED, WRITING, LOOKS),
    "look at the other session of version 1": ("v1", {"counted.txt": "1\n"}, RUNNING, LOOKS[2:8]),
    "look at version 2": ("v2", {**GREETED, "go": ""}, "", LOOKS),
    "look at version 3": ("v3", {**GREETED, "go": ""}, "", LOOKS),
    "refuse on version 1": ("v1", GREETED, WRITING, REFUSED),
    "resume version 1": (
        "v1",
        GREETED,
        WRITING,
        ("resume {id} --yes --json", "status {id} --json", "resume {id} --json"),
    ),
    "settle version 1": (
        "v1",
        {"counted.txt": "1\n"},
        RUNNING,
        ("resume {id} --yes --json", "session abandon {id} --yes --json", "status {id} --json"),
    ),
    "pause and cancel version 2": (
        "v2",
        {**GREETED, "go": ""},
        "",
        (
            "session pause {id} --json",
            "resume {id} --auto --json",
            "session abandon {id} --yes --json",
            "explain {id} --json",
        ),
    ),
    "run a plan that fails": (
        None,
        {"plan.yml": PLAN},
        "",
        ("run plan.yml --json", "session list --json", "session list --all --json", "resume --yes --json"),
    ),
}

Command = Callable[[Path, dict[str, str], list[str]], tuple[int, str]]


def answers(place: Path, command: Command) -> dict[str, list[dict[str, Any]]]:
    """What each command of each scenario ends with and prints, as JSON; times, ids and paths are made comparable."""
    return {name: scenario(place / f"{number}", name, command) for number, name in enumerate(SCENARIOS)}


def scenario(place: Path, name: str, command: Command) -> list[dict[str, Any]]:
    version, files, session_id, lines = SCENARIOS[name]
    workspace, home = place / "workspace", place / "home"
    for directory in (workspace, home):
        directory.mkdir(parents=True)
    if version is not None:
        (workspace / ".agent").mkdir(mode=0o700)
        shutil.copyfile(SESSIONS / f"{version}.db", workspace / ".agent" / "workspace.db")
        (workspace / ".agent" / "workspace.db").chmod(0o600)
    for path, content in files.items():
        (workspace / path).write_text(content)
        (workspace / path).chmod(0o644)
    env = {"HOME": str(home), "ACODE_HOME": str(home / "acode"), "ACODE_CHECKPOINT_SECRET": SECRET}
    found = []
    for line in lines:
        arguments = line.replace("{id}", session_id or "").split()
        code, out = command(workspace, env, arguments)
        found.append(
            {"command": line, "exit_code": code, "out": [comparable(json.loads(one), place) for one in documents(out)]}
        )
    return found


def documents(out: str) -> list[str]:
    """One document, or one on each line."""
    try:
        json.loads(out)
    except ValueError:
        return out.splitlines()
    return [out]


def comparable(value: Any, place: Path) -> Any:
    """The value without what differs from run to run: times of today, new ids, places and durations."""
    if isinstance(value, dict):
        return {key: 0 if _is_measured(key, one) else comparable(one, place) for key, one in value.items()}
    if isinstance(value, list):
        return [comparable(one, place) for one in value]
    if not isinstance(value, str):
        return value
    text = value.replace(str(place), "PLACE")
    text = re.sub(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", _time, text)
    text = re.sub(r"\b\d+ s remain", "SOME s remain", text)
    return re.sub(r"\b([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-)?(?:[0-9a-f]{4})?[0-9a-f]{8}\b", _id, text)


def _is_measured(key: str, value: Any) -> bool:
    return (
        isinstance(value, int | float | dict)
        and re.search(r"(_s|_ms|_seconds|elapsed|duration|age|pid|_remaining)$", key) is not None
    )


def _time(found: re.Match[str]) -> str:
    return found[0] if found[0] < "2026-11" else "TODAY"


def _id(found: re.Match[str]) -> str:
    return found[0] if any(known.endswith(found[0]) for known in (WRITING, RUNNING)) else "ID"


def by_process(workspace: Path, env: dict[str, str], arguments: list[str]) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "acode", *arguments],
        cwd=workspace,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        found = answers(Path(place).resolve(), by_process)
    Path(target).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
