"""The texts about a run for people and drivers: text without control characters, the resume report, the prompts.

Pure. Must never claim more than the findings say, and never let a foreign file speak to the terminal.
"""

from __future__ import annotations

import unicodedata

TEXT_CHARS_MAX = 200
FRAME = "═" * 59
_DROPPED = {"Cc", "Cf", "Cs", "Co", "Cn"}


def shown(text: str, *, chars_max: int = TEXT_CHARS_MAX) -> str:
    """One line, printable, at most this long: no escape sequences, no bidirectional tricks, no line breaks."""
    text = text[: chars_max * 4]
    if not text.isprintable():
        text = "".join(_plain(char) for char in text)
    text = " ".join(text.split())
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def shown_block(text: str) -> str:
    """Like `shown`, for texts of several lines: line breaks and tabs stay."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line if line.isprintable() else "".join(_plain_in_block(char) for char in line) for line in lines)


def resume_report(
    *,
    run_id: str,
    phase: str,
    done: int,
    total: int,
    last_activity: str | None,
    last_completed: tuple[str, str] | None,
    next_action: str,
    waits_for: str | None = None,
) -> str:
    """The report that opens a resume, for runs of every source.

    `waits_for` says why acode does not continue by itself (a gate, no driver); the last line then names it.
    """
    completed = "none yet"
    if last_completed is not None:
        completed = " - ".join(shown(part) for part in last_completed if part)
    return "\n".join(
        (
            FRAME,
            f"RESUMING RUN: {shown(run_id)}",
            "",
            "Current State:",
            f"- Phase: {shown(phase)}",
            f"- Tasks: {done}/{total} complete",
            f"- Last activity: {shown(last_activity or 'none recorded')}",
            f"- Last completed: {completed}",
            "",
            "Next Action:",
            f"- {shown(next_action, chars_max=500)}",
            "",
            f"Continuing... waits for {shown(waits_for, chars_max=300)}" if waits_for else "Continuing...",
            FRAME,
        )
    )


def _plain(char: str) -> str:
    if char.isspace():
        return " "
    return "" if unicodedata.category(char) in _DROPPED else char


def _plain_in_block(char: str) -> str:
    return char if char == "\t" else _plain(char)
