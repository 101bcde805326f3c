"""The value of a bare word, by the core schema of YAML 1.2, and the texts and numbers that no file may hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from acode.yamlfile.node import Scalar, shown

INTEGER_MAX = 2**63 - 1

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_BASED = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,400}|[0-9]{1,400}(\.[0-9]{0,400})?)([eE][-+]?[0-9]{1,10})?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Mapping[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def plain_value(text: str) -> Scalar:
    """The value of an unquoted word; ValueError says in a sentence why it has none."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return checked_integer(int(text))
    if _BASED.fullmatch(text):
        return checked_integer(int(text[2:], 8 if text[1] == "o" else 16))
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"expected a finite number, found {shown(text)}")
    if _FLOAT.fullmatch(text):
        return checked_float(float(text))
    return checked_text(text)


def checked_integer(value: int) -> int:
    if abs(value) > INTEGER_MAX:
        raise ValueError(f"expected a number of at most {INTEGER_MAX}, found a larger one")
    return value


def checked_float(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("expected a finite number, found one that is not")
    return value


def checked_text(text: str) -> str:
    """The text with surrogate pairs joined, as JSON writers split them.

    Escapes can make what a file itself may not hold: NUL ends C strings, a lone surrogate cannot be written anywhere.
    """
    if "\0" in text:
        raise ValueError("a text may not hold the character NUL")
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise ValueError("a text may not hold a lone surrogate") from error
