"""Databases that a forked process has inherited open: neither used nor closed there, nor opened a second time.

SQLite knows its own locks by the file, and takes the parent's for those of the child: a second connection in the child
would commit into a log that the parent, believing itself alone, removes. Closing the first one could do the same.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import apsw

from acode.errors import StoreUnusable, Usage

_files: set[tuple[int, int]] = set()  # by device and number


class Inherited:
    """Stands in the place of a connection that belongs to the parent process."""

    def __init__(self, connection: apsw.Connection, path: Path, file: tuple[int, int]) -> None:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # it must not be closed by the end of the process
        self._path = path
        self._parent = os.getppid()
        _files.add(file)

    def __getattr__(self, name: str) -> NoReturn:
        raise Usage(
            f"{self._path} was opened by process {self._parent}, of which this one is a forked child", hint=HINT
        )


HINT = (
    "Start a new process, as multiprocessing does with get_context('spawn'); or fork before the session is opened,"
    " or after its block has ended."
)


def file_of(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def refuse_inherited(path: Path) -> None:
    """Before it is opened."""
    if _files and path.exists() and file_of(path) in _files:
        raise StoreUnusable(
            f"{path} was open when this process was forked: what it writes there would be lost", hint=HINT
        )
