"""A place to work for one step kind: a real workspace with a real log, without the engine around it.

`bench.start(step)` is the moment after the start is durable: what a crash right behind it leaves for settlement.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import uuid_utils.compat as uuids

from acode import lock, seal
from acode.config import load_config
from acode.engine.world import Nobody, StopSwitch, World
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Plan, Step, Task, digest
from acode.redact import redactor
from acode.steps import kind_of
from acode.steps.interface import Done, Failed, Site
from acode.store.store import Store
from acode.workspace import Root, ensure_agent_dir, hash_file


class Patient:
    """Nobody wants the run to end; or somebody does, as soon as `hurry` says so."""

    def __init__(self, hurry: Callable[[], bool] = lambda: False) -> None:
        self._hurry = hurry

    def at_boundary(self) -> bool:
        return self._hurry()

    def at_once(self) -> bool:
        return self._hurry()


class Silent:
    """A listener that keeps what it heard."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def emit(self, notice: Any) -> None:
        self.heard.append(notice)

    def durable(self, seq: int) -> None:
        pass


class Bench:
    """One session with the given steps, in the middle of its work."""

    def __init__(self, workspace: Path, state: Path, *steps: Step, env: Mapping[str, str] | None = None) -> None:
        self.workspace = workspace
        self.env = dict(os.environ) | dict(env or {})
        self.root = Root(workspace)
        self.agent_dir = ensure_agent_dir(self.root)
        self.manifest: dict[str, ev.FileState] = {}
        self.shown = b""
        self.stop = Patient()
        keyring = seal.load_keyring(state, {})
        self.store = Store(self.agent_dir, keyring, clock=lambda: datetime.now(UTC), new_id=lambda: str(uuids.uuid7()))
        self.journal = self.store.create()
        plan = Plan(title="A plan", tasks=(Task(id="main", title="main", steps=steps),))
        owner = ev.Owner(pid=1, host="here", user="you", boot_id="b")
        created = ev.SessionCreated(title="A plan", task="A plan", plan=plan, owner=owner, acode_version="0")
        planned = ev.SessionPlanned(tasks=1, steps=len(steps), plan_digest="d")
        self.journal.append(created, planned, ev.SessionExecuting(reason="run"))

    @property
    def session_id(self) -> str:
        return self.journal.session.session_id

    def close(self) -> None:
        self.store.close()
        self.root.close()

    def know(self, *paths: str) -> None:
        """Files that the session has read or written before."""
        self.manifest.update({path: hash_file(self.root, path) for path in paths})

    def site(self, **changes: Any) -> Site:
        def show(step: str, piece: bytes) -> None:
            self.shown += piece

        given: dict[str, Any] = {
            "root": self.root,
            "agent_dir": self.agent_dir,
            "session_id": self.session_id,
            "store": self.store,
            "env": self.env,
            "redactor": redactor([]),
            "manifest": self.manifest,
            "stop": self.stop,
            "show": show,
            "idle": lambda: None,
            "keeping": lambda event: None,
            "output_limit_bytes": 1_048_576,
            "timeout_s": 30.0,
            "boot_id": lock.boot_id(),
        }
        return Site(**{**given, **changes})

    def kind(self, step: Step) -> Any:
        kind = kind_of(step.kind)
        assert isinstance(kind, ModuleType)
        return kind

    def start(self, step: Step, attempt: int = 1) -> ev.StepStarted:
        prepared = self.kind(step).prepare(step, self.site())
        started = ev.StepStarted(
            step=step.id,
            task=step.task,
            kind=step.kind,
            attempt=attempt,
            key=make_key(self.session_id, step.id, attempt),
            action_digest=digest(step),
            boot_id=lock.boot_id(),
            target=prepared.target,
        )
        self.journal.append(started, blobs=prepared.blobs)
        return started

    def execute(self, step: Step, started: ev.StepStarted, **changes: Any) -> Done | Failed:
        outcome: Done | Failed = self.kind(step).execute(step, self.site(**changes), started)
        return outcome

    def run(self, step: Step, attempt: int = 1) -> Done | Failed:
        return self.execute(step, self.start(step, attempt))

    def look(self, step: Step, started: ev.StepStarted, **changes: Any) -> Any:
        return self.kind(step).look(step, self.site(**changes), started)

    def adopt(self, step: Step, started: ev.StepStarted) -> Done:
        done: Done = self.kind(step).adopt(step, self.site(), started)
        return done


def world(workspace: Path, state: Path, *, env: Mapping[str, str] | None = None) -> World:
    """The engine's world with nobody to ask and a listener that keeps what it heard."""
    environment = dict(os.environ) | dict(env or {})
    return World(
        workspace=workspace,
        state_dir=state,
        config=load_config(workspace, environment, {}),
        env=environment,
        clock=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        sleep=time.sleep,
        new_id=lambda: str(uuids.uuid7()),
        listener=Silent(),
        answers=Nobody(),
        stop=StopSwitch(time.monotonic, 30.0),
        redactor=redactor([]),
    )
