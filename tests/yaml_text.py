"""Plans for tests that put awkward text into them: every string is written as JSON, which YAML reads too."""

from __future__ import annotations

import json
from typing import Any


def plan_text(title: str, tasks: list[dict[str, Any]]) -> str:
    lines = ["version: 1", f"title: {json.dumps(title)}", "tasks:"]
    lines += [f"  - {json.dumps(task)}" for task in tasks]
    return "\n".join(lines) + "\n"
