"""The base of every error of acode: a code, an exit status, a sentence, and a hint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Protocol


class TwoForms(Protocol):
    """A hint that is a command for a person and a call for a program."""

    def as_command(self) -> str: ...
    def as_call(self) -> str: ...


class HintForms(NamedTuple):
    """The two forms of a hint that says different things to a person and to a program."""

    command: str
    call: str

    def as_command(self) -> str:
        return self.command

    def as_call(self) -> str:
        return self.call


class AcodeError(Exception):
    """The root: the message names the thing and the reason, the hint the next command."""

    code: ClassVar[str] = "ACODE-000"
    exit_code: ClassVar[int] = 1
    detail_code: ClassVar[str] = ""  # a finer code among the details, where several errors share one
    hint: str = ""

    def __init__(self, message: str, *, hint: str | TwoForms | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.in_two_forms = hint if hint is not None and not isinstance(hint, str) else None
        text = hint if isinstance(hint, str) or hint is None else hint.as_command()
        self.hint = text if text is not None else type(self).hint
        self.details: dict[str, Any] = {**details, "detail_code": self.detail_code} if self.detail_code else details
        self.others: tuple[AcodeError, ...] = ()  # what else is wrong with the same file; for people, not in the JSON

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
