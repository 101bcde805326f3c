"""The envelope around an event, and the one way to bytes and back.

The bytes are the truth: a message code covers them as they were written, so nothing here ever re-encodes a stored
event. Older envelopes are lifted by small pure functions, one per version; a newer one is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
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
        return self.event.type if isinstance(self.event, Unknown) else type_of(self.event)


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    session_id: str
    seq: int
    event_id: str
    at: datetime
    actor: str
    key_id: str
    event: msgspec.Raw


class _Tag(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    ignorable: bool = False


_encoder = msgspec.json.Encoder()
_stored = msgspec.json.Decoder(_Stored)
_tag = msgspec.json.Decoder(_Tag)
_known: msgspec.json.Decoder[Known] = msgspec.json.Decoder(Known)
TYPES: frozenset[str] = frozenset(str(cls.__struct_config__.tag) for cls in get_args(Known))


def type_of(event: Event) -> str:
    return str(type(event).__struct_config__.tag)


def encode(envelope: Envelope) -> bytes:
    body = _encoder.encode(envelope)
    if len(body) > EVENT_BYTES_MAX:
        raise EventTooLarge(
            f"event {envelope.type} has {len(body):,} bytes, over the limit of {EVENT_BYTES_MAX:,}",
            hint="Large payloads belong into a file or a blob.",
        )
    return body


def decode(body: bytes) -> Envelope:
    """Bytes to an envelope; what cannot be read raises by name, a type that is not known comes back as `Unknown`."""
    try:
        stored = _stored.decode(body)
        if stored.v != ENVELOPE_VERSION:
            return _decode_older(body)
        event = _decode_event(stored.event)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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


def _decode_event(raw: msgspec.Raw) -> Known | Unknown:
    try:
        return _known.decode(raw)
    except msgspec.ValidationError:
        tag = _tag.decode(raw)
        if tag.type in TYPES:
            raise
        return Unknown(type=tag.type, ignorable=tag.ignorable)


def _decode_older(body: bytes) -> Envelope:
    plain: dict[str, Any] = msgspec.json.decode(body)
    version = plain["v"]
    if version > ENVELOPE_VERSION or version < 1:
        raise NewerSchema(
            f"event {plain.get('seq')} has envelope version {version}, this acode knows {ENVELOPE_VERSION}"
        )
    for lift in UPCASTERS[version - 1 :]:
        plain = lift(plain)
    event = _decode_event(msgspec.Raw(_encoder.encode(plain.pop("event"))))
    return msgspec.structs.replace(
        msgspec.convert({**plain, "event": {"type": "session_executing"}}, Envelope), event=event
    )


def _v1_to_v2(plain: dict[str, Any]) -> dict[str, Any]:
    """Version 1 kept the event's fields beside the envelope's and called the actor `by`."""
    outer = ("session_id", "seq", "event_id", "at", "key_id")
    event = {name: value for name, value in plain.items() if name not in (*outer, "v", "by")}
    return {**{name: plain[name] for name in outer}, "v": 2, "actor": plain["by"], "event": event}


UPCASTERS: list[Callable[[dict[str, Any]], dict[str, Any]]] = [_v1_to_v2]
