"""Change one value in the text of a JSON file, with or without comments, and leave every other byte as it is.

Agents' settings are written by people: their order, indentation and comments stay. Pure: text in, text out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

DEPTH_MAX: Final = 100
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER_OR_WORD = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\n\r]*|/\*[^\n\r*]*\*/)?[ \t]*(?=\r?\n|$)")


class NotJson(ValueError):
    """Names the line; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of an object or an item of an array: where it begins, with its name, and its value."""

    name: str  # empty for an item
    start: int
    value: Value


@dataclass(frozen=True, slots=True)
class Value:
    start: int
    end: int
    kind: Literal["object", "array", "plain"]
    data: Any
    entries: list[Entry] = field(default_factory=list)


def parse(text: str) -> Value:
    """The value that the file holds, with places; comments and trailing commas are permitted."""
    value = _value(text, _skip(text, 0), 0)
    if _skip(text, value.end) != len(text):
        raise _broken(text, value.end, "something follows the end")
    return value


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _broken(text: str, at: int, why: str) -> NotJson:
    return NotJson(f"line {text.count(chr(10), 0, at) + 1}: {why}")


def _value(text: str, at: int, depth: int) -> Value:
    if depth > DEPTH_MAX:
        raise _broken(text, at, f"nested deeper than {DEPTH_MAX}")
    opening = text[at : at + 1]
    if opening in ("{", "["):
        return _container(text, at, depth)
    found = (_STRING if opening == '"' else _NUMBER_OR_WORD).match(text, at)
    if found is None:
        raise _broken(text, at, "a value is missing")
    try:
        return Value(at, found.end(), "plain", json.loads(found.group()))
    except ValueError as error:
        raise _broken(text, at, str(error)) from None


def _container(text: str, start: int, depth: int) -> Value:
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    entries: list[Entry] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        name, begin = "", at
        if is_object:
            found = _STRING.match(text, at)
            if found is None:
                raise _broken(text, at, "a name in quotes is missing")
            name, at = json.loads(found.group()), _skip(text, found.end())
            if text[at : at + 1] != ":":
                raise _broken(text, at, "a colon is missing")
            at = _skip(text, at + 1)
        value = _value(text, at, depth + 1)
        entries.append(Entry(name, begin, value))
        at = _skip(text, value.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _broken(text, at, f"a comma or {closing} is missing")
    data: Any = {one.name: one.value.data for one in entries} if is_object else [one.value.data for one in entries]
    return Value(start, at + 1, "object" if is_object else "array", data, entries)


# Changes.


def set_member(text: str, path: Sequence[str], data: Any) -> str:
    """The text with this value at the path; objects on the way are made."""
    text = text if text.strip() else "{}\n"
    at = parse(text)
    for depth, name in enumerate(path):
        if at.kind != "object":
            raise NotJson(f"{'.'.join(path[:depth]) or 'the file'} is not an object")
        found = _member(at, name)
        if found is None:
            for missing in reversed(path[depth + 1 :]):
                data = {missing: data}
            return _add(text, at, data, name)
        at = found.value
    return text[: at.start] + _written(data, *_layout(text, at)) + text[at.end :]


def append_item(text: str, path: Sequence[str], data: Any) -> str:
    """The text with this item at the end of the array at the path; the array is made where it is missing."""
    found = find(parse(text), path) if text.strip() else None
    if found is None:
        return set_member(text, path, [data])
    if found.kind != "array":
        raise NotJson(f"{'.'.join(path)} is not an array")
    return _add(text, found, data, "")


def remove_member(text: str, path: Sequence[str]) -> str:
    """The text without this member, if it is there."""
    holder = find(parse(text), path[:-1])
    found = None if holder is None else _member(holder, path[-1])
    return text if holder is None or found is None else _cut(text, holder, found)


def remove_items(text: str, path: Sequence[str], unwanted: Callable[[Any], bool]) -> str:
    """The text without the items of the array at the path that are unwanted."""
    while (holder := find(parse(text), path)) is not None and holder.kind == "array":
        found = next((one for one in holder.entries if unwanted(one.value.data)), None)
        if found is None:
            break
        text = _cut(text, holder, found)
    return text


def find(value: Value, path: Sequence[str]) -> Value | None:
    for name in path:
        found = _member(value, name)
        if found is None:
            return None
        value = found.value
    return value


def _member(value: Value, name: str) -> Entry | None:
    """The last of that name: it is the one that a reader takes."""
    return next((one for one in reversed(value.entries) if one.name == name), None) if value.kind == "object" else None


def _add(text: str, holder: Value, data: Any, name: str) -> str:
    """A new entry at the end of an object or array, in the layout of those that are there."""
    newline = "\r\n" if "\r\n" in text else "\n"
    base, unit = _layout(text, holder)
    title = f"{json.dumps(name, ensure_ascii=False)}: " if name else ""
    if not holder.entries:
        entry = f"{title}{_written(data, base + unit, unit)}".replace("\n", newline)
        rest = text[holder.start + 1 : holder.end - 1]
        tail = rest if rest.strip() else ""  # a comment stays
        ending = "" if tail.endswith("\n") else f"{newline}{base}"
        return f"{text[: holder.start + 1]}{newline}{base}{unit}{entry}{tail}{ending}{text[holder.end - 1 :]}"
    last = holder.entries[-1].value.end
    if "\n" not in text[holder.start : holder.entries[0].start]:
        entry = title + json.dumps(data, ensure_ascii=False)
        return f"{text[:last]}, {entry}{text[last:]}"
    indent = _indent(text, holder.entries[0].start)
    entry = f"{title}{_written(data, indent, unit)}".replace("\n", newline)
    comma = _skip(text, last)
    after = comma + 1 if text[comma] == "," else last
    found = _REST_OF_LINE.match(text, after)
    line_end = found.end() if found else after
    separated = text[last:line_end] if after > last else f",{text[last:line_end]}"
    return f"{text[:last]}{separated}{newline}{indent}{entry}{text[line_end:]}"


def _cut(text: str, holder: Value, entry: Entry) -> str:
    """Without this entry and the comma that belongs to it; a line that becomes empty goes too."""
    start, end = entry.start, entry.value.end
    following = _skip(text, end)
    if text[following] == ",":
        end = following + 1
    else:
        before = [one for one in holder.entries if one.value.end <= start]
        if before:
            comma = text.index(",", before[-1].value.end)
            text = text[:comma] + text[comma + 1 :]
            start, end = start - 1, end - 1
    line_start = text.rfind("\n", 0, start) + 1
    line_end = re.compile(r"[ \t]*\r?\n").match(text, end)
    if not text[line_start:start].strip() and line_end is not None and line_start:
        return text[:line_start] + text[line_end.end() :]
    if not text[line_start:start].strip() and line_start and text[_skip(text, end)] in "}]":
        return text[: line_start - 1].removesuffix("\r") + text[end:]  # the bracket stands on the entry's last line
    return text[:start].rstrip(" \t") + text[end:]


def _layout(text: str, value: Value) -> tuple[str, str]:
    """The indentation of the line that the value begins on, and what one level adds to it."""
    base = _indent(text, value.start)
    for one in value.entries[:1]:
        inner = _indent(text, one.start)
        if inner.startswith(base) and inner != base:
            return base, inner[len(base) :]
    found = re.search(r"\n([ \t]+)\S", text)
    return base, found.group(1) if found else "  "


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _written(data: Any, indent: str, unit: str) -> str:
    lines = json.dumps(data, indent=unit, ensure_ascii=False).split("\n")
    return ("\n" + indent).join(lines)
