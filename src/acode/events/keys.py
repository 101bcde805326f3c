"""Idempotency keys: one name for one attempt at one step of one session, which parses back into the three.

A command or a target database that has seen a key has seen this attempt. Keys are stored with the step's start, so a
step begun under an older format keeps the key it had.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

_CURRENT = re.compile(r"(?P<session>[0-9a-f-]{36}):(?P<step>[^:\s][^:\n]*):(?P<attempt>[1-9][0-9]{0,8})")
_V1 = re.compile(r"(?P<session>[0-9a-f-]{36})/(?P<step>[^#\s][^#\n]*)#(?P<attempt>[1-9][0-9]{0,8})")


class Key(NamedTuple):
    session_id: str
    step: str
    attempt: int


def make_key(session_id: str, step: str, attempt: int) -> str:
    """Plan files and the library refuse step ids that hold a colon, so the key parses back."""
    return f"{session_id}:{step}:{attempt}"


def parse_key(text: str) -> Key | None:
    """The parts of a key of any version ever shipped, or None where the text is none."""
    found = _CURRENT.fullmatch(text) or _V1.fullmatch(text)
    return Key(found["session"], found["step"], int(found["attempt"])) if found else None


# Traces: every process that resumes a session writes into the same trace, because the ids come from the log.


def trace_id_of(session_id: str) -> str:
    """The trace of a session: its id as 32 hexadecimal digits."""
    return session_id.replace("-", "")


def span_id_of(name: str) -> str:
    """The span of an attempt by its key, or of a task or run by its name: 16 hexadecimal digits."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]


def traceparent(session_id: str, key: str) -> str:
    """The context that a command gets in TRACEPARENT, so that its own spans lie below its attempt."""
    return f"00-{trace_id_of(session_id)}-{span_id_of(key)}-01"
