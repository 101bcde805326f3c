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
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path

import msgspec

from acode.disk.own_files import SAFE_FLAGS
from acode.disk.private_files import private_directory, write_private
from acode.errors import KeyMissing, KeyUnusable
from acode.hints import Command, Hint

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
                hint=Hint(
                    "If the session is yours, import its key: {}, or set ACODE_CHECKPOINT_SECRET; if the key is lost"
                    " for good: {}. A session that somebody else sent you is neither resumed nor shown without the key"
                    " that proves it.",
                    Command("key import FILE"),
                    Command("session repair --accept-lost-key"),
                ),
                key_id=key_id,
            )
        return found


def code(key: bytes, previous: bytes, body: bytes) -> bytes:
    """The message code of a log row: over its bytes as written and the code of the row before it. As `_hmac` does it,
    without the call: one is made for every row."""
    inner, outer = _prepared(key)
    within, around = inner.copy(), outer.copy()
    within.update(previous + body)
    around.update(within.digest())
    return around.digest()


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
            hint=Hint(
                "Restore it from a backup, or {}. Without the key old sessions cannot be verified.",
                Command("key import"),
            ),
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
            hint=Hint(
                "If nobody read it: {}. Otherwise rotate it afterwards: {}", f"chmod 600 {path}", Command("key rotate")
            ),
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
        raise KeyUnusable(f"expected lines of {KEY_BYTES * 2} hex digits, as an export of keys has them")
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
    """The anchor, found by its session, by its title, and among the open ones until it has ended."""
    mark = directory / OPEN / anchor.session_id
    if not mark.exists():
        _enter(directory, anchor)
    _put_anchor(directory, anchor, durable=durable)
    if anchor.ended:
        mark.unlink(missing_ok=True)


def _put_anchor(directory: Path, anchor: Anchor, *, durable: bool) -> None:
    write_private(directory / anchor.session_id, msgspec.json.encode(anchor), durable=durable)


def read_anchor(directory: Path, session_id: str) -> Anchor | None:
    """None where there is none, or a torn one: a missing anchor is a warning, never proof of anything.

    One that is there and cannot be read is an error: a log that was rolled back would look whole meanwhile.
    """
    try:
        return _anchor.decode((directory / session_id).read_bytes()[:ANCHOR_BYTES_MAX])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, FileNotFoundError):
        return None


def anchor_names(directory: Path) -> list[str]:
    """The ids of all sessions that have an anchor here; none of them is read."""
    try:
        return sorted(entry.name for entry in os.scandir(directory) if entry.is_file() and entry.name[:1] != ".")
    except FileNotFoundError:
        return []


def all_anchors(directory: Path) -> Iterator[Anchor]:
    return _anchors_of(directory, anchor_names(directory))


def _anchors_of(directory: Path, session_ids: Iterable[str]) -> Iterator[Anchor]:
    for session_id in session_ids:
        anchor = read_anchor(directory, session_id)
        if anchor is not None:
            yield anchor


def anchored_workspaces(state_dir: Path) -> list[str]:
    """Every workspace that has an anchor here."""
    try:
        places = sorted(entry.path for entry in os.scandir(state_dir / "anchors") if entry.is_dir())
    except FileNotFoundError:
        return []
    return list(dict.fromkeys(anchor.workspace for place in places for anchor in all_anchors(Path(place))))


def forget_anchor(state_dir: Path, workspace: Path, session_id: str) -> None:
    directory = anchor_directory(state_dir, workspace)
    anchor = read_anchor(directory, session_id)
    (directory / session_id).unlink(missing_ok=True)
    (directory / OPEN / session_id).unlink(missing_ok=True)
    if anchor is not None:
        _leave_title(directory, anchor)
    (_places(state_dir, session_id) / _name_of(workspace)).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another workspace has it too, or nothing was noted
        _places(state_dir, session_id).rmdir()


# Anchors by what is asked for, so that nobody reads all of them: a mark for each that has not ended, and a list for
# each title. Both are hints: a mark that a crash left behind, or an id in a list, counts only with its anchor.

OPEN, TITLES = "open", "titles"


def open_anchors(directory: Path) -> list[str]:
    """The ids of sessions that had not ended when their anchor was written last."""
    if not (directory / OPEN).is_dir():
        return [anchor.session_id for anchor in all_anchors(directory) if not anchor.ended]
    return anchor_names(directory / OPEN)


def anchors_titled(directory: Path, title: str) -> list[Anchor]:
    known = _titled(directory, title) if (directory / OPEN).is_dir() else anchor_names(directory)
    return [anchor for anchor in _anchors_of(directory, known) if anchor.title == title]


def _enter(directory: Path, anchor: Anchor) -> None:
    """The mark and the title stand before the anchor does: a crash leaves too much of them, never too little."""
    private_directory(directory)
    if not (directory / OPEN).is_dir():
        for older in all_anchors(directory):  # of an acode that made no marks
            _enter_title(directory, older)
            if not older.ended:
                write_private(directory / f"{OPEN}.new" / older.session_id, b"", durable=False)
        private_directory(directory / f"{OPEN}.new")
        with contextlib.suppress(OSError):  # another process was faster
            os.rename(directory / f"{OPEN}.new", directory / OPEN)
    _enter_title(directory, anchor)
    if not anchor.ended:
        write_private(directory / OPEN / anchor.session_id, b"", durable=False)


def _title_list(directory: Path, title: str) -> Path:
    return directory / TITLES / hashlib.sha256(title.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _titled(directory: Path, title: str) -> list[str]:
    try:
        return _title_list(directory, title).read_text("ascii", errors="replace").split()
    except FileNotFoundError:
        return []


def _enter_title(directory: Path, anchor: Anchor) -> None:
    known = _titled(directory, anchor.title)
    if anchor.session_id not in known:
        _put_titled(directory, anchor.title, [*known, anchor.session_id])


def _leave_title(directory: Path, anchor: Anchor) -> None:
    known = _titled(directory, anchor.title)
    if anchor.session_id in known:
        _put_titled(directory, anchor.title, [one for one in known if one != anchor.session_id])


def _put_titled(directory: Path, title: str, session_ids: list[str]) -> None:
    path = _title_list(directory, title)
    if session_ids:
        write_private(path, "".join(f"{one}\n" for one in session_ids).encode(), durable=False)
    else:
        path.unlink(missing_ok=True)


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
    _put_anchor(state_dir / "collected", anchor, durable=True)


def read_collected(state_dir: Path, session_id: str) -> Anchor | None:
    return read_anchor(state_dir / "collected", session_id)
