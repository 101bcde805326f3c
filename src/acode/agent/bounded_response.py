"""Bound a model endpoint's response where it arrives: the library keeps a line, and an event, until it ends.

A server that never ends one would fill the memory. Nothing of the library is imported here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

EVENT_BYTES_MAX = 8 * 1024 * 1024
BODY_BYTES_MAX = 8 * 1024 * 1024  # of an answer that is no stream, which is kept as a whole
_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_TAIL_BYTES = 3


class ResponseTooLong(Exception):
    """The endpoint sends something without end."""


async def bound(response: Any) -> None:
    """A hook of the HTTP client: reading too much of this response, decoded, raises ResponseTooLong."""
    read = response.aiter_bytes
    is_stream = "event-stream" in response.headers.get("content-type", "") and response.status_code < 300

    def bounded(*arguments: Any, **options: Any) -> AsyncIterator[bytes]:
        chunks = read(*arguments, **options)
        return _events(chunks) if is_stream else _whole(chunks)

    response.aiter_bytes = bounded


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """An event ends with an empty line; comments and short events may arrive forever."""
    pending, tail = 0, b""
    async for chunk in chunks:
        seen = tail + chunk
        ended = max(seen.rfind(end) + len(end) if end in seen else -1 for end in _ENDS)
        pending = len(seen) - ended if ended >= 0 else pending + len(chunk)
        if pending > EVENT_BYTES_MAX:
            raise ResponseTooLong(f"one event of more than {EVENT_BYTES_MAX} bytes")
        tail = seen[-_TAIL_BYTES:]
        yield chunk


async def _whole(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    total = 0
    async for chunk in chunks:
        total += len(chunk)
        if total > BODY_BYTES_MAX:
            raise ResponseTooLong(f"an answer of more than {BODY_BYTES_MAX} bytes")
        yield chunk
