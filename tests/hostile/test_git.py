"""A repository that names programs: a look at it runs none of them, whatever command of acode takes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from acode.engine.environment import git_position
from acode.formats.arc.git_state import drift_since, modified_files
from tests.driver import Acode
from tests.repositories import git, hook, make_repository, put

PLAN = "version: 1\ntitle: T\ntasks: [{id: a, steps: [{run: 'true'}, {approve: Go on?}, {run: 'true'}]}]\n"
HOOKS = (
    "post-index-change",
    "pre-commit",
    "post-checkout",
    "reference-transaction",
    "fsmonitor-watchman",
    "query-watchman",
)
LOOKS = (
    ("run", "plan.yml"),
    ("session", "list"),
    ("session", "list", "--json"),
    ("session", "show", "{id}"),
    ("session", "verify", "{id}"),
    ("explain", "{id}"),
    ("resume", "--last", "--dry-run"),
    ("doctor",),
    ("session", "approve", "{id}"),
    ("resume", "--last", "--auto"),
)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def commit_object(repo: Path, text: str) -> str:
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=repo,
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.strip()


@pytest.fixture
def hostile(workspace: Path, home: Path, tmp_path: Path) -> tuple[Path, Path]:
    """(the repository, the directory where each program that it names leaves a file)."""
    repo, ran = make_repository(workspace, home), tmp_path / "ran"
    ran.mkdir()

    def leaves(name: str) -> str:
        return f"touch {ran}/{name}; cat"

    tree = git(repo, "rev-parse", "HEAD^{tree}").strip()
    who = "A <a@b> 1700000000 +0000"
    signed = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n -----END PGP SIGNATURE-----\n"
    parent = git(repo, "rev-parse", "HEAD").strip()
    text = f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n{signed}\nsecond\n"
    git(repo, "update-ref", "refs/heads/main", commit_object(repo, text))
    for name in HOOKS:
        hook(repo, name, leaves(f"hook-{name}"))
    program, fetcher = (script(repo / ".git" / name, f"touch {ran}/{name}") for name in ("program", "promisor"))
    settings = {
        **{f"filter.evil.{kind}": leaves(f"filter-{kind}") for kind in ("clean", "smudge")},
        **{f"filter.longrunning.{kind}": leaves(f"filter-{kind}") for kind in ("process",)},
        "filter.evil.required": "true",
        "filter.a=b.c.clean": leaves("filter-with-an-equals-sign"),
        "core.fsmonitor": leaves("fsmonitor"),
        "core.hooksPath": str(repo / ".git" / "hooks"),
        "core.pager": leaves("pager"),
        "core.editor": leaves("editor"),
        "core.sshCommand": leaves("ssh"),
        "core.askPass": str(program),
        "credential.helper": f"!{leaves('credentials')}",
        "diff.external": leaves("diff"),
        "diff.evil.command": leaves("diff-driver"),
        "diff.evil.textconv": leaves("textconv"),
        "log.showSignature": "true",
        "gpg.program": str(program),
        "alias.status": f"!{leaves('alias')}",
        "protocol.ext.allow": "always",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{fetcher}",
    }
    for key, value in settings.items():
        git(repo, "config", key, value)
    git(repo, "config", "core.repositoryFormatVersion", "1")
    put(repo, a="two\n", c="owt\n")
    (repo / ".gitattributes").write_text("a filter=evil diff=evil\nb filter=longrunning\nc filter=a=b.c\n")
    for name in "abc":
        os.utime(repo / name, ns=(1_000_000_000, 1_000_000_000))
    return repo, ran


def left(ran: Path) -> list[str]:
    return sorted(path.name for path in ran.iterdir())


def test_the_repository_of_these_tests_does_run_programs_when_git_is_asked_plainly(hostile: tuple[Path, Path]) -> None:
    """Else nothing below would show anything."""
    repo, ran = hostile
    git(repo, "status", check=False)
    git(repo, "show", "HEAD", check=False)
    git(repo, "cat-file", "-t", "1" * 40, check=False)
    assert {"filter-clean", "filter-process", "filter-with-an-equals-sign", "fsmonitor", "program", "promisor"} <= set(
        left(ran)
    )


def test_no_command_of_a_plan_without_commit_steps_runs_a_program_of_the_repository(
    hostile: tuple[Path, Path], acode: Acode
) -> None:
    repo, ran = hostile
    (repo / "plan.yml").write_text(PLAN)
    session = ""
    for command in LOOKS:
        ended = acode(*(word.format(id=session) for word in command))
        assert ended.exit_code in {0, 10, 12}, (command, ended.stderr)
        session = session or acode("session", "list", "--json").json[0]["session_id"]
        assert left(ran) == [], command


def test_a_look_at_the_repository_of_a_foreign_run_runs_nothing(hostile: tuple[Path, Path]) -> None:
    repo, ran = hostile
    assert modified_files(repo) == {"a", "c"}
    head = git(repo, "rev-parse", "HEAD~1").strip()
    drift = drift_since(repo, head, ["one", "nowhere_at_all"], "plan.md")
    assert drift is not None and drift.commits_since == 1 and drift.committed_at is not None
    assert drift_since(repo, "1" * 40, [], "plan.md") is not None
    assert left(ran) == []


def test_where_head_is_is_told_on_a_branch_off_it_and_before_the_first_commit(hostile: tuple[Path, Path]) -> None:
    repo, ran = hostile
    head = git(repo, "rev-parse", "HEAD").strip()
    assert git_position(repo) == (head, "main")
    (repo / ".git" / "HEAD").write_text(f"{head}\n")
    assert git_position(repo) == (head, "(detached)")
    (repo / ".git" / "HEAD").write_text("ref: refs/heads/feature/new\n")
    assert git_position(repo) == ("(initial)", "feature/new")
    assert left(ran) == []


def test_a_commit_step_that_the_user_declared_applies_the_filters(workspace: Path, home: Path, acode: Acode) -> None:
    repo = make_repository(workspace, home)
    git(repo, "config", "filter.upper.clean", "tr a-z A-Z")
    (repo / ".gitattributes").write_text("a filter=upper\n")
    put(repo, a="two\n")
    (repo / "plan.yml").write_text(
        "version: 1\ntitle: T\ntasks: [{id: a, steps: [{commit: {message: m, paths: [a]}}]}]\n"
    )
    ran = acode("run", "plan.yml")
    assert ran.exit_code == 0, ran.stderr
    assert git(repo, "show", "HEAD:a") == "TWO\n"
