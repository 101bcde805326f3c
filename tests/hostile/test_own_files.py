"""Something else stands where a file of acode's own belongs: no command waits for it, or writes through it."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.driver import Acode

PLAN = "version: 1\ntitle: T\ntasks: [{id: a, steps: [{run: 'echo x'}, {approve: Go on?}, {run: 'true'}]}]\n"
DATABASE = ["workspace.db", "workspace.db-wal", "workspace.db-shm", "workspace.db-journal"]
DIRECTORIES = ["locks", "blobs", "run", "logs"]
# Written beside the session, or read for evidence: such a file may stop a command by name, or be left out.
OTHERS = ["logs/acode.jsonl", "run/ballast", "{run}/started", "{run}/status", "{run}/output", "{run}/alive", "{lock}"]
COMMANDS = [
    ("session", "list"),
    ("session", "show", "{id}"),
    ("session", "verify", "{id}"),
    ("explain", "{id}"),
    ("doctor",),
    ("resume", "--last", "--auto"),
    ("run", "plan.yml", "--new"),
]
BLOCKED_S_MAX = 20.0


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(path.parent, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "FIFO": lambda path, _: os.mkfifo(path, 0o600),
    "directory": lambda path, _: path.mkdir(),
    "file": lambda path, _: path.write_bytes(b""),
    "link": lambda path, elsewhere: path.symlink_to(elsewhere),
    "link to nothing": lambda path, elsewhere: path.symlink_to(elsewhere.with_name("nowhere")),
    "hard link": lambda path, elsewhere: os.link(elsewhere, path),
    "socket": lambda path, _: a_socket(path),
    "device": lambda path, _: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5)),
}
STRANGE_FILE = [kind for kind in KINDS if kind not in {"file"}]
STRANGE_DIRECTORY = [kind for kind in KINDS if kind != "directory"]


class Place:
    """A workspace with a paused session, brought back to how it was before each command."""

    def __init__(self, workspace: Path, home: Path, acode: Acode, tmp_path: Path) -> None:
        (workspace / "plan.yml").write_text(PLAN)
        assert acode("run", "plan.yml").exit_code in {10, 12}
        self.acode, self.own, self.state = acode, workspace / ".agent", Path(os.environ["ACODE_HOME"])
        self.id = acode("session", "list", "--json").json[0]["session_id"]
        self.elsewhere = tmp_path / "precious"
        self._saved = tmp_path / "saved"
        shutil.copytree(self.own, self._saved / "own")
        shutil.copytree(self.state, self._saved / "state")
        self._names = {"run": f"run/{self.id}+a.1+1", "lock": f"locks/{self.id}.1"}

    def reset(self) -> None:
        for place, saved in ((self.own, "own"), (self.state, "state")):
            shutil.rmtree(place)
            shutil.copytree(self._saved / saved, place)
        self.elsewhere.unlink(missing_ok=True)
        self.elsewhere.write_bytes(b"precious")
        self.elsewhere.chmod(0o600)

    def put(self, kind: str, name: str) -> Path:
        path = self.own / name.format(**self._names)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        KINDS[kind](path, self.elsewhere)
        return path

    def ended(self, command: tuple[str, ...], path: Path, kind: str) -> tuple[int, str]:
        """How a command ends; one that waits at a FIFO is let go of, and that is the failure."""
        waited: list[str] = []

        def let_go() -> None:
            waited.append(f"{command} waited at {path}")
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))

        watch = threading.Timer(BLOCKED_S_MAX, let_go) if kind == "FIFO" else None
        if watch is not None:
            watch.start()
        try:
            ended = self.acode(*(word.format(id=self.id) for word in command))
        finally:
            if watch is not None:
                watch.cancel()
        assert waited == []
        assert self.elsewhere.read_bytes() == b"precious", (command, path, kind)
        assert not self.elsewhere.with_name("nowhere").exists(), (command, path, kind)
        return ended.exit_code, ended.stdout + ended.stderr


@pytest.fixture
def place(workspace: Path, home: Path, acode: Acode, tmp_path: Path) -> Iterator[Place]:
    made = Place(workspace, home, acode, tmp_path)
    made.reset()
    yield made
    made.reset()


def usable(kind: str) -> bool:
    return kind != "device" or os.geteuid() == 0


@pytest.mark.parametrize("name", [*DATABASE, *DIRECTORIES])
def test_a_strange_file_in_place_of_acodes_own_is_refused_by_name_with_20(name: str, place: Place) -> None:
    for kind in filter(usable, STRANGE_DIRECTORY if name in DIRECTORIES else STRANGE_FILE):
        place.reset()
        path = place.put(kind, name)
        for command in COMMANDS:
            code, said = place.ended(command, path, kind)
            if command == ("doctor",):
                assert code == 1 and "All is well" not in said, (kind, said)
            else:
                assert code == 20 and "ACODE-DB-002" in said and str(path) in said, (command, kind, said)


@pytest.mark.parametrize("name", OTHERS)
def test_no_command_waits_for_a_strange_note_or_writes_through_it(name: str, place: Place) -> None:
    commands = (*COMMANDS[3:], ("session", "rollback", "{id}", "--yes"))
    pairs = itertools.product(filter(usable, STRANGE_FILE), commands)
    for kind, command in itertools.islice(pairs, OTHERS.index(name) % 2, None, 2):  # the notes meet them in turns
        place.reset()
        path = place.put(kind, name)
        code, said = place.ended(command, path, kind)
        assert code in {0, 1, 10, 12, 14, 15, 16, 17, 20}, (command, kind, said)
        assert "ACODE-000" not in said and "Traceback" not in said, (command, kind, said)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such links")
def test_a_database_that_another_name_leads_to_is_refused_and_the_hint_says_what_to_do(place: Place) -> None:
    os.link(place.own / "workspace.db", place.own.parent / "copy.db")
    ended = place.acode("session", "list")
    assert ended.exit_code == 20 and "copy it" in ended.stderr
