"""The blob store: whole or absent, verified on the way out, private."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from acode.errors import BlobDamaged, FileTooLarge, WriteFailed
from acode.store.blobs import Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "agent" / "blobs")


def path_of(blobs: Blobs, sha256: str) -> Path:
    return blobs.directory / sha256[:2] / sha256


def test_what_was_put_comes_back_under_its_hash(blobs: Blobs) -> None:
    sha256 = blobs.put([b"one ", b"", b"two\0\xff"])
    assert sha256 == hashlib.sha256(b"one two\0\xff").hexdigest()
    assert blobs.read(sha256, 100) == b"one two\0\xff"
    assert b"".join(blobs.stream(sha256)) == b"one two\0\xff"
    assert blobs.has(sha256)


def test_blobs_are_private_to_the_user(blobs: Blobs) -> None:
    old = os.umask(0)
    try:
        sha256 = blobs.put([b"secret"])
    finally:
        os.umask(old)
    assert stat.S_IMODE(path_of(blobs, sha256).stat().st_mode) == 0o600
    for directory in (blobs.directory, blobs.directory / sha256[:2]):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_putting_the_same_bytes_again_leaves_one_blob(blobs: Blobs) -> None:
    assert blobs.put([b"ab"]) == blobs.put([b"a", b"b"])
    assert [size for _, size in blobs.all()] == [2]
    assert [path for path in blobs.directory.iterdir() if path.is_file()] == []


def test_putting_good_bytes_again_mends_a_damaged_blob(blobs: Blobs) -> None:
    sha256 = blobs.put([b"good"])
    path_of(blobs, sha256).write_bytes(b"evil")
    blobs.put([b"good"])
    assert blobs.read(sha256, 10) == b"good"


def test_many_writers_of_the_same_bytes_do_not_disturb_each_other(blobs: Blobs) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = set(pool.map(lambda number: blobs.put([b"x" * 1000, bytes([number % 3])]), range(48)))
    assert len(names) == 3
    assert sorted(names) == [sha256 for sha256, _ in blobs.all()]
    for sha256 in names:
        assert len(blobs.read(sha256, 2000)) == 1001


@pytest.mark.parametrize("damage", [b"", b"other", b"goo", b"goodd"])
def test_damaged_bytes_are_never_handed_out_as_good(blobs: Blobs, damage: bytes) -> None:
    sha256 = blobs.put([b"good"])
    path_of(blobs, sha256).write_bytes(damage)
    with pytest.raises(BlobDamaged, match=sha256):
        blobs.read(sha256, 100)
    with pytest.raises(BlobDamaged, match=sha256):
        list(blobs.stream(sha256))


def test_a_blob_that_is_gone_is_named(blobs: Blobs) -> None:
    sha256 = blobs.put([b"x"])
    assert blobs.remove(sha256)
    assert not blobs.remove(sha256)
    assert not blobs.has(sha256)
    with pytest.raises(BlobDamaged, match="gone"):
        blobs.read(sha256, 100)
    with pytest.raises(BlobDamaged, match="gone"):
        next(blobs.stream(sha256))


@pytest.mark.parametrize("name", ["", "../../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_nothing_but_a_hash_becomes_a_path(blobs: Blobs, name: str) -> None:
    for use in (blobs.has, blobs.remove, lambda sha256: list(blobs.stream(sha256))):
        with pytest.raises(BlobDamaged):
            use(name)


def test_a_link_in_place_of_a_blob_is_not_followed(blobs: Blobs, tmp_path: Path) -> None:
    sha256 = blobs.put([b"x"])
    (tmp_path / "elsewhere").write_bytes(b"x")
    path_of(blobs, sha256).unlink()
    path_of(blobs, sha256).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BlobDamaged):
        list(blobs.stream(sha256))


def test_a_blob_over_the_limit_is_not_read_into_memory(blobs: Blobs) -> None:
    sha256 = blobs.put([b"12345"])
    assert blobs.read(sha256, 5) == b"12345"
    with pytest.raises(FileTooLarge, match="over the limit of 4"):
        blobs.read(sha256, 4)


def test_sensitive_blobs_stand_apart_and_are_read_like_the_others(blobs: Blobs) -> None:
    plain, secret = blobs.put([b"plain"]), blobs.put([b"token"], sensitive=True)
    assert [sha256 for sha256, _ in blobs.all(sensitive=True)] == [secret]
    assert [sha256 for sha256, _ in blobs.all(sensitive=False)] == [plain]
    assert {sha256 for sha256, _ in blobs.all()} == {plain, secret}
    assert (blobs.directory / "sensitive" / secret[:2] / secret).exists()
    assert blobs.read(secret, 10) == b"token"
    assert blobs.remove(secret)
    assert not blobs.has(secret)


def test_a_failing_source_leaves_nothing_behind(blobs: Blobs) -> None:
    def source() -> Iterator[bytes]:
        yield b"begun"
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        blobs.put(source())
    assert list(blobs.all()) == []
    assert list(blobs.directory.iterdir()) == []


def test_a_write_that_fails_half_way_leaves_no_blob(blobs: Blobs) -> None:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            blobs.put([b"x" * 10_000])
        except WriteFailed:
            os._exit(42)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert list(blobs.all()) == []
    assert list(blobs.directory.iterdir()) == []


def test_a_killed_writer_leaves_no_blob_and_its_leftover_is_removed_with_its_session(blobs: Blobs) -> None:
    def source() -> Iterator[bytes]:
        yield b"half of it"
        os.kill(os.getpid(), signal.SIGKILL)
        yield b"never"

    child = os.fork()
    if child == 0:
        try:
            blobs.put(source())
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert list(blobs.all()) == []
    (leftover,) = blobs.directory.iterdir()
    blobs.remove_brought_by("another")
    assert leftover.exists(), "it may belong to a writer that lives"
    blobs.remove_brought_by(leftover.name.removeprefix(".writing-").rpartition("-")[0])
    assert not leftover.exists()
