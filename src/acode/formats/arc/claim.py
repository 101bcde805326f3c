"""Make a run ours: under a kernel lock, so that of two resumers that both see a dead owner exactly one wins.

The host tool claims in memory and writes later, which lets two sessions work on one run. Here the look at the owner and
the writing of the new one happen while the lock is held, and it stays held until the run is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from acode.disk import file_lock
from acode.errors import AcodeError, SessionLocked
from acode.formats.arc import disk
from acode.formats.arc.checkpoint import Checkpoint, Raw, stamp
from acode.formats.arc.discover import place_of, read
from acode.formats.arc.facts import Facts, Process
from acode.formats.arc.findings import raise_refusal
from acode.formats.arc.migrations import schema_of
from acode.formats.arc.permission import config_dir_refusal, nonce_refusal, owner_refusal
from acode.formats.arc.phases import SCHEMA_CURRENT
from acode.formats.arc.repair import with_owner
from acode.formats.arc.save import write
from acode.formats.arc.surroundings import canonical, own_place, parent, process

LOCK_NAME: Final = ".acode.lock"
OWNER_BYTES_MAX: Final = 64


@contextmanager
def claim(path: Path, *, own_pid: int, config_dir: str, now: datetime) -> Iterator[Checkpoint]:
    """The checkpoint, read after the claim was written; ours until the block ends or the process dies."""
    root, relative = place_of(path)
    with disk.parent_of(root, relative) as (holder, _), _locked(holder, own_pid) as before:
        checkpoint = read(path)
        _refuse_foreign(checkpoint, own_pid=own_pid, config_dir=config_dir, let_go=before)
        claimed = with_owner(checkpoint.raw, own_pid=own_pid, config_dir=own_place(config_dir))
        write(path, {**claimed, "updated_at": stamp(now)}, now=now)
        yield read(path)


def let_go_by(path: Path) -> int | None:
    """The acode process that held this run last and released it; None where one holds it now, or none ever did.

    Its number may still be in the checkpoint, and a process of that number may be alive: it is on its way out, or the
    number was used again.
    """
    root, relative = place_of(path)
    try:
        with disk.parent_of(root, relative) as (holder, _):
            fd = holder.open_file(LOCK_NAME, os.O_RDWR, 0)
    except (FileNotFoundError, NotADirectoryError, AcodeError):
        return None
    try:
        return _signed(fd) if file_lock.try_lock(fd) else None
    finally:
        os.close(fd)


def _signed(fd: int) -> int | None:
    os.lseek(fd, 0, os.SEEK_SET)
    text = os.read(fd, OWNER_BYTES_MAX)
    return int(text) if text.isdigit() else None


def _refuse_foreign(checkpoint: Checkpoint, *, own_pid: int, config_dir: str, let_go: int | None) -> None:
    value = checkpoint.raw
    recorded = value.get("config_dir")
    facts = Facts(
        own_pid=own_pid,
        own_config_dir=own_place(config_dir),
        own_parent=parent(),
        recorded_config_dir=canonical(recorded) if isinstance(recorded, str) and recorded else None,
        owner=owner_of(value, let_go),
    )
    newer = schema_of(value) > SCHEMA_CURRENT
    for refusal in (nonce_refusal(value, newer=newer), config_dir_refusal(value, facts), owner_refusal(value, facts)):
        if refusal is not None:
            raise_refusal(refusal)


def owner_of(value: Raw, let_go: int | None) -> Process:
    """The owner that a checkpoint names, unless it is an acode that has let the run go."""
    owner = process(value.get("owner_pid"))
    return Process() if owner.pid is not None and owner.pid == let_go else owner


@contextmanager
def _locked(holder: disk.Directory, own_pid: int) -> Iterator[int | None]:
    """The lock, and the process that signed it before.

    The file is never deleted: a lock on an unlinked file keeps out nobody who opens the name again.
    """
    with disk.translated(os.path.join(holder.path, LOCK_NAME)):
        fd = holder.open_file(LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not file_lock.try_lock(fd):
            os.lseek(fd, 0, os.SEEK_SET)
            owner = os.read(fd, OWNER_BYTES_MAX)  # empty in the instant between the owner's lock and its signature
            named = f" (process {owner.decode('ascii')})" if owner.isdigit() else ""
            raise SessionLocked(f"Another acode{named} works on this run.", hint="Wait for it to end, then resume.")
        before = _signed(fd)
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, str(own_pid).encode("ascii"))
        yield before
    finally:
        os.close(fd)  # releases the lock; so does the death of the process
