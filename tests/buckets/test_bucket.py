"""Files of a fleet in a bucket, over the protocol of S3 with a real server and the client that users install.

`python3 dev.py integrations buckets` runs these in an environment of their own: nothing else needs what they do.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("s3fs", reason="needs the group: buckets")
pytest.importorskip("moto.server", reason="needs the group: buckets")

from s3fs import S3FileSystem

from acode.errors import SourceUnavailable
from acode.sync.far_store import FarStore

START_S_MAX = 60.0
LOOK_S = 0.1
# Larger than what one request carries: the client sends it in parts.
LARGE_BYTES = 70 * 1_048_576


@dataclass(frozen=True)
class Bucket:
    url: str
    address: str
    process: subprocess.Popen[bytes]

    def objects(self) -> list[str]:
        system = S3FileSystem()
        system.invalidate_cache()
        return sorted(str(one) for one in system.find("files"))


@contextlib.contextmanager
def started(**env: str) -> Iterator[Bucket]:
    """A server on loopback with one bucket, which the first request makes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        made = Request(f"{address}/files", method="PUT")
        until = time.monotonic() + START_S_MAX
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                urlopen(made, timeout=5).close()
                break
            assert process.poll() is None and time.monotonic() < until, "the server did not start"
            time.sleep(LOOK_S)
        yield Bucket("s3://files/acode", address, process)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Credentials, and nothing of the tester's own."""
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "worker")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the worker")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    S3FileSystem.clear_instance_cache()
    return monkeypatch


@pytest.fixture
def bucket(known: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with started() as made:
        known.setenv("AWS_ENDPOINT_URL", made.address)
        yield made


def named(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("data", [b"", b"small", os.urandom(1) * LARGE_BYTES], ids=["empty", "small", "in parts"])
def test_what_is_put_into_a_bucket_is_had_from_it_and_nothing_else_is_left(bucket: Bucket, data: bytes) -> None:
    store = FarStore(bucket.url)
    for _ in range(2):  # as two machines do, and as one does again after a crash
        store.put(named(data), data)
    S3FileSystem.clear_instance_cache()
    assert FarStore(f"{bucket.url}/").get(named(data)) == data
    assert bucket.objects() == [f"files/acode/{named(data)[:2]}/{named(data)}"]


def test_an_object_that_is_missing_or_another_one_is_named_and_found_when_it_is_restored(bucket: Bucket) -> None:
    store, data = FarStore(bucket.url), b"restored"
    with pytest.raises(SourceUnavailable, match=f"{named(data)[:12]} is not in fleet.store, {bucket.url}"):
        store.get(named(data))
    S3FileSystem().pipe_file(f"files/acode/{named(data)[:2]}/{named(data)}", b"another")
    with pytest.raises(SourceUnavailable, match="is not what its name says"):
        store.get(named(data))
    S3FileSystem().pipe_file(f"files/acode/{named(data)[:2]}/{named(data)}", data)
    assert store.get(named(data)) == data


def test_a_bucket_that_is_not_there_is_not_made(bucket: Bucket) -> None:
    with pytest.raises(SourceUnavailable, match="s3://mistyped"):
        FarStore("s3://mistyped/acode").put(named(b"x"), b"x")
    assert S3FileSystem().ls("") == ["files"]


def test_credentials_that_are_refused_or_missing_are_said_so(known: pytest.MonkeyPatch) -> None:
    with started(INITIAL_NO_AUTH_ACTION_COUNT="1") as strict:
        known.setenv("AWS_ENDPOINT_URL", strict.address)
        store = FarStore(strict.url)
        with pytest.raises(SourceUnavailable, match="cannot be kept in") as refused:
            store.put(named(b"x"), b"x")
        assert isinstance(refused.value.__cause__, PermissionError)
        with pytest.raises(SourceUnavailable, match="cannot be had from"):
            store.get(named(b"x"))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            known.delenv(name)
        S3FileSystem.clear_instance_cache()
        with pytest.raises(SourceUnavailable, match="credentials"):
            store.get(named(b"x"))


def test_a_server_that_is_gone_is_an_error_of_the_store_and_no_other(bucket: Bucket) -> None:
    bucket.process.kill()
    bucket.process.wait()
    with pytest.raises(SourceUnavailable, match="cannot be had from"):
        FarStore(bucket.url).get(named(b"x"))
    with pytest.raises(SourceUnavailable, match="cannot be kept in"):
        FarStore(bucket.url).put(named(b"x"), b"x")
