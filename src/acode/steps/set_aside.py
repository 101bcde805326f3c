"""Set files aside before a rollback restores pre-images: stored, searched for secrets on the way, and named in the log.

A file may be half of the step's output, or a person's only copy: acode cannot know. So it is kept beyond the end of the
session, unless a rule finds a secret in it; then it is deleted at the end like every secret, and that is reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from acode.events import types as ev
from acode.redact.redactors import Redactor
from acode.store.blobs import Blobs


class Aside:
    """The bytes of one rollback. `redactor` None: a secret is not known by its value here, so all may hold it."""

    def __init__(self, blobs: Blobs, redactor: Redactor | None) -> None:
        self._blobs = blobs
        self._redactor = redactor
        self._secret: set[str] = set()

    def save(self, chunks: Iterable[bytes]) -> str:
        masked = hashlib.sha256()
        sha256 = self._blobs.bring(self._looked_through(chunks, masked), sensitive=True)
        if masked.hexdigest() != sha256:
            self._secret.add(sha256)
        return sha256

    def named(self, images: Iterable[ev.PreImage]) -> tuple[ev.PreImage, ...]:
        """The images, each with the word whether it goes with the session's end."""
        return tuple(msgspec.structs.replace(image, secret=image.blob in self._secret) for image in images)

    def _looked_through(self, chunks: Iterable[bytes], masked: hashlib._Hash) -> Iterator[bytes]:
        """The chunks as they are; beside them, what they would be with every secret masked is hashed."""
        stream = self._redactor.stream() if self._redactor is not None else None
        for chunk in chunks:
            if stream is not None:
                masked.update(stream.feed(chunk))
            yield chunk
        masked.update(stream.finish() if stream is not None else b"not looked through")
