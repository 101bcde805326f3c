"""Grounds with a run that another tool began: acode carries it on with a driver that may not be repeated."""

from __future__ import annotations

import json
from typing import Any

from tests.crash.grounds import NOTE, plain
from tests.crash.place import Place
from tests.foreign import ARC, MEMORY, essence, put_arc, put_memory, settled

RUNS = {"arc": ARC, "agent-memory": MEMORY}
PIECES = {"arc": ("work", "mend"), "agent-memory": ("T001", "clean_up", "consolidate")}  # what is left to do of each
# It does what the prompt asks for, whole or not at all: what an interrupted driver leaves is its own affair.
DRIVER = f"""#!/bin/sh
set -e
{NOTE}
artifact=$(sed -n 's/^Write the phase.s artifact to: //p' "$1")
if [ -n "$artifact" ]; then
  mkdir -p "$(dirname "$artifact")"
  echo "$ACODE_TASK is done" > "$artifact.new"
  mv "$artifact.new" "$artifact"
fi
"""


def begun_elsewhere(place: Place, source: str) -> None:
    plain(place)
    (place.root / "driver.sh").write_text(DRIVER)
    (place.root / "driver.sh").chmod(0o755)
    driver = {"command": ["../driver.sh", "{prompt_file}"], "idempotent": False}
    place.put(".agent/config.yml", json.dumps({"drivers": {source: driver}}))
    assert place.acode("config", "trust").exit_code == 0
    if source == "arc":
        put_arc(place.workspace, phases={"code_review": {"status": "skipped"}})
    else:
        put_memory(place.workspace, tasks=1)


def pieces(source: str) -> tuple[str, ...]:
    """The steps that drive it, each of which may have its effect once."""
    return tuple(f"{name}.drive" for name in PIECES[source])


def told(place: Place, source: str) -> Any:
    """What the tool that began it finds, without times, process numbers and acode's own notes."""
    if source == "arc":
        return settled(next(place.workspace.rglob("checkpoint.json")))
    found = essence(place.workspace / ".agent-memory" / "runs" / MEMORY)
    # A sick disk may fail a task or a phase, which is then done again.
    return [one for one in found if one[0] not in ("task_failed", "execution_error")]
