"""A git repository seen through the git program: questions, and an index of our own.

Questions take no lock, run no hook and start no monitor. The user's index is only read here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from acode.disk.path_names import bytes_of

ASK_TIMEOUT_S = 60.0
MESSAGE_CHARS_MAX = 2_000
KEY = "Acode-Key"
UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}

# The variables that name a repository or change how paths are read; set where acode runs inside a hook of another one.
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
    common_dir: Path  # where the branches are; another one than git_dir in a linked working tree
    index_file: Path
    env: dict[str, str]
    held: int | None = None  # the run lock of the step: every git that works for it holds it until it ends


def find_repository(workspace: str, env: Mapping[str, str]) -> Repository:
    kept = {name: value for name, value in env.items() if name not in _MISLEADING}
    questions = (
        "--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--git-path", "index", "--show-prefix"
    )  # fmt: skip
    here = Repository(top=workspace, prefix=b"", git_dir=Path(), common_dir=Path(), index_file=Path(), env=kept)
    answer = ask(here, "rev-parse", *questions).split(b"\n")
    top, git_dir, common_dir, index, prefix = (*answer, b"", b"", b"")[:5]
    return Repository(
        top=os.fsdecode(top),
        prefix=prefix,
        git_dir=Path(os.fsdecode(git_dir)),
        common_dir=Path(workspace) / os.fsdecode(common_dir),
        index_file=Path(workspace) / os.fsdecode(index),
        env=kept,
    )


def ask(repository: Repository, *arguments: str | bytes, stdin: bytes = b"", index: Path | None = None) -> bytes:
    """The output of git, or GitFailed with its message."""
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
            pass_fds=(repository.held,) if repository.held is not None and sys.platform != "win32" else (),
        )
    except FileNotFoundError as error:
        raise GitFailed("the git program is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {os.fsdecode(arguments[0])} took over {ASK_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise GitFailed(f"git cannot be started: {error.strerror}") from error
    return ended.returncode, ended.stdout, ended.stderr.decode("utf-8", "replace").strip()[:MESSAGE_CHARS_MAX]


def names(answer: bytes) -> list[bytes]:
    return [name for name in answer.split(b"\0") if name]


def literally(path: bytes) -> bytes:
    """The path as git's own patterns cannot misread it; the empty one is the whole repository."""
    return b":(top,literal)" + path.rstrip(b"/") if path else b":(top)"


def in_repository(repository: Repository, rel: str) -> bytes:
    return repository.prefix if rel == "." else repository.prefix + bytes_of(rel)


def head(repository: Repository) -> str | None:
    """The commit that HEAD names; None where there is none yet."""
    return _commit_of(repository, "HEAD")


def _commit_of(repository: Repository, revision: str) -> str | None:
    """None where no branch has the name. git ends in the same way where it cannot read."""
    code, out, _ = call(repository, "rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}")
    if code == 0:
        return out.decode().strip()
    name = branch(repository) if revision == "HEAD" else revision
    if name is None or call(repository, "show-ref", "--quiet", "--verify", name)[0] == 0:
        raise GitFailed(f"git could not read the commit that {revision} names")
    return None


def branch(repository: Repository) -> str | None:
    """The branch that HEAD names; None where it names a commit."""
    code, out, said = call(repository, "symbolic-ref", "--quiet", "HEAD")
    if code > 1:
        raise GitFailed(said or "git could not read what HEAD names")
    return os.fsdecode(out.strip()) if code == 0 else None


def under_way(repository: Repository) -> str | None:
    """A merge or the like that somebody has begun: a commit now would end it with the wrong content."""
    return next((words for name, words in UNDER_WAY.items() if (repository.git_dir / name).exists()), None)


def find_commit(repository: Repository, key: str, *, parent: str | None, on: str | None) -> str | None:
    """The commit that carries the key, among those made since the step began, on HEAD or the branch it was then."""
    now = head(repository)
    if now is None:
        if parent is not None:
            raise GitFailed("HEAD names no commit any more, though it did when the step began")
        return None
    revisions = [now]
    for name, sign in ((on, ""), (parent, "^")):
        commit = _commit_of(repository, name) if name is not None else None
        if commit is not None:
            revisions.append(sign + commit)
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
    copy would hide changes of the same size made in the same tick. The leftover of a killed git is removed.
    """
    own_lock(place).unlink(missing_ok=True)
    place.unlink(missing_ok=True)
    try:
        with open(repository.index_file, "rb") as file:
            then = os.fstat(file.fileno()).st_mtime_ns
            place.write_bytes(file.read())
    except FileNotFoundError:
        return
    os.utime(place, ns=(then, then))


def own_lock(place: Path) -> Path:
    """The lock that git takes to change this index."""
    return place.with_name(f"{place.name}.lock")


class Changes(NamedTuple):
    """The differences between the last commit and the working tree."""

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
    """The paths added to and removed from the user's index since the last commit."""
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


def deleted(repository: Repository, place: Path, base: str | None) -> list[bytes]:
    """The paths of the last commit that an index does not hold any more."""
    if base is None:
        return []
    options = ("--cached", "--name-only", "--diff-filter=D", "-z", "--no-renames")
    return names(ask(repository, "diff-index", *options, base, index=place))


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
