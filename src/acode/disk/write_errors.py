"""Turn errors of the operating system while writing into refusals with a hint."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from acode.errors import DiskFull, NotWritable, WriteFailed

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})


@contextmanager
def refusing_write_errors(what: str) -> Iterator[None]:
    """A system error while writing becomes a refusal with a hint."""
    try:
        yield
    except OSError as error:
        reason = f"{what}: {error.strerror or error}"
        if error.errno in NO_ROOM:
            raise DiskFull(reason) from error
        if error.errno in _NOT_ALLOWED:
            raise NotWritable(reason) from error
        raise WriteFailed(reason) from error
