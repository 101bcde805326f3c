"""Files that are too large for the database: in a store that a URL names, under their hashes.

fsspec opens it: a directory that all machines mount (file://), or a bucket (s3://, gs://, az:// with their packages).
The database knows each of them; a store only holds bytes, which are compared with their hash when they come back.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from acode.errors import FleetUnsupported, SourceUnavailable

BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl"})


class FarStore:
    def __init__(self, url: str) -> None:
        self.url: str = url.rstrip("/")

    def put(self, sha256: str, data: bytes) -> None:
        """A reader finds it whole or not at all. A bucket does that by itself, and is not made: one of a mistyped name
        would be."""
        system, path = self._place(sha256)
        try:
            if system.exists(path):
                return
            if is_bucket(system):
                system.pipe_file(path, data)
                return
            fresh = f"{path}.{secrets.token_hex(8)}.new"
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.pipe_file(fresh, data)
            system.mv(fresh, path)
        except Exception as error:  # each store has errors of its own, which are not all those of the system
            raise SourceUnavailable(
                f"a file cannot be kept in fleet.store, {self.url}: {in_words(error)}",
                hint="Check the store, and the permissions of the workers there.",
            ) from error

    def get(self, sha256: str) -> bytes:
        system, path = self._place(sha256)
        try:
            data = bytes(system.cat_file(path))
        except FileNotFoundError as error:
            raise SourceUnavailable(
                f"file {sha256[:12]} is not in fleet.store, {self.url}",
                hint="Restore the file there from a backup.",
            ) from error
        except Exception as error:
            raise SourceUnavailable(
                f"file {sha256[:12]} cannot be had from fleet.store, {self.url}: {in_words(error)}",
                hint="Give the workers access to the store.",
            ) from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise SourceUnavailable(
                f"file {sha256[:12]} in fleet.store, {self.url}, is not what its name says",
                hint="Restore the file there from a backup.",
            )
        return data

    def _place(self, sha256: str) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise FleetUnsupported("fleet.store is set, and what opens it is not installed") from error
        try:
            system, path = url_to_fs(f"{self.url}/{sha256[:2]}/{sha256}")
        except (ImportError, ValueError) as error:
            raise FleetUnsupported(f"fleet.store cannot be opened: {error}", hint="Install what it names.") from error
        return system, str(path)


def is_bucket(system: Any) -> bool:
    """Whether objects appear whole there, and directories are only a part of their names."""
    names = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    return not BUCKETS.isdisjoint(names)


def in_words(error: Exception) -> str:
    return str(error) or type(error).__name__
