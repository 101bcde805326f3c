"""Text that deserves a look when it turns up in a file that somebody else changed.

Only a hint for the person who decides: a changed hash stops the run whether or not one of these is found.
"""

from __future__ import annotations

PATTERNS = (
    "eval(",
    "exec(",
    "subprocess.call(",
    "os.system(",
    "rm -rf",
    "curl http://",
    "wget http://",
)
_NEEDLES = tuple((pattern, pattern.encode()) for pattern in PATTERNS)
_OVERLAP_BYTES = max(len(pattern) for pattern in PATTERNS) - 1


class PatternSearch:
    """Finds the patterns, whatever their case, in bytes that come in chunks."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._end = b""

    def feed(self, chunk: bytes) -> None:
        # A pattern may lie across two chunks, so the end of the one before is looked at again.
        window = self._end + chunk.lower()
        self._found.update(pattern for pattern, needle in _NEEDLES if needle in window)
        self._end = window[-_OVERLAP_BYTES:]

    def take(self) -> tuple[str, ...]:
        """The findings since the last call, in the list's order; the next chunk begins another file."""
        found = tuple(pattern for pattern in PATTERNS if pattern in self._found)
        self._found.clear()
        self._end = b""
        return found
