"""Pre-images: the state of a path before a step touches it, kept so that it can be restored.

Small files come back as bytes, for the transaction that starts the step; larger ones are durable before this returns,
and become blobs with that transaction. A file over the budget is named, never left out in silence: a rollback would
take it for new. Owners, access lists and extended attributes are not kept.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from acode.disk.open_beneath import Directory, Root
from acode.disk.path_names import below, bytes_of, parent_of, text_of
from acode.errors import UnsafePath
from acode.events.types import PreImage
from acode.store.blobs import Blobs
from acode.workspace.declared_outputs import Patterns, matching_paths
from acode.workspace.files import CHUNK_BYTES, chunks_of, hash_of_link, open_regular

INLINE_BYTES_MAX = 65_536

Keep = Callable[[int, os.stat_result], tuple[str | None, str | None]]
"""Stores an open file's bytes: returns their hash and the name they are stored under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The pre-images of a step's outputs. Not complete: a rollback can promise nothing, and reports that beforehand."""

    images: tuple[PreImage, ...]
    inline: dict[str, bytes]
    complete: bool
    skipped: tuple[str, ...]  # paths that cannot be restored: over the budget, unreadable, or a FIFO, socket or device
    astray: tuple[str, ...] = ()  # links: what a step writes through them lands where nothing is captured


def capture(
    root: Root, rel: str, *, blobs: Blobs, inline_bytes_max: int = INLINE_BYTES_MAX, sensitive: bool = False
) -> tuple[PreImage, bytes | None]:
    """The file at the path. The bytes of a small file are returned: the caller stores them under their hash. The time
    is not kept: a restored source gets a new one, so that build tools see that it changed. Outputs get theirs back,
    because a build tool that finds an old output with a new time takes it for up to date.
    """
    keeper = _Keeper(blobs, inline_bytes_max, None, sensitive)
    image = msgspec.structs.replace(image_at(root, rel, keeper.keep), mtime_ns=0)
    return image, keeper.inline.get(image.blob or "")


def capture_outputs(
    root: Root,
    patterns: Sequence[str],
    *,
    blobs: Blobs,
    budget_bytes: int,
    files_max: int,
    inline_bytes_max: int = INLINE_BYTES_MAX,
    sensitive: bool = False,
) -> Captured:
    """All that stands at the declared paths; a path that a pattern names in so many words may be absent."""
    listing = matching_paths(root, patterns, paths_max=files_max, empty=True)
    keeper = _Keeper(blobs, inline_bytes_max, budget_bytes, sensitive)
    images: dict[str, PreImage] = {}
    skipped = list(listing.unreadable)
    complete = listing.complete
    for rel in listing.paths:
        try:
            image = image_at(root, rel, keeper.keep)
        except OSError:
            image = PreImage(path=rel, kind="file")  # unreadable: known to exist, so that it is never taken for new
        if image.kind != "absent":
            images[rel] = image
        if image.kind == "other" or (image.kind == "file" and image.blob is None):
            skipped.append(rel)
            complete = complete and image.kind == "other"
    matches = Patterns(patterns)
    for rel in matches.literal_directories():
        if rel in images:
            continue
        try:
            images[rel] = image_at(root, rel, keeper.keep)
        except UnsafePath:
            pass  # below a link, which was seen first
        else:
            if images[rel].kind == "link":
                # Bytes that the step writes through it land where nothing is captured, because links are not followed.
                skipped.append(rel)
                complete = False
    ordered = tuple(images[rel] for rel in sorted(images))
    astray = tuple(one.path for one in ordered if one.kind == "link" and _leads_astray(root, one.path, matches))
    return Captured(images=ordered, inline=keeper.inline, complete=complete, skipped=tuple(skipped), astray=astray)


def capture_paths(
    root: Root, paths: Sequence[str], *, blobs: Blobs, budget_bytes: int, sensitive: bool = False
) -> Captured:
    """The files at these paths, and the directories that would have to be made for them. Not complete: a file is over
    the budget, and known to exist."""
    keeper = _Keeper(blobs, INLINE_BYTES_MAX, budget_bytes, sensitive)
    images: dict[str, PreImage] = {}
    for rel in paths:
        for image in (*missing_parents(root, rel), image_at(root, rel, keeper.keep)):
            images[image.path] = msgspec.structs.replace(image, mtime_ns=0)
    skipped = tuple(one.path for one in images.values() if one.kind == "file" and one.blob is None)
    return Captured(images=tuple(images.values()), inline=keeper.inline, complete=not skipped, skipped=skipped)


def _leads_astray(root: Root, rel: str, matches: Patterns) -> bool:
    """Whether it leads to something that is no output. Most links in a build lead to another output of it."""
    top = os.fsencode(root.path)
    target = os.path.realpath(os.path.join(top, bytes_of(rel)))
    inside = text_of(target.removeprefix(os.path.join(top, b""))).replace(os.sep, "/")
    if os.path.isabs(inside):
        return True
    return not matches(below(inside, "anything") if os.path.isdir(target) else inside)


def missing_parents(root: Root, rel: str) -> tuple[PreImage, ...]:
    """The directories that a write to the path will have to make: a rollback of the write removes them too."""
    missing: list[PreImage] = []
    while (rel := parent_of(rel)) != "." and _stands_nothing_at(root, rel):
        missing.append(PreImage(path=rel, kind="absent"))
    return tuple(reversed(missing))


def image_now(root: Root, rel: str) -> PreImage:
    """The file at the path now, hashed but not stored."""
    return image_at(root, rel, lambda descriptor, found: (_hash(descriptor, found), None))


def image_at(root: Root, rel: str, keep: Keep) -> PreImage:
    try:
        with root.at(rel) as (directory, name):
            return _image(directory, name, rel, keep)
    except (FileNotFoundError, NotADirectoryError):
        return PreImage(path=rel, kind="absent")


def _image(directory: Directory, name: str, rel: str, keep: Keep) -> PreImage:
    found = directory.stat(name)
    if found is None:
        return PreImage(path=rel, kind="absent")
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        target = directory.readlink(name)
        return PreImage(path=rel, kind="link", sha256=hash_of_link(target), blob=target)
    if stat.S_ISDIR(found.st_mode):
        return PreImage(path=rel, kind="directory", mode=mode)
    if not stat.S_ISREG(found.st_mode):
        return PreImage(path=rel, kind="other", mode=mode)
    with open_regular(directory, name) as (descriptor, found):
        sha256, blob = keep(descriptor, found)
        mode = stat.S_IMODE(found.st_mode)
        return PreImage(
            path=rel, kind="file", sha256=sha256, mode=mode, size=found.st_size, blob=blob, mtime_ns=found.st_mtime_ns
        )


def _stands_nothing_at(root: Root, rel: str) -> bool:
    try:
        with root.at(rel) as (directory, name):
            return directory.stat(name) is None
    except FileNotFoundError:
        return True
    except (NotADirectoryError, UnsafePath):
        return False


def _hash(descriptor: int, found: os.stat_result) -> str:
    digest = hashlib.sha256()
    for chunk in chunks_of(descriptor, found.st_size):
        digest.update(chunk)
    return digest.hexdigest()


class _OverBudget(Exception):
    """A file grew over the budget while it was being stored."""


class _Keeper:
    """Keeps files' bytes, small ones in memory and large ones as blobs, as long as the budget lasts."""

    def __init__(self, blobs: Blobs, inline_bytes_max: int, budget_bytes: int | None, sensitive: bool) -> None:
        self.inline: dict[str, bytes] = {}
        self._blobs = blobs
        self._inline_bytes_max = inline_bytes_max
        self._left = budget_bytes
        self._sensitive = sensitive

    def keep(self, descriptor: int, found: os.stat_result) -> tuple[str | None, str | None]:
        if self._left is not None and found.st_size > self._left:
            return None, None
        try:
            sha256 = self._keep(self._counted(descriptor, found.st_size))
        except _OverBudget:
            return None, None
        return sha256, sha256

    def _keep(self, chunks: Iterator[bytes]) -> str:
        start = b""
        for chunk in chunks:
            start += chunk
            if len(start) > self._inline_bytes_max:
                return self._blobs.bring(_joined(start, chunks), sensitive=self._sensitive)
        sha256 = hashlib.sha256(start).hexdigest()
        self.inline[sha256] = start
        return sha256

    def _counted(self, descriptor: int, size: int) -> Iterator[bytes]:
        for chunk in chunks_of(descriptor, min(size, CHUNK_BYTES)):
            if self._left is not None:
                self._left -= len(chunk)
                if self._left < 0:
                    self._left = 0
                    raise _OverBudget
            yield chunk


def _joined(start: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield start
    yield from rest
