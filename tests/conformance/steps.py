"""A step as the conformance suite states it: one line of shell, and what is declared of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import msgspec


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The same for every source. name: also the word that the line leaves in the ledger."""

    name: str
    line: str = ""
    gate: str = ""  # a question to a person, in place of a line
    idempotent: bool = False
    retry: tuple[int, float] | None = None  # attempts, seconds between them
    timeout_s: float | None = None
    cwd: str | None = None
    outputs: tuple[str, ...] = ()
    secret_env: tuple[str, ...] = ()


def note(name: str) -> str:
    """A line whose effect is outside the workspace, and counted there."""
    return f'echo {name} >> "$LEDGER"'


def wait_for(path: Path) -> str:
    """A line that ends when the test lets it."""
    return f'while [ ! -e "{path}" ]; do sleep 0.02; done'


KILL_ACODE = 'kill -9 "$RUNNER"'
# As if the machine went down: acode, the keeper of the command, and the command itself.
KILL_ALL = 'kill -9 "$RUNNER" "$PPID" 2>/dev/null; kill -9 $$'


def perform_call(line: str) -> str:
    """What a program's function does: it runs the line itself, without acode."""
    ended = subprocess.run(
        ["/bin/sh", "-c", line], check=False, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    if ended.returncode:
        raise RuntimeError(f"the line ended with {ended.returncode}: {ended.stdout}")
    return ended.stdout


async def perform_async(line: str) -> str:
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", line, stdout=subprocess.PIPE)
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"the line ended with {process.returncode}: {printed.decode()}")
    return printed.decode()
