"""An arc checkpoint as a value: strict JSON in, the same JSON out, nothing trusted in between.

Decoding must never guess. A duplicate key, a NaN, a lone surrogate or a nesting bomb makes two readers see two
different runs, so each of them is a named error. Text of a foreign run is shown only through `shown`.
"""

from __future__ import annotations

import json
import math
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

from acode.errors import ForeignUnreadable

Raw = dict[str, Any]

CHECKPOINT_BYTES_MAX: Final = 4 * 1024 * 1024
JSON_DEPTH_MAX: Final = 64
SHOWN_CHARS_MAX: Final = 200
EPOCH_MS_MAX: Final = 253_402_300_799_000  # the last second of the year 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The content of one checkpoint.json, kept whole, unknown fields included."""

    root: Path
    relative: str
    raw: Raw
    mtime: float

    @property
    def path(self) -> Path:
        return self.root / self.relative

    @property
    def run_id(self) -> str:
        return Path(self.relative).parent.name


def decode(data: bytes, *, name: str) -> Raw:
    """One JSON object, or ForeignUnreadable naming the file and the reason."""
    if len(data) > CHECKPOINT_BYTES_MAX:
        raise ForeignUnreadable(f"{name} holds {len(data)} bytes; the limit is {CHECKPOINT_BYTES_MAX}.")
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite_float
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate fails here and nowhere earlier
    except RecursionError:
        raise ForeignUnreadable(f"{name} is nested deeper than {JSON_DEPTH_MAX} levels.") from None
    except ValueError as problem:  # JSON and Unicode errors are ValueErrors
        raise ForeignUnreadable(f"{name} is not valid JSON: {shown(str(problem))}.") from None
    if not isinstance(value, dict):
        raise ForeignUnreadable(f"{name} holds no JSON object.")
    if _deeper_than(value, JSON_DEPTH_MAX):
        raise ForeignUnreadable(f"{name} is nested deeper than {JSON_DEPTH_MAX} levels.")
    return value


def encode(value: Raw) -> bytes:
    """The bytes that go to disk: keys in the order they came, as the host tool writes them."""
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode("utf-8")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> Raw:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # 1e999 would be written back as Infinity, which no reader accepts
        raise ValueError(f"the number {text[:20]} is out of range")
    return number


def _deeper_than(value: object, levels_max: int) -> bool:
    level: list[Any] = [value]
    for _ in range(levels_max):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def shown(text: object, chars_max: int = SHOWN_CHARS_MAX) -> str:
    """Foreign text for people, on one line: no control, formatting or bidirectional characters, and cut."""
    kept = "".join(
        " " if char in "\t\n\r" else char for char in str(text)[: chars_max * 2] if char in "\t\n\r" or _printable(char)
    )
    return kept if len(kept) <= chars_max else kept[: chars_max - 1] + "…"


def shown_block(text: str, chars_max: int) -> str:
    """Foreign text of several lines: as `shown`, but line ends and tabs stay."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(char for char in plain if char in "\n\t" or _printable(char))[:chars_max]


def _printable(char: str) -> bool:
    # Controls, bidirectional and zero-width marks, line separators, surrogates, and what has no shape at all.
    return unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")


def moment(stamp: object) -> datetime | None:
    """A time as these files write it: ISO 8601 text, or a number of milliseconds; None for anything else."""
    try:
        if isinstance(stamp, bool):
            return None
        if isinstance(stamp, int | float) and 0 <= stamp <= EPOCH_MS_MAX:
            return datetime.fromtimestamp(stamp / 1000, tz=UTC)
        if not isinstance(stamp, str) or len(stamp) > 64:
            return None
        parsed = datetime.fromisoformat(stamp)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def stamp(at: datetime) -> str:
    """A time in the spelling of the host tool: UTC with milliseconds and a Z."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def object_at(value: Raw, key: str) -> Raw:
    """The object under a key, or an empty one where there is none."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}
