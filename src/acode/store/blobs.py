"""Bytes too large for the log, kept in files that are named after their content.

A blob is whole or absent: it is written beside its place, synced and renamed. Bytes are hashed as they are read, so
damaged bytes are never used. Sensitive blobs stand in a directory of their own, so that they can be kept from leaving
the machine. Nothing here decides how long a blob lives.

Sessions share placed blobs: equal bytes are one file. So a blob gets its place under the database's write lock,
in the transaction of the row that names it, and loses it under that lock too. Until then it is its writer's alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from acode.disk.fsync import sync_directory, sync_file, write_all
from acode.disk.own_files import open_own
from acode.disk.private_files import make_private_directory
from acode.disk.write_errors import refusing_write_errors
from acode.errors import VERIFY, BlobDamaged, FileTooLarge
from acode.hints import Hint

CHUNK_BYTES = 1_048_576
LEFTOVER_AGE_S = 3600
INLINE_BYTES_MAX = 65_536  # larger blobs become files

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TEMP_PREFIX = ".writing-"


class Blobs:
    """The blob files below one directory; several processes may use it at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sensitive_directory: Path = directory / "sensitive"
        self.writer = ""  # the session whose blobs are brought: what a killed writer left is found by it
        self._waiting: dict[str, Path] = {}
        self._turn = threading.Lock()

    def put(self, chunks: Iterable[bytes], *, sensitive: bool = False) -> str:
        """Store the bytes durably in their place and return their SHA-256; storing them again changes nothing."""
        sha256 = self.bring(chunks, sensitive=sensitive)
        self.place([sha256])
        return sha256

    def bring(self, chunks: Iterable[bytes], *, sensitive: bool = False) -> str:
        """Store the bytes durably under a name of their own, and return their SHA-256; `place` gives them their place.

        In its place already, and not yet named by a row, a blob would look unused to a session that ends.
        """
        place = self.sensitive_directory if sensitive else self.directory
        with refusing_write_errors("a blob cannot be stored"):
            make_private_directory(place)
            temp = place / f"{_TEMP_PREFIX}{self.writer}-{os.urandom(8).hex()}"
            try:
                sha256 = _write_hashed(temp, chunks)
            except BaseException:
                temp.unlink(missing_ok=True)
                raise
        with self._turn:
            before, self._waiting[sha256] = self._waiting.get(sha256), temp
            if before is not None:
                with contextlib.suppress(OSError):  # a collection finds it
                    before.unlink(missing_ok=True)
        return sha256

    def place(self, names: Iterable[str]) -> None:
        """Give stored bytes their place, durably; called under the database's write lock, with the rows that name it.

        A name whose bytes are missing is refused: no row names a missing blob.
        """
        shards: set[Path] = set()
        with self._turn, refusing_write_errors("a blob cannot be stored"):
            for sha256 in names:
                temp = self._waiting.pop(sha256, None)
                if temp is None:
                    if not any(path.is_file() for path in self._places(sha256)):
                        raise _damaged(sha256, "it is gone")
                    continue
                shard = temp.parent / sha256[:2]
                try:
                    make_private_directory(shard)
                    # Renamed even where the blob exists: the bytes at hand are known to be good, those there are not.
                    os.replace(temp, shard / sha256)
                except BaseException:
                    temp.unlink(missing_ok=True)
                    raise
                shards.add(shard)
            for shard in sorted(shards):
                sync_directory(shard)

    def let_go(self) -> None:
        """Remove bytes that were stored and never named: their step was not begun."""
        with self._turn:
            for temp in self._waiting.values():
                with contextlib.suppress(OSError):
                    temp.unlink(missing_ok=True)
            self._waiting.clear()

    def read(self, sha256: str, bytes_max: int) -> bytes:
        """The blob's bytes, verified, where they fit into memory."""
        size = self._path(sha256).stat().st_size
        if size > bytes_max:
            raise FileTooLarge(f"blob {sha256} has {size:,} bytes, over the limit of {bytes_max:,}")
        return b"".join(self.stream(sha256))

    def stream(self, sha256: str) -> Iterator[bytes]:
        """The blob in chunks. Only when the last one has come without an error are they known to be good."""
        digest = hashlib.sha256()
        try:
            descriptor = open_own(self._path(sha256), os.O_RDONLY)
        except OSError as error:
            raise _damaged(sha256, error.strerror or str(error)) from error
        try:
            while chunk := os.read(descriptor, CHUNK_BYTES):
                digest.update(chunk)
                yield chunk
        except OSError as error:
            raise _damaged(sha256, error.strerror or str(error)) from error
        finally:
            os.close(descriptor)
        if digest.hexdigest() != sha256:
            raise _damaged(sha256, f"its content has the hash {digest.hexdigest()}")

    def has(self, sha256: str) -> bool:
        return any(path.is_file() for path in self._places(sha256)) or sha256 in self._waiting

    def remove(self, sha256: str) -> bool:
        """Remove the blob, sensitive or not; whether there was one."""
        removed = False
        for path in self._places(sha256):
            try:
                path.unlink()
            except FileNotFoundError:
                continue
            removed = True
        return removed

    def all(self, *, sensitive: bool | None = None) -> Iterator[tuple[str, int]]:
        """Every blob with its size, in order; `sensitive` chooses one of the two kinds."""
        places = {None: (self.directory, self.sensitive_directory), False: (self.directory,)}
        for place in places.get(sensitive, (self.sensitive_directory,)):
            for path in sorted(place.glob("[0-9a-f][0-9a-f]/*")):
                if _SHA256.fullmatch(path.name):
                    try:
                        yield path.name, path.lstat().st_size
                    except FileNotFoundError:
                        continue  # removed by another process since it was listed

    def remove_brought_by(self, writer: str) -> None:
        """Remove the leftovers of killed processes of this session; the caller knows that none of them lives any
        more.
        """
        with self._turn:
            ours = set(self._waiting.values())
            for place in (self.directory, self.sensitive_directory):
                for path in place.glob(f"{_TEMP_PREFIX}{writer}-*"):
                    if path not in ours:
                        path.unlink(missing_ok=True)

    def _places(self, sha256: str) -> tuple[Path, Path]:
        # The name may come from an edited log, so nothing but a hash becomes a path.
        if not _SHA256.fullmatch(sha256):
            raise _damaged(sha256[:80], "this is not the name of a blob")
        return tuple(place / sha256[:2] / sha256 for place in (self.directory, self.sensitive_directory))  # type: ignore[return-value]

    def _path(self, sha256: str) -> Path:
        for path in self._places(sha256):
            if path.is_file():
                return path
        if sha256 in self._waiting:
            return self._waiting[sha256]
        raise _damaged(sha256, "it is gone")


def _damaged(sha256: str, reason: str) -> BlobDamaged:
    return BlobDamaged(
        f"blob {sha256} cannot be used: {reason}",
        hint=Hint("Look with: {}; restore the file from a backup of .agent/blobs.", VERIFY),
        sha256=sha256,
    )


def _write_hashed(path: Path, chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    descriptor = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for chunk in chunks:
            digest.update(chunk)
            write_all(descriptor, chunk)
        sync_file(descriptor)
    finally:
        os.close(descriptor)
    return digest.hexdigest()
