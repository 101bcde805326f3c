"""Files that are too large for the database: in a store that a URL names, under their hashes.

fsspec opens it: a directory that all machines mount (file://), or a bucket (s3://, gs://, az:// with their packages).
The database knows each of them; a store only holds bytes, which are compared with their hash when they come back.
"""

from __future__ import annotations

import hashlib
from typing import Any

from acode.errors import FleetUnsupported, SourceUnavailable


class FarStore:
    def __init__(self, url: str) -> None:
        self.url: str = url.rstrip("/")

    def put(self, sha256: str, data: bytes) -> None:
        """Under a name of its own first: a reader finds it whole or not at all."""
        system, path = self._place(sha256)
        try:
            if not system.exists(path):
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
                system.pipe_file(f"{path}.{id(data):x}.new", data)
                system.mv(f"{path}.{id(data):x}.new", path)
        except (OSError, ValueError) as error:
            raise SourceUnavailable(
                f"a file cannot be kept in fleet.store, {self.url}: {error}",
                hint="Check the store and its permissions.",
            ) from error

    def get(self, sha256: str) -> bytes:
        system, path = self._place(sha256)
        try:
            data = bytes(system.cat_file(path))
        except (OSError, ValueError) as error:
            raise SourceUnavailable(
                f"file {sha256[:12]} is not in fleet.store, {self.url}: {error}",
                hint="Give the workers access to the store, or restore the file there from a backup.",
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
