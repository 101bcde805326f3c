"""Worlds for tests that drive the engine itself: a place on disk, a clock the test may own, and ears that remember."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uuid_utils.compat as uuids

from acode.config import load_config
from acode.engine.notices import Notice
from acode.engine.world import Nobody, StopSwitch, World
from acode.events.definition import Plan, digest
from acode.planfile import PlanFile, parse_plan
from acode.redact import redactor


class Ears:
    """A listener that remembers what was told, and what was acknowledged."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.durable_seq = 0

    def emit(self, notice: Notice) -> None:
        self.notices.append(notice)

    def durable(self, seq: int) -> None:
        self.durable_seq = seq

    def events(self, name: str) -> list[Notice]:
        return [notice for notice in self.notices if notice.body.event == name]


def world(
    place: Path,
    *,
    listener: Any = None,
    answers: Any = None,
    clock: Callable[[], datetime] | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> World:
    """The workspace is `place/workspace`, the user's state `place/state`: nothing of the test's own home is touched."""
    workspace = place / "workspace"
    workspace.mkdir(exist_ok=True)
    variables = dict(env if env is not None else {"PATH": os.environ["PATH"], "HOME": os.fspath(place)})
    return World(
        workspace=workspace,
        state_dir=place / "state",
        config=load_config(workspace, variables, flags or {}),
        env=variables,
        clock=clock or (lambda: datetime.now(UTC)),
        monotonic=time.monotonic,
        sleep=time.sleep,
        new_id=lambda: str(uuids.uuid7()),
        listener=listener or Ears(),
        answers=answers or Nobody(),
        stop=StopSwitch(time.monotonic, 30.0),
        redactor=redactor([]),
    )


def plan_file(text: str) -> PlanFile:
    """A plan written in a test, as if it had been read from a file."""
    plan: Plan = parse_plan(text, "plan.yml", plan_bytes_max=262_144, timeout_s_default=60.0)
    return PlanFile(plan=plan, path="plan.yml", sha256=digest(plan))
