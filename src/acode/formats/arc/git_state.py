"""The git state of a run's workspace: the files that differ, and the commits since the run began."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from acode.formats.arc.facts import Drift
from acode.workspace.git_state import CALL_SECONDS_MAX, look, look_at_files

BUDGET_SECONDS_MAX: Final = 10.0
LEFT_OUT: Final = ("node_modules", "vendor", "tmp", ".git")


def _answer(root: Path, *arguments: str, seconds: float = CALL_SECONDS_MAX) -> str | None:
    return _text(look(root, *arguments, seconds=seconds))


def _text(ended: tuple[int, bytes] | None) -> str | None:
    return ended[1].decode("utf-8", errors="replace") if ended and ended[0] == 0 else None


def modified_files(root: Path) -> frozenset[str] | None:
    """The tracked files that differ from the last commit; None where git gives no answer.

    Asked of `status`, because `diff` rewrites the index even with optional locks switched off.
    """
    if _answer(root, "rev-parse", "--verify", "--quiet", "HEAD") is None:
        return None
    options = ("--porcelain", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty")
    listed = _text(look_at_files(root, "status", *options))
    return None if listed is None else frozenset(entry[3:] for entry in listed.split("\0") if entry)


def current_branch(root: Path) -> str | None:
    """The branch that is checked out; empty for a detached head, None where git gives no answer."""
    answer = _answer(root, "branch", "--show-current")
    return None if answer is None else answer.strip()


def drift_since(root: Path, sha: str, names: list[str], plan_file: str) -> Drift | None:
    """How far the repository has moved since a commit; None where there is no repository."""
    if _answer(root, "rev-parse", "--git-dir") is None:
        return None
    deadline = time.monotonic() + BUDGET_SECONDS_MAX
    reachable = (_answer(root, "cat-file", "-t", sha) or "").strip() == "commit"
    branch = current_branch(root) or None
    count = _answer(root, "rev-list", "--count", f"{sha}..HEAD", "--") if reachable else None
    committed = _answer(root, "show", "-s", "--format=%ct", sha, "--") if reachable else None
    return Drift(
        sha_reachable=reachable,
        commits_since=_number(count),
        changed_since=_changed_since(root, sha) if reachable else None,
        identifiers_lost=_lost(root, names, plan_file, deadline),
        current_branch=branch,
        committed_at=_number(committed),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None


def _changed_since(root: Path, sha: str) -> frozenset[str] | None:
    """Every path that was changed, added, removed or renamed away since the commit."""
    listed = _answer(root, "diff-tree", "-r", "--no-renames", "--name-only", "-z", sha, "HEAD", "--")
    return None if listed is None else frozenset(path for path in listed.split("\0") if path)


def _lost(root: Path, names: list[str], plan_file: str, deadline: float) -> tuple[str, ...] | None:
    """The names that no tracked file holds any more. The plan itself does not count: it quotes every one of them."""
    outside = [f":(top,exclude){path}" for path in LEFT_OUT]
    outside.append(f":(exclude,literal){plan_file}")
    lost = []
    for name in names:
        left = deadline - time.monotonic()
        ended = look(root, "grep", "-q", "-F", "-e", name, "--", ".", *outside, seconds=left) if left > 0 else None
        if ended is None or ended[0] > 1:
            return None
        if ended[0] == 1:
            lost.append(name)
    return tuple(lost)
