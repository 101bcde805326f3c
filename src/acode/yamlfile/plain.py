"""The same nodes from decoded JSON or Python data, such as a plan that a model made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acode.yamlfile.node import Node, Scalar, Source, inside
from acode.yamlfile.parser import NESTING_DEPTH_MAX
from acode.yamlfile.scalars import checked_float, checked_integer, checked_text


def from_data(data: object, source: Source, *, where: str = "", depth: int = 0) -> Node:
    """Nodes from decoded JSON or Python data, under the same rules; errors name the place by its path alone."""

    def node(value: Scalar | tuple[Node, ...] | dict[str, Node]) -> Node:
        return Node(value, source, where)

    def checked(check: Callable[[Any], Scalar], value: object) -> Node:
        try:
            return node(check(value))
        except ValueError as error:
            raise source.problem(str(error), where=where) from error

    if depth > NESTING_DEPTH_MAX:
        raise source.problem(f"is nested deeper than {NESTING_DEPTH_MAX} levels", where=where)
    match data:
        case None | bool():
            return node(data)
        case int():
            return checked(checked_integer, data)
        case float():
            return checked(checked_float, data)
        case str():
            return checked(checked_text, data)
        case Mapping():
            keys = [_text_key(key, source, where) for key in data]
            return node({key: _child(data[key], source, inside(where, key), depth) for key in keys})
        case Sequence() if not isinstance(data, bytes | bytearray | memoryview):
            return node(tuple(_child(v, source, f"{where}[{index}]", depth) for index, v in enumerate(data)))
        case _:
            raise source.problem(f"expected plain data, found a {type(data).__name__}", where=where)


def _text_key(key: object, source: Source, where: str) -> str:
    if not isinstance(key, str):
        raise source.problem(f"expected a text as key, found a {type(key).__name__}", where=where)
    try:
        return checked_text(key)
    except ValueError as error:
        raise source.problem(str(error), where=where) from error


def _child(value: object, source: Source, where: str, depth: int) -> Node:
    return from_data(value, source, where=where, depth=depth + 1)
