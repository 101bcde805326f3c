"""Text that people will see loses its secrets: known values, token shapes, and what stands behind a telling name.

Pure, and alone: nothing else of acode is imported, so that the keeper, a process of its own, starts in no time. Text
goes through as bytes, line by line; each rule only names the bytes that are secret, and all are masked together. Ids,
hashes, code and prose survive. Must never be applied to values that will be used again: those go to sensitive blobs.
"""

from __future__ import annotations

from acode.redact.names import looks_secret
from acode.redact.redactors import Redactor, Stream, redactor
from acode.redact.rules import engine

__all__ = ["Redactor", "Stream", "engine", "looks_secret", "redactor"]
