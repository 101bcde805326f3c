"""Build a `World`: the clock, the ids, the stop switch and the redactor are the same for a command and a program.

The command line and the library differ only in what they pass: a workspace, settings, an environment, a listener and a
way of asking. The environment is an argument here as everywhere in the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acode.config import Config, state_dir
from acode.engine.world import Answers, Listener, Nobody, StopSwitch, World
from acode.lease_file import Lease

if TYPE_CHECKING:
    from acode.redact import Redactor


class LazyRedactor:
    """The redactor, made when it is first needed: its rules cost more than a short command or program takes."""

    def __init__(self, env: Mapping[str, str], *, strict: bool) -> None:
        self._env = env
        self._strict = strict
        self._made: Redactor | None = None
        self.learned: tuple[str, ...] = ()

    def learn(self, values: Iterable[str]) -> None:
        self.learned = tuple(dict.fromkeys((*self.learned, *values)))
        if self._made is not None:
            self._made.learn(self.learned)

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            from acode.redact import looks_secret, redactor

            self._made = redactor([value for key, value in self._env.items() if looks_secret(key)], self._strict)
            self._made.learn(self.learned)
        found = getattr(self._made, name)
        setattr(self, name, found)  # asked for at every step: from now on it is found without asking here
        return found


def make_world(
    *,
    workspace: Path,
    env: Mapping[str, str],
    config: Config,
    listener: Listener,
    answers: Answers | None = None,
    lease: Lease | None = None,
    **more: Any,
) -> World:
    """The world of a command or a program; `more` are the fields that only one of them has."""
    grace_s = config.settings.steps.stop_grace_seconds
    if lease is not None:  # a step that is waited for longer would outlive it
        grace_s = min(grace_s, lease.seconds / 3)
    redactor: Any = LazyRedactor(env, strict=config.settings.redaction.strict)
    return World(
        workspace=workspace,
        state_dir=state_dir(env),
        config=config,
        env=env,
        clock=now,
        monotonic=time.monotonic,
        sleep=time.sleep,
        new_id=new_id,
        listener=listener,
        answers=answers or Nobody(),
        stop=StopSwitch(time.monotonic, grace_s),
        lease=lease,
        redactor=redactor,
        **more,
    )


now: Callable[[], datetime] = partial(datetime.now, UTC)


def new_id() -> str:
    return str(_uuid7()())


@cache
def _uuid7() -> Callable[[], object]:
    """Loaded by the first one who needs an id: a command that only looks needs none."""
    from uuid_utils import uuid7

    return uuid7
