"""Whoever slept while its lock was broken writes nothing any more: real processes, stopped and woken."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from acode.engine import break_lock
from acode.engine.create import run_plan
from acode.engine.workspace_store import opened
from acode.errors import DatabaseCorrupt
from acode.events import types as ev
from acode.events.definition import Run, Step
from acode.plan import Outcome
from acode.steps import run as commands
from acode.steps.interface import Done, Failed
from tests.driver import Acode
from tests.sites import Bench
from tests.tampering import Attack
from tests.worlds import plan_file, world

PLAN = """
version: 1
title: Three lines
tasks:
  - id: main
    steps:
      - run: echo one >> log.txt
      - run: echo ready; while [ ! -e go ]; do sleep 0.05; done; echo two >> log.txt
      - run: echo three >> log.txt
"""


def rows(workspace: Path) -> list[tuple[int, str]]:
    return [(seq, body) for seq, body in Attack(workspace).sql("SELECT seq, body FROM events ORDER BY id")]


@pytest.mark.req("THREAT-011c-01", "NFR-011c-011")
def test_a_process_that_slept_through_the_breaking_of_its_lock_is_fenced(acode: Acode, workspace: Path) -> None:
    """The owner is stopped in the middle of a step; its lock is broken, another one finishes; then it wakes."""
    (workspace / "plan.yml").write_text(PLAN)
    owner = acode.process("run", "plan.yml", "--json")
    owner.wait_for_line('"event":"step_output".*ready')
    owner.signal(signal.SIGSTOP)
    session_id = acode("session", "list", "--json").json[0]["session_id"]

    assert acode("resume", session_id).exit_code == 16, "a held lock is refused"
    assert acode("session", "unlock", session_id).exit_code == 16, "its owner is alive"
    assert acode("session", "unlock", session_id, "--force", "--reason", "it hangs").exit_code == 0
    (workspace / "go").touch()
    finished = acode("resume", session_id)
    assert finished.exit_code == 0, finished.stderr
    before = rows(workspace)

    owner.signal(signal.SIGCONT)
    ended = owner.finish()
    assert ended.exit_code == 16 and "LOCK-004" in ended.stdout + ended.stderr
    assert rows(workspace) == before, "it has written nothing"
    assert (workspace / "log.txt").read_text() == "one\ntwo\nthree\n"
    assert acode("session", "verify", session_id).exit_code == 0
    broken = [body for _, body in before if '"lock_broken"' in body]
    assert len(broken) == 1 and "it hangs" in broken[0]


@pytest.mark.req("NFR-011c-011")
def test_a_command_that_was_settled_as_never_begun_cannot_begin_any_more(workspace: Path, tmp_path: Path) -> None:
    """Its owner was suspended between the durable start and the command, and wakes up after another took over."""
    step = Step(id="main.a", action=Run(command="echo done >> done.txt"))
    bench = Bench(workspace, tmp_path / "state", step)
    asleep = bench.start(step)
    assert bench.look(step, asleep).outcome is Outcome.NOT_APPLIED
    assert commands.forestall(bench.site(), asleep)
    assert commands.forestall(bench.site(), asleep), "a crash right behind it changes nothing"
    assert isinstance(bench.run(step, attempt=2), Done)
    assert isinstance(bench.execute(step, asleep), Failed)
    assert (workspace / "done.txt").read_text() == "done\n"
    assert bench.look(step, asleep).outcome is Outcome.NOT_APPLIED
    bench.close()


def test_a_command_that_has_begun_is_not_forestalled(workspace: Path, tmp_path: Path) -> None:
    step = Step(id="main.a", action=Run(command="echo done >> done.txt"))
    bench = Bench(workspace, tmp_path / "state", step)
    started = bench.start(step)
    assert isinstance(bench.execute(step, started), Done)
    assert commands.forestall(bench.site(), started)
    assert bench.look(step, started).outcome is Outcome.APPLIED
    bench.close()


def test_a_database_that_cannot_be_read_now_fences_nobody_off_unsaid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sick disk answers once with an error: the lock is broken by the next try, and the log says by whom."""
    here = world(tmp_path)
    planned = plan_file("title: T\ntasks:\n  - title: one\n    steps:\n      - approve: Go on?\n")
    session_id = run_plan(here, planned).session_id

    event = ev.LockBroken(generation=1, forced=True)

    def sick(*_arguments: object) -> object:
        raise DatabaseCorrupt("the disk does not give it")

    with monkeypatch.context() as patch:
        patch.setattr(break_lock, "load_verified", sick)
        with pytest.raises(DatabaseCorrupt):
            break_lock.break_lock(here, session_id, event, claim=False)
    with opened(here, look_only=True) as store:
        assert store.generation(session_id) == 1
    break_lock.break_lock(here, session_id, event, claim=False)
    with opened(here, look_only=True) as store:
        broken = [one.event for one, _, _ in store.events(session_id) if isinstance(one.event, ev.LockBroken)]
        assert (store.generation(session_id), len(broken)) == (2, 1)
