"""Many steps at once, of acode alone beside bare commits, and the bytes that each keeps; see `peers/at_once.py`."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import at_once
from benchmarks.peers.at_once import shown

__all__ = ["measure", "shown"]


def measure() -> dict[str, Any]:
    return at_once.measure(at_once.ALONE)
