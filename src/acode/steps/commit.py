"""commit: a git commit made exactly once.

The commit carries the step's key as a trailer; found in flight, the trailer is searched from HEAD. It is put together
in an index of acode's own, so that another person's staged changes stay staged, and a failing hook or a crash
leaves the user's index as it was. Hooks and signing run as the user has set them up. Paths named by the step are
committed as they are in the working tree, new files and deletions included; without any, everything in the workspace
that git tracks or that is staged, and the new files that the session has written or read.

git lives on when acode dies, and may be in a long hook: it holds a lock of ours, so that it is waited for. Killed with
acode it leaves its own locks on HEAD and the branch, which would block every later commit: the locks that are provably
ours are removed, and the step reports it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from acode import lock
from acode.child_process import HeldSignals
from acode.command_notes import process_started
from acode.disk import file_lock
from acode.disk.own_files import open_own
from acode.disk.private_files import put_private
from acode.disk.write_errors import refusing_write_errors
from acode.errors import NotWritable, StepFailed
from acode.events import types as ev
from acode.events.definition import Commit, Step
from acode.plan import Finding, Outcome
from acode.steps import git_locks as locks
from acode.steps import keeper
from acode.steps import repository as git
from acode.steps.interface import Done, Failed, Prediction, Prepared, RolledBack, Site
from acode.steps.keeper_notes import (
    alive_lock_held,
    named,
    pids_mean_the_same,
    read_mark,
    run_directory,
)
from acode.steps.repository import GitFailed, Repository
from acode.steps.run import WITHHELD
from acode.workspace import restat

WATCH_S = 0.1
IDLE_S = 1.0
KILL_AFTER_S = 5.0
DRAIN_S = 0.5
ORPHAN_WAIT_S = 1.0
ORPHAN_EVERY_S = 0.02
READ_BYTES = 65_536
SHA_SHOWN_CHARS = 12

NOTHING = "nothing to commit"


class NotShown(GitFailed):
    """The commit is there, and the user's index is as it was before it."""


def repository_of(site: Site) -> Repository:
    return repository_in(site.root.path, site.env)


def repository_in(workspace: str, env: Mapping[str, str]) -> Repository:
    env = {name: value for name, value in env.items() if name not in WITHHELD}
    try:
        return git.find_repository(workspace, env)
    except GitFailed as error:
        raise GitFailed(f"{workspace} is no working tree of a git repository: {error}") from error


# Before.

NOT_MADE = Finding(outcome=Outcome.NOT_APPLIED, evidence="no commit since its start carries its key", repeatable=True)


def predict(step: Step) -> Prediction:
    return Prediction(finding=NOT_MADE, reason="evidence", because="unless a commit carries its key")


def prepare(step: Step, site: Site) -> Prepared:
    """Where the branch stands: the commit is searched among those that came later."""
    target: dict[str, Any] = {}
    with contextlib.suppress(GitFailed):  # said by `execute`
        repository = repository_of(site)
        target = {"parent": git.head(repository), "branch": git.branch(repository)}
    return Prepared(target=target)


# During.


def execute(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    """A failure before git is started has changed nothing; after that only the commit itself is evidence."""
    assert isinstance(step.action, Commit)
    directory = run_directory(site.agent_dir, started.key)
    with contextlib.ExitStack() as working:
        try:
            with refusing_write_errors(f"the commit of step {step.id} cannot be prepared"):
                held = working.enter_context(alive(directory))
                if held is None:
                    return Failed(reason="error", message=f"git runs already for step {step.id}")
                repository = repository_of(site)._replace(held=held)
                found = commit_of(repository, started) or begin(step.action, site, started, repository, working)
        except GitFailed as error:
            return Failed(reason="error", message=site.redactor.text(str(error)))
        except NotWritable as error:
            return Failed(reason="error", message=error.message)
        if isinstance(found, Done):
            return found
        try:
            if isinstance(found, str):  # an earlier life of this attempt has made it
                return finished(site, started, repository, found, stale_only=True)
            return judge(site, started, repository, found.watch(step, site), found.notes)
        except (GitFailed, OSError) as error:
            said = str(error) if isinstance(error, NotShown) else f"the outcome of the commit is unknown: {error}"
            return Failed(reason="signal", message=site.redactor.text(said))


def begin(
    action: Commit, site: Site, started: ev.StepStarted, repository: Repository, working: contextlib.ExitStack
) -> Running | Done:
    """git, started with an index of its own; or the end, where there is nothing to commit."""
    if (unfinished := git.under_way(repository)) is not None:
        raise GitFailed(f"{unfinished} is under way in {repository.top}: finish or abort it, then resume")
    removed = locks.make_way(repository, started.target.get("branch"), started.key, site.agent_dir)
    notes = [removal(site, started, removed)] if removed else []
    directory = run_directory(site.agent_dir, started.key)
    index, base = directory / "index", git.head(repository)
    working.callback(_discard, index)
    git.make_index(repository, index, base)
    fill(action, site, repository, index, base)
    if not git.differs(repository, index, base):
        result = {"commit": None, "note": "; ".join([NOTHING, *notes])}
        return Done(files=restat(site.root, site.manifest), result=result)
    return Running(repository, with_key(action.message, started.key), index, notes, directory=directory)


def _discard(index: Path) -> None:
    """A leftover stays in the directory of this attempt, where nothing reads it."""
    with contextlib.suppress(OSError):
        index.unlink(missing_ok=True)


def removal(site: Site, started: ev.StepStarted, removed: list[str]) -> str:
    """Reported at once, and recorded with the result: a file of another process would be missed."""
    note = f"removed {' and '.join(removed)}: a git of acode that was killed had left {'them' if removed[1:] else 'it'}"
    site.show(started.step, f"{note}\n".encode())
    return note


def fill(action: Commit, site: Site, repository: Repository, index: Path, base: str | None) -> None:
    """Our index gets what the step commits, as it is in the working tree."""
    if action.paths:
        wanted = [git.in_repository(repository, path) for path in action.paths]
        found = git.changes(repository, index, wanted)
        for path in wanted:
            refuse_unknown(repository, path, found)
        git.add(repository, index, [*found.tracked, *found.untracked], ())
        refuse_unseen(repository, index, base, removed=set())
        return
    found = git.changes(repository, index, [repository.prefix])
    added, removed = git.staged(repository, base, repository.prefix)
    own = {git.in_repository(repository, path) for path in site.manifest}
    new = [path for path in found.untracked if path in added or path in own]
    git.add(repository, index, [*found.tracked, *new], removed - set(found.tracked))
    refuse_unseen(repository, index, base, removed=removed)


def refuse_unseen(repository: Repository, index: Path, base: str | None, *, removed: set[bytes]) -> None:
    """git takes a file that it cannot look at, on a sick disk or without a descriptor left, for a deleted one."""
    for path in git.deleted(repository, index, base):
        if path not in removed and is_file(os.path.join(os.fsencode(repository.top), path)):
            name = path.decode("utf-8", "replace")
            raise GitFailed(f"git could not look at {name}, which is there, and would commit that it was deleted")


def is_file(path: bytes) -> bool:
    """Whether something is there that git would keep; a directory in the place of a file is its deletion."""
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def refuse_unknown(repository: Repository, path: bytes, found: git.Changes) -> None:
    """A name that stands for nothing is a mistake in the plan, not nothing to commit."""
    below = path.rstrip(b"/") + b"/"
    if any(name == path or name.startswith(below) for name in (*found.tracked, *found.untracked)) or not path:
        return
    if not git.is_known(repository, path):
        name = path.decode("utf-8", "replace")
        raise GitFailed(f"{name} is not known to git: it does not exist, is empty, or is ignored")


def with_key(message: str, key: str) -> str:
    """The message with the trailer, in the block of trailers if it has one already."""
    text = message.rstrip()
    last = text.rpartition("\n\n")
    trailers = bool(last[0]) and all(
        re.fullmatch(r"[A-Za-z0-9-]{1,60}: .{1,2000}", line) for line in last[2].split("\n")
    )
    between = "\n" if trailers else "\n\n"
    return f"{text}{between}{git.KEY}: {key}\n"


class Ended(NamedTuple):
    exit: int
    output: bytes
    stopped: Literal["timeout", "signal"] | None


class Running:
    """`git commit` with its hooks, in a process group of its own; the holder of the step's lock is one of them."""

    def __init__(self, repository: Repository, message: str, index: Path, notes: list[str], *, directory: Path) -> None:
        self.notes = notes  # what was done before it, for the record
        # Synced wholly: by default git leaves new objects and branches to the disk's cache, and a power cut would undo
        # a commit that git had reported.
        new_group: dict[str, Any] = (
            {"process_group": 0, "pass_fds": (repository.held,)} if sys.platform != "win32" else {}
        )
        self._unmarked: BaseException | None = None
        with HeldSignals():  # an interrupt in between would leave a git without its mark
            self._process = subprocess.Popen(
                ["git", "-c", "core.fsync=all", "commit", "--quiet", "--message", message],
                cwd=repository.top,
                env={**repository.env, "GIT_INDEX_FILE": os.fspath(index), "GIT_TERMINAL_PROMPT": "0"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                **new_group,
            )
            try:
                mark_started(directory, self._process.pid)
            except BaseException as error:  # it would look like a child of a hook: it may not live on without its mark
                self._unmarked = error
                self._signal(terminate=False)
        self._output = bytearray()
        self._stopped: Literal["timeout", "signal"] | None = None
        self._kill_at = 0.0

    def watch(self, step: Step, site: Site) -> Ended:
        if self._unmarked is not None:
            with self._process:  # closes its pipe, and waits
                self._process.wait()
                self._wait_for_group()
                raise self._unmarked
        reader = threading.Thread(target=self._read, args=(site.output_limit_bytes,), daemon=True)
        reader.start()
        now = time.monotonic()
        until, idle_at = now + (step.timeout_s or site.timeout_s), now + IDLE_S
        while not self._has_ended():
            now = time.monotonic()
            if self._stopped is None and (now >= until or site.stop.at_once()):
                self._stopped = "timeout" if now >= until else "signal"
                self._kill_at = now + KILL_AFTER_S
                self._signal(terminate=True)
            elif self._stopped is not None and now >= self._kill_at:
                self._signal(terminate=False)
            if now >= idle_at:
                site.idle()
                idle_at = now + IDLE_S
        reader.join(DRAIN_S)  # a background child of a hook may hold the pipe forever
        return Ended(self._process.returncode, bytes(self._output), self._stopped)

    def _has_ended(self) -> bool:
        try:
            self._process.wait(WATCH_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _wait_for_group(self) -> None:
        """A killed hook holds the lock of the step until the kernel has ended it; looked at before, git seems alive."""
        if sys.platform == "win32":
            return
        until = time.monotonic() + ORPHAN_WAIT_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < until:
                os.killpg(self._process.pid, 0)
                time.sleep(ORPHAN_EVERY_S)

    def _read(self, bytes_max: int) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            while piece := os.read(pipe.fileno(), READ_BYTES):
                self._output += piece[: max(0, bytes_max - len(self._output))]

    def _signal(self, *, terminate: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            if sys.platform == "win32":
                self._process.terminate() if terminate else self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGTERM if terminate else signal.SIGKILL)


@contextlib.contextmanager
def alive(directory: Path) -> Iterator[int | None]:
    """The lock that says that somebody works on this attempt: acode, git or one of its hooks. None: somebody else.

    A git that was only asked something, and whose acode was killed, ends in a moment: so long it is waited for.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = open_own(directory / "alive", os.O_RDWR | os.O_CREAT)
    try:
        got = file_lock.lock_within(descriptor, wait_s=ORPHAN_WAIT_S, every_s=ORPHAN_EVERY_S)
        yield descriptor if got else None
    finally:
        os.close(descriptor)


def mark_started(directory: Path, pid: int) -> None:
    """Name the process at work, for people, and to distinguish git from a child of a hook that has outlived it."""
    where = {"boot_id": lock.boot_id(), "pid_namespace": lock.pid_namespace()}
    mark = {"keeper": pid, "since": time.time(), "command": pid, "command_started": process_started(pid), **where}
    put_private(directory / "started", (json.dumps(mark).encode(),), durable=False)


def judge(site: Site, started: ev.StepStarted, repository: Repository, ended: Ended, notes: list[str]) -> Done | Failed:
    """Not the exit status but the commit decides: git may fail after making it, and be stopped after it too."""
    text = site.redactor.text(ended.output.decode("utf-8", "replace"))
    if text:
        site.show(started.step, text.encode())
    output, blobs = kept_output(site, text)
    found = commit_of(repository, started)
    if found is None and ended.exit == 0:
        found = git.head(repository)  # a hook has taken the trailer out of the message
    if found is not None:
        done = finished(site, started, repository, found, stale_only=False, notes=notes)
        return Done(files=done.files, touched=done.touched, result=done.result, output=output, blobs=blobs)
    files, touched = seen(site)
    words = {"timeout": "ran out of its time and was stopped", "signal": "was stopped"}
    how = words[ended.stopped] if ended.stopped else _describe_exit(ended.exit, text)
    return Failed(
        reason=ended.stopped or ("exit" if ended.exit > 0 else "signal"),
        message=f"`git commit` {how}",
        exit_status=ended.exit if ended.exit > 0 else None,
        signal=signal.Signals(-ended.exit).name if ended.exit < 0 else None,
        output=output,
        files=files,
        touched=touched,
        blobs=blobs,
    )


def _describe_exit(code: int, text: str) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    lines = text.strip().splitlines() or ["neither git nor a hook said why"]
    said = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
    locked = re.search(r"'[^']+\.lock'", said)  # git's words may be in any language, but not the name
    way_out = f" If no git process runs in this repository, remove {locked[0]}, then resume" if locked else ""
    return f"ended with exit status {code}: {said}{way_out}"


def kept_output(site: Site, text: str) -> tuple[ev.Output | None, dict[str, Any]]:
    if not text:
        return None, {}
    data = text.encode()
    sha256, blob = site.store.keep(data, "output")
    tail = data[-keeper.TAIL_BYTES :].decode("utf-8", "replace")
    return ev.Output(blob=sha256, bytes=len(data), tail=tail), {sha256: blob}


def finished(
    site: Site,
    started: ev.StepStarted,
    repository: Repository,
    commit: str,
    *,
    stale_only: bool,
    notes: list[str] | None = None,
) -> Done:
    """The user's index learns of the commit, else their next commit would undo it; until it has, the step is open."""
    said = list(notes or ())
    try:
        # git may have been killed between moving the branch and giving HEAD back.
        if removed := locks.remove_dead(repository, started.target.get("branch"), started.key, site.agent_dir):
            said.append(removal(site, started, removed))
        show_in_index(site, started, repository, commit, stale_only=stale_only)
    except GitFailed as error:
        made = f"the commit {commit[:SHA_SHOWN_CHARS]} is made"
        raise NotShown(f"{made}, but the index does not show it: {error}") from error
    result = {"commit": commit, "note": "; ".join(said)} if said else {"commit": commit}
    files, touched = seen(site)
    return Done(files=files, touched=touched, result=result)


def show_in_index(
    site: Site, started: ev.StepStarted, repository: Repository, commit: str, *, stale_only: bool
) -> None:
    """`stale_only`: after an interruption, what holds neither the old nor the new content was staged by a person."""
    locks.clear_up(repository, started.key, site.agent_dir)
    paths = set(git.paths_of(repository, commit))
    waiting = paths & git.unlike(repository, commit)
    if stale_only and waiting:
        parents = git.ask(repository, "rev-list", "--parents", "-n", "1", commit).decode().split()[1:]
        waiting -= git.unlike(repository, parents[0] if parents else None)
    if waiting:
        locks.bring_up(repository, commit, sorted(waiting), started.key, site.agent_dir)


def seen(site: Site) -> tuple[tuple[ev.FileState, ...], tuple[str, ...]]:
    """Hooks may have changed files that the session knows: these changes belong to the step."""
    files = restat(site.root, site.manifest)
    known = site.manifest
    touched = [one.path for one in files if (known[one.path].sha256, known[one.path].mode) != (one.sha256, one.mode)]
    return files, tuple(touched)


def commit_of(repository: Repository, started: ev.StepStarted) -> str | None:
    target = started.target
    return git.find_commit(repository, started.key, parent=target.get("parent"), on=target.get("branch"))


# Found in flight.


def look(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    running = still_running(run_directory(site.agent_dir, started.key))
    if running is not None:  # even if the commit is made already: its hooks are part of the step, and so is the index
        return Finding(outcome=Outcome.UNKNOWN, evidence=running, still_running=True)
    try:
        found = commit_of(repository_of(site), started)
    except GitFailed as error:
        return Finding(outcome=Outcome.UNKNOWN, evidence=site.redactor.text(f"git cannot be asked: {error}"))
    if found is not None:
        return Finding(outcome=Outcome.APPLIED, evidence=f"the commit {found[:SHA_SHOWN_CHARS]} carries its key")
    return NOT_MADE


def still_running(directory: Path) -> str | None:
    """A description, if git or one of its hooks lives on without its acode."""
    if not alive_lock_held(directory):
        return None
    mark = read_mark(directory)
    if mark is None or mark.command is None:
        return "git is just being started"
    if pids_mean_the_same(mark) and process_started(mark.command) != mark.command_started:
        return None  # only a child of a hook is left, and it makes no commit
    return f"git is still running, {named(mark)}"


def adopt(step: Step, site: Site, started: ev.StepStarted) -> Done:
    found, note = None, "settled without a commit of its own"
    try:
        repository = repository_of(site)
        found = commit_of(repository, started)
    except GitFailed as error:  # a person's word stands also where git has none
        note = site.redactor.text(f"settled without a look at its commit: {error}")
    if found is None:
        files, touched = seen(site)
        return Done(files=files, touched=touched, result={"commit": None, "note": note})
    try:
        return adopted(site, started, repository, found)
    except NotShown as error:
        raise StepFailed(site.redactor.text(f"step {step.id}: {error}"), step=step.id) from error


def adopted(site: Site, started: ev.StepStarted, repository: Repository, commit: str) -> Done:
    """The commit is there, and the index learns of it.

    git has ended, or it would be waited for. A process that still holds the lock then is a child of a hook: it may stay
    forever, and nothing else will update the index.
    """
    with alive(run_directory(site.agent_dir, started.key)) as held:
        return finished(site, started, repository._replace(held=held), commit, stale_only=True)


def roll_back(step: Step, site: Site, started: ev.StepStarted) -> RolledBack:
    """Nothing of a commit that was not made is left: its index was ours."""
    return RolledBack()
