"""Checkpoints: each completed step is one, and a small sealed row and a full snapshot stand in the log often enough.

A completion proves itself, and its reader knows the row before it and the few events between: a row for each would
double the log. A row is written when the log has grown by `due_bytes` since the last one, and where a session
begins, stops or ends.

A step in flight stands in both as the number of the event that began it: with a thousand at once, their starts would
be written again with each completion. A reader of the checkpoint fetches those events, and verifies them.

A checkpoint is bound to its session, position and chain head; one with a bad seal is never used. A full snapshot is
written when the log has grown by as much as the last snapshot holds, so storage stays linear in the log, and a resume
reads no more of the log than the state is large.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from acode import seal
from acode.errors import CheckpointForged, CheckpointMissing, NewerSchema
from acode.events import Envelope
from acode.events import types as ev
from acode.seal import Keyring
from acode.state import InFlight, Session, with_boot

CHECKPOINT_VERSION = 4
DUE_BYTES_MIN = 65_536  # of log since the last row: a reader of the newest one folds so much in two milliseconds
DUE_BYTES_PER_FLIGHT = 512  # more of log for each step in flight, all of which a row names: most are over soon
SNAPSHOT_BYTES_MIN = 131_072  # of log since the last one: some hundred events, which a resume reads in milliseconds
PURPOSE = b"checkpoint"


class SnapshotRef(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    sha256: str
    head: str
    size: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Position and counters at one event; `session` holds no records."""

    v: int
    id: int  # the checkpoints before it: completions, and rows that somebody asked for or that end the session
    session_id: str
    seq: int
    head: str
    key_id: str
    at: datetime
    session: Session
    label: str = ""
    snapshot: SnapshotRef | None = None
    row: int | msgspec.UnsetType = msgspec.UNSET  # its number among the rows; up to version 3 that is its id
    size: int | msgspec.UnsetType = msgspec.UNSET  # of its row; known to its reader and its writer, never stored

    @property
    def row_number(self) -> int:
        return self.id if self.row is msgspec.UNSET else self.row


_encoder = msgspec.json.Encoder()
_checkpoint = msgspec.json.Decoder(Checkpoint)
_session = msgspec.json.Decoder(Session)


def due_bytes(row: Checkpoint | None) -> int:
    """So much log behind a row makes the next completion write one more: rows stay a fraction of the log."""
    return max(DUE_BYTES_MIN, 0 if row is None or row.size is msgspec.UNSET else 2 * row.size)


def small(session: Session) -> Session:
    """The session without what grows with its work and without what stands in the log once.

    The dicts are copies, because the journal folds its session on in place and a sealed value must not move with it.
    """
    return msgspec.structs.replace(
        session,
        records=None,
        created=None,
        plan=None,
        in_flight=dict(session.in_flight),
        unknown_types=dict(session.unknown_types),
    )


def by_position(session: Session) -> Session:
    """The form that is stored: steps in flight by their positions, where the event there tells all about them.

    After a repair all stand there whole: no later load needs the events before it.
    """
    if not session.in_flight or session.quarantined or session.gaps or session.accepted is not None or session.heads:
        return session
    positions = {
        step: flight.seq
        for step, flight in session.in_flight.items()
        if flight.failures == 0
        and flight.stopped is None
        and flight.unknown is None
        and (flight.started.boot_id == session.boot_id or flight.started.kind != "call")
    }
    whole = {step: flight for step, flight in session.in_flight.items() if step not in positions}
    return msgspec.structs.replace(session, in_flight=whole, in_flight_at=positions)


def begun_in(envelope: Envelope, step: str, boot_id: str = "") -> InFlight | None:
    """The step as this event began it; a repair opens steps too. `boot_id`: of the owner at that time."""
    event = envelope.event
    started: ev.StepStarted | None = None
    if isinstance(event, ev.StepStarted) and event.step == step:
        started = with_boot(event, boot_id)
    if isinstance(event, ev.Quarantined):
        started = next((one for one in event.opened if one.step == step), None)
    return InFlight(started=started, seq=envelope.seq, at=envelope.at) if started is not None else None


def encode_checkpoint(checkpoint: Checkpoint, keyring: Keyring) -> tuple[bytes, bytes]:
    body = _encoder.encode(checkpoint)
    return body, seal.seal(keyring.key(checkpoint.key_id), PURPOSE, body)


def encode_snapshot(session: Session) -> bytes:
    return _encoder.encode(by_position(msgspec.structs.replace(session, created=None, plan=None)))


def open_checkpoint(session_id: str, seq: int, body: bytes, mac: bytes, keyring: Keyring) -> Checkpoint:
    """A row that is used is a row verified: the seal first, then the content, then that it stands where it says."""
    try:
        plain = msgspec.json.decode(body)
        key = keyring.key(plain["key_id"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
        raise _forged(session_id, seq, f"it cannot be read: {error}") from error
    if not seal.same(mac, seal.seal(key, PURPOSE, body)):
        raise _forged(session_id, seq, "signature invalid - possible tampering detected")
    try:
        checkpoint = _decode(plain, body)
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise _forged(session_id, seq, f"it is no checkpoint: {error}") from error
    if (checkpoint.session_id, checkpoint.seq) != (session_id, seq):
        raise _forged(session_id, seq, f"it belongs to event {checkpoint.seq} of session {checkpoint.session_id}")
    return msgspec.structs.replace(checkpoint, size=len(body))


def _forged(session_id: str, seq: int, why: str) -> CheckpointForged:
    return CheckpointForged(
        f"checkpoint at event {seq} of session {session_id[-8:]}: {why}", seq=seq, session_id=session_id
    )


def _decode(plain: dict[str, Any], body: bytes) -> Checkpoint:
    version = plain.get("v")
    if version in (2, 3, CHECKPOINT_VERSION):  # each has the fields of the one before it, and perhaps some more
        return _checkpoint.decode(body)
    if not isinstance(version, int) or not 1 <= version < CHECKPOINT_VERSION:
        raise NewerSchema(f"a checkpoint has format version {version}, this acode knows {CHECKPOINT_VERSION}")
    for lift in LIFTS[version - 1 :]:
        plain = lift(plain)
    return msgspec.convert(plain, Checkpoint)


def _v1_to_v2(plain: dict[str, Any]) -> dict[str, Any]:
    """Version 1 called its number `checkpoint_id` and knew no snapshots: the state comes from the whole log."""
    rest = {name: value for name, value in plain.items() if name != "checkpoint_id"}
    return {**rest, "v": 2, "id": plain["checkpoint_id"], "snapshot": None}


LIFTS: list[Callable[[dict[str, Any]], dict[str, Any]]] = [_v1_to_v2]


def open_snapshot(ref: SnapshotRef, body: bytes | None) -> Session:
    """The snapshot's hash stands in a sealed checkpoint, so it needs no seal of its own."""
    if body is None:
        raise CheckpointMissing(f"the snapshot at event {ref.seq} is gone", seq=ref.seq)
    if hashlib.sha256(body).hexdigest() != ref.sha256:
        raise CheckpointForged(f"the snapshot at event {ref.seq} was changed outside acode", seq=ref.seq)
    try:
        return _session.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointForged(f"the snapshot at event {ref.seq} cannot be read: {error}", seq=ref.seq) from error
