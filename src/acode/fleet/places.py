"""The directories of a worker: one workspace per session under its root, and the files with the ends of its leases.

A workspace that another machine has continued is of no use any more, and is moved aside; old ones are removed, so that
a worker's disk does not fill.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from acode import lock as locks
from acode import seal
from acode.disk.private_files import make_private_directory
from acode.engine.world import World
from acode.errors import AcodeError
from acode.store import sync_cursor
from acode.store.store import DATABASE, Store

KEPT_MAX = 20


class Places:
    def __init__(self, root: Path, kept_max: int = KEPT_MAX) -> None:
        self.root = root.resolve()
        self._kept_max = kept_max
        for directory in (self.root, self.sessions, self.root / "leases", self.root / "aside"):
            make_private_directory(directory)

    @property
    def sessions(self) -> Path:
        return self.root / "sessions"

    def workspace(self, session_id: str) -> Path:
        place = self.sessions / session_id
        make_private_directory(place)
        return place

    def lease_file(self, session_id: str) -> str:
        return os.fspath(self.root / "leases" / session_id)

    def set_aside(self, world: World, session_id: str) -> None:
        """Its log was continued elsewhere: a process that still works there finds that its lease has ended."""
        place = self.sessions / session_id
        if not place.exists():
            return
        number = sum(1 for one in (self.root / "aside").glob(f"{session_id}.*"))
        os.rename(place, self.root / "aside" / f"{session_id}.{number}")
        seal.forget_anchor(world.state_dir, place, session_id)

    def collect(self, world: World, in_use: set[str]) -> list[str]:
        """Remove the oldest beyond the number that is kept; never one that is in use, or that the server lacks."""
        aside = sorted((self.root / "aside").iterdir(), key=_age)
        removed = [self._remove(one) for one in aside[: max(0, len(aside) - self._kept_max)]]
        there = sorted((one for one in self.sessions.iterdir() if one.name not in in_use), key=_age)
        for place in there[: max(0, len(there) - self._kept_max)]:
            if not is_spared(world, place):
                seal.forget_anchor(world.state_dir, place, place.name)
                with contextlib.suppress(OSError):
                    os.unlink(self.lease_file(place.name))
                removed.append(self._remove(place))
        return removed

    @staticmethod
    def _remove(place: Path) -> str:
        shutil.rmtree(place, ignore_errors=True)
        return place.name


def _age(place: Path) -> float:
    try:
        return place.stat().st_mtime
    except OSError:
        return 0.0


def is_spared(world: World, place: Path) -> bool:
    """Whether a workspace may hold what is nowhere else, or somebody works there."""
    session_id, directory = place.name, place / ".agent"
    if not (directory / DATABASE).exists():
        return False
    try:
        keyring = seal.load_keyring(world.state_dir, world.env, create=False)
        with Store(directory, keyring, clock=world.clock, new_id=world.new_id, look_only=True) as store:
            if not store.has(session_id):
                return False
            if locks.look(directory / "locks", session_id, store.generation(session_id)).held:
                return True
            cursor = sync_cursor.cursor_of(store, session_id)
            return cursor.standing in sync_cursor.HOLDERS and cursor.pushed_seq < sync_cursor.last_seq(
                store, session_id
            )
    except AcodeError:
        return True
