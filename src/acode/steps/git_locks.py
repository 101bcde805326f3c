"""git's own locks: change the user's index under its lock, and remove the locks that a killed git left.

A lock is removed only where something shows that it is a dead acode's or its git's. The one on the index that acode
takes has the key of the step in it. One on a branch has the commit in it that the branch was to get, and that commit
carries the key. One on HEAD is empty; but git takes it before it writes to the branch and gives it back afterwards, so
it is ours if it is not younger than what our git wrote there. Every other lock is waited for a moment and then named:
only a person knows whether somebody works there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from acode.disk import file_lock
from acode.disk.fsync import sync_file
from acode.disk.own_files import open_own
from acode.events import parse_key
from acode.steps.keeper_notes import run_directory
from acode.steps.repository import KEY, GitFailed, Repository, ask, copy_index, find_commit, literally, own_lock

LOCK_WAIT_S = 5.0
LOCK_EVERY_S = 0.05
LOCK_NAME_BYTES_MAX = 400
BESIDE = "index.acode."


# The user's index.


def bring_up(repository: Repository, commit: str, paths: Iterable[bytes], key: str, agent_dir: Path) -> None:
    """Let the user's index hold the commit's content at these paths; what is staged at others stays staged."""
    beside = beside_index(repository)
    with index_lock(repository, key, agent_dir):
        try:
            copy_index(repository, beside)
            listed = b"\0".join(map(literally, paths))
            options = ("-q", "--pathspec-from-file=-", "--pathspec-file-nul")
            ask(repository, "reset", *options, commit, stdin=listed, index=beside)
            with open(beside, "rb") as file:
                sync_file(file.fileno())
            os.replace(beside, repository.index_file)
        finally:
            beside.unlink(missing_ok=True)


def beside_index(repository: Repository) -> Path:
    """Where the next index is made: a place of its own each time, because a git may outlive the acode that asked it."""
    return repository.index_file.with_name(f"{BESIDE}{secrets.token_hex(8)}")


def lock_file(repository: Repository) -> Path:
    return own_lock(repository.index_file)


@contextlib.contextmanager
def index_lock(repository: Repository, key: str, agent_dir: Path) -> Iterator[None]:
    """git's own lock on the index, taken as git takes it, with our key in it."""
    place = lock_file(repository)
    until = time.monotonic() + LOCK_WAIT_S
    while not take_lock(place, key):
        if not remove_ours(place, agent_dir, key):
            wait_or_name([place], until)
    try:
        yield
    finally:
        place.unlink(missing_ok=True)


def take_lock(place: Path, key: str) -> bool:
    """Made with our key already in it: a kill between making and naming would leave a lock without an owner."""
    named = named_lock(place, key)
    try:
        named.write_bytes(signature(key))
        os.link(named, place)
    except FileExistsError:
        return False
    finally:
        named.unlink(missing_ok=True)
    return True


def named_lock(place: Path, key: str) -> Path:
    return place.with_name(f"index.acode-{hashlib.sha256(key.encode()).hexdigest()[:16]}")


def clear_up(repository: Repository, key: str, agent_dir: Path) -> None:
    """Take away what a killed acode left around the index."""
    named_lock(lock_file(repository), key).unlink(missing_ok=True)
    remove_ours(lock_file(repository), agent_dir, key)
    if half_made := list(repository.index_file.parent.glob(f"{BESIDE}*")):
        with index_lock(repository, key, agent_dir):
            for one in half_made:
                one.unlink(missing_ok=True)


def signature(key: str) -> bytes:
    return f"acode {key}\n".encode()


def remove_ours(place: Path, agent_dir: Path, key: str) -> bool:
    """Remove a lock on the index that a killed acode left; True if there is none any more. `key`: the caller's."""
    found = _text_of(place)
    if found is None:
        return True
    owner = found.removeprefix("acode ").rstrip("\n")
    if signature(owner).decode() != found or parse_key(owner) is None:
        return False
    with whose_end_is_certain(owner, agent_dir, key) as began_ns:
        if began_ns is None or _text_of(place) != found:
            return False
        place.unlink(missing_ok=True)
        return True


# HEAD and the branch.


class Written(NamedTuple):
    """A commit that git wrote into a branch, or into the lock on it."""

    commit: str
    at_ns: int


def make_way(repository: Repository, branch: str | None, key: str, agent_dir: Path) -> list[str]:
    """Wait until nothing of git's is in the way of a commit; the names of the locks that were removed, for the record.

    A lock on the index would not stop the commit, but keep it from being shown there.
    """
    until = time.monotonic() + LOCK_WAIT_S
    removed: list[str] = []
    while left := [place for place in (lock_file(repository), *ref_locks(repository, branch)) if place.exists()]:
        removed += remove_dead(repository, branch, key, agent_dir)
        remove_ours(lock_file(repository), agent_dir, key)
        if staying := [place for place in left if place.exists()]:
            wait_or_name(staying, until)
    return removed


def ref_locks(repository: Repository, branch: str | None) -> list[Path]:
    """The locks that git takes to move a branch on which HEAD is; without a branch, HEAD alone."""
    head = repository.git_dir / "HEAD.lock"
    return [head] if branch is None else [head, own_lock(repository.common_dir / branch)]


def remove_dead(repository: Repository, branch: str | None, key: str, agent_dir: Path) -> list[str]:
    """Remove the locks on HEAD and the branch that a git of ours left when it was killed; their names."""
    locks = ref_locks(repository, branch)
    if not any(place.exists() for place in locks):
        return []
    for place in (*reversed(locks), *([repository.common_dir / branch] if branch is not None else [])):
        written = _written(place)
        owner = None if written is None else key_in(repository, written.commit)
        if written is None or owner is None:
            continue
        with whose_end_is_certain(owner, agent_dir, key) as began_ns:
            # Read again: the remover holds the run lock, so that only one of two that find it continues.
            if began_ns is None or _written(place) != written:
                continue
            ours = [locks[0]] if place != locks[0] and _taken_between(locks[0], began_ns, written.at_ns) else []
            if place in locks:
                if is_on(repository, branch, owner, written.commit):
                    continue  # a commit that somebody amends or picks keeps the key of the one it is made from
                ours.append(place)  # last: it is what shows that the one on HEAD is ours
            for one in ours:
                one.unlink(missing_ok=True)
            if ours:
                return [os.path.relpath(one, repository.common_dir) for one in ours]
    return []


def key_in(repository: Repository, commit: str) -> str | None:
    """The key in the last trailer of a commit, if it is one of acode's."""
    try:
        text = ask(repository, "cat-file", "commit", commit).decode("utf-8", "replace")
    except GitFailed:
        return None
    found = [line.removeprefix(f"{KEY}: ").strip() for line in text.splitlines() if line.startswith(f"{KEY}: ")]
    return found[-1] if found and parse_key(found[-1]) is not None else None


def is_on(repository: Repository, branch: str | None, key: str, commit: str) -> bool:
    """Is there a commit with this key on the branch already? `commit`: one that was to be made."""
    parents = ask(repository, "rev-list", "--parents", "-n", "1", commit).decode().split()[1:]
    return find_commit(repository, key, parent=parents[0] if parents else None, on=branch) is not None


def _taken_between(place: Path, began_ns: int, until_ns: int) -> bool:
    try:
        taken_ns = place.stat().st_mtime_ns
    except OSError:
        return False
    return began_ns <= taken_ns <= until_ns


def _written(place: Path) -> Written | None:
    text = _text_of(place)
    if text is None or re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\n?", text) is None:
        return None
    try:
        return Written(text.rstrip("\n"), place.stat().st_mtime_ns)
    except OSError:
        return None


# Whose they are.


@contextlib.contextmanager
def whose_end_is_certain(owner: str, agent_dir: Path, key: str) -> Iterator[int | None]:
    """When the attempt with the key `owner` began, if no process works on it any more; None where one may.

    It is dead when nobody holds its run lock, which acode and every git of the attempt hold, and which is held here
    meanwhile: of two that find the same leftover only one removes it, and nobody removes the lock that was made after
    it. The caller works on its own step, `key`, alone, and its git has ended: a lock with that key is an old one.
    """
    try:
        alive = open_own(alive_file(agent_dir, owner), os.O_RDWR)
    except OSError:
        yield None
        return
    try:
        # The file is made when the attempt begins and never written to.
        yield os.fstat(alive).st_mtime_ns if owner == key or file_lock.try_lock(alive) else None
    finally:
        os.close(alive)


def alive_file(agent_dir: Path, key: str) -> Path:
    return run_directory(agent_dir, key) / "alive"


def wait_or_name(places: list[Path], until: float) -> None:
    """Somebody has locked these: one moment more, or the error that says so."""
    if time.monotonic() < until:
        time.sleep(LOCK_EVERY_S)
        return
    several = len(places) > 1
    raise GitFailed(
        f"{' and '.join(map(str, places))} exist{'' if several else 's'}: another git process works in this repository,"
        f" or one was killed. If none runs, remove {'these files' if several else 'that file'}, then resume"
    )


def _text_of(place: Path) -> str | None:
    try:
        with open(place, "rb") as file:
            return file.read(LOCK_NAME_BYTES_MAX).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError:
        return ""
