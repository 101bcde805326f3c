"""The envelope around an event, and the one way to bytes and back.

The bytes are the truth: a message code covers them as they were written, so nothing here ever re-encodes a stored
event. Older envelopes are lifted by small pure functions, one per version; a newer one is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, get_args

import msgspec

from acode.errors import EventTooLarge, NewerSchema, UnreadableEvent
from acode.events.types import Event, Known, Unknown

ENVELOPE_VERSION = 2
EVENT_BYTES_MAX = 1_048_576

Actor = str  # "user", "system", or the name of a tool that wrote through the library


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the log: who said what, when, and as which number."""

    v: int
    session_id: str
    seq: int
    event_id: str
    at: datetime
    actor: Actor
    key_id: str
    event: Known | Unknown

    @property
    def type(self) -> str:
        event = self.event
        return event.type if isinstance(event, Unknown) else _TAGS[type(event)]


class _Outer(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    session_id: str
    seq: int
    event_id: str
    at: datetime
    actor: str
    key_id: str


class _Stored(_Outer, frozen=True, kw_only=True):
    event: msgspec.Raw


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    v: int


class _Tag(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    ignorable: bool = False


_encoder = msgspec.json.Encoder()
_stored = msgspec.json.Decoder(_Stored)
_version = msgspec.json.Decoder(_Version)
_tag = msgspec.json.Decoder(_Tag)
_MARK = b'"event":{"type":"'
_MANY = frozenset({"step_started", "step_completed", "step_failed", "step_settled"})  # of these a log has thousands
_CLASSES: dict[str, type[Known]] = {str(cls.__struct_config__.tag): cls for cls in get_args(Known)}
_TAGS: dict[type[Event], str] = {cls: tag for tag, cls in _CLASSES.items()}
TYPES: frozenset[str] = frozenset(_CLASSES)


@cache
def _decoder(tag: str) -> msgspec.json.Decoder[Known]:
    """One per type, made when the type is first met: one for all of them costs every start milliseconds."""
    return msgspec.json.Decoder(_CLASSES[tag])


def type_of(event: Event) -> str:
    return _TAGS[type(event)]


def encode(envelope: Envelope) -> bytes:
    try:
        body = _encoder.encode(envelope)
    except UnicodeEncodeError as error:  # a file name that is no text came through as lone surrogates
        raise UnreadableEvent(f"event {envelope.type} holds text that is not Unicode: {error.reason}") from error
    if len(body) > EVENT_BYTES_MAX:
        raise EventTooLarge(
            f"event {envelope.type} has {len(body):,} bytes, over the limit of {EVENT_BYTES_MAX:,}",
            hint="Large payloads belong into a file or a blob.",
        )
    return body


def decode(body: bytes) -> Envelope:
    """Bytes to an envelope; what cannot be read raises by name, a type that is not known comes back as `Unknown`."""
    try:
        stored = _at_once(body)
        if stored is not None:
            event = stored.event
        else:
            stored = _stored_now(body) or _lifted(body)
            event = _decode_event(stored.event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableEvent(f"an event cannot be parsed: {error}") from error
    return Envelope(
        v=stored.v,
        session_id=stored.session_id,
        seq=stored.seq,
        event_id=stored.event_id,
        at=stored.at,
        actor=stored.actor,
        key_id=stored.key_id,
        event=event,
    )


def _at_once(body: bytes) -> Any:
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
        stored = _whole(tag).decode(body)
    except msgspec.ValidationError:
        return None
    return stored if stored.v == ENVELOPE_VERSION else None


@cache
def _whole(tag: str) -> msgspec.json.Decoder[Any]:
    fields = [("event", _CLASSES[tag])]
    return msgspec.json.Decoder(msgspec.defstruct("_Whole", fields, bases=(_Outer,), frozen=True, kw_only=True))


def _stored_now(body: bytes) -> _Stored | None:
    """The envelope in today's shape, or None where it has another version, whose shape may be any other."""
    try:
        stored = _stored.decode(body)
    except msgspec.ValidationError:
        if _version.decode(body).v == ENVELOPE_VERSION:
            raise
        return None
    return stored if stored.v == ENVELOPE_VERSION else None


def _decode_event(raw: msgspec.Raw) -> Known | Unknown:
    tag = _tag.decode(raw)
    if tag.type not in TYPES:
        return Unknown(type=tag.type, ignorable=tag.ignorable)
    return _decoder(tag.type).decode(raw)


def _lifted(body: bytes) -> _Stored:
    """An older envelope in today's shape; the stored bytes, which the message code covers, stay as they are."""
    plain: dict[str, Any] = msgspec.json.decode(body)
    version = plain["v"]
    if not 1 <= version < ENVELOPE_VERSION:
        raise NewerSchema(
            f"event {plain.get('seq')} has envelope version {version}, this acode knows {ENVELOPE_VERSION}"
        )
    try:
        for lift in UPCASTERS[version - 1 :]:
            plain = lift(plain)
    except KeyError as error:
        raise UnreadableEvent(f"an event of envelope version {version} has no field {error}") from error
    return _stored.decode(_encoder.encode(plain))


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
