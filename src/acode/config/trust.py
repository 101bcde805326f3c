"""The workspace settings that the user trusts: one private file per workspace and content.

Trust is bound to a hash, so any change of the file asks again. An irregular trust file (a link, another owner, open to
others, other content) means that there is no trust. A file that cannot be read at all is an error: a person is not
asked the same question again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path

from acode.disk.own_files import SAFE_FLAGS, is_ours_alone
from acode.disk.private_files import make_private_directory, put_private
from acode.errors import BadConfig

TRUST_BYTES_MAX = 65_536


def trust(state_dir: Path, workspace: Path, sha256: str) -> None:
    """Remember it, whole or not at all: a torn file would be no trust, but a person would be asked for no reason."""
    place = _place(state_dir, workspace, sha256)
    try:
        make_private_directory(place.parent)
        put_private(place, (_content(workspace, sha256),))
    except OSError as error:
        raise BadConfig(
            f"{state_dir}: trust cannot be kept there: {error.strerror}",
            hint="Set ACODE_HOME to a directory that you can write.",
        ) from error


def is_trusted(state_dir: Path, workspace: Path, sha256: str) -> bool:
    try:
        descriptor = os.open(_place(state_dir, workspace, sha256), os.O_RDONLY | SAFE_FLAGS)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link: no proof of trust
            return False
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not is_ours_alone(found):
            return False
        return os.read(descriptor, TRUST_BYTES_MAX) == _content(workspace, sha256)
    finally:
        os.close(descriptor)


def _place(state_dir: Path, workspace: Path, sha256: str) -> Path:
    """A fixed-length name, so that no workspace path and no hash can lead anywhere else."""
    return state_dir / "trusted" / hashlib.sha256(_content(workspace, sha256)).hexdigest()


def _content(workspace: Path, sha256: str) -> bytes:
    """The trusted workspace and file, in a readable form. A link to the workspace is the workspace."""
    import json

    return json.dumps({"workspace": os.path.realpath(workspace), "config_sha256": sha256}).encode() + b"\n"
