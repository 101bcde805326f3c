"""The values that the methods of `Node` accept, as JSON Schema (draft 2020-12): one function for each of them.

A schema says less than a reader: ids that are there twice, cycles and paths through links are known only to the reader.
It must never refuse what the reader accepts, or an editor marks a good file as wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from acode.text.durations import SPAN

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NULL: Schema = {"type": "null"}


def text(*, chars_max: int) -> Schema:
    """`Node.text`: not blank."""
    return {"type": "string", "pattern": r"\S", "maxLength": chars_max}


def matching(pattern: str) -> Schema:
    """A text that a pattern of the reader matches from its beginning to its end."""
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def flag() -> Schema:
    return {"type": "boolean"}


def number(low: float, high: float, *, above_low: bool = False) -> Schema:
    return {"type": "number", "exclusiveMinimum" if above_low else "minimum": low, "maximum": high}


def duration(low: float, high: float, *, above_low: bool = False) -> Schema:
    return one_of(number(low, high, above_low=above_low), matching(SPAN))


def whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def choice(*choices: str) -> Schema:
    return {"enum": list(choices)}


def items(of: Schema, *, items_max: int, items_min: int = 0, unique: bool = False) -> Schema:
    found: Schema = {"type": "array", "items": of, "maxItems": items_max}
    return {**found, **({"minItems": items_min} if items_min else {}), **({"uniqueItems": True} if unique else {})}


def mapping(properties: Mapping[str, Schema], *, required: Iterable[str] = ()) -> Schema:
    """`Node.mapping`: only keys that are known."""
    found: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**found, **({"required": list(required)} if required else {})}


def one_of(*choices: Schema) -> Schema:
    """Any of them; a value that fits two is as good as one that fits one."""
    return {"anyOf": list(choices)}


def described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def document(schema: Schema, *, title: str, command: str) -> Schema:
    """A whole schema, with the command that writes it again after an upgrade."""
    return {"$schema": DIALECT, "$comment": f"Written by: {command}", "title": title, **schema}
