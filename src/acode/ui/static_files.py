"""The style and the script of the page, and the addresses under which a browser may keep them.

An address names the content: what is kept under it never changes, so that no later page waits for either.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

DIRECTORY = Path(__file__).parent / "static"
MEDIA_TYPES = {"page.css": "text/css", "page.js": "text/javascript"}
DIGEST_CHARACTERS = 16


@cache
def content(name: str) -> bytes:
    return (DIRECTORY / name).read_bytes()


@cache
def digest(name: str) -> str:
    return hashlib.sha256(content(name)).hexdigest()[:DIGEST_CHARACTERS]


def address(name: str) -> str:
    return f"/static/{name}?{digest(name)}"
