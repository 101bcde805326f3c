"""The YAML head of a plan or context file. Every scalar is read as text, so that a commit id of digits stays one."""

from __future__ import annotations

import re
from typing import Any, Final

HEAD_BYTES_MAX: Final = 64 * 1024
# The end is a line of its own: three dashes inside a value do not close the head.
HEAD: Final = re.compile(rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


def head_span(data: bytes) -> tuple[int, int, int] | None:
    """Where the head's text starts and ends, and where the body starts; None where there is no closed head."""
    match = HEAD.match(data[:HEAD_BYTES_MAX])
    return (match.start(1), match.end(1), match.end()) if match else None


def parse_head(data: bytes) -> dict[str, Any] | None:
    """The fields of the head, all scalars as text; None for no head or a malformed one."""
    from ruamel.yaml import YAML

    span = head_span(data)
    if span is None:
        return None
    try:
        found = YAML(typ="base", pure=True).load(data[span[0] : span[1]].decode("utf-8"))
    except Exception:  # the parser is fed hostile text; whatever it raises, the head is malformed
        return None
    return found if isinstance(found, dict) else None


def text_field(head: dict[str, Any], key: str) -> str | None:
    found = head.get(key)
    return found if isinstance(found, str) and found else None


def list_field(head: dict[str, Any], key: str, *, count_max: int) -> list[str]:
    found = head.get(key)
    return [item for item in found if isinstance(item, str)][:count_max] if isinstance(found, list) else []
