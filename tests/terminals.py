"""acode on a real terminal: what it asks is read, what a person types is typed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

WAIT_S_MAX = 20
Terminal = Callable[..., "pexpect.spawn[str]"]


@pytest.fixture
def terminal(workspace: Path) -> Iterator[Terminal]:
    started: list[pexpect.spawn[str]] = []

    def start(*words: str, columns: int = 100) -> pexpect.spawn[str]:
        child = pexpect.spawn(
            sys.executable,
            ["-m", "acode", *words],
            cwd=str(workspace),
            env={**os.environ, "NO_COLOR": "1", "TERM": "xterm"},
            encoding="utf-8",
            timeout=WAIT_S_MAX,
            dimensions=(40, columns),
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.close(force=True)


def ended(child: pexpect.spawn[str]) -> int:
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus is not None
    return child.exitstatus
