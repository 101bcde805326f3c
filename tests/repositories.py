"""Real git repositories for tests, and short ways to ask about them."""

from __future__ import annotations

import subprocess
from pathlib import Path

IDENTITY = {"user.name": "You", "user.email": "you@example.org", "init.defaultBranch": "main", "gc.auto": "0"}


def git(place: Path, *arguments: str, check: bool = True) -> str:
    ended = subprocess.run(["git", *arguments], cwd=place, capture_output=True, text=True, check=False)
    assert not check or ended.returncode == 0, ended.stderr
    return ended.stdout


def log(place: Path) -> list[str]:
    return git(place, "log", "--format=%s", check=False).splitlines()


def status(place: Path) -> list[str]:
    return git(place, "status", "--porcelain", "--no-renames").splitlines()


def files_of(place: Path, commit: str = "HEAD") -> list[str]:
    return git(place, "show", "--format=", "--name-status", "--no-renames", commit).splitlines()


def put(place: Path, **texts: str) -> None:
    for name, text in texts.items():
        (place / name).write_text(text)


def hook(place: Path, name: str, text: str) -> None:
    path = place / ".git" / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def make_repository(workspace: Path, home: Path) -> Path:
    """Three committed files; the identity is in the home of the test."""
    (home / ".gitconfig").write_text("")
    for name, value in IDENTITY.items():
        git(workspace, "config", "--global", name, value)
    git(workspace, "init", "-q")
    put(workspace, a="one\n", b="one\n", c="one\n")
    git(workspace, "add", "a", "b", "c")
    git(workspace, "commit", "-qm", "first")
    return workspace
