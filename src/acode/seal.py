"""Keys, message codes and anchors: what makes a change from outside visible.

Keys live in the user's state directory, never in the workspace, never in a log. A code covers the stored bytes and the
code before them. An anchor says outside the database how far the log had come, so that a rollback to an older, valid
database is seen. Codes are compared in constant time; a key that others can read is refused, not repaired.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path

import msgspec

from acode.disk.own_files import SAFE_FLAGS
from acode.disk.private_files import write_private
from acode.errors import KeyMissing, KeyUnusable

SECRET_VARIABLE = "ACODE_CHECKPOINT_SECRET"
SECRET_BYTES_MIN = 16
KEY_BYTES = 32
HMAC_BLOCK_BYTES = 64  # of SHA-256
KEY_FILE_BYTES_MAX = 65_536
ANCHOR_BYTES_MAX = 65_536
READABLE = "Check its permissions and those of the directories above it: it must be yours, and readable for you."
GENESIS = b"\0" * 32


class Keyring(msgspec.Struct, frozen=True, kw_only=True):
    """The key that signs now, and all keys that may verify."""

    current: str
    keys: Mapping[str, bytes]

    def key(self, key_id: str) -> bytes:
        found = self.keys.get(key_id)
        if found is None:
            raise KeyMissing(
                f"the log is signed with key {key_id}, which is not here (here: {', '.join(sorted(self.keys))})",
                hint="If the session is yours, bring its key: acode key import FILE, or set ACODE_CHECKPOINT_SECRET;"
                " if the key is lost for good: acode session repair --accept-lost-key."
                " What somebody else sent you is neither resumed nor shown without the key that proves it.",
                key_id=key_id,
            )
        return found


def code(key: bytes, previous: bytes, body: bytes) -> bytes:
    """The message code of a log row: over its bytes as written and the code of the row before it."""
    return _hmac(key, previous + body)


def seal(key: bytes, purpose: bytes, body: bytes) -> bytes:
    """The seal of anything that stands alone; the purpose keeps a seal from being moved to another place."""
    return _hmac(key, purpose + b"\0" + body)


def _hmac(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA-256. The library's call for one message spends more time on its key and algorithm than on the message;
    three are made for every step and one for every row read, so the key is prepared once.
    """
    inner, outer = _prepared(key)
    within = inner.copy()
    within.update(message)
    around = outer.copy()
    around.update(within.digest())
    return around.digest()


@lru_cache(maxsize=8)
def _prepared(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Both hashes with the key's block already in them, as RFC 2104 has it."""
    short = hashlib.sha256(key).digest() if len(key) > HMAC_BLOCK_BYTES else key
    block = short.ljust(HMAC_BLOCK_BYTES, b"\0")
    return hashlib.sha256(bytes(byte ^ 0x36 for byte in block)), hashlib.sha256(bytes(byte ^ 0x5C for byte in block))


def same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)


# Keys.


def load_keyring(state_dir: Path, env: Mapping[str, str], *, create: bool = True) -> Keyring:
    """The environment's secret first; the key file's keys may always verify; a first key is made on first use."""
    stored = _stored_keys(state_dir)
    secret = env.get(SECRET_VARIABLE)
    if secret is not None:
        key = _from_secret(secret)
        return Keyring(current=key_id(key), keys={**dict(stored), key_id(key): key})
    if not stored:
        if not create:
            return Keyring(current="", keys={})
        stored = [_make_key(state_dir)]
    return Keyring(current=stored[-1][0], keys=dict(stored))


def key_id(key: bytes) -> str:
    return hashlib.sha256(b"acode key id\0" + key).hexdigest()[:12]


def _from_secret(secret: str) -> bytes:
    raw = secret.encode("utf-8", "surrogateescape")
    if len(raw) < SECRET_BYTES_MIN:
        raise KeyUnusable(
            f"{SECRET_VARIABLE} has {len(raw)} bytes, at least {SECRET_BYTES_MIN} are needed",
            hint='Make one: python3 -c "import secrets; print(secrets.token_hex(32))"',
        )
    return hashlib.sha256(b"acode checkpoint secret\0" + raw).digest()


def key_file(state_dir: Path) -> Path:
    return state_dir / "keys"


def _stored_keys(state_dir: Path) -> list[tuple[str, bytes]]:
    """Keys in the order they were made, the last one signs; the file must be ours alone."""
    path = key_file(state_dir)
    try:
        fd = os.open(path, os.O_RDONLY | SAFE_FLAGS)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KeyUnusable(f"the key file {path} cannot be opened: {error.strerror}", hint=READABLE) from error
    try:
        _refuse_shared(path, os.fstat(fd))
        text = os.read(fd, KEY_FILE_BYTES_MAX).decode("ascii", "replace")
    finally:
        os.close(fd)
    keys = [bytes.fromhex(line) for line in text.split() if len(line) == KEY_BYTES * 2 and _is_hex(line)]
    if len(keys) != len(text.split()) or not keys:
        raise KeyUnusable(
            f"the key file {path} is damaged: one key of {KEY_BYTES * 2} hex digits per line is expected",
            hint="Bring it back from a backup, or acode key import. Without the key old sessions cannot be verified.",
        )
    return [(key_id(key), key) for key in keys]


def _is_hex(text: str) -> bool:
    return all(char in "0123456789abcdef" for char in text)


def _refuse_shared(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyUnusable(f"the key file {path} is no regular file")
    if sys.platform == "win32":
        return  # Windows keeps the state directory private by its access list
    if status.st_uid != os.geteuid():
        raise KeyUnusable(f"the key file {path} belongs to user {status.st_uid}, not to you")
    if status.st_mode & 0o077:
        raise KeyUnusable(
            f"the key file {path} can be read by others (mode {stat.S_IMODE(status.st_mode):04o}, expected 0600)",
            hint=f"If nobody read it: chmod 600 {path}. Otherwise rotate it afterwards: acode key rotate",
        )


def _make_key(state_dir: Path) -> tuple[str, bytes]:
    """A new random key; two processes on their first start agree on the one that was linked first."""
    key = os.urandom(KEY_BYTES)
    write_private(key_file(state_dir), key.hex().encode() + b"\n", exclusive=True)
    return _stored_keys(state_dir)[-1]


def rotate_key(state_dir: Path) -> str:
    """A new signing key; the old ones stay to verify."""
    kept = [key for _, key in _stored_keys(state_dir)]
    kept.append(os.urandom(KEY_BYTES))
    write_private(key_file(state_dir), b"".join(key.hex().encode() + b"\n" for key in kept))
    return key_id(kept[-1])


def export_keys(state_dir: Path) -> str:
    return "".join(f"{key.hex()}\n" for _, key in _stored_keys(state_dir))


def import_keys(state_dir: Path, text: str) -> tuple[str, ...]:
    """Add keys that may verify; the signing key stays the one it was, unless there was none."""
    words = text.split()
    if not words or not all(len(word) == KEY_BYTES * 2 and _is_hex(word) for word in words):
        raise KeyUnusable(f"expected lines of {KEY_BYTES * 2} hex digits, as acode key export prints them")
    mine = [key for _, key in _stored_keys(state_dir)]
    new = [key for key in map(bytes.fromhex, words) if key not in mine]
    write_private(key_file(state_dir), b"".join(key.hex().encode() + b"\n" for key in [*new, *mine]))
    return tuple(key_id(key) for key in new)


# Anchors.


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a session's log had come, and its code there; `ended` once no more will come."""

    session_id: str
    seq: int
    head: str
    title: str
    workspace: str
    at: datetime
    ended: bool = False
    arrived: bool = False  # made when the log came from a server, and nothing of it was known here before


_anchor = msgspec.json.Decoder(Anchor)


def anchor_directory(state_dir: Path, workspace: Path) -> Path:
    """Anchors of one workspace, by its real path: the same place seen through a link is the same workspace."""
    return state_dir / "anchors" / _name_of(workspace)


def _name_of(workspace: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:24]


def write_anchor(directory: Path, anchor: Anchor, *, durable: bool) -> None:
    write_private(directory / anchor.session_id, msgspec.json.encode(anchor), durable=durable)


def read_anchor(directory: Path, session_id: str) -> Anchor | None:
    """None where there is none, or a torn one: a missing anchor is a warning, never proof of anything.

    One that is there and cannot be read is an error: a log that was put back would pass for a whole one meanwhile.
    """
    try:
        return _anchor.decode((directory / session_id).read_bytes()[:ANCHOR_BYTES_MAX])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, FileNotFoundError):
        return None


def all_anchors(directory: Path) -> Iterator[Anchor]:
    try:
        entries = [entry for entry in os.scandir(directory) if entry.is_file() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return
    for name in sorted(entry.name for entry in entries):
        anchor = read_anchor(directory, name)
        if anchor is not None:
            yield anchor


def forget_anchor(state_dir: Path, workspace: Path, session_id: str) -> None:
    (anchor_directory(state_dir, workspace) / session_id).unlink(missing_ok=True)
    (_places(state_dir, session_id) / _name_of(workspace)).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another workspace has it too, or nothing was noted
        _places(state_dir, session_id).rmdir()


# Where a session is anchored, by its id: a copied workspace is recognized without a look at all anchors.


def note_place(state_dir: Path, workspace: Path, session_id: str) -> None:
    path = _places(state_dir, session_id) / _name_of(workspace)
    if not path.exists():
        write_private(path, os.fsencode(os.path.realpath(workspace)))


def other_places(state_dir: Path, workspace: Path, session_id: str) -> list[Path]:
    """Workspaces other than this one in which the session has an anchor."""
    own = _name_of(workspace)
    try:
        noted = [entry for entry in os.scandir(_places(state_dir, session_id)) if entry.name not in (own, "")]
    except FileNotFoundError:
        return []
    return [Path(os.fsdecode(Path(one.path).read_bytes())) for one in noted if not one.name.startswith(".")]


def _places(state_dir: Path, session_id: str) -> Path:
    return state_dir / "places" / session_id


# Sessions that were collected here: how far they had come. Read only where an older copy could come back.


def keep_collected(state_dir: Path, anchor: Anchor) -> None:
    write_anchor(state_dir / "collected", anchor, durable=True)


def read_collected(state_dir: Path, session_id: str) -> Anchor | None:
    return read_anchor(state_dir / "collected", session_id)
