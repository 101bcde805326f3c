"""Refused attempts, with the whole engine: they are recorded, and change nothing else."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from acode import lock, seal
from acode.engine.create import run_plan
from acode.engine.preview import preview
from acode.engine.resume import resume
from acode.engine.world import Options, World
from acode.errors import CoolingDown
from acode.events import types as ev
from acode.state import State
from acode.store.store import Store
from tests.builders import started
from tests.stores import log_of
from tests.worlds import plan_file, world

PLAN = """
title: Two files
tasks:
  - title: Write
    steps:
      - write: {path: a.txt, content: a}
      - approve: Go on?
      - write: {path: b.txt, content: b}
"""


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)

    def __call__(self) -> datetime:
        return self.now


def crashed(tmp_path: Path, clock: Clock) -> tuple[World, str, Store]:
    """A session killed in the middle of its last step; the lock file tells when the process last showed life."""
    made = world(tmp_path, clock=clock)
    session_id = run_plan(made, plan_file(PLAN)).session_id
    keyring = seal.load_keyring(made.state_dir, made.env)
    store = Store(made.agent_dir, keyring, clock=clock, new_id=made.new_id)
    loaded = store.load(session_id)
    grant = ev.ApprovalGranted(step="write.2", question="Go on?", action_digest="d")
    gate = ev.StepCompleted(step="write.2", task="write", attempt=1, key="k")
    before = ev.PreImage(path="b.txt", kind="absent")
    last = started("write.3", kind="write", before=(before,), after_sha256="x")
    store.journal(loaded, 1).append(grant, ev.SessionExecuting(), gate, last, actor="user")
    path = lock.lock_path(made.agent_dir / "locks", session_id, 1)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(lock.myself(clock()), started=1.0)))
    clock.now += timedelta(seconds=1)  # it lived on for a second after its last event
    os.utime(path, (clock.now.timestamp(), clock.now.timestamp()))
    return made, session_id, store


@pytest.mark.req("POL-COOL-05", "POL-AUDIT-01", "POL-INT-01")
def test_asking_again_and_again_does_not_put_off_the_end_of_the_cool_down(tmp_path: Path) -> None:
    clock = Clock()
    made, session_id, store = crashed(tmp_path, clock)
    crash = clock.now
    for seconds in (1, 20, 40, 59):
        clock.now = crash + timedelta(seconds=seconds)
        with pytest.raises(CoolingDown) as caught:
            resume(made, session_id, Options(actor="system"))
        assert caught.value.details["cooldown_seconds_remaining"] == 60 - seconds
        found = preview(made, session_id, Options(actor="system"))
        assert found.survey is not None and found.survey.decision.cooldown_s_remaining == 60 - seconds
    clock.now = crash + timedelta(seconds=60)
    result = resume(made, session_id, Options(actor="system"))
    assert result.state is State.COMPLETED
    decisions = [one.event for one in log_of(store, session_id) if isinstance(one.event, ev.ResumeDecision)]
    store.close()
    assert [one.reason_code for one in decisions] == ["resume_blocked_cooldown"] * 4 + ["resume_allowed"]
    assert {one.attempt for one in decisions} == {1}, "a refused attempt is not counted"
    assert all(one.interruption_class == "process_crash" and one.at.endswith("Z") for one in decisions)
