"""Redaction: how fast ordinary output passes, and how long the most inconvenient texts take."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from acode.redact import redactor
from benchmarks.places import figure, timed

ROUNDS = 5
CHUNK_BYTES = 65_536
LINES = 40_000

# Texts made to lead a pattern astray: a rule that goes back and forth over one of these would take minutes.
HOSTILE = {
    "one_word": "a" * 300_000,
    "many_names": "password=" * 30_000,
    "many_calls": "password=a1(" * 25_000,
    "one_long_value": "password: " + "x" * 300_000,
    "token_heads": "eyJ" * 100_000,
    "url_heads": "://" * 100_000 + "@",
    "name_parts": "token_" * 50_000 + "=",
    "key_heads": "-----BEGIN " * 20_000,
    "quotes": '"' * 100_000 + "secret",
    "escapes": "\\" * 100_000 + '"password',
}


def false_positives(places: list[Path]) -> dict[str, int]:
    """Lines of ordinary source that lose something to a rule; nearly none of them holds a secret."""
    clean, lines, touched = redactor([]), 0, 0
    for path in (path for place in places for path in place.rglob("*.py") if "site-packages" not in path.parts):
        text = path.read_text(encoding="utf-8", errors="replace")
        before, after = text.splitlines(), clean.text(text).splitlines()
        lines += len(before)
        touched += sum(one != other for one, other in zip(before, after, strict=False))
    return {"lines": lines, "touched": touched}


def measure() -> dict[str, Any]:
    plain = redactor([])
    line = b"2026-01-15 10:00:00 INFO compile src/module_%d.c -> build/module_%d.o in 0.1 s [ok] token 7\n"
    data = b"".join(line % (number, number) for number in range(LINES))
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]

    def streamed() -> None:
        stream = plain.stream()
        for chunk in chunks:
            stream.feed(chunk)
        stream.finish()

    ordinary = figure(timed(streamed, ROUNDS))
    hostile = {name: seconds(lambda text=text: plain.text(text)) for name, text in HOSTILE.items()}
    return {
        "own_source": false_positives([Path(__file__).parent.parent / "src"]),
        "standard_library": false_positives([Path(os.__file__).parent]),
        "ordinary": ordinary,
        "ordinary_ms_per_megabyte": round(ordinary["median_ms"] / (len(data) / 1_000_000), 2),
        "hostile_s": hostile,
        "hostile_s_worst": max(hostile.values()),
    }


def seconds(work: Any) -> float:
    before = time.perf_counter()
    work()
    return round(time.perf_counter() - before, 3)
