"""The totals of a sweep, from the records of its portions."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read_records(place: Path) -> list[Record]:
    """Of all sweeps there; the name of each holds the digest of its source."""
    return [
        {**json.loads(path.read_text(encoding="utf-8")), "sweep": path.parent.parent.name}
        for path in sorted(place.glob("*/records/*.json"))
    ]


def totals(records: list[Record]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in records:
        found.update(one["figures"])
    return found


def page(records: list[Record], date: str) -> str:
    """One table per source: what was run, how much of it, what was found."""
    parts = [
        f"# Release sweep, {date}",
        "",
        "Written by `python3 dev.py sweep --figures` from the records of `python3 dev.py sweep --hours N`.",
    ]
    by_sweep: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        by_sweep[one["sweep"]].append(one)
    for sweep, of_sweep in by_sweep.items():
        hours = sum(one["seconds"] for one in of_sweep) / 3600
        parts += ["", f"## Source {sweep}", "", f"{len(of_sweep)} portions in {hours:.2f} hours: {told(of_sweep)}.", ""]
        parts += ["| test | portions | figures | not passed |", "|---|---|---|---|"]
        by_function: dict[str, list[Record]] = defaultdict(list)
        for one in of_sweep:
            by_function[one["function"]].append(one)
        for function, found in sorted(by_function.items()):
            parts.append(f"| `{function}` | {len(found)} | {told(found)} | {_failed(found)} |")
    return "\n".join(parts) + "\n"


def told(records: list[Record]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(totals(records).items())) or "no figures"


def _failed(records: list[Record]) -> str:
    failed = [one["test"].partition("::")[2] for one in records if one["outcome"] != "passed"]
    return ", ".join(f"`{test}`" for test in failed) or "0"
