"""Restore pre-images.

`restore_outputs` undoes the partial effects of a step in flight, `restore` restores one path of a finished step if
nobody has touched it since. No byte is destroyed that is not stored first: everything is saved and every pre-image
verified before the first change. A crash anywhere is finished by running the same call again. Links are never followed;
a hard link is broken, so other names of the file keep their bytes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from acode.disk.fsync import sync_file
from acode.disk.open_beneath import Root
from acode.disk.path_names import parent_of, parts_of, visible
from acode.disk.write_errors import refusing_write_errors
from acode.errors import VERIFY, BlobDamaged, UnsafePath
from acode.events.types import FileState, PreImage
from acode.hints import Hint
from acode.workspace.files import hash_file, look, open_regular, replace_file, temp_name
from acode.workspace.preimages import image_at, image_now

TEMP_TOKEN = "put back"  # one name per path, so that the next run finds what a killed one left

ReadBlob = Callable[[str], bytes | Iterable[bytes]]
Save = Callable[[Iterable[bytes]], str]
Announce = Callable[[tuple[PreImage, ...]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredOutputs:
    """The result of a rollback."""

    restored: tuple[str, ...]
    saved: tuple[PreImage, ...]  # what stood there, its bytes stored
    kept: tuple[str, ...]  # paths that could not be restored and were left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    want: PreImage
    now: PreImage
    seen: tuple[int, ...]  # shows whether it changed again between being saved and being replaced
    listed: bool

    @property
    def bytes_differ(self) -> bool:
        return (self.want.kind, self.want.sha256) != (self.now.kind, self.now.sha256)

    @property
    def in_the_way(self) -> bool:
        """A rename replaces files and links, but not a directory by a file or the other way round."""
        if self.now.kind == "absent":
            return False
        return self.want.kind == "absent" or (self.want.kind == "directory") != (self.now.kind == "directory")


def restore_outputs(
    root: Root,
    images: Iterable[PreImage],
    present: Iterable[str],
    read_blob: ReadBlob,
    save: Save,
    *,
    complete: bool = True,
    announce: Announce | None = None,
) -> RestoredOutputs:
    """Restore the declared paths as they were before the step.

    `present` are the paths that the declaration matches now: those without a pre-image did not exist and go, unless
    the pre-images are not `complete`. `announce` gets the saved files before the first change.
    """
    before = {image.path: image for image in images}
    differences, kept = _survey(root, before, sorted({*before, *present}), complete=complete)
    saved = [image for difference in differences for image in _save(root, difference, save)]
    for difference in differences:
        _verify(difference, read_blob)
    if announce is not None and differences:
        announce(tuple(saved))
    rollback = _Rollback(root, read_blob, save, announce)
    with refusing_write_errors("the rollback cannot continue"):
        rollback.apply(differences)
    return RestoredOutputs(
        restored=tuple(sorted(rollback.restored)),
        saved=(*saved, *rollback.saved_late),
        kept=tuple(sorted({*kept, *rollback.kept})),
    )


def restore(
    root: Root, pre: PreImage, post: FileState, *, read_blob: ReadBlob
) -> Literal["restored", "nothing", "kept"]:
    """Take a finished step's change of one path back, unless somebody has changed the path since."""
    difference = _to_restore(root, pre, post)
    if not isinstance(difference, _Difference):
        return difference
    _verify(difference, read_blob)
    # The bytes that go are the step's own, which the session knows how to make again, so they need no saving.
    rollback = _Rollback(root, read_blob, save=None)
    with refusing_write_errors(f"{visible(pre.path)} cannot be restored"):
        rollback.apply([difference])
    return "restored" if rollback.restored and not rollback.kept else "kept"


def is_back(root: Root, pre: PreImage) -> bool:
    """Whether the path is as it was before the step."""
    return _to_restore(root, pre, FileState(path=pre.path)) == "nothing"


def needs_of(root: Root, pre: PreImage, post: FileState) -> Literal["content", "nothing", "kept"]:
    """The needs of `restore` for one path: the old bytes, nothing, or the file is another person's and stays."""
    difference = _to_restore(root, pre, post)
    if not isinstance(difference, _Difference):
        return difference
    return "content" if pre.kind == "file" and difference.bytes_differ else "nothing"


def _to_restore(root: Root, pre: PreImage, post: FileState) -> _Difference | Literal["nothing", "kept"]:
    """Three-way: a file as the step left it is restored; one as before, or changed by others, is not touched."""
    try:
        with refusing_write_errors(f"{visible(pre.path)} cannot be compared"):
            seen, now, state = _seen(root, pre.path), image_now(root, pre.path), hash_file(root, pre.path)
    except UnsafePath:
        return "kept"
    if _same(pre, now, times=False):
        return "nothing"
    # A directory has no bytes of its own: it may go if it is empty, and rmdir decides that.
    only_made = pre.kind == "absent" and now.kind == "directory"
    if not _restorable(pre) or not (only_made or (state.sha256, state.mode) == (post.sha256, post.mode)):
        return "kept"
    return _Difference(want=pre, now=now, seen=seen, listed=True)


def _survey(
    root: Root, before: dict[str, PreImage], paths: Iterable[str], *, complete: bool
) -> tuple[list[_Difference], list[str]]:
    differences: list[_Difference] = []
    kept: list[str] = []
    for path in paths:
        listed = path in before
        want = before.get(path, PreImage(path=path, kind="absent"))
        try:
            with refusing_write_errors(f"{visible(path)} cannot be compared"):
                seen, now = _seen(root, path), image_now(root, path)
        except UnsafePath:
            # A directory above it became a link. That link goes first, and then there is nothing here.
            seen, now = (), PreImage(path=path, kind="absent")
        if _same(want, now):
            continue
        if _restorable(want) and (listed or complete):
            differences.append(_Difference(want=want, now=now, seen=seen, listed=listed))
        else:
            kept.append(path)
    return differences, kept


def _restorable(want: PreImage) -> bool:
    return want.kind != "other" and not (want.kind == "file" and want.blob is None)


def _same(want: PreImage, now: PreImage, *, times: bool = True) -> bool:
    if want.kind != now.kind:
        return False
    if want.kind == "link":
        return want.blob == now.blob
    if want.kind == "directory":
        return want.mode == now.mode
    if want.kind == "file":
        times_fit = not times or want.mtime_ns in (0, now.mtime_ns)
        return want.sha256 == now.sha256 and want.mode == now.mode and times_fit
    return True


def _seen(root: Root, path: str) -> tuple[int, ...]:
    found = look(root, path)
    if found is None:
        return ()
    return (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _save(root: Root, difference: _Difference, save: Save) -> Iterator[PreImage]:
    """Store what is about to go. A directory is its entries, and a FIFO has nothing to store."""
    if not difference.bytes_differ or difference.now.kind not in ("file", "link"):
        return

    def keep(descriptor: int, found: os.stat_result) -> tuple[str, str]:
        with open(descriptor, "rb", closefd=False) as file:
            sha256 = save(iter(lambda: file.read(1_048_576), b""))
        return sha256, sha256

    image = image_at(root, difference.now.path, keep)
    if image.kind in ("file", "link"):
        yield image


def _verify(difference: _Difference, read_blob: ReadBlob) -> None:
    """Before anything changes: a damaged pre-image would leave the workspace half rolled back for good."""
    if difference.want.kind == "file" and difference.bytes_differ:
        path, digest = difference.want.path, hashlib.sha256()
        try:
            for chunk in _chunks(read_blob, difference.want):
                digest.update(chunk)
        except BlobDamaged as error:
            reason = f"the old content of {visible(path)} cannot be restored: {error.message}; nothing was restored"
            raise BlobDamaged(reason, hint=error.unrendered_hint, path=path) from error
        if digest.hexdigest() != difference.want.sha256:
            raise BlobDamaged(
                f"the stored bytes of {visible(path)} are not those that were recorded; nothing was restored",
                hint=Hint("Look with: {}", VERIFY),
                path=path,
                expected=difference.want.sha256,
                found=digest.hexdigest(),
            )


def _chunks(read_blob: ReadBlob, want: PreImage) -> Iterable[bytes]:
    assert want.blob is not None
    data = read_blob(want.blob)
    return (data,) if isinstance(data, bytes) else data


class _Rollback:
    """The changes, in the order in which they are possible: clear the way, directories, files, directories' modes."""

    def __init__(self, root: Root, read_blob: ReadBlob, save: Save | None, announce: Announce | None = None) -> None:
        self.root = root
        self.read_blob = read_blob
        self.save = save
        self.announce = announce
        self.restored: set[str] = set()
        self.kept: set[str] = set()
        self.saved_late: list[PreImage] = []
        self._changed_directories: set[str] = set()
        self._opened: dict[str, int] = {}

    def apply(self, differences: list[_Difference]) -> None:
        for difference in reversed(differences):  # what is in a directory comes before the directory
            if difference.in_the_way:
                self._clear(difference)
        directories = [difference for difference in differences if difference.want.kind == "directory"]
        for difference in directories:
            self._make_directory(difference)
        for difference in differences:
            if difference.want.kind in ("file", "link") and difference.want.path not in self.kept:
                self._put(difference)
        self._opened |= {difference.want.path: difference.want.mode for difference in directories}
        for path in sorted(self._opened, reverse=True):
            self._set_directory_mode(path, self._opened[path])
        self.restored |= {difference.want.path for difference in directories}
        for path in sorted(self._changed_directories):
            self._sync(path)

    def _clear(self, difference: _Difference) -> None:
        path = difference.want.path
        if not self._may_go(difference):
            return
        self._open_up(parent_of(path))
        try:
            with self.root.at(path) as (directory, name):
                if difference.now.kind == "directory":
                    directory.rmdir(name)
                else:
                    directory.unlink(name)
        except (FileNotFoundError, NotADirectoryError):
            return  # somebody else took it away
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR):
                raise
            # Files that no pattern matches lie in it: it was there for them. Only a directory known to be new is
            # reported.
            if difference.listed:
                self.kept.add(path)
            return
        self._did(path)

    def _make_directory(self, difference: _Difference) -> None:
        path = difference.want.path
        self._make_parents_of(path)
        with self.root.at(path) as (directory, name):
            if directory.stat(name) is None:
                directory.mkdir(name, 0o700)
                self._did(path)

    def _set_directory_mode(self, path: str, mode: int) -> None:
        try:
            with self.root.at(path) as (directory, name):
                directory.set_mode(name, mode)
        except FileNotFoundError:
            pass  # one that had to go, and was opened up for that

    def _make_parents_of(self, path: str) -> None:
        self.root.make_directories(parent_of(path))
        self._open_up(parent_of(path))

    def _open_up(self, path: str) -> None:
        """A read-only directory lets nobody but root change its entries: it gets its mode back at the end."""
        if path == "." or path in self._opened:
            return
        found = look(self.root, path)
        if found is not None and stat.S_ISDIR(found.st_mode) and found.st_mode & 0o700 != 0o700:
            self._opened[path] = stat.S_IMODE(found.st_mode)
            self._set_directory_mode(path, self._opened[path] | 0o700)

    def _put(self, difference: _Difference) -> None:
        want = difference.want
        if not self._may_go(difference):
            return
        self._make_parents_of(want.path)
        with self.root.at(want.path) as (directory, name):
            temp = parts_of(temp_name(want.path, TEMP_TOKEN))[-1]
            if want.kind == "link":
                assert want.blob is not None
                if directory.stat(temp) is not None:
                    directory.unlink(temp)
                directory.symlink(want.blob, temp)
                directory.rename(temp, name)
            elif difference.bytes_differ:
                chunks = _chunks(self.read_blob, want)
                replace_file(
                    directory, name, chunks, want.mode, temp, expected_sha256=want.sha256, mtime_ns=want.mtime_ns
                )
            else:
                directory.set_mode(name, want.mode)
                if want.mtime_ns:
                    directory.set_mtime(name, want.mtime_ns)
                with suppress(PermissionError), open_regular(directory, name) as (descriptor, _):
                    sync_file(descriptor)
        self._did(want.path)

    def _may_go(self, difference: _Difference) -> bool:
        """Somebody may have written since the survey: their bytes are stored as well, or the path is left to them."""
        if difference.in_the_way and difference.want.path in self.restored:
            return True  # it went when the way was cleared
        if _seen(self.root, difference.want.path) == difference.seen:
            return True
        if self.save is None:
            self.kept.add(difference.want.path)
            return False
        now = image_now(self.root, difference.want.path)
        late = _Difference(want=difference.want, now=now, seen=(), listed=difference.listed)
        saved = tuple(_save(self.root, late, self.save))
        self.saved_late.extend(saved)
        if saved and self.announce is not None:
            self.announce(saved)
        return True

    def _did(self, path: str) -> None:
        self.restored.add(path)
        self._changed_directories.add(parent_of(path))

    def _sync(self, path: str) -> None:
        try:
            with self.root.directory(path) as directory:
                directory.sync()
        except (FileNotFoundError, NotADirectoryError):
            pass  # removed with the rest: its own parent is synced
