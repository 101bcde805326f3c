"""acode and git, killed around a commit by its own hooks: one commit in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from acode.engine.held_session import opened
from acode.engine.preview import preview
from acode.engine.resume import resume
from acode.engine.world import Options
from acode.state import State
from tests.repositories import files_of, git, hook, log, put, status
from tests.sites import world

PLAN = """
title: Commit
tasks:
  - title: Work
    steps:
      - write: {path: made, content: "made\\n"}
      - commit: {message: Work, paths: [made, a]}
      - write: {path: after, content: "after\\n"}
"""


def begin(repo: Path, home: Path) -> int:
    """A real acode process on the plan; its pid."""
    (repo / "plan.yml").write_text(PLAN)
    put(repo, a="two\n", b="staged\n")
    git(repo, "add", "b")
    code = (
        "from pathlib import Path; from acode.engine.create import run_plan; from acode.planfile import load_plan;"
        "from tests.sites import world; import sys; ws = Path(sys.argv[1]);"
        "run_plan(world(ws, Path(sys.argv[2])), load_plan(ws/'plan.yml', plan_bytes_max=262144, timeout_s_default=60))"
    )
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    argv = [sys.executable, "-c", code, str(repo), str(home / "acode")]
    child = subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL)
    child.wait()
    return child.returncode


def finish(repo: Path, home: Path) -> Any:
    with opened(world(repo, home / "acode"), look_only=True) as store:
        (session_id,) = store.session_ids()
    return resume(world(repo, home / "acode"), session_id, Options())


# The hook runs as a child of git, and git as a child of acode.
ACODE = "$(ps -o ppid= -p $PPID)"
ONCE = "test -e ../once && exit 0; touch ../once;"


@pytest.mark.req("FR-011c-054", "FR-011c-032")
@pytest.mark.parametrize("who", ["acode", "both"])
@pytest.mark.parametrize("where", ["pre-commit", "commit-msg", "post-commit", "reference-transaction committed"])
def test_killed_around_the_commit_there_is_one_commit_in_the_end(repo: Path, home: Path, who: str, where: str) -> None:
    name, _, state = where.partition(" ")
    when = f'test "$1" = {state} || exit 0; ' if state else ""
    victims = f"{ACODE} $PPID" if who == "both" else ACODE
    hook(repo, name, f"{when}{ONCE} kill -9 {victims}")
    assert begin(repo, home) == -signal.SIGKILL
    ended = finish(repo, home)
    assert (ended.exit_code, ended.state) == (0, State.COMPLETED), ended.error
    assert log(repo) == ["Work", "first"]
    assert files_of(repo) == ["M\ta", "A\tmade"]
    assert status(repo) == ["M  b", "?? after", "?? plan.yml"]


@pytest.mark.req("FR-011c-032")
def test_killed_with_its_locks_on_the_branch_in_hand_git_leaves_them_and_there_is_one_commit(
    repo: Path, home: Path
) -> None:
    hook(repo, "reference-transaction", f'test "$1" = prepared || exit 0; {ONCE} kill -9 {ACODE} $PPID')
    assert begin(repo, home) == -signal.SIGKILL
    assert {place.name for place in (repo / ".git").rglob("*.lock")} == {"HEAD.lock", "main.lock"}
    ended = finish(repo, home)
    assert (ended.exit_code, ended.state) == (0, State.COMPLETED), ended.error
    assert log(repo) == ["Work", "first"]
    assert list((repo / ".git").rglob("*.lock")) == []
    with opened(world(repo, home / "acode"), look_only=True) as store:
        (session_id,) = store.session_ids()
        results = [getattr(envelope.event, "result", None) for envelope, _, _ in store.events(session_id)]
    assert any("removed HEAD.lock and refs/heads/main.lock" in str(result) for result in results)


def test_git_that_outlives_its_acode_in_a_long_hook_is_waited_for(repo: Path, home: Path) -> None:
    hook(repo, "pre-commit", f"{ONCE} kill -9 {ACODE}; while ! test -e ../go; do sleep 0.02; done")
    assert begin(repo, home) == -signal.SIGKILL
    looking = world(repo, home / "acode")
    with opened(looking, look_only=True) as store:
        (session_id,) = store.session_ids()
    seen = preview(looking, session_id, Options())
    (flight,) = seen.survey.continuation.in_flight
    assert str(flight.action) == "wait" and "git is still running, pid" in flight.evidence
    assert log(repo) == ["first"]
    (repo.parent / "go").touch()
    ended = finish(repo, home)
    assert (ended.exit_code, ended.state) == (0, State.COMPLETED), ended.error
    assert log(repo) == ["Work", "first"]


def test_a_commit_whose_hook_still_runs_is_shown_in_the_index_when_it_has_ended(repo: Path, home: Path) -> None:
    hook(repo, "post-commit", f"{ONCE} kill -9 {ACODE}; while ! test -e ../go; do sleep 0.02; done; touch ../hooked")
    assert begin(repo, home) == -signal.SIGKILL
    assert log(repo) == ["Work", "first"]
    threading.Timer(1.5, (repo.parent / "go").touch).start()
    ended = finish(repo, home)
    assert (ended.exit_code, ended.state) == (0, State.COMPLETED), ended.error
    assert (repo.parent / "hooked").exists(), "the hook is part of the step"
    assert status(repo) == ["M  b", "?? after", "?? plan.yml"]


def test_what_a_hook_has_started_for_good_keeps_no_commit_from_the_index(repo: Path, home: Path) -> None:
    lasting = f"(while test -d {repo} && ! test -e ../go; do sleep 0.02; done) > /dev/null 2>&1 &"
    hook(repo, "post-commit", f"{ONCE} {lasting} kill -9 {ACODE} $PPID")
    assert begin(repo, home) == -signal.SIGKILL
    try:
        ended = finish(repo, home)
        assert (ended.exit_code, ended.state) == (0, State.COMPLETED), ended.error
        assert log(repo) == ["Work", "first"]
        assert status(repo) == ["M  b", "?? after", "?? plan.yml"]
    finally:
        (repo.parent / "go").touch()
