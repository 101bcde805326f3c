"""The envelope around an event, and the one way to bytes and back.

The bytes are the truth: a message code covers them as they were written, so nothing here ever re-encodes a stored
event. A row holds only what does not follow from where it stands: the session and the number are those of its place,
which the code covers too; the id of the event is made of them and its time; the key is that of the first event unless
another is named. Older envelopes are lifted by small pure functions, one per version; a newer one is refused by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Annotated, Any, get_args

import msgspec

from acode.errors import EventTooLarge, NewerSchema, UnreadableEvent
from acode.events.lean_steps import FormerStart, PlainEnd, PlainStart, leave_out, restore, stored_class
from acode.events.types import Event, Known, StepStarted, Unknown

ENVELOPE_VERSION = 3
NAMES_ITS_PLACE = 2  # up to this version a row names its session, its number and its id itself
EVENT_BYTES_MAX = 1_048_576

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Actor = str  # "user", "system", or the name of a tool that wrote through the library


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the log: who said what, when, and as which number. `key_id` "": that of the first event; `named_id`:
    the id that rows up to version 2 name."""

    v: int
    session_id: str
    seq: int
    at: datetime
    actor: Actor
    key_id: str
    event: Known | Unknown
    named_id: str = ""

    @property
    def event_id(self) -> str:
        return self.named_id or event_id_of(self.session_id, self.seq, self.at)

    @property
    def type(self) -> str:
        event = self.event
        return event.type if isinstance(event, Unknown) else _TAGS[type(event)]


class _Outer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope as it is stored. The first event, on which the others rest, names session, number and key."""

    v: int
    session_id: str = ""
    seq: int = 0
    at: Moment
    actor: str = "system"
    key_id: str = ""


class _Row(_Outer, frozen=True, kw_only=True):
    event: Any


class _Stored(_Outer, frozen=True, kw_only=True):
    event: msgspec.Raw


class _OuterOf2(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    session_id: str
    seq: int
    event_id: str
    at: datetime
    actor: str
    key_id: str


class _StoredOf2(_OuterOf2, frozen=True, kw_only=True):
    event: msgspec.Raw


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    v: int


class _Tag(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    ignorable: bool = False
    calls: str | None = None  # a start has one of these only in its short form
    function: str | None = None


_encoder = msgspec.json.Encoder()
_stored = msgspec.json.Decoder(_Stored)
_stored_of_2 = msgspec.json.Decoder(_StoredOf2)
_version = msgspec.json.Decoder(_Version)
_tag = msgspec.json.Decoder(_Tag)
_BEGINNINGS = {version: b'{"v":%d,' % version for version in (ENVELOPE_VERSION, NAMES_ITS_PLACE)}
_MARK = b'"event":{"type":"'
_SHORT_STARTS: dict[bytes, type[Any]] = {
    b'step_started","calls":"': PlainStart,
    b'step_started","function":"': FormerStart,
}
_MANY = frozenset({"step_started", "step_completed", "step_failed", "step_settled"})  # of these a log has thousands
_CLASSES: dict[str, type[Known]] = {str(cls.__struct_config__.tag): cls for cls in get_args(Known)}
_TAGS: dict[type[Event], str] = {cls: tag for tag, cls in _CLASSES.items()}
TYPES: frozenset[str] = frozenset(_CLASSES)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOW_BITS = 2**48 - 1


@cache
def _decoder(tag: str, *, here: bool) -> msgspec.json.Decoder[Any]:
    """One per type, made when the type is first met: one for all of them costs every start milliseconds."""
    return msgspec.json.Decoder(stored_class(_CLASSES[tag]) if here else _CLASSES[tag])


def type_of(event: Event) -> str:
    return _TAGS[type(event)]


# To bytes.


def encode(envelope: Envelope, *, first_key: str = "", boot_id: str = "") -> bytes:
    """The row of an event. `first_key`: that of the first event; `boot_id`: as the log has last named it."""
    session_id, seq, key_id = envelope.session_id, envelope.seq, envelope.key_id
    event = leave_out(envelope.event, session_id, seq, boot_id)
    row = _Row(v=ENVELOPE_VERSION, at=envelope.at, actor=envelope.actor, event=event)
    if seq == 1:
        row = msgspec.structs.replace(row, session_id=session_id, seq=1, key_id=key_id)
    elif key_id != first_key:
        row = msgspec.structs.replace(row, key_id=key_id)
    try:
        body = _encoder.encode(row)
    except UnicodeEncodeError as error:
        raise _no_text(row, error) from error
    if len(body) > EVENT_BYTES_MAX:
        raise _too_large(row, body)
    return body


def encode_short(short: PlainStart | PlainEnd, at: datetime, key_id: str) -> bytes:
    """The row of an event of a plain step, of which the caller knows the stored form. `key_id`: named where it is not
    that of the first event."""
    row = _Row(v=ENVELOPE_VERSION, at=at, key_id=key_id, event=short)
    try:
        body = _encoder.encode(row)
    except UnicodeEncodeError as error:
        raise _no_text(row, error) from error
    if len(body) > EVENT_BYTES_MAX:
        raise _too_large(row, body)
    return body


def _no_text(row: _Row, error: UnicodeEncodeError) -> UnreadableEvent:
    """A file name that is no text came through as lone surrogates."""
    return UnreadableEvent(f"event {_type_in(row)} holds text that is not Unicode: {error.reason}")


def _too_large(row: _Row, body: bytes) -> EventTooLarge:
    return EventTooLarge(
        f"event {_type_in(row)} has {len(body):,} bytes, over the limit of {EVENT_BYTES_MAX:,}",
        hint="Large payloads belong into a file or a blob.",
    )


def _type_in(row: _Row) -> str:
    event = row.event
    return event.type if isinstance(event, Unknown) else str(event.__struct_config__.tag)


def covered(v: int, session_id: str, seq: int, body: bytes) -> bytes:
    """The bytes that a row's code covers: with its place, where the row does not name it. Otherwise a row and the code
    before it, moved to another session together, would prove each other there."""
    return body if v <= NAMES_ITS_PLACE else b"%b:%d:%b" % (session_id.encode(), seq, body)


def event_id_of(session_id: str, seq: int, at: datetime) -> str:
    """A UUID of version 7 that follows from the place and the time of an event."""
    since = at - _EPOCH
    ms, us = divmod(since.microseconds, 1000)
    ms += (since.days * 86_400 + since.seconds) * 1000
    variant, low = _own_bits(session_id)
    numbers = (ms >> 16, ms & 0xFFFF, us, variant, low + seq & _LOW_BITS)
    return "%08x-%04x-7%03x-%s-%012x" % numbers  # noqa: UP031 - a list has thousands, and it takes half the time


@lru_cache(maxsize=64)
def _own_bits(session_id: str) -> tuple[str, int]:
    """Bits of the session that keep the ids of its events apart from those of others."""
    digits = hashlib.sha256(session_id.encode(errors="replace")).hexdigest()
    return f"{0x8 | (int(digits[0], 16) & 0x3):x}{digits[1:4]}", int(digits[4:16], 16)


# From bytes.


def decode(body: bytes, session_id: str, seq: int) -> Envelope:
    """The row at a place; what cannot be read raises by name, a type that is not known comes back as `Unknown`.

    A row that names its own place may claim another one, which a caller compares.
    """
    try:
        version = next((v for v, beginning in _BEGINNINGS.items() if body.startswith(beginning)), 0)
        match version or _version.decode(body).v:
            case 3:
                return _decode_here(body, session_id, seq)
            case 2:
                return _decode_version_2(body)
            case older:
                return _lifted(body, older, seq)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableEvent(f"an event cannot be parsed: {error}") from error


def _decode_here(body: bytes, session_id: str, seq: int) -> Envelope:
    stored = _at_once(body, _Outer)
    if stored is not None:
        event = stored.event
    else:
        stored = _stored.decode(body)
        event = _decode_event(stored.event, here=True)
    session_id, seq = stored.session_id or session_id, stored.seq or seq
    return Envelope(
        v=stored.v,
        session_id=session_id,
        seq=seq,
        at=stored.at,
        actor=stored.actor,
        key_id=stored.key_id,
        event=restore(event, session_id, seq),
    )


def _decode_version_2(body: bytes) -> Envelope:
    stored = _at_once(body, _OuterOf2)
    if stored is not None:
        event = stored.event
    else:
        stored = _stored_of_2.decode(body)
        event = _decode_event(stored.event, here=False)
    return Envelope(
        v=stored.v,
        session_id=stored.session_id,
        seq=stored.seq,
        named_id=stored.event_id,
        at=stored.at,
        actor=stored.actor,
        key_id=stored.key_id,
        event=event,
    )


def _at_once(body: bytes, outer: type[msgspec.Struct]) -> Any:
    """The envelope and its event in one go, as most rows can be read; None where it must be looked at closely.

    The mark cannot stand inside a text, where its quotes would be escaped, and nothing but texts stands before it.
    """
    start = body.find(_MARK) + len(_MARK)
    if start < len(_MARK):
        return None
    tag = body[start : body.find(b'"', start)].decode()
    if tag not in _MANY:
        return None
    try:
        short = next((mark for mark in _SHORT_STARTS if body.startswith(mark, start)), b"")
        return _whole(tag, short, outer).decode(body)
    except msgspec.ValidationError:
        return None


@cache
def _whole(tag: str, short: bytes, outer: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    cls = _CLASSES[tag]
    fields = [("event", cls if outer is _OuterOf2 else _SHORT_STARTS.get(short) or stored_class(cls))]
    return msgspec.json.Decoder(msgspec.defstruct("_Whole", fields, bases=(outer,), frozen=True, kw_only=True))


def _decode_event(raw: msgspec.Raw, *, here: bool) -> Any:
    tag = _tag.decode(raw)
    if tag.type not in TYPES:
        return Unknown(type=tag.type, ignorable=tag.ignorable)
    if here and _CLASSES[tag.type] is StepStarted and (tag.calls is not None or tag.function is not None):
        return msgspec.json.decode(raw, type=PlainStart if tag.calls is not None else FormerStart)
    return _decoder(tag.type, here=here).decode(raw)


def _lifted(body: bytes, version: int, seq: int) -> Envelope:
    """An older envelope in today's shape; the stored bytes, which the message code covers, stay as they are."""
    plain: dict[str, Any] = msgspec.json.decode(body)
    if not 1 <= version < ENVELOPE_VERSION:
        raise NewerSchema(
            f"event {plain.get('seq', seq)} has envelope version {version}, this acode knows {ENVELOPE_VERSION}"
        )
    try:
        for lift in UPCASTERS[version - 1 :]:
            plain = lift(plain)
    except KeyError as error:
        raise UnreadableEvent(f"an event of envelope version {version} has no field {error}") from error
    return _decode_version_2(_encoder.encode(plain))


def _v1_to_v2(plain: dict[str, Any]) -> dict[str, Any]:
    """Version 1 kept the event's fields beside the envelope's and called the actor `by`.

    A decision has a time of its own; there it was the envelope's.
    """
    outer = ("session_id", "seq", "event_id", "at", "key_id")
    event = {name: value for name, value in plain.items() if name not in (*outer, "v", "by")}
    if event.get("type") == "resume_decision":
        event["at"] = plain["at"]
    return {**{name: plain[name] for name in outer}, "v": 2, "actor": plain["by"], "event": event}


UPCASTERS: list[Callable[[dict[str, Any]], dict[str, Any]]] = [_v1_to_v2]
