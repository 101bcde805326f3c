"""What is nobody else's business: readable for one user, whole or not there, and never written through a link."""

from __future__ import annotations

import errno
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from acode import command_notes, seal
from acode.cli.session_maintenance import write_bundle
from acode.config import trust as keep_trust
from acode.disk.private_files import make_private_directory, put_private, write_private
from acode.errors import DiskFull, NotWritable
from acode.formats.arc import write as write_checkpoint
from acode.steps.commit import mark_started
from acode.steps.step_outputs import put_output
from acode.store.blobs import Blobs
from acode.sync import outbox
from tests.arc import NOW, arc, put_run

OLD, NEW = b"the old content, and more of it than of the new\n", b"the new content\n"
ANCHOR = {
    "session_id": "s",
    "seq": 1,
    "head": "",
    "title": "T",
    "workspace": "w",
    "at": datetime(2026, 3, 1, tzinfo=UTC),
}
WRITERS: dict[str, Callable[[Path], object]] = {
    "key": lambda place: seal.load_keyring(place, {}),
    "rotated key": lambda place: (seal.load_keyring(place, {}), seal.rotate_key(place)),
    "anchor": lambda place: seal.write_anchor(place, seal.Anchor(**ANCHOR), durable=True),  # type: ignore[arg-type]
    "place": lambda place: seal.note_place(place, place, "s"),
    "trust": lambda place: keep_trust(place, place, "0" * 64),
    "list of a server": lambda place: outbox.note_restored(place, "server", 1.0),
    "arc checkpoint": lambda place: write_checkpoint(run_of(place), arc(), now=NOW),
    "blob": lambda place: Blobs(place / "blobs").put([NEW]),
    "keeper's note": lambda place: command_notes.write_note(os.fspath(place), "status", {"exit": 0}, durable=True),
    "git's mark": lambda place: mark_started(place, os.getpid()),
    "step's output": lambda place: put_output(place, "a.1", NEW),
    "bundle": lambda place: write_bundle(place / "bundle.jsonl", [OLD, NEW]),
    "note": lambda place: write_private(place / "deep" / "er" / "note", NEW),
}


def run_of(place: Path) -> Path:
    path = put_run(place, arc())
    path.unlink()
    return path


def modes(place: Path) -> dict[str, int]:
    found = [path for path in place.rglob("*") if path.is_file()]
    return {os.fspath(path.relative_to(place)): stat.S_IMODE(path.stat().st_mode) for path in found}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_of_private_files_leaves_files_that_only_we_can_read(tmp_path: Path, writer: str) -> None:
    before = os.umask(0)
    try:
        WRITERS[writer](tmp_path)
    finally:
        os.umask(before)
    assert set(modes(tmp_path).values()) == {0o600}


def test_a_link_that_somebody_placed_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(OLD)
    for plant in (os.symlink, os.link):
        (tmp_path / "own").unlink(missing_ok=True)
        plant(theirs, tmp_path / "own")
        put_private(tmp_path / "own", (NEW,))
        assert (theirs.read_bytes(), (tmp_path / "own").read_bytes()) == (OLD, NEW)
    assert modes(tmp_path)["own"] == 0o600


def test_a_writer_killed_between_two_of_its_bytes_leaves_the_old_file(tmp_path: Path) -> None:
    """Between any two system calls it is killed by the sweeps over `key rotate`, `config trust` and all the others."""
    put_private(tmp_path / "own", (OLD,))

    def dying() -> Iterator[bytes]:
        yield NEW
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        put_private(tmp_path / "own", dying())
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert (tmp_path / "own").read_bytes() == OLD
    assert len(list(tmp_path.iterdir())) == 2, "what it had written by then"
    put_private(tmp_path / "own", (NEW,))
    assert [path.name for path in tmp_path.iterdir()] == ["own"], "the next writer removes it"


def test_the_file_of_a_writer_that_is_still_at_work_is_left_alone(tmp_path: Path) -> None:
    def meeting() -> Iterator[bytes]:
        yield NEW
        put_private(tmp_path / "own", (OLD,))
        put_private(tmp_path / "another", (OLD,))

    put_private(tmp_path / "own", meeting())
    assert (tmp_path / "own").read_bytes() == NEW, "who places its file last"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "own"]


def test_a_directory_that_may_be_written_and_not_read_takes_private_files(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read and write everything")
    (tmp_path / "closed").mkdir(mode=0o300)
    put_private(tmp_path / "closed" / "own", (NEW,), durable=False)
    assert (tmp_path / "closed" / "own").read_bytes() == NEW


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    put_private(tmp_path / "own", (OLD,))

    def failing() -> Iterator[bytes]:
        yield NEW
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError):
        put_private(tmp_path / "own", failing())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"own": OLD}


def test_two_writers_at_once_never_mix_and_of_exclusive_ones_the_first_wins(tmp_path: Path) -> None:
    texts = [bytes([65 + number]) * 100_000 for number in range(4)]

    def write(text: bytes, exclusive: bool) -> None:
        for _ in range(20):
            put_private(tmp_path / "own", (text[:50_000], text[50_000:]), exclusive=exclusive, durable=False)

    for exclusive in (True, False):
        writers = [threading.Thread(target=write, args=(text, exclusive)) for text in texts]
        for one in writers:
            one.start()
        seen: set[bytes] = set()
        while any(one.is_alive() for one in writers):
            if (tmp_path / "own").exists():
                seen.add((tmp_path / "own").read_bytes())
        assert seen <= set(texts)
        assert len(seen) <= 1 or not exclusive
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_the_refusals_name_the_file_and_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotWritable, match=r"cannot be (made|written): Not a directory"):
        write_private(tmp_path / "file" / "deeper" / "own", NEW)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match="own cannot be written: No space"):
        write_private(tmp_path / "own", NEW)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the names of descriptors are read from /proc")
def test_a_new_directory_is_private_and_its_name_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd))[1])
    make_private_directory(tmp_path / "one" / "two")
    assert synced == [os.fspath(tmp_path), os.fspath(tmp_path / "one")]
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("one", "one/two")] == [0o700, 0o700]
    make_private_directory(tmp_path / "one" / "two")
    assert len(synced) == 2


def test_a_bundle_goes_to_a_pipe_as_it_comes_and_through_a_link_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert write_bundle(tmp_path / "link", [OLD, NEW]) == len(OLD + NEW)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == OLD + NEW
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_bundle(tmp_path / "pipe", [OLD, NEW])
    reader.join()
    assert read == [OLD + NEW]
