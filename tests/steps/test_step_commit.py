"""commit steps in real repositories: one commit, whatever happens, and nobody else's work in it."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from acode.errors import StepFailed
from acode.events import make_key
from acode.events.definition import Commit, Step
from acode.plan import Outcome
from acode.steps import git_locks, repository
from acode.steps.interface import Done, Failed
from acode.steps.keeper_notes import run_directory
from tests.lives import alive
from tests.repositories import files_of, git, hook, log, put, status
from tests.sites import Bench, Patient


def step_for(*paths: str, message: str = "Change", number: int = 1, **more: Any) -> Step:
    return Step(id=f"main.{number}", action=Commit(message=message, paths=paths), **more)


def committed(outcome: Done | Failed) -> str:
    assert isinstance(outcome, Done), outcome
    assert set(outcome.result) == {"commit"}, outcome.result
    return str(outcome.result["commit"])


def failed(outcome: Done | Failed) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


# What is committed.


@pytest.mark.req("FR-011c-029")
def test_the_commit_carries_its_key_and_the_named_paths_only(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n", b="two\n")
    started = bench.start(step_for("a"))
    sha = committed(bench.execute(step_for("a"), started))
    assert git(repo, "rev-parse", "HEAD").strip() == sha
    assert git(repo, "log", "-1", "--format=%B").strip() == f"Change\n\nAcode-Key: {started.key}"
    assert git(repo, "log", "-1", "--format=%(trailers:key=Acode-Key,valueonly)").strip() == started.key
    assert files_of(repo) == ["M\ta"]
    assert status(repo) == [" M b"]


def cannot_read(monkeypatch: pytest.MonkeyPatch, revision: str) -> None:
    right = repository.call

    def call(place: repository.Repository, *arguments: Any, **more: Any) -> tuple[int, bytes, str]:
        return (1, b"", "") if f"{revision}^{{commit}}" in arguments else right(place, *arguments, **more)

    monkeypatch.setattr(repository, "call", call)


@pytest.mark.parametrize("detached", [False, True])
def test_a_git_that_cannot_read_the_last_commit_makes_none_that_deletes_all_other_files(
    bench: Bench, repo: Path, monkeypatch: pytest.MonkeyPatch, detached: bool
) -> None:
    """On a sick disk it says what it says where nothing was committed yet."""
    if detached:
        git(repo, "checkout", "-q", "--detach")
    put(repo, a="two\n")
    before, started = git(repo, "rev-parse", "HEAD"), bench.start(step_for("a"))
    cannot_read(monkeypatch, "HEAD")
    outcome = bench.execute(step_for("a"), started)
    assert "could not read the commit" in failed(outcome).message
    assert git(repo, "rev-parse", "HEAD") == before


def test_new_files_deletions_modes_and_directories_are_committed(bench: Bench, repo: Path) -> None:
    (repo / "src" / "deep").mkdir(parents=True)
    put(repo / "src", x="x\n")
    put(repo / "src" / "deep", y="y\n")
    (repo / "b").unlink()
    (repo / "a").chmod(0o755)
    put(repo, left="untracked, not named\n")
    committed(bench.run(step_for("src", "a", "b")))
    assert files_of(repo) == ["M\ta", "D\tb", "A\tsrc/deep/y", "A\tsrc/x"]
    assert status(repo) == ["?? left"]


def test_what_somebody_has_staged_stays_staged_and_uncommitted(bench: Bench, repo: Path) -> None:
    put(repo, b="staged\n", new="staged, new\n")
    git(repo, "add", "b", "new")
    git(repo, "rm", "-q", "--cached", "c")
    put(repo, a="two\n", b="staged, and changed again\n")
    committed(bench.run(step_for("a")))
    assert files_of(repo) == ["M\ta"]
    assert status(repo) == ["MM b", "D  c", "A  new", "?? c"]
    assert git(repo, "show", ":b") == "staged\n"


def test_a_half_staged_path_is_committed_as_it_is_in_the_working_tree(bench: Bench, repo: Path) -> None:
    put(repo, a="half\n")
    git(repo, "add", "a")
    put(repo, a="whole\n")
    committed(bench.run(step_for("a")))
    assert git(repo, "show", "HEAD:a") == "whole\n"
    assert status(repo) == []


def test_without_paths_everything_tracked_or_staged_and_the_sessions_own_files(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n", staged="s\n", ours="o\n", theirs="t\n")
    git(repo, "add", "staged")
    git(repo, "rm", "-q", "--cached", "b")
    (repo / "c").unlink()
    bench.know("ours")
    committed(bench.run(step_for()))
    assert files_of(repo) == ["M\ta", "D\tb", "D\tc", "A\tours", "A\tstaged"]
    assert status(repo) == ["?? b", "?? theirs"]


def test_ignored_files_and_acodes_own_are_never_committed(bench: Bench, repo: Path) -> None:
    put(repo, **{".gitignore": "secret\n", "secret": "s\n", "plain": "p\n"})
    bench.know("secret")
    committed(bench.run(step_for(".")))
    assert files_of(repo) == ["A\t.gitignore", "A\tplain"]
    assert "is ignored" in failed(bench.run(step_for("secret"), 2)).message


@pytest.mark.parametrize("name", ["with blank", "*", ":(top)x", "-n", "ä", "new\nline", "[a]"])
def test_a_strange_name_is_a_name(bench: Bench, repo: Path, name: str) -> None:
    put(repo, **{name: "strange\n", "a": "two\n"})
    committed(bench.run(step_for(name)))
    assert git(repo, "show", "--format=", "--name-only", "-z", "HEAD").strip("\0\n") == name
    assert status(repo) == [" M a"]


def test_a_name_that_is_no_text_is_committed_too(bench: Bench, repo: Path) -> None:
    (repo / "d").mkdir()
    path = os.fsencode(repo / "d") + b"/\xff"
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        committed(bench.run(step_for("d")))
        assert git(repo, "ls-files", "d") == '"d/\\377"\n'


def test_a_workspace_below_the_top_of_its_repository(repo: Path, home: Path) -> None:
    below = repo / "sub"
    below.mkdir()
    put(below, x="x\n", y="y\n")
    put(repo, a="two\n")
    bench = Bench(below, home / "acode")
    bench.know("y")
    committed(bench.run(step_for("x")))
    assert files_of(repo) == ["A\tsub/x"]
    put(below, x="two\n")
    committed(bench.run(step_for(number=2)))
    assert files_of(repo) == ["M\tsub/x", "A\tsub/y"]
    assert " M a" in status(repo)
    bench.close()


def test_the_first_commit_of_a_repository(workspace: Path, home: Path, repo: Path) -> None:
    place = workspace / "fresh"
    place.mkdir()
    git(place, "init", "-q")
    put(place, x="x\n", y="y\n")
    git(place, "add", "y")
    bench = Bench(place, home / "acode")
    started = bench.start(step_for("x"))
    assert bench.look(step_for("x"), started).outcome is Outcome.NOT_APPLIED
    committed(bench.execute(step_for("x"), started))
    assert bench.look(step_for("x"), started).outcome is Outcome.APPLIED
    assert files_of(place) == ["A\tx"]
    assert status(place) == ["A  y"]
    bench.close()


def test_a_linked_working_tree_and_a_detached_head(bench: Bench, repo: Path, tmp_path: Path, home: Path) -> None:
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    other = Bench(tmp_path / "other", home / "acode")
    put(tmp_path / "other", a="two\n")
    started = other.start(step_for("a"))
    committed(other.execute(step_for("a"), started))
    assert other.look(step_for("a"), started).outcome is Outcome.APPLIED
    assert (log(tmp_path / "other"), log(repo)) == (["Change", "first"], ["first"])
    assert status(tmp_path / "other") == []
    other.close()


def test_a_nested_repository_is_not_swallowed(bench: Bench, repo: Path) -> None:
    (repo / "nested").mkdir()
    git(repo / "nested", "init", "-q")
    put(repo / "nested", x="x\n")
    git(repo / "nested", "add", "x")
    git(repo / "nested", "commit", "-qm", "theirs")
    put(repo, a="two\n")
    committed(bench.run(step_for(".")))
    assert files_of(repo) == ["M\ta"]


def test_a_change_in_the_same_tick_and_of_the_same_size_is_seen(bench: Bench, repo: Path) -> None:
    """git tells such a change by the time of the index file itself, which a copy of it must keep."""
    for number in range(8):
        put(repo, a=f"{number}\n", b=f"{number}\n")
        git(repo, "add", "a", "b")
        git(repo, "commit", "-qm", "theirs")
        put(repo, a="x\n", b="y\n")
        committed(bench.run(step_for("a", number=number + 1)))
        assert status(repo) == [" M b"]


def test_nothing_to_commit_completes_with_a_note(bench: Bench, repo: Path) -> None:
    done = bench.run(step_for("a"))
    assert isinstance(done, Done) and done.result == {"commit": None, "note": "nothing to commit"}
    os.utime(repo / "a", (1, 1))
    assert bench.run(step_for(), 2) == done
    assert log(repo) == ["first"]


def test_trailers_of_the_message_stay_one_block(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    bench.run(step_for("a", message="Change\n\nBecause: it\n\nSigned-off-by: You <you@example.org>\n"))
    trailers = git(repo, "log", "-1", "--format=%(trailers:only)").strip().splitlines()
    assert [line.partition(":")[0] for line in trailers] == ["Signed-off-by", "Acode-Key"]


# Once.


@pytest.mark.req("FR-011c-030", "FR-011c-032")
def test_the_trailer_settles_a_step_in_flight(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    started = bench.start(step_for("a"))
    assert bench.look(step_for("a"), started).outcome is Outcome.NOT_APPLIED
    done = bench.execute(step_for("a"), started)
    found = bench.look(step_for("a"), started)
    assert found.outcome is Outcome.APPLIED and committed(done)[:12] in found.evidence
    assert bench.adopt(step_for("a"), started).result == {"commit": committed(done)}


@pytest.mark.req("FR-011c-031", "FR-011c-054")
def test_committing_again_under_the_same_key_makes_no_second_commit(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    started = bench.start(step_for("a"))
    first = committed(bench.execute(step_for("a"), started))
    put(repo, a="three\n")
    assert committed(bench.execute(step_for("a"), started)) == first
    assert (log(repo), status(repo)) == (["Change", "first"], [" M a"])


def test_the_commit_is_found_under_later_ones_and_on_its_branch(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    started = bench.start(step_for("a"))
    bench.execute(step_for("a"), started)
    for number in range(3):
        git(repo, "commit", "-q", "--allow-empty", "-m", f"later {number}")
    assert bench.look(step_for("a"), started).outcome is Outcome.APPLIED
    git(repo, "checkout", "-q", "-b", "other", "HEAD~4")
    assert bench.look(step_for("a"), started).outcome is Outcome.APPLIED
    git(repo, "checkout", "-q", "main")
    git(repo, "reset", "-q", "--hard", "HEAD~3")
    git(repo, "commit", "-q", "--amend", "-m", f"reworded\n\nAcode-Key: {started.key}")
    assert bench.look(step_for("a"), started).outcome is Outcome.APPLIED


def test_a_commit_on_a_branch_that_cannot_be_read_is_not_said_to_be_missing(
    bench: Bench, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(repo, a="two\n")
    started = bench.start(step_for("a"))
    committed(bench.execute(step_for("a"), started))
    git(repo, "checkout", "-q", "-b", "other", "HEAD~1")
    cannot_read(monkeypatch, "refs/heads/main")
    assert bench.look(step_for("a"), started).outcome is Outcome.UNKNOWN


def test_a_message_that_only_quotes_the_key_is_not_the_commit(bench: Bench, repo: Path) -> None:
    started = bench.start(step_for("a"))
    git(repo, "commit", "-q", "--allow-empty", "-m", f"Look for Acode-Key: {started.key} in the log")
    git(repo, "commit", "-q", "--allow-empty", "-m", f"Other\n\nAcode-Key: {started.key}0")
    assert bench.look(step_for("a"), started).outcome is Outcome.NOT_APPLIED


def test_a_hook_that_takes_the_key_out_makes_no_second_commit(bench: Bench, repo: Path) -> None:
    hook(repo, "commit-msg", "sed -i '/Acode-Key/d' \"$1\"")
    put(repo, a="two\n")
    started = bench.start(step_for("a"))
    assert committed(bench.execute(step_for("a"), started)) == git(repo, "rev-parse", "HEAD").strip()
    assert bench.look(step_for("a"), started).outcome is Outcome.NOT_APPLIED
    done = bench.run(step_for("a"), 2)
    assert isinstance(done, Done) and done.result["commit"] is None
    assert log(repo) == ["Change", "first"]


# Hooks and signing.


def test_hooks_run_as_configured_and_see_what_will_be_committed(bench: Bench, repo: Path) -> None:
    hook(repo, "pre-commit", "git diff --cached --name-only > ../seen; echo formatted >> new; git add new")
    hook(repo, "post-commit", "echo post >> ../seen")
    put(repo, a="two\n", b="not yet\n", new="new\n")
    git(repo, "add", "b")
    bench.know("new")
    done = bench.run(step_for("a", "new"))
    committed(done)
    assert (repo.parent / "seen").read_text() == "a\nnew\npost\n"
    assert git(repo, "show", "HEAD:new") == "new\nformatted\n"
    assert status(repo) == ["M  b"]
    assert isinstance(done, Done) and done.touched == ("new",)


def test_a_failing_hook_is_a_failed_step_with_its_words(bench: Bench, repo: Path) -> None:
    hook(repo, "pre-commit", "echo checking; echo style is wrong >&2; exit 3")
    put(repo, a="two\n", new="n\n", b="staged\n")
    git(repo, "add", "b")
    found = failed(bench.run(step_for("a", "new")))
    assert (found.reason, found.exit_status) == ("exit", 1)
    assert "style is wrong" in found.message
    assert found.output is not None and "checking" in found.output.tail
    assert (log(repo), status(repo)) == (["first"], [" M a", "M  b", "?? new"])
    hook(repo, "pre-commit", "exit 0")
    committed(bench.run(step_for("a", "new"), 2))
    assert log(repo) == ["Change", "first"]


def test_secrets_in_what_a_hook_says_are_masked(bench: Bench, repo: Path) -> None:
    token = "ghp_" + "A1b2" * 9
    hook(repo, "pre-commit", f"echo token {token}; exit 1")
    put(repo, a="two\n")
    assert token not in repr(failed(bench.run(step_for("a")))) + repr(bench.shown)


def test_commits_are_signed_where_the_user_wants_it(bench: Bench, repo: Path, tmp_path: Path) -> None:
    signer = tmp_path / "signer"
    signer.write_text(
        '#!/bin/sh\ncat > /dev/null\necho "[GNUPG:] SIG_CREATED " >&2\n'
        'printf -- "-----BEGIN PGP SIGNATURE-----\\nsigned\\n-----END PGP SIGNATURE-----\\n"\n'
    )
    signer.chmod(0o755)
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "gpg.program", str(signer))
    put(repo, a="two\n")
    started = bench.start(step_for("a"))
    committed(bench.execute(step_for("a"), started))
    assert "gpgsig -----BEGIN PGP SIGNATURE-----" in git(repo, "cat-file", "commit", "HEAD")
    git(repo, "config", "log.showSignature", "true")
    assert bench.look(step_for("a"), started).outcome is Outcome.APPLIED


def test_the_callers_git_variables_of_another_repository_mislead_nobody(
    bench: Bench, repo: Path, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q", "elsewhere")
    bench.env |= {"GIT_DIR": str(tmp_path / "elsewhere/.git"), "GIT_INDEX_FILE": "/nowhere", "GIT_AUTHOR_NAME": "Kept"}
    put(repo, a="two\n")
    committed(bench.run(step_for("a")))
    assert git(repo, "log", "-1", "--format=%an").strip() == "Kept"


# Refused.


def test_no_repository_a_bare_one_and_no_git_are_said_in_words(tmp_path: Path, home: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    bench = Bench(plain, home / "acode", env={"GIT_CEILING_DIRECTORIES": str(tmp_path)})
    started = bench.start(step_for("a"))
    assert "no working tree of a git repository" in failed(bench.execute(step_for("a"), started)).message
    assert bench.look(step_for("a"), started).outcome is Outcome.UNKNOWN
    bench.env["PATH"] = str(tmp_path)
    assert "git program is not installed" in failed(bench.execute(step_for("a"), started)).message
    bench.close()
    bare = tmp_path / "bare.git"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    other = Bench(bare, home / "acode")
    assert "no working tree" in failed(other.run(step_for("a"))).message
    other.close()


def test_a_path_that_stands_for_nothing_is_a_mistake(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    assert "typo is not known to git" in failed(bench.run(step_for("a", "typo"))).message
    assert log(repo) == ["first"]


def test_somebodys_merge_is_not_ended(bench: Bench, repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "side")
    put(repo, a="side\n")
    git(repo, "commit", "-qam", "side")
    git(repo, "checkout", "-q", "main")
    put(repo, a="main\n")
    git(repo, "commit", "-qam", "main")
    git(repo, "merge", "side", check=False)
    put(repo, b="two\n")
    assert "a merge is under way" in failed(bench.run(step_for("b"))).message
    assert (repo / ".git/MERGE_HEAD").exists()


# Locks.


def test_somebody_elses_lock_is_reported_and_never_removed(
    bench: Bench, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_locks, "LOCK_WAIT_S", 0.1)
    put(repo, a="two\n")
    place = repo / ".git/index.lock"
    for text in ("", "acode something\n", f"acode {make_key(bench.session_id, 'main.9', 1)}\n"):
        place.write_text(text)
        found = failed(bench.run(step_for("a")))
        assert "index.lock exists" in found.message and "remove that file" in found.message
        assert place.read_text() == text
    assert log(repo) == ["first"]
    place.unlink()
    committed(bench.run(step_for("a"), 2))


def test_the_lock_of_a_killed_acode_is_removed(bench: Bench, repo: Path) -> None:
    put(repo, a="two\n")
    started = bench.start(step_for("a"))
    alive = git_locks.alive_file(bench.agent_dir, started.key)
    alive.parent.mkdir(parents=True)
    alive.write_text("")
    (repo / ".git/index.lock").write_bytes(git_locks.signature(started.key))
    committed(bench.run(step_for("a"), 2))
    assert (log(repo), status(repo)) == (["Change", "first"], [])


def test_a_commit_that_the_index_does_not_show_yet_is_shown_when_it_is_adopted(bench: Bench, repo: Path) -> None:
    """Killed between the commit and the index: it looks as if somebody had staged the old content."""
    put(repo, a="longer\n", b="longer\n", new="new\n")
    started = bench.start(step_for("a", "b", "new"))
    before = (repo / ".git/index").read_bytes()
    sha = committed(bench.execute(step_for("a", "b", "new"), started))
    (repo / ".git/index").write_bytes(before)
    put(repo, b="even longer\n")
    git(repo, "add", "b")  # a person went on since
    assert status(repo) == ["MM a", "M  b", "D  new", "?? new"]
    assert bench.adopt(step_for("a", "b", "new"), started).result == {"commit": sha}
    assert status(repo) == ["M  b"]


def test_a_commit_that_the_index_cannot_show_stays_open_until_it_can(
    bench: Bench, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person's next commit would undo it."""
    monkeypatch.setattr(git_locks, "LOCK_WAIT_S", 0.1)
    hook(repo, "post-commit", "touch .git/index.lock")
    put(repo, a="two\n")
    started = bench.start(step_for("a"))
    found = failed(bench.execute(step_for("a"), started))
    assert found.reason == "signal" and "index.lock exists" in found.message
    assert bench.look(step_for("a"), started).outcome is Outcome.APPLIED
    with pytest.raises(StepFailed, match=r"is made, but the index does not show it: .*index\.lock exists"):
        bench.adopt(step_for("a"), started)
    (repo / ".git/index.lock").unlink()
    assert bench.adopt(step_for("a"), started).result == {"commit": git(repo, "rev-parse", "HEAD").strip()}
    assert (log(repo), status(repo)) == (["Change", "first"], [])


@pytest.mark.parametrize("paths", [(), ("a", "b")], ids=["all", "named"])
def test_a_file_that_git_cannot_look_at_is_not_committed_as_deleted(
    bench: Bench, repo: Path, tmp_path: Path, paths: tuple[str, ...]
) -> None:
    """git takes whatever it cannot look at for deleted: here a file that is away only while git looks."""
    put(repo, a="two\n")
    where = tmp_path / "bin" / "git"
    where.parent.mkdir()
    real = shutil.which("git")
    where.write_text(
        f'#!/bin/sh\ncase "$*" in *" status "*|*" add "*) mv b hidden~; trap "mv hidden~ b" EXIT;; esac\n{real} "$@"\n'
    )
    where.chmod(0o755)
    right = bench.env["PATH"]
    bench.env["PATH"] = f"{where.parent}:{right}"
    found = failed(bench.run(step_for(*paths)))
    assert "could not look at b, which is there" in found.message and found.reason == "error"
    assert (log(repo), status(repo)) == (["first"], [" M a"])
    bench.env["PATH"] = right
    committed(bench.run(step_for(*paths, number=2)))
    assert files_of(repo) == ["M\ta"]


def test_a_git_whose_beginning_cannot_be_noted_does_not_go_on_unseen(bench: Bench, repo: Path) -> None:
    hook(repo, "pre-commit", "echo $$ > ../child; sleep 60")
    put(repo, a="two\n")
    step = step_for("a")
    started = bench.start(step)
    (run_directory(bench.agent_dir, started.key) / "started").mkdir(parents=True)
    found = failed(bench.execute(step, started))
    assert found.reason == "signal", "it was stopped, and may have been faster"
    assert bench.look(step, started).outcome is Outcome.NOT_APPLIED
    child = repo.parent / "child"
    assert not child.exists() or not alive(int(child.read_text()))


# Time.


def test_a_hook_out_of_time_is_stopped_with_its_children(bench: Bench, repo: Path) -> None:
    hook(repo, "pre-commit", "sleep 60 & echo $! > ../child; wait")
    put(repo, a="two\n")
    step = step_for("a", timeout_s=0.5)
    started = bench.start(step)
    found = failed(bench.execute(step, started))
    assert found.reason == "timeout"
    child = int((repo.parent / "child").read_text())
    assert not alive(child)
    assert bench.look(step, started).outcome is Outcome.NOT_APPLIED
    assert (log(repo), status(repo)) == (["first"], [" M a"])


def test_a_commit_made_before_its_hook_ran_out_of_time_counts(bench: Bench, repo: Path) -> None:
    hook(repo, "post-commit", "sleep 60")
    put(repo, a="two\n")
    committed(bench.run(step_for("a", timeout_s=0.5)))
    assert (log(repo), status(repo)) == (["Change", "first"], [])


def test_a_wish_to_stop_is_heard(bench: Bench, repo: Path) -> None:
    hook(repo, "pre-commit", "sleep 60")
    put(repo, a="two\n")
    bench.stop = Patient(lambda: True)
    assert failed(bench.run(step_for("a"))).reason == "signal"
    assert log(repo) == ["first"]
