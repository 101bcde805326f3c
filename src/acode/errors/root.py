"""What every error of acode has: a code, an exit status, a sentence, and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar


class AcodeError(Exception):
    """The root: message names the thing and the reason, hint the way out."""

    code: ClassVar[str] = "ACODE-000"
    exit_code: ClassVar[int] = 1
    detail_code: ClassVar[str] = ""  # a finer code among the details, where several errors share one
    hint: str = ""

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else type(self).hint
        self.details = {**details, "detail_code": self.detail_code} if self.detail_code else details
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
