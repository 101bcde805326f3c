"""A session as one file that can be taken elsewhere and verified there: its rows with their codes, line by line.

Rows go out as they are stored, so the codes that were made when they were written still prove them. Blobs of files that
stood in the workspace, and sensitive ones, stay at home: the bundle names them by hash and size only. The same session
gives the same bytes. A bundle is read by `verify_bundle` alone; nothing in it is ever executed or stored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from acode import seal
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import World
from acode.errors import AcodeError, BundleDamaged, KeyMissing, LogRolledBack
from acode.hints import Command, Hint
from acode.seal import GENESIS, Anchor, Keyring
from acode.store import checkpoints as ck
from acode.store.row_check import Gap, Judged, Noted, SessionKeys, Stored, scan
from acode.store.store import Store
from acode.store.verification import Problem, Verified, as_error

BUNDLE_VERSION = 1
LINE_BYTES_MAX = 512 * 1_048_576
PURPOSE = b"bundle"
TAKEN = ("output", "plan")  # what acode made; what was the user's, or is secret, stays


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="acode-bundle", tag_field="line"):
    version: int
    session_id: str
    title: str
    key_id: str  # of the seal in the last line
    anchor: Anchor | None


class EventLine(msgspec.Struct, frozen=True, kw_only=True, tag="event", tag_field="line"):
    seq: int
    owner: str
    mac: str
    body: str


class CheckpointLine(msgspec.Struct, frozen=True, kw_only=True, tag="checkpoint", tag_field="line"):
    seq: int
    mac: str
    body: str


class SnapshotLine(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot", tag_field="line"):
    seq: int
    body: str


class BlobLine(msgspec.Struct, frozen=True, kw_only=True, tag="blob", tag_field="line"):
    """`data` None: it stays at home."""

    sha256: str
    purpose: str
    data: str | None


class EndLine(msgspec.Struct, frozen=True, kw_only=True, tag="end", tag_field="line"):
    lines: int
    sha256: str
    seal: str


Line = Header | EventLine | CheckpointLine | SnapshotLine | BlobLine | EndLine
_line: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


# Out.


def export(world: World, text: str) -> Iterator[bytes]:
    """The bundle, line by line; a damaged session is exported as it is, so that somebody else can look at it."""
    with opened(world, look_only=True) as store:
        session_id = resolve_id(world, store, text)
        with store.one_view():
            yield from _sealed(store.keyring, _lines(world, store, session_id))


def _sealed(keyring: Keyring, lines: Iterator[Line]) -> Iterator[bytes]:
    """All lines, and a last one that proves that none is missing."""
    digest, count = hashlib.sha256(), 0
    for line in lines:
        raw = msgspec.json.encode(line) + b"\n"
        digest.update(raw)
        count += 1
        yield raw
    key = keyring.key(keyring.current)
    mark = seal.seal(key, PURPOSE, digest.digest())
    yield msgspec.json.encode(EndLine(lines=count, sha256=digest.hexdigest(), seal=mark.hex())) + b"\n"


def _lines(world: World, store: Store, session_id: str) -> Iterator[Line]:
    anchor = seal.read_anchor(seal.anchor_directory(world.state_dir, world.workspace), session_id)
    if anchor is not None:  # where the workspace lies is nobody else's business
        anchor = msgspec.structs.replace(anchor, workspace="")
    yield Header(
        version=BUNDLE_VERSION,
        session_id=session_id,
        title=anchor.title if anchor is not None else "",
        key_id=store.keyring.current,
        anchor=anchor,
    )
    for seq, owner, body, mac in store.stored(session_id):
        yield EventLine(seq=seq, owner=owner, mac=mac.hex(), body=_text(body))
    for seq, body, mac in store.checkpoint_rows(session_id):
        yield CheckpointLine(seq=seq, mac=mac.hex(), body=_text(body))
    for seq, body in store.snapshots(session_id):
        yield SnapshotLine(seq=seq, body=_text(body))
    for sha256, purpose in store.blob_purposes(session_id):
        taken = purpose in TAKEN
        yield BlobLine(sha256=sha256, purpose=purpose, data=_packed(store, session_id, sha256) if taken else None)


def _packed(store: Store, session_id: str, sha256: str) -> str | None:
    try:
        return base64.b64encode(store.blob(session_id, sha256)).decode()
    except AcodeError:
        return None  # gone or damaged here: verifying the session reports it, the bundle only lacks it


def _text(body: bytes) -> str:
    """Stored text is UTF-8, unless it was damaged: then the row cannot be verified anyway, and is only shown."""
    return body.decode("utf-8", "backslashreplace")


# In.


class _Bundle:
    """The content of a bundle, read line by line; an unreadable line ends the reading."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.events: list[Stored] = []
        self.checkpoints: list[tuple[int, bytes, bytes]] = []
        self.snapshots: dict[int, bytes] = {}
        self.blobs: list[BlobLine] = []
        self.end: EndLine | None = None
        self.sha256 = hashlib.sha256()
        self.lines = 0

    def read_line(self, raw: bytes, number: int) -> None:
        if self.end is not None:
            raise BundleDamaged(f"line {number}: something follows the end of the bundle")
        try:
            line = _line.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BundleDamaged(f"line {number} of the bundle cannot be read: {error}") from error
        if (self.header is None) is not isinstance(line, Header):
            raise BundleDamaged(f"line {number}: a bundle begins with one header")
        if isinstance(line, EndLine):
            self.end = line
            return
        self.sha256.update(raw)
        self.lines += 1
        self._keep(line, number)

    def _keep(self, line: Line, number: int) -> None:
        match line:
            case Header():
                self.header = line
            case EventLine():
                self.events.append((line.seq, line.owner, line.body.encode(), _hex(line.mac, number)))
            case CheckpointLine():
                self.checkpoints.append((line.seq, line.body.encode(), _hex(line.mac, number)))
            case SnapshotLine():
                self.snapshots[line.seq] = line.body.encode()
            case BlobLine():
                self.blobs.append(line)


def _hex(text: str, number: int) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise BundleDamaged(f"line {number} of the bundle holds a code that is none") from error


def verify_bundle(path: Path, keyring: Keyring) -> tuple[str, Verified]:
    """The session of the bundle and all that is wrong with it; raises where it is no whole bundle."""
    bundle = _Bundle()
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(_bounded_lines(file), 1):
                bundle.read_line(raw, number)
    except OSError as error:
        raise BundleDamaged(f"{path} cannot be read: {error.strerror}") from error
    header = _whole(bundle, keyring)
    problems, noted = _judge_events(bundle, header, keyring)
    problems += _judge_checkpoints(bundle, header, keyring)
    problems += _judge_blobs(bundle)
    verified = Verified(
        events=len(bundle.events),
        checkpoints=len(bundle.checkpoints),
        blobs=len(bundle.blobs),
        head=bundle.events[-1][3] if bundle.events else GENESIS,
        problems=tuple(problems),
        noted=tuple(noted),
    )
    return header.session_id, verified


def _bounded_lines(file: Any) -> Iterator[bytes]:
    while raw := file.readline(LINE_BYTES_MAX):
        if len(raw) == LINE_BYTES_MAX:
            raise BundleDamaged(f"a line of the bundle has over {LINE_BYTES_MAX:,} bytes")
        yield raw


def _whole(bundle: _Bundle, keyring: Keyring) -> Header:
    """The seal over all lines: none was changed, added or left out since the export."""
    if bundle.header is None or bundle.end is None:
        raise BundleDamaged("the bundle is cut off: its last line is missing" if bundle.header else "this is no bundle")
    if bundle.header.version != BUNDLE_VERSION:
        raise BundleDamaged(f"the bundle has version {bundle.header.version}, this acode knows {BUNDLE_VERSION}")
    try:
        key = keyring.key(bundle.header.key_id)
    except KeyMissing as error:
        raise KeyMissing(
            f"the bundle is sealed with key {bundle.header.key_id}, which is not here",
            hint=Hint(
                "Only with the key can it be verified: {}, or set ACODE_CHECKPOINT_SECRET.", Command("key import FILE")
            ),
            key_id=bundle.header.key_id,
        ) from error
    found = seal.seal(key, PURPOSE, bundle.sha256.digest())
    counted = (bundle.end.lines, bundle.end.sha256) == (bundle.lines, bundle.sha256.hexdigest())
    if not seal.same(found.hex().encode(), bundle.end.seal.encode()) or not counted:
        raise BundleDamaged("the bundle was changed after it was exported: its seal does not match")
    return bundle.header


def _judge_events(bundle: _Bundle, header: Header, keyring: Keyring) -> tuple[list[Problem], list[Problem]]:
    heads: dict[int, bytes] = {}
    noted = Noted(None)
    for seq, body, mac in bundle.checkpoints:
        try:
            checkpoint = ck.open_checkpoint(header.session_id, seq, body, mac, keyring)
        except AcodeError:
            continue
        noted = Noted(checkpoint.session)
        heads |= {seq: bytes.fromhex(checkpoint.head), **noted.heads}
    problems: list[Problem] = []
    known: list[Problem] = []
    first = next((body for seq, _, body, _ in bundle.events if seq == 1), None)
    for item in scan(
        header.session_id, bundle.events, SessionKeys(keyring, header.session_id, lambda: first), heads.get
    ):
        if isinstance(item, Judged) and item.envelope is not None:
            continue
        error = as_error(item, header.session_id)
        seq = item.first if isinstance(item, Gap) else item.seq
        (known if noted.covers(item) else problems).append(Problem(code=error.code, seq=seq, message=error.message))
    last = bundle.events[-1][0] if bundle.events else 0
    if header.anchor is not None and header.anchor.seq > last:
        message = f"the log ends at event {last}, but it was at {header.anchor.seq} already when it was exported"
        problems.append(Problem(code=LogRolledBack.code, seq=last, message=message))
    return problems, known


def _judge_checkpoints(bundle: _Bundle, header: Header, keyring: Keyring) -> list[Problem]:
    problems: list[Problem] = []
    for seq, body, mac in bundle.checkpoints:
        try:
            checkpoint = ck.open_checkpoint(header.session_id, seq, body, mac, keyring)
            if checkpoint.snapshot is not None:
                ck.open_snapshot(checkpoint.snapshot, bundle.snapshots.get(checkpoint.snapshot.seq))
        except AcodeError as error:
            problems.append(Problem(code=error.code, seq=seq, message=error.message))
    return problems


def _judge_blobs(bundle: _Bundle) -> list[Problem]:
    problems: list[Problem] = []
    for blob in bundle.blobs:
        if blob.data is None:
            continue
        try:
            data = base64.b64decode(blob.data, validate=True)
        except binascii.Error:
            data = b""
        if hashlib.sha256(data).hexdigest() != blob.sha256:
            message = f"blob {blob.sha256[:12]} of the bundle does not have the content its name says"
            problems.append(Problem(code=BundleDamaged.code, seq=None, message=message))
    return problems
