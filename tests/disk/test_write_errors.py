"""What the system says while acode writes becomes the refusal that fits it."""

from __future__ import annotations

import errno
import os

import pytest

from acode.disk.fsync import write_all
from acode.disk.write_errors import refusing_write_errors
from acode.errors import AcodeError, DiskFull, NotWritable, WriteFailed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_said_to_be_full() -> None:
    with (
        open("/dev/full", "wb", buffering=0) as full,
        pytest.raises(DiskFull, match="a blob cannot be stored: No space"),
        refusing_write_errors("a blob cannot be stored"),
    ):
        write_all(full.fileno(), b"x")


@pytest.mark.parametrize(
    ("number", "refusal"),
    [
        (errno.EDQUOT, DiskFull),
        (errno.EACCES, NotWritable),
        (errno.EROFS, NotWritable),
        (errno.ENOTDIR, NotWritable),
        (errno.EIO, WriteFailed),
    ],
)
def test_each_error_of_the_system_has_its_refusal(number: int, refusal: type[AcodeError]) -> None:
    with pytest.raises(refusal, match=f"the file: {os.strerror(number)}"), refusing_write_errors("the file"):
        raise OSError(number, os.strerror(number))
