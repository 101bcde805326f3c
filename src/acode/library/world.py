"""The world of a program: its workspace, its settings and its environment, with nobody to ask.

A program that `acode resume` has called finds the world of that command instead, with its terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from acode.config import effective, is_trusted, load_config, state_dir
from acode.config.platforms import refuse_unsupported
from acode.engine.make_world import make_world
from acode.engine.notices import Notice, StepCompleted, StepOutput, StepStarted
from acode.engine.world import Options, Result, World
from acode.errors import AcodeError, UnsafeWorkspace, Usage


class Lent(NamedTuple):
    """The values that `acode resume` gives to the program it calls: its world, the options, and the place for the
    ending.
    """

    session_id: str
    world: World
    options: Options
    endings: list[Result]


LENT: ContextVar[Lent | None] = ContextVar("acode_lent", default=None)


def show_as_call(error: BaseException | None, key: str) -> None:
    """An error that leaves the library says what to call, also in its traceback. The command line says what to type."""
    if not isinstance(error, AcodeError) or LENT.get() is not None:
        return
    error.address_program(key)
    note = f"hint: {error.hint}"
    if error.hint and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


@contextmanager
def errors_as_calls(key: str) -> Iterator[None]:
    """Errors inside name calls for the session of this key."""
    try:
        yield
    except AcodeError as error:
        show_as_call(error, key)
        raise


class LogFile:
    """The log file hears what a person would look for; it is opened when there is something to write."""

    unheard: tuple[type, ...] = (StepStarted, StepCompleted, StepOutput)  # the session's own events show these

    def __init__(self) -> None:
        self.world: World | None = None
        self._log: Any = None

    def emit(self, notice: Notice) -> None:
        if isinstance(notice.body, self.unheard) or self.world is None:
            return
        if self._log is None:
            from acode.log_file import log_of

            self._log = log_of(self.world)
        self._log.emit(notice)

    promises = False

    def durable(self, seq: int) -> None:
        """The log file promises nothing."""


def world_of(workspace: str | os.PathLike[str]) -> World:
    env = dict(os.environ)
    refuse_unsupported(sys.platform, env)
    place = find_place(workspace, env)
    config = load_config(place, env, {})
    sha256 = config.workspace_file_sha256
    if config.executes and sha256 is not None and is_trusted(state_dir(env), place, sha256):
        config = effective(config, trusted=True)
    listener = LogFile()
    world = make_world(workspace=place, env=env, config=config, listener=listener)
    listener.world = world
    return world


def find_place(workspace: str | os.PathLike[str], env: dict[str, str]) -> Path:
    place = Path(workspace)
    if not place.is_dir():
        raise Usage(f"workspace {place}: there is no such directory")
    found = place.resolve()
    home = env.get("HOME") or env.get("USERPROFILE") or ""
    if found == Path(found.anchor) or (home and os.path.realpath(home) == os.fspath(found)):
        raise UnsafeWorkspace(
            f"{found} is too wide a place for a workspace", hint="Name your project's directory: workspace=…"
        )
    return found
