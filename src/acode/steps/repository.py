"""A git repository seen through the git program: questions, an index of our own, and the user's index under its lock.

Questions take no lock, run no hook and start no monitor. The user's index is only changed while holding its lock, with
our name in it: a lock left by a killed acode is known by that name, and somebody else's lock is never removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from acode import lock
from acode.events import parse_key
from acode.store.durable import sync_file
from acode.workspace.names import bytes_of

ASK_TIMEOUT_S = 60.0
LOCK_WAIT_S = 5.0
LOCK_EVERY_S = 0.05
LOCK_NAME_BYTES_MAX = 400
SAID_CHARS_MAX = 2_000
KEY = "Acode-Key"
UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}

# What says where a repository is, or how paths are read; set where acode runs inside a hook, and of another repository.
_MISLEADING = frozenset(
    f"GIT_{name}"
    for name in (
        "DIR", "WORK_TREE", "INDEX_FILE", "PREFIX", "COMMON_DIR", "NAMESPACE", "OBJECT_DIRECTORY",
        "ALTERNATE_OBJECT_DIRECTORIES", "LITERAL_PATHSPECS", "GLOB_PATHSPECS", "NOGLOB_PATHSPECS", "ICASE_PATHSPECS",
    )
)  # fmt: skip
_QUIETLY = (
    "--no-pager",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "core.quotePath=false",
)


class GitFailed(Exception):
    """git said no, or cannot be asked; the message is for people."""


class Repository(NamedTuple):
    top: str
    prefix: bytes  # of the workspace in the repository, with a slash at its end; empty where they are the same
    git_dir: Path
    index_file: Path
    env: dict[str, str]


def find_repository(workspace: str, env: Mapping[str, str]) -> Repository:
    kept = {name: value for name, value in env.items() if name not in _MISLEADING}
    questions = ("--show-toplevel", "--absolute-git-dir", "--git-path", "index", "--show-prefix")
    here = Repository(top=workspace, prefix=b"", git_dir=Path(), index_file=Path(), env=kept)
    answer = ask(here, "rev-parse", *questions).split(b"\n")
    top, git_dir, index, prefix = (*answer, b"", b"", b"")[:4]
    return Repository(
        top=os.fsdecode(top),
        prefix=prefix,
        git_dir=Path(os.fsdecode(git_dir)),
        index_file=Path(workspace) / os.fsdecode(index),
        env=kept,
    )


def ask(repository: Repository, *arguments: str | bytes, stdin: bytes = b"", index: Path | None = None) -> bytes:
    """The answer of git, or GitFailed with what it said."""
    code, out, said = call(repository, *arguments, stdin=stdin, index=index)
    if code != 0:
        raise GitFailed(said or f"git {os.fsdecode(arguments[0])} ended with exit status {code}")
    return out


def call(
    repository: Repository, *arguments: str | bytes, stdin: bytes = b"", index: Path | None = None
) -> tuple[int, bytes, str]:
    env = {**repository.env, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    if index is not None:
        env["GIT_INDEX_FILE"] = os.fspath(index)
    try:
        ended = subprocess.run(
            ["git", *_QUIETLY, *arguments],
            cwd=repository.top,
            env=env,
            input=stdin,
            capture_output=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise GitFailed("the git program is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {os.fsdecode(arguments[0])} took over {ASK_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise GitFailed(f"git cannot be started: {error.strerror}") from error
    return ended.returncode, ended.stdout, ended.stderr.decode("utf-8", "replace").strip()[:SAID_CHARS_MAX]


def names(answer: bytes) -> list[bytes]:
    return [name for name in answer.split(b"\0") if name]


def literally(path: bytes) -> bytes:
    """The path as git's own patterns cannot misread it; the empty one is the whole repository."""
    return b":(top,literal)" + path.rstrip(b"/") if path else b":(top)"


def in_repository(repository: Repository, rel: str) -> bytes:
    return repository.prefix if rel == "." else repository.prefix + bytes_of(rel)


def head(repository: Repository) -> str | None:
    """The commit that HEAD names; None where there is none yet."""
    code, out, _ = call(repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    return out.decode().strip() if code == 0 else None


def branch(repository: Repository) -> str | None:
    code, out, _ = call(repository, "symbolic-ref", "--quiet", "HEAD")
    return os.fsdecode(out.strip()) if code == 0 else None


def under_way(repository: Repository) -> str | None:
    """A merge or the like that somebody has begun: a commit now would end it with the wrong content."""
    return next((words for name, words in UNDER_WAY.items() if (repository.git_dir / name).exists()), None)


def find_commit(repository: Repository, key: str, *, parent: str | None, on: str | None) -> str | None:
    """The commit that carries the key, among those made since the step began, on HEAD or the branch it was then."""
    now = head(repository)
    if now is None:
        return None
    revisions = [now]
    for name, sign in ((on, ""), (parent, "^")):
        if name is not None and call(repository, "cat-file", "-e", f"{name}^{{commit}}")[0] == 0:
            revisions.append(sign + name)
    wanted = f"{KEY}: {key}"
    options = ("--no-show-signature", "--no-notes", "--no-patch", "--encoding=UTF-8", "--format=%H%x00%B", "-z")
    answer = ask(repository, "log", *options, "--fixed-strings", f"--grep={wanted}", *revisions, "--").split(b"\0")
    for sha, text in zip(answer[::2], answer[1::2], strict=False):
        # A message that only quotes the key is not the commit.
        if any(line.strip() == wanted for line in text.decode("utf-8", "replace").splitlines()):
            return sha.decode().strip()
    return None


# An index of our own.


def make_index(repository: Repository, place: Path, base: str | None) -> None:
    """The last commit as an index, in a file of ours; a copy of the user's, so that git need not hash every file."""
    copy_index(repository, place)
    if base is None:
        ask(repository, "read-tree", "--empty", index=place)
    else:
        ask(repository, "read-tree", "--reset", base, index=place)


def copy_index(repository: Repository, place: Path) -> None:
    """A copy with the same time: git distrusts entries that are not older than the file which holds them, so a newer
    copy would hide changes of the same size made in the same tick."""
    place.unlink(missing_ok=True)
    try:
        with open(repository.index_file, "rb") as file:
            then = os.fstat(file.fileno()).st_mtime_ns
            place.write_bytes(file.read())
    except FileNotFoundError:
        return
    os.utime(place, ns=(then, then))


class Changes(NamedTuple):
    """What differs between the last commit and the working tree."""

    tracked: list[bytes]
    untracked: list[bytes]


def changes(repository: Repository, place: Path, paths: Iterable[bytes]) -> Changes:
    options = ("--porcelain=v2", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")
    listed = names(ask(repository, "status", *options, "--", *map(literally, paths), index=place))
    tracked = [entry.split(b" ", 8)[8] for entry in listed if entry.startswith(b"1 ")]
    # A directory among them is a repository of its own: it is not ours to add.
    untracked = [entry[2:] for entry in listed if entry.startswith(b"? ") and not entry.endswith(b"/")]
    return Changes(tracked, untracked)


def staged(repository: Repository, base: str | None, path: bytes) -> tuple[set[bytes], set[bytes]]:
    """What somebody has added to and removed from the user's index since the last commit."""
    if base is None:
        return set(names(ask(repository, "ls-files", "-z", "--cached", "--", literally(path)))), set()
    options = ("--cached", "--name-status", "-z", "--no-renames")
    answer = names(ask(repository, "diff-index", *options, base, "--", literally(path)))
    pairs = list(zip(answer[::2], answer[1::2], strict=True))
    return {name for sign, name in pairs if sign == b"A"}, {name for sign, name in pairs if sign == b"D"}


def add(repository: Repository, place: Path, paths: Iterable[bytes], removed: Iterable[bytes]) -> None:
    listed = b"\0".join(map(literally, paths))
    if listed:
        ask(repository, "add", "-A", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=listed, index=place)
    gone = b"\0".join(removed)
    if gone:
        ask(repository, "update-index", "-z", "--force-remove", "--stdin", stdin=gone + b"\0", index=place)


def differs(repository: Repository, place: Path, base: str | None) -> bool:
    if base is None:
        return bool(ask(repository, "ls-files", "-z", "--cached", index=place))
    return call(repository, "diff-index", "--cached", "--quiet", base, index=place)[0] != 0


def is_known(repository: Repository, path: bytes) -> bool:
    return call(repository, "ls-files", "-z", "--error-unmatch", "--", literally(path))[0] == 0


# The user's index.


def paths_of(repository: Repository, commit: str) -> list[bytes]:
    options = ("--root", "-r", "-z", "--no-renames", "--name-only", "--no-commit-id")
    return names(ask(repository, "diff-tree", *options, commit))


def unlike(repository: Repository, commit: str | None) -> set[bytes]:
    """The paths in which the user's index differs from a commit; from nothing at all: those that are in it."""
    if commit is None:
        return set(names(ask(repository, "ls-files", "-z", "--cached")))
    options = ("--cached", "--name-only", "-z", "--no-renames")
    return set(names(ask(repository, "diff-index", *options, commit)))


def bring_up(repository: Repository, commit: str, paths: Iterable[bytes], key: str, agent_dir: Path) -> None:
    """Let the user's index hold the commit's content at these paths; what is staged at others stays staged."""
    beside = repository.index_file.with_name("index.acode")
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


def lock_file(repository: Repository) -> Path:
    return repository.index_file.with_name(f"{repository.index_file.name}.lock")


@contextlib.contextmanager
def index_lock(repository: Repository, key: str, agent_dir: Path) -> Iterator[None]:
    """git's own lock on the index, taken as git takes it, with our key in it."""
    place = lock_file(repository)
    until = time.monotonic() + LOCK_WAIT_S
    while not take_lock(place, key):
        wait_for_lock(repository, agent_dir, key, until)
    try:
        yield
    finally:
        place.unlink(missing_ok=True)


def take_lock(place: Path, key: str) -> bool:
    """Made with our key already in it: a kill between making and naming would leave a lock that is nobody's."""
    named = named_lock(place, key)
    try:
        named.write_bytes(signature(key))
        os.link(named, place)
    except FileExistsError:
        return False
    except OSError as error:
        raise GitFailed(f"{place} cannot be made: {error.strerror}") from error
    finally:
        named.unlink(missing_ok=True)
    return True


def named_lock(place: Path, key: str) -> Path:
    return place.with_name(f"index.acode-{hashlib.sha256(key.encode()).hexdigest()[:16]}")


def clear_up(repository: Repository, key: str, agent_dir: Path) -> None:
    """Take away what a killed acode left of its own lock; the caller holds the run lock of the step."""
    named_lock(lock_file(repository), key).unlink(missing_ok=True)
    remove_ours(lock_file(repository), agent_dir, key)


def signature(key: str) -> bytes:
    return f"acode {key}\n".encode()


def wait_for_lock(repository: Repository, agent_dir: Path, key: str, until: float) -> None:
    """Somebody has the index: one moment more, or the error that says so. A dead acode's lock is taken away."""
    place = lock_file(repository)
    if remove_ours(place, agent_dir, key):
        return
    if time.monotonic() >= until:
        raise GitFailed(
            f"{place} exists: another git process works in this repository, or one was killed."
            " If none runs, remove that file, then resume"
        )
    time.sleep(LOCK_EVERY_S)


def remove_ours(place: Path, agent_dir: Path, key: str) -> bool:
    """Remove a lock that a killed acode left; True if there is none any more. `key`: of the step that asks.

    The step whose key stands in it is dead when nobody holds its run lock, which is held here meanwhile: of two that
    find the same leftover only one removes it, and nobody removes the lock that was made after it. Whoever asks holds
    the run lock of its own step, so a lock with that key is one from before.
    """
    found = _text_of(place)
    if found is None:
        return True
    owner = found.removeprefix("acode ").rstrip("\n")
    if signature(owner).decode() != found or parse_key(owner) is None:
        return False
    if owner == key:
        place.unlink(missing_ok=True)
        return True
    try:
        alive = os.open(alive_file(agent_dir, owner), os.O_RDWR)
    except OSError:
        return False
    try:
        if not lock.try_lock(alive) or _text_of(place) != found:
            return False
        place.unlink(missing_ok=True)
        return True
    finally:
        os.close(alive)


def alive_file(agent_dir: Path, key: str) -> Path:
    from acode.steps.run import run_directory

    return run_directory(agent_dir, key) / "alive"


def _text_of(place: Path) -> str | None:
    try:
        with open(place, "rb") as file:
            return file.read(LOCK_NAME_BYTES_MAX).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError:
        return ""
