"""The note of a supervisor that has started on a plan or a task, kept until it has reported how the session ended.

A supervisor that was killed alone leaves its note: its child may have finished the session meanwhile, and a restart
must not begin a second one. The child may also be about to make its session; it inherits a lock that shows this.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from acode.disk import file_lock
from acode.disk.fsync import sync_directory
from acode.disk.own_files import open_own, read_own
from acode.disk.private_files import write_private
from acode.disk.write_errors import refusing_write_errors
from acode.engine.world import World
from acode.errors import LockUnsafe
from acode.workspace import Root, ensure_agent_dir

LOOK_EVERY_S = 0.1


class StartNote(msgspec.Struct, frozen=True, kw_only=True):
    since: datetime
    session_id: str | None = None  # None: the one that the first child makes


class SupervisedStart:
    """The note about one plan or task of a workspace, and the lock of the child that makes its session."""

    def __init__(self, world: World, what: str) -> None:
        with Root(world.workspace) as root:
            directory = ensure_agent_dir(root) / "locks"
        name = hashlib.sha256(what.encode()).hexdigest()[:16]
        self.path = directory / f"supervised.{name}"
        self._child = directory / f"supervised.{name}.child"

    def read(self) -> StartNote | None:
        """None only where there is no note: one that cannot be read may stand for a session that was begun."""
        try:
            return msgspec.json.decode(read_own(self.path), type=StartNote)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are values' errors
            reason = error.strerror if isinstance(error, OSError) else "it is damaged"
            raise LockUnsafe(
                f"the note of an earlier supervisor, {self.path}, cannot be read: {reason}",
                hint="Its session may have ended unreported: look with acode session list --all. Then remove the"
                " note, or start another session with --new.",
            ) from error

    def write(self, note: StartNote) -> None:
        """Durable before a child is started: from then on a session may be begun."""
        write_private(self.path, msgspec.json.encode(note))

    def acknowledge(self) -> None:
        """The end is reported. Synced, or a power cut restores the note and a nightly run is left out."""
        with refusing_write_errors(f"{self.path} cannot be removed"):
            self.path.unlink(missing_ok=True)
            sync_directory(self.path.parent)

    @contextlib.contextmanager
    def lock_for_child(self) -> Iterator[int | None]:
        """A locked descriptor for the child to inherit; None where a child of an earlier supervisor still has it."""
        with refusing_write_errors(f"{self._child} cannot be opened"):
            descriptor = open_own(self._child, os.O_RDWR | os.O_CREAT)
        try:
            yield descriptor if sys.platform != "win32" and file_lock.try_lock(descriptor) else None
        finally:
            os.close(descriptor)  # never unlocked: the child may live on

    def child_lives(self) -> bool:
        with self.lock_for_child() as descriptor:
            return descriptor is None and sys.platform != "win32"


def unreported(
    start: SupervisedStart, find: Callable[[datetime], str | None], show: Callable[[str], object]
) -> str | None:
    """The session that a supervisor began or continued, and whose end it has not reported.

    `find`: the session that was made since. A child that is just about to make it is waited for.
    """
    note = start.read()
    if note is None or note.session_id is not None:
        return note.session_id if note is not None else None
    if start.child_lives():
        show("Waiting for the child of an earlier supervisor, which is about to make its session")
    while True:
        lives = start.child_lives()  # asked first: a child that makes its session and ends meanwhile is found
        found = find(note.since)
        if found is not None or not lives:
            return found
        time.sleep(LOOK_EVERY_S)
