"""Functions that remember how often they were called, and sessions that are left in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import acode


class Counted:
    """Returns its result, or raises it, and remembers every call."""

    __name__ = __qualname__ = "counted"

    def __init__(self, *results: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.results = results or (None,)

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        result = self.results[min(len(self.calls), len(self.results)) - 1]
        if isinstance(result, Exception):
            raise result
        return result


class Stop(Exception):
    """Ends a block before its end."""


def interrupted(key: str, *steps: Callable[[acode.Session], object], **wishes: Any) -> None:
    """A session that does the steps and is then left in the middle."""
    with pytest.raises(Stop), acode.session(key, **wishes) as s:
        for step in steps:
            step(s)
        raise Stop
