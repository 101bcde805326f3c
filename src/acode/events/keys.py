"""Idempotency keys: one name for one attempt at one step of one session, which parses back into the three.

A command or a target database that has seen a key has seen this attempt. Keys are stored with the step's start, so a
step begun under an older format keeps the key it had.
"""

from __future__ import annotations

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
