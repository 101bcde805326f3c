"""The pictures of docs/benchmarks.md, drawn from benchmarks/results/: `python3 dev.py bench pictures`.

SVG by hand: bars with their quartiles, and lines on two logarithmic axes. Nothing is drawn that was not measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"

WIDTH = 860
LEFT, RIGHT, TOP, BOTTOM = 250, 120, 64, 40
ROW = 26
INK, QUIET, FAINT, OURS, FLOOR, THEIRS = "#1f2328", "#59636e", "#d8dee4", "#0b6bcb", "#8c959f", "#b9c2cc"
LINE_COLOURS = ("#0b6bcb", "#b35900", "#1a7f37", "#8250df", "#bf3989", "#7d4e00", "#57606a", "#cf222e", "#0f7b7b")


@dataclass(frozen=True, kw_only=True)
class Bar:
    name: str
    value: float
    low: float | None = None
    high: float | None = None
    color: str = THEIRS


def text(
    x: float, y: float, words: str, *, size: int = 12, color: str = INK, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>'
        f"{escape(words)}</text>"
    )


def stroke(x1: float, y1: float, x2: float, y2: float, *, color: str = FAINT, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}"/>'


def picture(height: float, parts: Sequence[str], title: str, note: str) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif">'
    )
    words = [text(16, 26, title, size=16, bold=True), text(16, 46, note, color=QUIET)]
    return "\n".join(
        [head, f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>', *words, *parts, "</svg>\n"]
    )


def bars(title: str, note: str, rows: Sequence[Bar]) -> str:
    """One bar for each, the longest first, its value beside it and the middle half of the measurements across it."""
    rows = sorted(rows, key=lambda row: -row.value)
    longest = max((row.high or row.value for row in rows), default=1) or 1
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts = []
    for index, row in enumerate(rows):
        y = TOP + index * ROW
        bold = row.color == OURS
        parts.append(text(LEFT - 10, y + 16, row.name, anchor="end", bold=bold))
        parts.append(
            f'<rect x="{LEFT}" y="{y + 4}" width="{row.value * scale:.1f}" height="{ROW - 9}" fill="{row.color}"/>'
        )
        end = row.value
        if row.low is not None and row.high is not None:
            middle = y + 4 + (ROW - 9) / 2
            parts.append(stroke(LEFT + row.low * scale, middle, LEFT + row.high * scale, middle, color=INK, width=1.2))
            end = max(end, row.high)
        parts.append(text(LEFT + end * scale + 8, y + 16, f"{row.value:,.0f}", bold=bold))
    return picture(TOP + len(rows) * ROW + 16, parts, title, note)


def powers(low: float, high: float) -> Iterator[float]:
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        yield 10.0**exponent


def lines(title: str, note: str, series: dict[str, list[tuple[float, float]]], x_name: str, y_name: str) -> str:
    """Both axes logarithmic; each line is named at its end."""
    height, left, right = 460, 70, 210
    points = [point for line in series.values() for point in line]
    x_ticks = list(powers(min(x for x, _ in points), max(x for x, _ in points)))
    y_ticks = list(powers(min(y for _, y in points), max(y for _, y in points)))

    def across(x: float) -> float:
        share = math.log10(x / x_ticks[0]) / (math.log10(x_ticks[-1] / x_ticks[0]) or 1)
        return left + share * (WIDTH - left - right)

    def up(y: float) -> float:
        share = math.log10(y / y_ticks[0]) / (math.log10(y_ticks[-1] / y_ticks[0]) or 1)
        return height - BOTTOM - share * (height - BOTTOM - TOP - 16)

    parts = [text(left - 54, TOP + 2, y_name, color=QUIET)]
    parts.append(text((left + WIDTH - right) / 2, height - 8, x_name, color=QUIET, anchor="middle"))
    for tick in x_ticks:
        parts.append(stroke(across(tick), up(y_ticks[0]), across(tick), up(y_ticks[-1])))
        parts.append(text(across(tick), height - BOTTOM + 16, f"{tick:,.0f}", color=QUIET, anchor="middle", size=11))
    for tick in y_ticks:
        parts.append(stroke(left, up(tick), WIDTH - right, up(tick)))
        parts.append(text(left - 8, up(tick) + 4, f"{tick:,g}", color=QUIET, anchor="end", size=11))
    ends = labels_apart({name: up(line[-1][1]) for name, line in series.items()})
    for index, (name, line) in enumerate(series.items()):
        color = LINE_COLOURS[index % len(LINE_COLOURS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line)
        width = 3 if name.startswith("acode") else 1.6
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>')
        parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{color}"/>' for x, y in line]
        parts.append(stroke(across(line[-1][0]) + 4, up(line[-1][1]), WIDTH - right + 8, ends[name]))
        parts.append(text(WIDTH - right + 12, ends[name] + 4, name, color=color, bold=name.startswith("acode")))
    return picture(height, parts, title, note)


def labels_apart(wanted: dict[str, float], gap: float = 16) -> dict[str, float]:
    """Where the names go so that none covers another, in the order of their lines."""
    placed: dict[str, float] = {}
    lowest = -math.inf
    for name, y in sorted(wanted.items(), key=lambda item: item[1]):
        lowest = max(y, lowest + gap)
        placed[name] = lowest
    return placed


def color_of(name: str) -> str:
    return FLOOR if name == "bare commit" else OURS if name.startswith("acode") else THEIRS


def speed_bars(figures: dict[str, Any]) -> list[Bar]:
    return [
        Bar(
            name=name,
            value=found["steps_per_second"],
            low=found["steps_per_second_quartiles"][0],
            high=found["steps_per_second_quartiles"][1],
            color=color_of(name),
        )
        for name, found in figures.items()
    ]


def draw() -> dict[str, str]:
    """Every picture whose figures are there; by its file's name, what it was drawn from."""
    IMAGES.mkdir(exist_ok=True)
    drawn: dict[str, str] = {}
    for name, (source, make) in PICTURES.items():
        file = RESULTS / f"{source}.json"
        if file.exists():
            found = json.loads(file.read_text(encoding="utf-8"))
            (IMAGES / name).write_text(make(found[source], found["at"][:10]), encoding="utf-8")
            drawn[name] = str(file.relative_to(ROOT))
    return drawn


def speed_picture(figures: dict[str, Any], day: str) -> str:
    note = f"1,000 steps returning 1 KiB, each synced; median of turns of 100 steps, line: quartiles; {day}"
    return bars("Durable steps per second", note, speed_bars(figures["steps_1000"]))


def kills_picture(figures: dict[str, Any], day: str) -> str:
    note = f"120 steps with an effect outside, the process killed 20 times by SIGKILL; 0 missing everywhere; {day}"
    rows = {
        name: found
        for name, found in figures.items()
        if isinstance(found, dict) and "duplicates" in found and "at once" not in name  # another number of steps
    }
    if any(found["missing"] for found in rows.values()):
        note = note.replace("; 0 missing everywhere", "")
    made = [Bar(name=name, value=found["duplicates"], color=color_of(name)) for name, found in rows.items()]
    return bars("Effects that happened more than once", note, made)


def curve_picture(figures: dict[str, Any], day: str) -> str:
    series = {
        name: [(float(steps), found["first_new_step_ms"]) for steps, found in line.items()]
        for name, line in figures.items()
        if name != "left_out" and line
    }
    note = f"from the start of the process to the first step that is not on record; {day}"
    return lines("Recovery against the length of the record", note, series, "steps on record", "ms")


RECOVERY_LINES = {
    "find the resume point": "find_resume_point",
    "restore the state": "load_session",
    "whole survey of a resume": "whole_preview",
    "verify and fold all": "read_verify_fold_all",
}


def recovery_picture(figures: dict[str, Any], day: str) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for events, found in figures.items():
        for name, key in RECOVERY_LINES.items():
            if key in found:
                series.setdefault(name, []).append((float(events), found[key]["median_ms"]))
    note = f"acode, sessions of a plan, 100 to 1,000,000 events; {day}"
    return lines("Recovery against the length of the log", note, series, "events in the log", "ms")


PICTURES = {
    "steps-per-second.svg": ("peers", speed_picture),
    "twenty-kills.svg": ("kills", kills_picture),
    "recovery-beside-peers.svg": ("curve", curve_picture),
    "recovery-by-events.svg": ("recovery", recovery_picture),
}
