"""Trials that have passed with these sources: `python3 dev.py test agents` continues where it was stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from tests.agents.client import INSTALLED, ROOT

FILE = INSTALLED / "progress.jsonl"


def source_digest() -> str:
    """Of everything that a trial depends on here: acode, the trials and the pinned agents."""
    found = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests" / "agents").rglob("*")]):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def entries(digest: str) -> Iterator[dict[str, Any]]:
    """Those of these sources; a torn last line is none."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry.get("sources") == digest:
            yield entry


def passed(digest: str) -> set[str]:
    return {entry["test"] for entry in entries(digest)}


def note(digest: str, test: str, figures: list[Any]) -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"sources": digest, "test": test, "figures": figures}) + "\n")
