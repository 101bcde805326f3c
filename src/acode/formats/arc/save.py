"""Write a checkpoint: whole or not at all, with the old content kept beside it.

Only the holder of the run's lock may write. Backups of the last three contents rotate; the one from before a schema
change stays, because no later version of the file can be turned back into it.
"""

from __future__ import annotations

import re
import stat
from datetime import datetime
from pathlib import Path
from typing import Final

from acode.errors import AcodeError, WriteFailed
from acode.formats.arc import disk
from acode.formats.arc.checkpoint import CHECKPOINT_BYTES_MAX, Raw, decode, encode
from acode.formats.arc.discover import CHECKPOINT_NAME, place_of
from acode.formats.arc.migrations import schema_of

BACKUPS_KEPT: Final = 3
ENTRIES_MAX: Final = 10_000
ROTATED: Final = re.compile(r"checkpoint\.json\.bak\.([0-9]{1,16})")


def write(path: Path, value: Raw, *, now: datetime) -> None:
    """Replace a checkpoint. A crash at any point leaves the old content or the new one."""
    root, relative = place_of(path)
    data = encode(value)
    if decode(data, name=relative) != value:  # would not read back as itself: refuse before anything is touched
        raise WriteFailed(f"{relative} would not read back as what was to be written; the old file stands.")
    with disk.translated(relative), disk.parent_of(root, relative) as (holder, name):
        if holder.kind(name) == "absent":
            disk.put(holder, name, data, mode=0o600)
            return
        old, status = disk.read_bounded(holder, name, CHECKPOINT_BYTES_MAX)
        if old == data:
            return
        mode = stat.S_IMODE(status.st_mode)
        _keep(holder, old, value, mode=mode, now=now)
        disk.put(holder, name, data, mode=mode)
        _forget_oldest(holder)


def _keep(holder: disk.Directory, old: bytes, value: Raw, *, mode: int, now: datetime) -> None:
    before = _schema_changed(old, value)
    if before is not None:
        name = f"{CHECKPOINT_NAME}.schema-{before}.bak"
        if holder.kind(name) == "absent":
            disk.put(holder, name, old, mode=mode)
    number = int(now.timestamp() * 1000)
    while holder.kind(f"{CHECKPOINT_NAME}.bak.{number}") != "absent":
        number += 1  # two writes within a millisecond
    disk.put(holder, f"{CHECKPOINT_NAME}.bak.{number}", old, mode=mode)


def _schema_changed(old: bytes, value: Raw) -> int | None:
    try:
        before = schema_of(decode(old, name=CHECKPOINT_NAME))
        return before if before != schema_of(value) else None
    except AcodeError:
        return None


def _forget_oldest(holder: disk.Directory) -> None:
    rotated = [(int(match[1]), name) for name in holder.names(ENTRIES_MAX) if (match := ROTATED.fullmatch(name))]
    for _, name in sorted(rotated)[:-BACKUPS_KEPT]:
        holder.unlink(name)
