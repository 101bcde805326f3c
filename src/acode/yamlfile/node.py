"""A value in a file that somebody wrote, its place, and the sentences that say what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

import msgspec

from acode.errors import AcodeError
from acode.text.durations import span

SHOWN_CHARS_MAX = 60
ERRORS_MAX = 100  # of one file; a suggestion for each of a million wrong keys would take minutes

Scalar: TypeAlias = bool | int | float | str | None
Value = TypeVar("Value")
Given = ParamSpec("Given")


class Mark(NamedTuple):
    """A place in a file; both count from 1, as editors do."""

    line: int
    column: int


def in_full(number: float) -> str:
    """A bound as a person writes it: 0.5, 86400, 2,592,000."""
    return f"{number:,.0f}" if abs(number) >= 1_000_000 else f"{number:g}"


class Source(msgspec.Struct, frozen=True):
    """The origin of a text: the name shown in messages, and the class of error for a mistake in it.

    `gathered`: None where the first mistake ends the reading; a list where the reader collects all of them.
    """

    name: str
    error: type[AcodeError]
    gathered: list[AcodeError] | None = None

    def problem(self, text: str, *, where: str = "", at: Mark | None = None, hint: str | None = None) -> AcodeError:
        place = f"{self.name}:{at.line}:{at.column}" if at else self.name
        inside = f"{where}: " if where else ""
        details: dict[str, Any] = {"path": self.name}
        if at:
            details |= {"line": at.line, "column": at.column}
        return self.error(f"{place}: {inside}{text}", hint=hint, **details)

    def refuse(self, problem: AcodeError) -> None:
        """Raise the error; where errors are gathered, keep it and let the reader continue with the next value."""
        if self.gathered is None or len(self.gathered) >= ERRORS_MAX:
            raise problem
        self.gathered.append(problem)

    def attempt(self, read: Callable[Given, Value], *args: Given.args, **named: Given.kwargs) -> Value | None:
        """The value that `read` returns; None where it refused the value and errors are gathered."""
        try:
            return read(*args, **named)
        except self.error as problem:
            self.refuse(problem)
            return None

    def each(self, read: Callable[[Node], Value | None], nodes: Iterable[Node]) -> tuple[Value, ...]:
        """The values of all nodes that can be read."""
        return tuple(value for node in nodes if (value := self.attempt(read, node)) is not None)

    @property
    def mistakes(self) -> int:
        return len(self.gathered or ())


class Node(msgspec.Struct, frozen=True, eq=False):
    """A value and its place. Data that did not come from a file (a model's plan) has no mark."""

    data: Scalar | tuple[Node, ...] | dict[str, Node]
    source: Source
    where: str = ""
    at: Mark | None = None
    key_at: Mark | None = None

    def problem(self, text: str, *, hint: str | None = None) -> AcodeError:
        return self.source.problem(text, where=self.where, at=self.at, hint=hint)

    def wrong(self, expected: str, *, hint: str | None = None) -> AcodeError:
        return self.problem(f"expected {expected}, found {self.found}", hint=hint)

    @property
    def found(self) -> str:
        match self.data:
            case None:
                return "nothing"
            case bool():
                return "true" if self.data else "false"
            case int() | float():
                return f"a number ({self.data})"
            case str():
                return f"the text {shown(self.data)}"
            case tuple():
                return "a list" if self.data else "an empty list"
            case _:
                return "a mapping" if self.data else "an empty mapping"

    def mapping(self, allowed: Iterable[str], expected: str) -> dict[str, Node]:
        """The entries of a mapping that has only keys we know; `expected` says what it should be."""
        if not isinstance(self.data, dict):
            raise self.wrong(expected)
        allowed = tuple(allowed)
        for key, entry in self.data.items():
            if key not in allowed:
                problem = self.source.problem(
                    f"unknown key {shown(key)}{did_you_mean(key, allowed)}",
                    where=self.where,
                    at=entry.key_at,
                    hint=f"Known here: {', '.join(allowed)}.",
                )
                self.source.refuse(problem)
        return {key: entry for key, entry in self.data.items() if key in allowed}

    def items(self, expected: str, *, items_max: int) -> tuple[Node, ...]:
        if not isinstance(self.data, tuple):
            raise self.wrong(expected)
        if len(self.data) > items_max:
            raise self.problem(f"expected at most {items_max:,} items, found {len(self.data):,}")
        return self.data

    def text(self, expected: str = "text", *, chars_max: int, hint: str | None = None) -> str:
        """A text that is not blank."""
        if not isinstance(self.data, str):
            raise self.wrong(expected, hint=hint or ("Quote it." if isinstance(self.data, int | float) else None))
        if not self.data.strip():
            raise self.problem(f"expected {expected}, found a blank text", hint=hint)
        if len(self.data) > chars_max:
            raise self.problem(f"expected at most {chars_max:,} characters, found {len(self.data):,}")
        return self.data

    def flag(self) -> bool:
        if not isinstance(self.data, bool):
            raise self.wrong("true or false")
        return self.data

    def number(self, low: float, high: float, *, above_low: bool = False, unit: str = "", other: str = "") -> float:
        """A number from `low` to `high`; with `above_low` the lower bound itself is too small. `other`: what may stand
        there in its place, for the sentence about a wrong value.
        """
        value = self.data
        least, most = in_full(low), in_full(high)
        bounds = f"more than {least} and at most {most}" if above_low else f"from {least} to {most}"
        expected = f"a number {f'of {unit} ' if unit else ''}{bounds}{other}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(expected)
        if not low <= value <= high or (above_low and value == low):
            raise self.wrong(expected)
        return float(value)

    def duration(self, low: float, high: float, *, above_low: bool = False, unit: str = "seconds") -> float:
        """So many seconds or days: a number of them, or a text with a unit of its own, such as 30m."""
        found = span(self.data) if isinstance(self.data, str) and self.data == self.data.strip() else None
        if found is None:
            return self.number(low, high, above_low=above_low, unit=unit, other=", or a duration such as 30m")
        value = found / timedelta(**{unit: 1})
        if not low <= value <= high or (above_low and value == low):
            bounds = f"{'more than' if above_low else 'at least'} {in_full(low)} and at most {in_full(high)} {unit}"
            raise self.problem(f"expected a duration of {bounds}, found {self.found}")
        return value

    def whole(self, low: int, high: int) -> int:
        if isinstance(self.data, bool) or not isinstance(self.data, int) or not low <= self.data <= high:
            raise self.wrong(f"a whole number from {low} to {high}")
        return self.data

    def choice(self, *choices: str) -> str:
        if not isinstance(self.data, str) or self.data not in choices:
            close = did_you_mean(self.data, choices) if isinstance(self.data, str) else ""
            raise self.problem(f"expected {listed(choices)}, found {self.found}{close}")
        return self.data


# Sentences.


def shown(text: str) -> str:
    """Foreign text in a message: quoted, short, and without characters that a terminal would obey."""
    clipped = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in clipped) + '"'


def listed(choices: Iterable[str]) -> str:
    *most, last = choices
    return f"{', '.join(most)} or {last}" if most else last


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = closest(word, known)
    return f'; did you mean "{close}"?' if close else ""


def closest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The name that was most likely meant; None where nothing is like it, or two are like it to the same degree.

    A name that holds all words of it comes before one that merely looks like it: `max_attempts` is
    `max_resume_attempts` and not `attempts`, which is a setting of another meaning.
    """
    from difflib import SequenceMatcher, get_close_matches

    spelled = {name.lower(): name for name in known}
    typed = word[:SHOWN_CHARS_MAX].lower()
    parts = set(re.split(r"[._-]", typed))
    holding = [name for name in spelled if len(parts) > 1 and parts <= set(re.split(r"[._-]", name))]
    close = get_close_matches(typed, holding or spelled, n=2, cutoff=0 if holding else likeness)
    if len(close) == 2 and len({SequenceMatcher(None, name, typed).ratio() for name in close}) == 1:
        return None
    return spelled[close[0]] if close else None


def inside(where: str, key: str) -> str:
    plain = key if re.fullmatch(r"[\w-]{1,60}", key) else shown(key)
    return f"{where}.{plain}" if where else plain
