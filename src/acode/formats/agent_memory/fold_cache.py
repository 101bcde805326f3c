"""Where folded states are kept between looks: one private file per run, in the user's own directory.

Never in the workspace, and never beside the run, which belongs to others. A file is believed if its checksum is right,
which also covers the versions of acode, of Python and of the decoder: others may read the same lines otherwise. It
carries no seal. A seal would need a key, and a look makes none; and it would protect nothing: only this user can write
the file, and the log that it stands for is not sealed either. A file that is damaged, foreign or unreadable counts as
none, and one that cannot be written is not written: nobody is told, because no answer depends on it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

import acode
from acode.disk.leftovers import forget_leftovers
from acode.disk.open_directory import OpenDirectory, descriptor_of
from acode.disk.own_files import is_ours_alone, open_own
from acode.disk.private_files import make_private_directory, put_private
from acode.errors import UnsafePath
from acode.formats.agent_memory.fold_state import FoldState, decode_state, encode_state

STATE_VERSION = 2
"""To be raised with every change of what a fold keeps or of what a line means."""
STATES_MAX = 16
STATE_BYTES_MAX = 64 * 1024 * 1024
_DIGEST_BYTES = 32
_NAME_CHARS = 24


class FoldCache(msgspec.Struct, frozen=True):
    directory: Path
    log_bytes_min: int = 4 * 1024 * 1024
    """A shorter log is folded at once."""
    new_bytes_min: int = 1024 * 1024
    new_share: float = 1 / 32
    """A state is written anew for so many new bytes, and such a part of the log: writing it costs as much as folding
    these.
    """
    share_of_log: float = 0.25
    """A state that takes more than this of the bytes that it stands for is not kept."""

    def read(self, run_path: str) -> FoldState | None:
        try:
            with open(open_own(self._file(run_path), os.O_RDONLY), "rb") as file:
                if not is_ours_alone(os.fstat(file.fileno())):
                    return None
                data = file.read(STATE_BYTES_MAX)
        except (OSError, ValueError):
            return None
        digest, body = data[:_DIGEST_BYTES], memoryview(data)[_DIGEST_BYTES:]
        return decode_state(body) if digest == _checksum(body) else None

    def wants(self, *, log_bytes: int, new_bytes: int) -> bool:
        enough = max(self.new_bytes_min, log_bytes * self.new_share)
        return log_bytes >= self.log_bytes_min and new_bytes >= enough

    def write(self, run_path: str, state: FoldState) -> None:
        """Whole or not at all, and without a sync: what a power cut leaves of it has another checksum."""
        with suppress(OSError, ValueError, UnsafePath):
            body = encode_state(state)
            if len(body) > min(state.folded_bytes * self.share_of_log, STATE_BYTES_MAX - _DIGEST_BYTES):
                return
            make_private_directory(self.directory)
            self._make_room(run_path)
            put_private(self._file(run_path), (_checksum(body), body), durable=False)

    def _file(self, run_path: str) -> Path:
        """By the run's real path: the same run seen through a link is the same run."""
        name = hashlib.sha256(os.fsencode(os.path.realpath(run_path))).hexdigest()
        return self.directory / name[:_NAME_CHARS]

    def _make_room(self, run_path: str) -> None:
        """Remove what killed writers left, and the states that were written longest ago."""
        path = os.fspath(self.directory)
        with OpenDirectory(path, descriptor_of(path)) as directory:
            forget_leftovers(directory)
            others = {name: directory.stat(name) for name in directory.names() if len(name) == _NAME_CHARS}
            others.pop(self._file(run_path).name, None)
            found = [(status.st_mtime_ns, name) for name, status in others.items() if status is not None]
            for _, name in sorted(found, reverse=True)[STATES_MAX - 1 :]:
                directory.unlink(name)


def _checksum(body: bytes | memoryview) -> bytes:
    versions = (acode.__version__, *sys.version_info[:2], msgspec.__version__, STATE_VERSION)
    digest = hashlib.sha256(f"acode folded state {versions}\0".encode())
    digest.update(body)
    return digest.digest()
