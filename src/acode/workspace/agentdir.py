"""The directory `.agent` in which acode keeps its own files, private to the user.

It is made on first use, and never used where it is a link or belongs to somebody else: another user who placed it there
could read the session, or have acode write elsewhere.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from acode.disk.open_beneath import Directory, Root
from acode.disk.own_files import describe_kind
from acode.disk.write_errors import refusing_write_errors
from acode.errors import AcodeError, UnsafePath, UnsafeWorkspace
from acode.workspace.files import hash_file, write_atomic
from acode.workspacepath import OWN_DIRECTORY

_PLACES = ("locks", "blobs", "run", "logs")
_GITIGNORE = b"# Made by acode: sessions are private, the configuration may be shared.\n*\n!config.yml\n"
_PRIVATE = 0o700
_TRIES_MAX = 100


def ensure_agent_dir(root: Root) -> Path:
    """The directory with all that belongs into it, private; its path."""
    with refusing_write_errors(f"{OWN_DIRECTORY} cannot be made in {root.path}"):
        with root.directory(".") as top:
            _ensure_private(top, OWN_DIRECTORY)
        with root.directory(OWN_DIRECTORY) as own:
            for name in _PLACES:
                _ensure_private(own, name)
            ignored = own.stat(".gitignore") is not None
        if not ignored:
            _write_gitignore(root)
    return Path(root.path) / OWN_DIRECTORY


def _write_gitignore(root: Root) -> None:
    """Another acode that begins here at the same moment may take our new file for a leftover, and put its own in place;
    or a third one takes away that one too, and then nobody's is there yet."""
    path = f"{OWN_DIRECTORY}/.gitignore"
    for left in reversed(range(_TRIES_MAX)):
        try:
            write_atomic(root, path, _GITIGNORE, None, "first use")
            return
        except AcodeError as error:
            if not isinstance(error.__cause__, FileNotFoundError | FileExistsError):
                raise
            if hash_file(root, path).sha256 is not None:
                return
            if not left:
                raise


def _ensure_private(directory: Directory, name: str) -> None:
    found = directory.stat(name)
    if found is None:
        try:
            directory.mkdir(name, _PRIVATE)
            directory.sync()
        except FileExistsError:
            pass  # another acode was faster
        found = directory.stat(name)
    if found is None or not stat.S_ISDIR(found.st_mode):
        what = "nothing" if found is None else describe_kind(found.st_mode)
        raise UnsafePath(f"{name} in {directory.rel} must be a directory and is {what}", path=name)
    if sys.platform != "win32":
        if found.st_uid != os.geteuid():
            raise UnsafeWorkspace(
                f"{name} belongs to the user with the id {found.st_uid}, not to the one who runs acode",
                hint="Run acode as the owner of the workspace.",
                path=name,
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            directory.set_mode(name, _PRIVATE)  # git makes it readable for all when it holds a committed config.yml
