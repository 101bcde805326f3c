"""The base of every error of acode: a code, an exit status, a sentence, and a hint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from acode.hints import Hint


class AcodeError(Exception):
    """The root: the message names the thing and the reason, the hint the next command."""

    code: ClassVar[str] = "ACODE-000"
    exit_code: ClassVar[int] = 1
    detail_code: ClassVar[str] = ""  # a finer code among the details, where several errors share one
    default_hint: ClassVar[Hint | str] = ""
    hint: str = ""  # for its reader: a person, or the program that calls the library

    __slots__ = ("unrendered_hint",)  # no part of an exception that is recorded: its text is

    def __init__(self, message: str, *, hint: Hint | str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.give_hint(hint if hint is not None else self.default_hint)
        self.details: dict[str, Any] = {**details, "detail_code": self.detail_code} if self.detail_code else details
        self.others: tuple[AcodeError, ...] = ()  # what else is wrong with the same file; for people, not in the JSON

    def give_hint(self, hint: Hint | str) -> None:
        """Another hint than the one it has."""
        self.unrendered_hint: Hint | str = hint
        self.hint = hint if isinstance(hint, str) else hint.as_command()

    def address_program(self, key: str) -> None:
        """From here on the hint names calls, for the program that opens the session with this key."""
        given = getattr(self, "unrendered_hint", self.hint)  # one that was raised again from the record has the text
        self.hint = given if isinstance(given, str) else given.as_call(key)

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "exit_code": self.exit_code,
            "details": self.details,
        }


def every_error() -> Iterator[type[AcodeError]]:
    """All error classes in order of their codes, for the documentation table."""
    found: list[type[AcodeError]] = []
    waiting = list(AcodeError.__subclasses__())
    while waiting:
        cls = waiting.pop()
        found.append(cls)
        waiting.extend(cls.__subclasses__())
    yield from sorted(found, key=lambda cls: cls.code)
