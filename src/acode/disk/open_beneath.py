"""Opening what lies beneath the workspace's root, and nothing else.

No symbolic link is followed in any component, and nothing outside the root is reached, however fast somebody swaps
directories for links: the kernel resolves the whole path under these rules (openat2), or each component is opened
beneath the one before it. A name that was checked is never resolved a second time: callers keep the descriptor.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING

from acode.disk.open_directory import DIRECTORY_FLAGS, OpenDirectory, descriptor_of
from acode.disk.own_files import SAFE_FLAGS
from acode.disk.path_names import below, bytes_of, parts_of, text_of, visible
from acode.errors import UnsafePath

if TYPE_CHECKING:
    import ctypes

_OPENAT2 = 437
_RESOLVE = 0x02 | 0x04 | 0x08  # no magic links, no symbolic links, beneath
_TRIES_MAX = 8


class Directory(OpenDirectory):
    """An open directory of the workspace, with names as `path_names` spells them."""

    __slots__ = ("_path", "rel")

    def __init__(self, rel: str, descriptor: int | None, path: bytes) -> None:
        super().__init__(os.fsdecode(path), descriptor)
        self.rel: str = rel
        self._path = path

    def _at(self, name: str) -> bytes:
        return bytes_of(name) if self._fd is not None else os.path.join(self._path, bytes_of(name))

    def link_refusal(self, name: str, error: OSError) -> Exception:
        return _through_link(below(self.rel, name))

    def directory(self, name: str) -> Directory:
        return Directory(below(self.rel, name), self.open_below(name), os.path.join(self._path, bytes_of(name)))

    def names(self, count_max: int | None = None) -> list[str]:
        return sorted(text_of(os.fsencode(name)) for name in super().names(count_max))

    def readlink(self, name: str) -> str:
        return text_of(os.readlink(self._at(name), dir_fd=self._fd))

    def symlink(self, target: str, name: str) -> None:
        os.symlink(bytes_of(target), self._at(name), dir_fd=self._fd)

    def set_mtime(self, name: str, mtime_ns: int) -> None:
        follow = os.utime not in os.supports_follow_symlinks
        os.utime(self._at(name), ns=(mtime_ns, mtime_ns), dir_fd=self._fd, follow_symlinks=follow)

    def set_mode(self, name: str, mode: int) -> None:
        """Change the permissions of a file or directory, never of a link's target."""
        if sys.platform == "linux":
            # chmod follows links here, and an unreadable file cannot be opened for fchmod: a path descriptor can.
            descriptor = os.open(self._at(name), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                os.chmod(f"/proc/self/fd/{descriptor}", mode)
            finally:
                os.close(descriptor)
        elif os.chmod in os.supports_follow_symlinks:
            os.chmod(self._at(name), mode, dir_fd=self._fd, follow_symlinks=False)
        else:
            os.chmod(self._at(name), mode)


class Root:
    """The workspace's root, opened once; all that is done beneath it goes through this descriptor."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.path.realpath(path)
        self._top = Directory(".", descriptor_of(self.path), os.fsencode(self.path))

    def __enter__(self) -> Root:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._top.close()

    def open_beneath(self, rel: str, flags: int, mode: int = 0) -> int:
        """A descriptor for the path; UnsafePath where it leaves the root or goes through a link.

        It never blocks. The caller asks for its kind (a file, a FIFO, a device) with fstat before using it.
        """
        parts = parts_of(rel)
        if sys.platform == "linux" and _kernel_knows_openat2():
            return self._open_in_kernel(rel, flags, mode)
        if not parts:
            return os.open(self._top._at("."), flags | SAFE_FLAGS, mode, dir_fd=self._top._fd)
        with self._walk(parts[:-1]) as directory:
            return directory.open(parts[-1], flags, mode)

    def directory(self, rel: str) -> Directory:
        """The directory at the path, open; the caller closes it."""
        if not _kernel_knows_openat2():
            return self._walk(parts_of(rel))
        return Directory(rel, self.open_beneath(rel, DIRECTORY_FLAGS), os.path.join(self._top._path, bytes_of(rel)))

    def at(self, rel: str) -> Place:
        """For a `with`: the open directory that the path stands in, and its name there."""
        return Place(self, rel)

    def make_directories(self, rel: str) -> tuple[str, ...]:
        """Make the directory and those above it where they are missing, durably; which ones were made."""
        made: list[str] = []
        directory = self._walk(())
        for name in parts_of(rel):
            with directory:
                if directory.stat(name) is None:
                    try:
                        directory.mkdir(name)
                        made.append(below(directory.rel, name))
                    except FileExistsError:
                        pass  # somebody else was faster; what they made is checked like any other component
                    directory.sync()
                deeper = directory.directory(name)
            directory = deeper
        directory.close()
        return tuple(made)

    def _walk(self, parts: tuple[str, ...]) -> Directory:
        """Component by component, each opened beneath the one before: for kernels without openat2, and for making."""
        top = self._top
        descriptor = None if top._fd is None else os.open(b".", DIRECTORY_FLAGS | SAFE_FLAGS, dir_fd=top._fd)
        directory = Directory(".", descriptor, top._path)
        for name in parts:
            with directory:
                deeper = directory.directory(name)
            directory = deeper
        return directory

    def _open_in_kernel(self, rel: str, flags: int, mode: int) -> int:
        assert self._top._fd is not None
        for _ in range(_TRIES_MAX):
            descriptor = _openat2(self._top._fd, bytes_of(rel), flags | SAFE_FLAGS, mode)
            if descriptor >= 0:
                return descriptor
            if -descriptor not in (errno.EAGAIN, errno.EINTR):
                break  # the two say that a rename came in between, or a signal: nothing was decided, so it asks again
        if -descriptor in (errno.ELOOP, errno.EXDEV):
            raise _through_link(rel)
        if -descriptor == errno.ENOTDIR and self._is_link(rel):
            raise _through_link(rel)
        raise OSError(-descriptor, os.strerror(-descriptor), visible(rel))

    def _is_link(self, rel: str) -> bool:
        with self.at(rel) as (directory, name):
            return directory.is_link(name)


class Place:
    """A path's directory, open while a block lasts, and the path's name in it."""

    __slots__ = ("_opened", "_rel", "_root")

    def __init__(self, root: Root, rel: str) -> None:
        self._root = root
        self._rel = rel
        self._opened: Directory | None = None

    def __enter__(self) -> tuple[Directory, str]:
        parts = parts_of(self._rel)
        if not parts:
            raise UnsafePath("the root of the workspace is no file in it", path=self._rel)
        if len(parts) == 1:  # the root itself is open already, and stays so
            return self._root._top, parts[0]
        self._opened = self._root.directory("/".join(parts[:-1]))
        return self._opened, parts[-1]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._opened is not None:
            self._opened.close()


def _through_link(rel: str) -> UnsafePath:
    return UnsafePath(
        f"{visible(rel)!r} is a symbolic link, goes through one, or leaves the workspace",
        hint="acode follows no links inside the workspace: name the file itself.",
        path=visible(rel),
    )


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _openat2(directory: int, path: bytes, flags: int, mode: int) -> int:
    """The descriptor, or the negative error number."""
    import ctypes  # a command that only looks opens nothing beneath the root

    how = struct.pack("QQQ", flags, mode if flags & os.O_CREAT else 0, _RESOLVE)
    # ctypes hands over plain integers as C ints, and a system call takes longs.
    result: int = _libc().syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_long(directory), ctypes.c_char_p(path), how, ctypes.c_size_t(len(how))
    )
    return result if result >= 0 else -ctypes.get_errno()


@lru_cache(maxsize=1)
def _kernel_knows_openat2() -> bool:
    """Asked once by trying: old kernels lack it, and the filters of some containers forbid it."""
    if sys.platform != "linux":
        return False
    else:
        here = os.open(b"/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = _openat2(here, b".", os.O_RDONLY | os.O_CLOEXEC, 0)
        finally:
            os.close(here)
        if found >= 0:
            os.close(found)
        return found >= 0
