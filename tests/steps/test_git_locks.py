"""git's locks around a commit step: those of a git of acode that was killed are removed, all others only named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acode.disk import file_lock
from acode.engine.environment import git_position
from acode.events.definition import Commit, Step
from acode.plan import Outcome
from acode.steps import git_locks
from acode.steps.interface import Done, Failed
from tests.repositories import files_of, git, hook, log, put, status
from tests.sites import Bench

BOTH = ("HEAD.lock", "refs/heads/main.lock")
CHANGE = Step(id="main.1", action=Commit(message="Change", paths=("a",)))
NEXT = Step(id="main.2", action=Commit(message="Next", paths=("b",)))


@pytest.fixture(autouse=True)
def soon_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_locks, "LOCK_WAIT_S", 0.2)


def kill_git(bench: Bench, repo: Path) -> None:
    """git holds its locks and has written the new commit into the one on the branch when it is killed."""
    hook(repo, "reference-transaction", 'test "$1" = prepared || exit 0; kill -9 $PPID')
    ended = bench.run(CHANGE)
    (repo / ".git/hooks/reference-transaction").unlink()
    assert isinstance(ended, Failed) and ended.signal == "SIGKILL"


def left(repo: Path) -> list[str]:
    place = repo / ".git"
    return sorted(str(one.relative_to(place)) for one in (*place.rglob("*.lock"), *place.glob("index.acode*")))


def refused(outcome: Done | Failed, *names: str) -> None:
    assert isinstance(outcome, Failed), outcome
    for name in names:
        assert f"/.git/{name}" in outcome.message
    assert "If none runs, remove" in outcome.message and outcome.message.endswith("then resume")


# Those of a killed git.


@pytest.mark.req("FR-011c-054")
def test_the_locks_of_a_git_that_was_killed_are_removed_and_the_step_says_so(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    kill_git(bench, repo)
    assert left(repo) == sorted(BOTH)
    done = bench.run(CHANGE, 2)
    assert isinstance(done, Done), done
    assert done.result["commit"] == git(repo, "rev-parse", "HEAD").strip()
    assert done.result["note"].startswith("removed HEAD.lock and refs/heads/main.lock: a git of acode that was killed")
    assert b"removed HEAD.lock" in bench.shown
    assert (log(repo), status(repo), left(repo)) == (["Change", "first"], [], [])


def test_the_lock_of_a_killed_git_on_a_head_without_a_branch_is_removed(bench: Bench, repo: Path) -> None:
    git(repo, "checkout", "-q", "--detach")
    put(repo, a="two\n")
    kill_git(bench, repo)
    assert left(repo) == ["HEAD.lock"]
    assert isinstance(bench.run(CHANGE, 2), Done)
    assert (log(repo), left(repo)) == (["Change", "first"], [])


def test_the_locks_of_a_git_killed_in_a_linked_working_tree_are_removed(repo: Path, home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(repo, "worktree", "add", "-q", "-b", "side", str(other))
    bench = Bench(other, home / "acode")
    put(other, a="two\n")
    kill_git(bench, repo)
    assert left(repo) == ["refs/heads/side.lock", "worktrees/other/HEAD.lock"]
    assert isinstance(bench.run(CHANGE, 2), Done)
    assert (log(other), log(repo), left(repo)) == (["Change", "first"], ["first"], [])
    bench.close()


def test_a_git_killed_after_it_moved_the_branch_leaves_no_lock_on_head(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    started = bench.start(CHANGE)
    done = bench.execute(CHANGE, started)
    assert isinstance(done, Done)
    place = repo / ".git/HEAD.lock"
    place.touch()
    moved_ns = (repo / ".git/refs/heads/main").stat().st_mtime_ns
    os.utime(place, ns=(moved_ns, moved_ns))
    assert bench.look(CHANGE, started).outcome is Outcome.APPLIED
    adopted = bench.adopt(CHANGE, started)
    assert adopted.result["commit"] == done.result["commit"] and "removed HEAD.lock" in adopted.result["note"]
    assert left(repo) == []


def test_half_an_index_that_a_killed_git_left_is_in_nobodys_way(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    for name in ("index.acode.0123", "index.acode.0123.lock"):
        (repo / ".git" / name).write_bytes(b"half")
    done = bench.run(CHANGE)
    assert isinstance(done, Done) and set(done.result) == {"commit"}
    assert (status(repo), left(repo)) == ([], [])


def test_an_index_of_the_step_that_a_killed_git_left_locked_is_made_anew(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    started = bench.start(CHANGE)
    directory = git_locks.alive_file(bench.agent_dir, started.key).parent
    directory.mkdir(parents=True)
    (directory / "index.lock").write_bytes(b"half")
    assert isinstance(bench.execute(CHANGE, started), Done)
    assert (files_of(repo), status(repo)) == (["M\ta"], [])


# All others.


@pytest.mark.parametrize("name", BOTH)
def test_a_lock_in_which_nothing_says_whose_it_is_is_named_and_never_removed(
    bench: Bench, repo: Path, name: str
) -> None:
    put(repo, a="two\n")
    (repo / ".git" / name).touch()
    refused(bench.run(CHANGE), name)
    assert (left(repo), log(repo)) == ([name], ["first"])
    (repo / ".git" / name).unlink()
    assert isinstance(bench.run(CHANGE, 2), Done)


def test_a_lock_with_somebody_elses_commit_in_it_is_named_and_never_removed(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    theirs = git(repo, "commit-tree", "-m", "theirs", "-p", "HEAD", "HEAD^{tree}")
    for name in BOTH:
        (repo / ".git" / name).write_text(theirs if "main" in name else "")
    refused(bench.run(CHANGE), *BOTH)
    assert left(repo) == sorted(BOTH)


def test_the_locks_of_an_attempt_on_which_somebody_still_works_are_not_removed(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    kill_git(bench, repo)
    alive = os.open(git_locks.alive_file(bench.agent_dir, f"{bench.session_id}:main.1:1"), os.O_RDWR)
    assert file_lock.try_lock(alive)
    refused(bench.run(CHANGE, 2), *BOTH)
    assert left(repo) == sorted(BOTH)
    os.close(alive)
    assert isinstance(bench.run(CHANGE, 3), Done)


def test_a_person_who_amends_a_commit_of_acode_keeps_the_lock(bench: Bench, repo: Path) -> None:
    """The amended commit has the key in it too."""
    put(repo, a="two\n")
    assert isinstance(bench.run(CHANGE), Done)
    text = git(repo, "log", "-1", "--format=%B")
    amended = git(repo, "commit-tree", "-m", f"More\n\n{text}", "-p", "HEAD^", "HEAD^{tree}")
    for name in BOTH:
        (repo / ".git" / name).write_text(amended if "main" in name else "")
    put(repo, b="two\n")
    refused(bench.run(NEXT), *BOTH)
    assert left(repo) == sorted(BOTH)


def test_a_lock_on_head_that_is_younger_than_the_commit_is_somebody_elses(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    started = bench.start(CHANGE)
    assert isinstance(bench.execute(CHANGE, started), Done)
    place = repo / ".git/HEAD.lock"
    place.touch()
    moved_ns = (repo / ".git/refs/heads/main").stat().st_mtime_ns
    os.utime(place, ns=(moved_ns + 1, moved_ns + 1))
    assert set(bench.adopt(CHANGE, started).result) == {"commit"}
    assert left(repo) == ["HEAD.lock"]


def test_a_lock_that_git_meets_itself_is_named_with_the_way_out(bench: Bench, repo: Path) -> None:
    hook(repo, "pre-commit", "touch .git/HEAD.lock")
    put(repo, a="two\n")
    ended = bench.run(CHANGE)
    assert isinstance(ended, Failed) and ended.exit_status == 128
    assert ended.message.endswith(f"remove '{repo}/.git/HEAD.lock', then resume")


# None of its own.


def test_asking_where_head_is_changes_nothing_and_runs_nothing(repo: Path) -> None:
    """git would write the index anew, under a lock that a kill leaves behind, for a file that was only touched."""
    index = repo / ".git/index"
    before = index.read_bytes()
    os.utime(repo / "a", ns=(1_000_000_000, 1_000_000_000))
    git(repo, "config", "core.fsmonitor", f"touch {repo}/ran; false")
    assert git_position(repo) == (git(repo, "rev-parse", "HEAD").strip(), "main")
    assert index.read_bytes() == before
    assert not (repo / "ran").exists()
