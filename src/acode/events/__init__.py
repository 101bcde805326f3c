"""Events: plan definitions, event types, keys, and the versioned codec between events and bytes."""

from acode.events.codec import (
    ENVELOPE_VERSION,
    EVENT_BYTES_MAX,
    Envelope,
    covered,
    decode,
    encode,
    encode_short,
    event_id_of,
    type_of,
)
from acode.events.keys import make_key, parse_key

__all__ = [
    "ENVELOPE_VERSION",
    "EVENT_BYTES_MAX",
    "Envelope",
    "covered",
    "decode",
    "encode",
    "encode_short",
    "event_id_of",
    "make_key",
    "parse_key",
    "type_of",
]
