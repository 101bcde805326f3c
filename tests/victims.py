"""Small real sessions to be attacked: made by the engine, in a place of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from acode import seal
from acode.engine.create import run_plan
from acode.engine.world import Result, World
from acode.store import checkpoints as ck
from acode.store.store import Loaded, Store
from tests.tampering import Attack
from tests.worlds import plan_file, world

AT_GATE = """
version: 1
title: Build and deploy
tasks:
  - id: build
    steps:
      - write: {path: out/a.txt, content: "new\\n"}
      - run: echo built
  - id: deploy
    steps:
      - approve: "Deploy to production?"
      - run: echo deployed >> deployed.txt
"""

FAILED = """
version: 1
title: Four commands
tasks:
  - id: main
    steps:
      - run: echo one >> log.txt
      - run: echo two >> log.txt
      - run: echo three >> log.txt
      - run: test -f go
"""


class Victim:
    """A session, the world it was made in, and an attacker beside it."""

    def __init__(self, place: Path, plan: str = AT_GATE) -> None:
        place.mkdir(exist_ok=True)
        self.world: World = world(place)
        (self.world.workspace / "out").mkdir(exist_ok=True)
        (self.world.workspace / "out" / "a.txt").write_text("old\n")
        self.result: Result = run_plan(self.world, plan_file(plan))
        self.id = self.result.session_id
        self.attack = Attack(self.world.workspace)

    def store(self, *, look_only: bool = True) -> Store:
        keyring = seal.load_keyring(self.world.state_dir, self.world.env)
        agent_dir, clock, new_id = self.world.agent_dir, self.world.clock, self.world.new_id
        return Store(agent_dir, keyring, clock=clock, new_id=new_id, look_only=look_only)

    def load(self) -> Loaded:
        with self.store() as store:
            return store.load(self.id)

    def file(self, name: str) -> str:
        path = self.world.workspace / name
        return path.read_text() if path.exists() else ""


def with_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a small session gets full snapshots."""
    monkeypatch.setattr(ck, "SNAPSHOT_BYTES_MIN", 700)
