"""Looks at agent-memory logs that are folded in two shares, however short they are."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

import pytest

from acode.formats.agent_memory import fold_merge, fold_shares

LIMITS_OF_SHARES = [
    (fold_merge, "SKIPPED_RANGES_MAX", 3),
    (fold_merge, "TASKS_MAX", 2),
    (fold_merge, "UNKNOWN_TYPES_SHOWN_MAX", 1),
]


class Here:
    """A worker that is no process of its own: a test's process has threads."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        self._work = work

    def answer(self) -> bytes | None:
        return self._work()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def shared_in_this_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold_shares, "SHARE_BYTES_MIN", 1)
    patch.setattr(fold_shares, "can_fork", lambda: True)
    patch.setattr(fold_shares, "Worker", Here)
