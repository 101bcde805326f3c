"""Text for people: one printable line without control characters; times, durations and counts in `durations`.

Text from elsewhere (a title, a command's output, a server's column) may hold characters that steer a terminal or turn
the direction of a line. Nothing of it is shown before it has passed here.
"""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text as it may stand in a line of ours: characters that steer a terminal or hide are spelled out."""
    if text.isprintable():
        return text
    from acode.disk.path_names import visible

    return visible(text)


def hides_something(text: str) -> bool:
    """Whether a person who is asked this would not read all of it: control or invisible characters stand in it."""
    import unicodedata

    return any(unicodedata.category(c) in ("Cc", "Cf") and c != "\n" for c in text)


def lines_of(text: str, *, lines_max: int, chars_max: int) -> list[str]:
    """The last lines of a text, each printable and of bounded length."""
    return [shown_line(line, chars_max) for line in text.splitlines()[-lines_max:]]


def shown_line(line: str, chars_max: int) -> str:
    expanded = line.expandtabs(8)
    if len(expanded) > chars_max:
        expanded = f"{expanded[:chars_max]}…"
    return one_line(expanded)
