"""Change one value in the text of a TOML file and leave every other byte as it is.

The places where the value could stand are tried one after the other, and the standard library's parser is the judge: a
text is taken only if it holds exactly what the file held, and the value. Pure: text in, text out.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any


class NotToml(ValueError):
    """The file cannot be read, or the value cannot be added to it by one of the known ways."""


def read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise NotToml(str(error)) from None


def set_value(text: str, path: tuple[str, ...], value: str | bool) -> str:
    """The text with this value at the path. Raises NotToml where no known way leads there."""
    wanted = _with(read(text), path, value)
    return _first(text, wanted, _places(text, path, _written(value)), f"{'.'.join(path)} cannot be set")


def remove_value(text: str, path: tuple[str, ...]) -> str:
    """The text without this value; a table that has become empty keeps its heading."""
    wanted = _without(read(text), path)
    if wanted == read(text):
        return text
    return _first(text, wanted, _removals(text, path), f"{'.'.join(path)} cannot be removed")


def _first(text: str, wanted: dict[str, Any], candidates: Iterator[str], problem: str) -> str:
    for candidate in candidates:
        try:
            if tomllib.loads(candidate) == wanted:
                return candidate
        except tomllib.TOMLDecodeError:
            continue
    raise NotToml(problem)


def _written(value: str | bool) -> str:
    return json.dumps(value, ensure_ascii=False)  # a basic string of TOML has the escapes of JSON


def _with(data: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    name, *rest = path
    inner = data.get(name, {})
    if rest and not isinstance(inner, dict):
        raise NotToml(f"{name} is not a table")
    return {**data, name: _with(inner, tuple(rest), value) if rest else value}


def _without(data: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    name, *rest = path
    if not rest:
        return {key: value for key, value in data.items() if key != name}
    inner = data.get(name)
    return {**data, name: _without(inner, tuple(rest))} if isinstance(inner, dict) else data


def _key(name: str) -> str:
    return rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')"


def _dotted(path: tuple[str, ...]) -> str:
    return r"[ \t]*\.[ \t]*".join(map(_key, path))


_VALUE = r"(?:\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|true|false)"


def _places(text: str, path: tuple[str, ...], written: str) -> Iterator[str]:
    newline = "\r\n" if "\r\n" in text else "\n"
    name = path[-1]
    for length in range(len(path) - 1, -1, -1):
        # The value stands there already: under its table's heading, dotted, or in an inline table.
        key = _dotted(path[length:])
        for found in re.finditer(rf"(?m)^([ \t]*{key}[ \t]*=[ \t]*){_VALUE}", text):
            yield text[: found.end(1)] + written + text[found.end() :]
    for found in re.finditer(rf"([{{,][ \t]*{_key(name)}[ \t]*=[ \t]*){_VALUE}", text):
        yield text[: found.end(1)] + written + text[found.end() :]
    for length in range(len(path) - 1, 0, -1):
        # Under the heading of its table, or of one around it.
        key = ".".join(path[length:])
        for found in re.finditer(rf"(?m)^[ \t]*\[[ \t]*{_dotted(path[:length])}[ \t]*\][^\n]*(\n|$)", text):
            head = text[: found.end()] + ("" if found.group(1) else newline)
            yield f"{head}{key} = {written}{newline}{text[found.end() :]}"
    for found in re.finditer(rf"{_key(path[-2])}[ \t]*=[ \t]*\{{", text) if len(path) > 1 else ():
        for separator in (", ", ""):
            yield f"{text[: found.end()]} {name} = {written}{separator}{text[found.end() :].lstrip(' ')}"
    end = "" if text.endswith("\n") or not text else newline
    gap = newline if text.strip() else ""
    if len(path) > 1:
        yield f"{text}{end}{gap}[{'.'.join(path[:-1])}]{newline}{name} = {written}{newline}"
    yield f"{'.'.join(path)} = {written}{newline}{text}"


def _removals(text: str, path: tuple[str, ...]) -> Iterator[str]:
    for length in range(len(path) - 1, -1, -1):
        for found in re.finditer(rf"(?m)^[ \t]*{_dotted(path[length:])}[ \t]*=[ \t]*{_VALUE}[^\n]*(?:\n|$)", text):
            yield text[: found.start()] + text[found.end() :]
    for found in re.finditer(rf"[ \t]*{_key(path[-1])}[ \t]*=[ \t]*{_VALUE}[ \t]*,?", text):
        yield text[: found.start()] + text[found.end() :]
    for found in re.finditer(rf",[ \t]*{_key(path[-1])}[ \t]*=[ \t]*{_VALUE}", text):
        yield text[: found.start()] + text[found.end() :]
