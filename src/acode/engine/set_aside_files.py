"""Export the files that rollbacks have set aside: the log names them, a person names the directory.

No file returns to its old place: it would be in the way of the repeated step. Files with a secret exist until their
session ends; the others until the session is collected.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from acode.disk.path_names import parent_of
from acode.disk.write_errors import refusing_write_errors
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import World
from acode.errors import BlobDamaged, NotWritable, Usage
from acode.events import types as ev
from acode.store.store import Store
from acode.workspace import Root
from acode.workspace.files import replace_file

TEMP = ".acode-kept"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One file or link that a rollback replaced. `to`: where it is now; None: it is gone, and `reason` says why."""

    seq: int
    step: str
    path: str
    bytes: int
    to: str | None = None
    reason: str = ""
    damaged: bool = False


class BroughtOut(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    directory: str
    files: tuple[Kept, ...]

    @property
    def damaged(self) -> tuple[Kept, ...]:
        return tuple(one for one in self.files if one.damaged)


def bring_out(world: World, text: str, directory: Path) -> BroughtOut:
    """All of it below a new or empty directory, each rollback's in one named after its event."""
    with opened(world, look_only=True) as store:
        session_id = resolve_id(world, store, text)
        ended = store.peek(session_id)[0].terminal
        found = [
            (envelope.seq, envelope.event.step, image)
            for envelope, _, _ in store.events(session_id)
            if isinstance(envelope.event, ev.RollbackStarted)
            for image in envelope.event.saved
        ]
        files: list[Kept] = []
        if found:
            make_empty(directory)
            with Root(directory) as root:
                files = [_one(store, session_id, root, kept, ended=ended) for kept in found]
    return BroughtOut(session_id=session_id, directory=str(directory), files=tuple(files))


def make_empty(directory: Path) -> None:
    """Nothing of the user's is overwritten: there is nothing."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.listdir(directory):
            raise Usage(f"{directory} is not empty", hint="Name a directory that does not exist yet.")
    except OSError as error:
        raise NotWritable(f"{directory} cannot be used: {error.strerror}") from error


def _one(store: Store, session_id: str, root: Root, kept: tuple[int, str, ev.PreImage], *, ended: bool) -> Kept:
    seq, step, image = kept
    told = Kept(seq=seq, step=step, path=image.path, bytes=image.size)
    rel = f"{seq}/{image.path}"
    assert image.blob is not None
    try:
        with refusing_write_errors(f"{image.path} cannot be written to {root.path}"):
            # Old sessions do not say what is secret: with them, everything went.
            going = ended and (image.secret or image.blob not in store.blob_names(session_id))
            if image.kind == "file" and going and not store.has_blob(session_id, image.blob):
                return msgspec.structs.replace(told, reason="it went with the end of its session")
            root.make_directories(parent_of(rel))
            with root.at(rel) as (place, name):
                if image.kind == "link":
                    place.symlink(image.blob, name)
                else:
                    pieces = store.blob_in_pieces(session_id, image.blob)
                    replace_file(place, name, pieces, image.mode, TEMP, expected_sha256=image.sha256)
    except BlobDamaged as error:
        return msgspec.structs.replace(told, reason=error.message, damaged=True)
    return msgspec.structs.replace(told, to=os.path.join(root.path, rel))
