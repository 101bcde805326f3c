"""Files beneath the root: no link is followed, nothing blocks, a write is whole or not there."""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from acode.disk import open_beneath as beneath_module
from acode.errors import FileModified, FileTooLarge, NotWritable, UnsafePath, UnsafeWorkspace
from acode.events.types import FileState
from acode.workspace import (
    Root,
    ensure_agent_dir,
    hash_file,
    look,
    read_file,
    remove_temp,
    temp_name,
    text_of,
    write_atomic,
)
from acode.workspace.files import provable_ctime


@pytest.fixture(params=["kernel", "walk"])
def root(request: pytest.FixtureRequest, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Root]:
    """Both ways to open beneath: the one call of new kernels, and component by component everywhere else."""
    if request.param == "walk":
        monkeypatch.setattr(beneath_module, "_kernel_knows_openat2", lambda: False)
    elif not beneath_module._kernel_knows_openat2():
        pytest.skip("this kernel has no openat2")
    with Root(workspace) as opened:
        yield opened


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Opening beneath.


@pytest.mark.req("THREAT-011c-05")
@pytest.mark.parametrize(
    "rel", ["../outside", "/etc/hostname", "a/../../x", "..", "", "a//b", "./a", "a/.", "a\0b", "a/", "x" * 256]
)
def test_a_path_that_leaves_the_workspace_is_refused(root: Root, rel: str) -> None:
    for use in (lambda: root.open_beneath(rel, os.O_RDONLY), lambda: hash_file(root, rel), lambda: look(root, rel)):
        with pytest.raises(UnsafePath):
            use()
    with pytest.raises(UnsafePath):
        write_atomic(root, rel, b"x", None, "t")


@pytest.mark.parametrize(
    "rel", ["link", "dir/link", "dirlink/file", "dirlink/deep/file", "dangling", "inside", "here/real"]
)
def test_no_link_is_followed_in_any_component(root: Root, workspace: Path, tmp_path: Path, rel: str) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    for place in (outside / "file", outside / "deep" / "file", workspace / "real"):
        place.write_text("secret")
    (workspace / "dir").mkdir()
    (workspace / "link").symlink_to(outside / "file")
    (workspace / "dir" / "link").symlink_to(outside / "file")
    (workspace / "dirlink").symlink_to(outside)
    (workspace / "dangling").symlink_to(outside / "new")
    (workspace / "inside").symlink_to("real")
    (workspace / "here").symlink_to(".")
    with pytest.raises(UnsafePath, match="symbolic link"):
        root.open_beneath(rel, os.O_RDONLY)
    with pytest.raises(UnsafePath, match="symbolic link"):
        read_file(root, rel, 100)
    with pytest.raises(UnsafePath):
        write_atomic(root, rel, b"x", None, "t")
    with pytest.raises(UnsafePath):
        write_atomic(root, f"{rel}/below", b"x", None, "t")
    assert sorted(os.listdir(outside)) == ["deep", "file"]
    assert (outside / "file").read_text() == (workspace / "real").read_text() == "secret"


def test_a_closed_directory_is_of_no_use(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    with root.directory(".") as directory:
        assert directory.stat("a") is not None
    with pytest.raises((OSError, ValueError)):
        directory.stat("a")


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(path.parent)  # the path of a socket may be no longer than 108 bytes
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("make", "words"), [(make_fifo, "a FIFO"), (make_socket, "a socket"), (Path.mkdir, "directory")]
)
def test_what_is_no_file_neither_blocks_nor_is_used(
    root: Root, workspace: Path, make: Callable[[Path], None], words: str
) -> None:
    make(workspace / "thing")
    with pytest.raises(UnsafePath, match=words):
        read_file(root, "thing", 100)
    assert hash_file(root, "thing").sha256 == ""
    assert stat.S_IFMT(hash_file(root, "thing").mode)
    with pytest.raises(UnsafePath, match=words):
        write_atomic(root, "thing", b"x", None, "t")
    assert sorted(os.listdir(workspace)) == ["thing"]


@pytest.mark.req("THREAT-011c-05")
@pytest.mark.skipif(os.uname().sysname != "Linux", reason="needs RENAME_EXCHANGE")
def test_a_racing_attacker_who_swaps_a_directory_for_a_link_never_gets_out(
    root: Root, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"outside")
    (workspace / "dir").mkdir()
    (workspace / "dir" / "secret").write_bytes(b"inside")
    (workspace / "evil").symlink_to(outside)
    libc = ctypes.CDLL(None)
    one, other = os.fsencode(workspace / "dir"), os.fsencode(workspace / "evil")
    attacker = os.fork()
    if attacker == 0:
        parent = os.getppid()
        while os.getppid() == parent:
            libc.renameat2(-100, one, -100, other, 2)
        os._exit(0)
    refused = read = written = 0
    try:
        end = time.monotonic() + 0.8
        while time.monotonic() < end:
            try:
                assert read_file(root, "dir/secret", 100)[0] == b"inside"
                read += 1
                write_atomic(root, f"dir/new/{read % 7}", b"x", 0o600, "t")
                written += 1
            except (UnsafePath, FileNotFoundError, NotADirectoryError, NotWritable):
                refused += 1
    finally:
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"outside"
    assert min(read, written) > 0, "every attempt was refused, so nothing was tested"
    assert refused > 0, "the attacker never came in between, so nothing was tested"


# Reading and hashing.


@pytest.mark.req("FR-040b-17", "FR-040b-19")
def test_the_bytes_read_and_the_state_recorded_belong_together(root: Root, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"\0\xffbinary")
    (workspace / "a").chmod(0o640)
    data, state = read_file(root, "a", 100)
    info = (workspace / "a").stat()
    assert data == b"\0\xffbinary"
    assert (state.sha256, state.size, state.mode) == (sha256(data), len(data), 0o640)
    assert (state.inode, state.mtime_ns) == (info.st_ino, info.st_mtime_ns)
    assert msgspec.structs.replace(hash_file(root, "a"), ctime_ns=0) == msgspec.structs.replace(state, ctime_ns=0)


@pytest.mark.req("CODE-011c-13", "THREAT-011c-05")
def test_a_file_that_was_swapped_after_its_validation_is_not_used(root: Root, workspace: Path) -> None:
    (workspace / "script").write_bytes(b"good")
    validated = hash_file(root, "script")
    (workspace / "script").write_bytes(b"evil")
    with pytest.raises(FileModified) as refusal:
        read_file(root, "script", 100, expected_sha256=validated.sha256)
    assert refusal.value.code == "FILE-001"
    assert refusal.value.details == {"path": "script", "expected": sha256(b"good"), "found": sha256(b"evil")}
    (workspace / "script").write_bytes(b"good")
    assert read_file(root, "script", 100, expected_sha256=validated.sha256)[0] == b"good"


def test_a_file_over_the_limit_is_refused(root: Root, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"12345")
    assert read_file(root, "a", 5)[0] == b"12345"
    with pytest.raises(FileTooLarge, match="over the limit of 4"):
        read_file(root, "a", 4)


@pytest.mark.parametrize("rel", ["none", "no/such/dir", "file/below"])
def test_nothing_there_is_a_state(root: Root, workspace: Path, rel: str) -> None:
    (workspace / "file").write_text("x")
    assert hash_file(root, rel) == FileState(path=rel)
    assert look(root, rel) is None


def test_a_link_is_a_state_of_its_own_and_no_file_with_the_same_text(root: Root, workspace: Path) -> None:
    (workspace / "link").symlink_to("target")
    (workspace / "file").write_text("target")
    assert stat.S_ISLNK(hash_file(root, "link").mode)
    assert hash_file(root, "link").sha256 != hash_file(root, "file").sha256


def test_names_that_are_not_utf8_are_read_and_written(root: Root, workspace: Path) -> None:
    rel = text_of(b"d\xe9/f\xff")
    state = write_atomic(root, rel, b"x", None, "t")
    assert os.listdir(os.fsencode(workspace)) == [b"d\xe9"]
    assert os.listdir(os.fsencode(workspace) + b"/d\xe9") == [b"f\xff"]
    assert hash_file(root, rel).sha256 == state.sha256 == sha256(b"x")


def test_a_fresh_change_time_proves_nothing() -> None:
    now = 1_700_000_000_123_456_789
    assert provable_ctime(now - 5_000_000, now) == 0
    assert provable_ctime(now + 5_000_000_000, now) == 0, "another machine's clock"
    assert provable_ctime(now - 50_000_000, now) == now - 50_000_000
    whole_second = 1_700_000_000_000_000_000
    assert provable_ctime(whole_second, whole_second + 1_000_000_000) == 0, "this file system counts in seconds"
    assert provable_ctime(whole_second, whole_second + 2_000_000_000) == whole_second


# Writing.


def test_a_write_makes_the_file_and_the_directories_above_it(root: Root, workspace: Path) -> None:
    state = write_atomic(root, "a/b/c.txt", b"data", None, "key")
    assert (workspace / "a/b/c.txt").read_bytes() == b"data"
    assert (state.path, state.sha256, state.size) == ("a/b/c.txt", sha256(b"data"), 4)
    assert state.inode == (workspace / "a/b/c.txt").stat().st_ino
    assert os.listdir(workspace / "a/b") == ["c.txt"]


def test_the_mode_is_the_one_given_or_the_one_that_was_there_or_the_users_default(root: Root, workspace: Path) -> None:
    old = os.umask(0o027)
    try:
        assert write_atomic(root, "new", b"", None, "t").mode == 0o640
    finally:
        os.umask(old)
    (workspace / "tool").write_text("x")
    (workspace / "tool").chmod(0o751)
    assert write_atomic(root, "tool", b"y", None, "t").mode == 0o751
    assert write_atomic(root, "tool", b"z", 0o600, "t").mode == 0o600
    assert stat.S_IMODE((workspace / "tool").stat().st_mode) == 0o600


def test_other_names_of_a_hard_linked_file_keep_their_bytes(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    os.link(workspace / "a", workspace / "b")
    write_atomic(root, "a", b"new", None, "t")
    assert ((workspace / "a").read_text(), (workspace / "b").read_text()) == ("new", "old")


def test_a_file_in_place_of_a_directory_is_named(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("file")
    with pytest.raises(NotWritable, match="a/b"):
        write_atomic(root, "a/b", b"x", None, "t")


def test_a_killed_write_leaves_the_old_bytes_and_a_leftover_that_settlement_finds(root: Root, workspace: Path) -> None:
    write_atomic(root, "d/a", b"old", None, "key:1")
    child = os.fork()
    if child == 0:

        def kill_before_the_rename(event: str, _: object) -> None:
            if event == "os.rename":
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill_before_the_rename)
        try:
            write_atomic(root, "d/a", b"new", None, "key:2")
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert (workspace / "d/a").read_bytes() == b"old"
    assert (workspace / temp_name("d/a", "key:2")).read_bytes() == b"new"
    assert not remove_temp(root, "d/a", "key:1")
    assert remove_temp(root, "d/a", "key:2")
    assert not remove_temp(root, "d/a", "key:2")
    assert os.listdir(workspace / "d") == ["a"]
    assert not remove_temp(root, "no/such", "key:2")


def test_the_next_attempt_with_the_same_key_takes_the_leftover_over(root: Root, workspace: Path) -> None:
    (workspace / temp_name("a", "key")).symlink_to("/etc/hostname")
    write_atomic(root, "a", b"x", None, "key")
    assert os.listdir(workspace) == ["a"]
    assert (workspace / "a").read_bytes() == b"x"


# acode's own directory.


def test_acodes_own_directory_is_private_and_ignored_but_for_the_config(root: Root, workspace: Path) -> None:
    old = os.umask(0)
    try:
        assert ensure_agent_dir(root) == Path(root.path) / ".agent"
        ensure_agent_dir(root)
    finally:
        os.umask(old)
    own = workspace / ".agent"
    assert sorted(os.listdir(own)) == [".gitignore", "blobs", "locks", "logs", "run"]
    for place in (own, own / "blobs", own / "locks", own / "logs", own / "run"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert (own / ".gitignore").read_text().splitlines()[-2:] == ["*", "!config.yml"]


def test_an_own_directory_that_came_with_a_checkout_is_made_private_and_its_files_are_kept(
    root: Root, workspace: Path
) -> None:
    (workspace / ".agent").mkdir(mode=0o755)
    (workspace / ".agent" / ".gitignore").write_text("mine")
    ensure_agent_dir(root)
    assert stat.S_IMODE((workspace / ".agent").stat().st_mode) == 0o700
    assert (workspace / ".agent" / ".gitignore").read_text() == "mine"


@pytest.mark.parametrize("place", [".agent", ".agent/blobs"])
def test_an_own_directory_that_is_a_link_is_refused(root: Root, workspace: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (workspace / place).parent.mkdir(exist_ok=True)
    (workspace / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePath, match="symbolic link"):
        ensure_agent_dir(root)
    assert os.listdir(tmp_path / "elsewhere") == []
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_an_own_directory_of_somebody_else_is_refused(root: Root, workspace: Path) -> None:
    (workspace / ".agent").mkdir()
    os.chown(workspace / ".agent", 12345, 12345)
    with pytest.raises(UnsafeWorkspace, match="12345"):
        ensure_agent_dir(root)
