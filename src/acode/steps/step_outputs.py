"""The outputs of finished steps, as files for the commands that follow; `ACODE_OUTPUTS` names the directory.

Copies that can always be made again from the log. Only the user can read them, and no other file is taken for a step's
output.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from acode.disk.own_files import open_own
from acode.disk.private_files import put_private
from acode.steps.interface import Site


def outputs_directory(site: Site) -> Path:
    return site.agent_dir / "run" / site.session_id / "outputs"


def private_outputs(site: Site) -> Path:
    """The directory, made if need be; every level of it is ours alone."""
    directory = outputs_directory(site)
    for level in (directory.parent, directory):
        level.mkdir(mode=0o700, exist_ok=True)
    return directory


def put_output(directory: Path, step: str, data: bytes) -> None:
    """The output of a finished step as a file that only we can read, whatever the umask is; whole or not at all."""
    put_private(directory / step, (data,), durable=False)


def holds_output(directory: Path, step: str, sha256: str) -> bool:
    """Whether the file is there and is what the log says; nobody may put other words into a finished step's mouth."""
    try:
        with open(open_own(directory / step, os.O_RDONLY), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == sha256
    except OSError:
        return False
