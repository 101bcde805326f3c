"""A store in a directory of its own, with a clock the test owns, and a hand that edits the file behind its back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import uuid_utils.compat as uuids

from acode import seal
from acode.events import ENVELOPE_VERSION, Envelope, covered
from acode.state import Session, fold
from acode.store.journal import Journal
from acode.store.store import Store
from tests.builders import START, Word, created, flat

KEY = b"k" * 32
KEYRING = seal.Keyring(current="k", keys={"k": KEY})


class Ticking:
    """A clock that is a second later at every look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


class Place:
    """One `.agent` directory."""

    def __init__(self, agent_dir: Path, keyring: seal.Keyring = KEYRING) -> None:
        agent_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.agent_dir = agent_dir
        self.keyring = keyring
        self.clock: Callable[[], datetime] = Ticking()
        self._open: list[Store] = []

    @property
    def database(self) -> Path:
        return self.agent_dir / "workspace.db"

    def open(self, **options: Any) -> Store:
        store = Store(self.agent_dir, self.keyring, clock=self.clock, new_id=lambda: str(uuids.uuid7()), **options)
        self._open.append(store)
        return store

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def holding(self, *words: Word) -> str:
        """A session with this log, each word a transaction, nothing left open; its id."""
        with self.open() as store:
            journal = store.create()
            say(journal, *words)
            return journal.session.session_id

    @contextmanager
    def behind_the_back(self) -> Iterator[apsw.Connection]:
        """An editor of the database that covers its tracks: the schema is afterwards what it was."""
        self.close()
        db = apsw.Connection(str(self.database))
        triggers = list(db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"))
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        yield db
        for _, sql in triggers:
            db.execute(sql)
        db.close()


def say(journal: Journal, *words: Word, durable: bool = False) -> None:
    """Each word in one transaction, by whoever says it."""
    for word in words:
        events = [one for one in flat([word]) if not isinstance(one, timedelta)]
        actor = getattr(events[0], "actor", "system") if isinstance(events[0], tuple) else "system"
        plain = [one[0] if isinstance(one, tuple) else one for one in events]
        if plain:
            journal.append(*plain, actor=actor, durable=durable)  # type: ignore[arg-type]


def begun(store: Store, *words: Word) -> Journal:
    journal = store.create()
    say(journal, *(words or (created("a", "b", "c"),)))
    return journal


def log_of(store: Store, session_id: str) -> list[Envelope]:
    return [envelope for envelope, _, _ in store.events(session_id)]


def folded(store: Store, session_id: str) -> Session:
    """What all events say, without any checkpoint."""
    return fold(log_of(store, session_id))


def forge(db: apsw.Connection, session_id: str, event: dict[str, Any]) -> None:
    """One more event with a right code, as another version of acode with the same key would write it."""
    query = "SELECT max(e.id), e.seq, e.body, e.mac FROM events e JOIN sessions s ON s.number = e.id >> 40"
    number, seq, body, mac = next(iter(db.execute(f"{query} WHERE s.session_id = ?", (session_id,))))
    last = json.loads(body)
    later = (datetime.fromisoformat(last["at"]) + timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    text = json.dumps({**last, "at": later, "event": event})
    code = seal.code(KEY, mac, covered(ENVELOPE_VERSION, session_id, seq + 1, text.encode()))
    db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (number + 1, session_id, seq + 1, text, code))


class WatchedSyncs(apsw.VFS):
    """SQLite's own file layer, which notes every sync it makes."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        super().__init__("watched", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _WatchedFile(self.synced, name, flags)

    def of_the_log(self) -> int:
        return sum(name.endswith("-wal") for name in self.synced)


class _WatchedFile(apsw.VFSFile):
    def __init__(self, synced: list[str], name: Any, flags: list[int]) -> None:
        self._synced = synced
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._synced.append(self._name)
        super().xSync(flags)


class NoSharedMemory(apsw.VFS):
    """A file layer without shared memory, as some file systems offer no other; SQLite answers `delete` to WAL there."""

    def __init__(self) -> None:
        super().__init__("without-memory", "unix-dotfile", makedefault=True)


class FailingWrites(apsw.VFS):
    """SQLite's own file layer, where one write of the main file fails, as a bad sector would make it."""

    def __init__(self, nth: int) -> None:
        self.left = nth
        super().__init__("failing", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _FailingFile(self, name, flags)


class _FailingFile(apsw.VFSFile):
    def __init__(self, vfs: FailingWrites, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._vfs.left -= 1
        if self._vfs.left == 0:
            raise apsw.IOError("the disk has a bad sector")
        super().xWrite(data, offset)
