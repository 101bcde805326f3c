"""Change one variable in the text of a .env file and leave every other byte as it is. Pure: text in, text out."""

from __future__ import annotations

import re


def value_of(text: str, name: str) -> str | None:
    """What the last line for this variable says, without its quotes."""
    found = list(_lines(name).finditer(text))
    if not found:
        return None
    value = found[-1].group("value").strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'`" else value


def set_variable(text: str, name: str, value: str) -> str:
    """The text with this value in the last line for the variable, or in a new line at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    written = value if re.fullmatch(r"[\w./:@%+,-]+", value) else _quoted(value)
    found = list(_lines(name).finditer(text))
    if found:
        return text[: found[-1].start("value")] + written + text[found[-1].end("value") :]
    return f"{text}{'' if text.endswith(chr(10)) or not text else newline}{name}={written}{newline}"


def remove_variable(text: str, name: str) -> str:
    return re.sub(rf"(?m)^[ \t]*(?:export[ \t]+)?{re.escape(name)}[ \t]*=[^\n]*(?:\n|$)", "", text)


def _quoted(value: str) -> str:
    quote = next((mark for mark in "\"'`" if mark not in value), None)
    if quote is None or "\n" in value:
        raise ValueError(f"{value!a} cannot be written into a .env file")
    return f"{quote}{value}{quote}"


def _lines(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?m)^[ \t]*(?:export[ \t]+)?{re.escape(name)}[ \t]*=[ \t]*(?P<value>[^\r\n]*)")
