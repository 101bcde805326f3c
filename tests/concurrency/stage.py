"""One real session, its lock files, its database and its anchor, as several processes share them; and what must hold.

The processes run the engine's own `held`, `created`, `unlock` and so on. Each has a connection of its own, and stops
before every statement that another one could notice. Inside a transaction nothing of others is seen and nothing of
one's own is shown, so the only stops there are its beginning and its commit.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
import uuid_utils.compat as uuids

from acode import lock, seal
from acode.disk import file_lock
from acode.engine import break_lock, disk_full, held_session, preview, session_commands
from acode.engine.world import World
from acode.errors import AcodeError
from acode.events import types as ev
from acode.store.store import Store
from tests.builders import created
from tests.concurrency.conductor import Conductor, Process
from tests.concurrency.kernel import Fcntl, Files, Os, Threads, Time
from tests.stores import say
from tests.worlds import world

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
read_anchor = seal.read_anchor
WRITES = ("BEGIN IMMEDIATE", "UPDATE", "INSERT", "DELETE")


QUIET: list[tuple[Any, str]] = [(module, "resolve_id") for module in (held_session, session_commands, preview)]
QUIET += [(held_session, "ensure_ours"), (held_session, "refuse_copy"), (Store, "peek"), (disk_full, "lay_ballast")]
QUIET += [(break_lock, name) for name in ("refuse_not_ours", "confirm_ours", "refuse_copy", "follow_move")]


class Listener:
    """Who is told that something cannot be lost any more."""

    def __init__(self, stage: LockStage, session_id: str) -> None:
        self._stage = stage
        self._session_id = session_id

    def emit(self, notice: object) -> None:
        pass

    def durable(self, seq: int) -> None:
        self._stage.acknowledge(self._session_id, seq)


class Lookalike:
    """A module with one thing changed, for one of its users."""

    def __init__(self, module: Any, **changes: Any) -> None:
        self.__dict__.update(changes)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class LockStage:
    """The shared state, its seams, and the judge."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch, *, wait_s: float = 0.2) -> None:
        self.conductor = Conductor(self)
        self.files = Files()
        self.problems: list[str] = []
        self.acknowledged: dict[tuple[str, int], bytes] = {}
        self.anchored_at_once: dict[str, int] = {}
        self.owners: dict[str, int] = {}
        self.writer: Process | None = None
        self._written = ""  # the session that the open transaction writes to
        self.strangers: dict[int, float] = {}  # what runs under a pid whose process has died
        self._database: tuple[tuple[Any, ...], ...] | None = None
        self._anchored: tuple[Hashable, ...] | None = None
        self._stores: dict[int | None, Store] = {}
        self._local = threading.local()
        self.world = world(place, clock=lambda: NOW, flags={"session.lock_timeout_seconds": wait_s})
        self.locks = self.world.agent_dir / "locks"
        self._make_session()
        self._install(monkeypatch)

    def _make_session(self) -> None:
        for directory in (self.locks, self.world.agent_dir / "blobs", self.world.agent_dir / "run"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.world.agent_dir.chmod(0o700)
        self._open(None)
        journal = self.store().create()
        say(journal, created("a", "b"))
        self.id, self.first_free = journal.session.session_id, journal.session.seq + 1
        self.anchors = seal.anchor_directory(self.world.state_dir, self.world.workspace)
        session = journal.session
        self.first_anchor = seal.Anchor(
            session_id=self.id, seq=session.seq, head=journal.head.hex(), title="", workspace="", at=session.updated_at
        )

    def hire(self, count: int) -> None:
        self.conductor.hire(count)
        for number in range(count):
            if number not in self._stores:
                self._open(number)

    # The seams.

    def _install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        conductor = self.conductor
        monkeypatch.setattr(lock, "os", Os(conductor, self.files))
        monkeypatch.setattr(file_lock, "os", Os(conductor, self.files))
        monkeypatch.setattr(file_lock, "fcntl", Fcntl(conductor, self.files))
        monkeypatch.setattr(lock, "time", Time(conductor))
        monkeypatch.setattr(lock, "threading", Threads)
        monkeypatch.setattr(lock, "process_started", self.process_started)
        for module in (held_session, session_commands, break_lock, preview):
            monkeypatch.setattr(module, "opened", self.opened)
        monkeypatch.setattr(disk_full, "Store", lambda *_, **__: self.store())
        monkeypatch.setattr(Store, "close", self._closing(Store.close))
        for module, name in QUIET:
            monkeypatch.setattr(module, name, self._quiet(getattr(module, name)))
        for name in ("write_anchor", "read_anchor"):
            monkeypatch.setattr(seal, name, self._announced(getattr(seal, name), name))
        monkeypatch.setattr(lock, "acquire", self._noting_owner(lock.acquire))
        self._forget(monkeypatch)
        monkeypatch.setattr(lock.Lock, "release", self._noting_release(lock.Lock.release))

    def _quiet(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A look whose answer is the same in all orders, because nobody here ends or removes a session: no stop."""

        def quiet(*args: Any, **options: Any) -> Any:
            process = self.conductor.current()
            if process is None:
                return call(*args, **options)
            process.quiet = True
            try:
                return call(*args, **options)
            finally:
                process.quiet = False

        return quiet

    def _forget(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where a call's answer is all that is kept of what it saw, two processes with the same answer are the same."""
        keep = self._keeping
        looked = keep(lock.look, lambda seen: None)  # of this look `held` keeps only the time
        monkeypatch.setattr(held_session, "locks", Lookalike(lock, look=looked))
        looked = keep(lock.look, lambda seen: (seen.held, seen.holder and seen.holder.pid))
        monkeypatch.setattr(session_commands, "locks", Lookalike(lock, look=looked))
        monkeypatch.setattr(lock, "acquire", keep(lock.acquire, lambda got: got[1]))
        for module in (held_session, break_lock):
            monkeypatch.setattr(module, "load_verified", keep(module.load_verified, lambda got: got[0].head))

    def _keeping(self, call: Callable[..., Any], kept: Callable[[Any], Hashable]) -> Callable[..., Any]:
        def keeping(*args: Any, **options: Any) -> Any:
            process = self.conductor.current()
            if process is None:
                return call(*args, **options)
            before = process.base = process.seen
            answer = call(*args, **options)
            process.seen = hash((before, call.__name__, kept(answer)))
            return answer

        return keeping

    def _announced(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def announced(*args: Any, **options: Any) -> Any:
            self.conductor.pause(name, "anchor")
            process = self.conductor.current()
            if process is not None and process.dying:
                return None  # the dead write nothing
            found = call(*args, **options)
            self._anchored = None
            if name == "write_anchor" and options.get("durable"):
                anchor = args[1]
                self.anchored_at_once[anchor.session_id] = max(
                    self.anchored_at_once.get(anchor.session_id, 0), anchor.seq
                )
            return found

        return announced

    def process_started(self, pid: int) -> float | None:
        """The table of processes: who has died is not there, unless its number was given to another."""
        for process in self.conductor.processes:
            if process.pid == pid and process.status not in ("dead", "done") and not process.dying:
                return 1000.0 + process.number
        return self.strangers.get(pid)

    def _closing(self, close: Callable[[Store], None]) -> Callable[[Store], None]:
        """A process that opens its log anew gets the same connection again."""
        return lambda store: None if self.conductor.current() else close(store)

    def _noting_owner(self, acquire: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, **options: Any) -> Any:
            held, generation = acquire(*args, **options)
            process = self.conductor.current()
            if process is not None:
                name = held.path.name
                if name in self.owners:
                    self.problems.append(f"two processes own {name.rpartition('.')[2]} at once")
                self.owners[name] = process.number
            return held, generation

        return noting

    def _noting_release(self, release: Callable[..., None]) -> Callable[..., None]:
        def noting(held: lock.Lock) -> None:
            process = self.conductor.current()
            if process is not None and self.owners.get(held.path.name) == process.number:
                del self.owners[held.path.name]
            release(held)

        return noting

    # The database.

    def store(self) -> Store:
        """The connection of whoever asks; it stays open from run to run, because opening it is no part of this."""
        process = self.conductor.current()
        return self._stores[process.number if process else None]

    def _open(self, number: int | None) -> None:
        keyring = seal.load_keyring(self.world.state_dir, self.world.env)
        self._stores[number] = Store(
            self.world.agent_dir, keyring, clock=self.world.clock, new_id=lambda: self._new_id(number)
        )
        if number is not None:
            self._watch(self._stores[number].db)

    def _new_id(self, number: int | None) -> str:
        process = self.conductor.processes[number] if number is not None else None
        if process is None:
            return str(uuids.uuid7())
        process.made += 1
        return f"01980000-0000-7000-8000-{number:04x}{process.made:08x}"

    @contextlib.contextmanager
    def opened(self, world: World, *, look_only: bool, create: bool = False) -> Iterator[Store]:
        yield self.store()

    def _watch(self, db: apsw.Connection) -> None:
        def before(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
            process = self.conductor.current()
            if process is not None:
                self._statement(process, db, sql.strip())
                if sql.startswith("INSERT INTO events"):
                    self._written = bindings[1]
            return True

        db.exec_trace = before

    def _statement(self, process: Process, db: apsw.Connection, sql: str) -> None:
        if process.dying:
            if sql.startswith(("ROLLBACK", "SELECT")):
                return
            raise apsw.AbortError("the dead write nothing")
        if sql.startswith("COMMIT"):
            self.conductor.pause("commit", "nothing")
            self._judge_commit(process)
            self.writer, self._database = None, None
        elif sql.startswith("ROLLBACK"):
            self.writer = None if self.writer is process else self.writer
        elif db.in_transaction:
            return
        elif sql.startswith(WRITES):
            self.conductor.pause("write log", "log")
            self.writer = process if sql.startswith("BEGIN") else None
            self._database, self._written = None, self.id
        elif sql.startswith("SELECT generation"):
            self.conductor.pause("look at generation", "generation")
        elif sql.startswith(("SELECT", "BEGIN")):
            self.conductor.pause("look at log", "log")

    def database(self) -> tuple[tuple[Any, ...], ...]:
        if self._database is None:
            db = self._stores[None].db
            rows = db.execute(
                "SELECT session_id, generation, (SELECT max(mac) FROM events WHERE id ="
                " (SELECT max(id) FROM events WHERE id >> 40 = s.number)) FROM sessions s ORDER BY number"
            )
            self._database = tuple(rows)
        return self._database

    # For the conductor.

    def anchor_files(self) -> list[Path]:
        """Without the directory in which the open sessions are listed."""
        return sorted(path for path in self.anchors.iterdir() if path.is_file())

    def reset(self) -> None:
        self.files.__init__()  # type: ignore[misc]
        self.problems, self.acknowledged, self.anchored_at_once, self.owners = [], {}, {}, {}
        self.writer, self._database, self._anchored, self.strangers = None, None, None, {}
        for path in self.locks.iterdir():
            path.unlink()
        db = self._stores[None].db
        db.execute("BEGIN IMMEDIATE")
        for table in ("events", "checkpoints"):
            db.execute(f"DELETE FROM {table} WHERE seq >= ? OR session_id != ?", (self.first_free, self.id))
        db.execute("DELETE FROM sessions WHERE session_id != ?", (self.id,))
        db.execute("UPDATE sessions SET generation = 1")
        db.execute("COMMIT")
        if self.anchors.exists():
            for path in self.anchor_files():
                path.unlink()
        seal.write_anchor(self.anchors, self.first_anchor, durable=False)

    def appearance(self, part: str) -> Hashable:
        match part.split():
            case ["exists" | "text" | "locked" as kind, name]:
                return self.files.part(kind, name)
            case ["generation"]:
                return tuple(row[1] for row in self.database())
            case ["log"]:
                return self.database()
            case ["anchor"]:
                return self._anchor()
            case _:
                return None

    def _anchor(self) -> Hashable:
        if self._anchored is None:
            found = [read_anchor(self.anchors, path.name) for path in self.anchor_files()]
            self._anchored = tuple((one.session_id, one.seq, one.head) for one in found if one)
        return self._anchored

    def all_parts(self) -> Hashable:
        writer = self.writer.number if self.writer else None
        return self.files.parts(), self.database(), self._anchor(), writer, tuple(sorted(self.owners.items()))

    def blocked(self, process: Process) -> bool:
        return process.next == "write log" and self.writer is not None

    def bury(self, process: Process) -> None:
        self.files.close_all_of(process)
        for name in [name for name, owner in self.owners.items() if owner == process.number]:
            del self.owners[name]
        if self.writer is process:
            self.writer = None
        self._database = None

    # What must hold.

    def _judge_commit(self, process: Process) -> None:
        """Whoever commits to a log holds the lock of the generation that it is at from then on."""
        query = "SELECT generation FROM sessions WHERE session_id = ?"
        ((generation,),) = self.store().db.execute(query, (self._written,))
        if self.owners.get(f"{self._written}.{generation}") != process.number:
            self.problems.append("a process appends without owning the session")

    def acknowledge(self, session_id: str, seq: int) -> None:
        if self.conductor.current() is None:
            return
        store = self._stores[None]
        row = store.db.execute("SELECT mac FROM events WHERE id = ?", (store.base(session_id) + seq,)).fetchone()
        self.acknowledged[session_id, seq] = row[0] if row else b"nothing stands there yet"

    def judge(self) -> list[str]:
        """All have ended or died: nothing acknowledged is lost, the way is free for the next one, the log is whole."""
        return [problem for session_id, *_ in self.database() for problem in self._judged(session_id)]

    def _judged(self, session_id: str) -> list[str]:
        problems = []
        rows = {seq: mac for seq, _, mac in self._stores[None].rows(session_id)}
        said = {seq: mac for (one, seq), mac in self.acknowledged.items() if one == session_id}
        if any(rows.get(seq) != mac for seq, mac in said.items()):
            problems.append("something acknowledged is lost")
        anchor = seal.read_anchor(self.anchors, session_id)
        if (anchor.seq if anchor else 0) < self.anchored_at_once.get(session_id, 0):
            problems.append("the anchor went back")
        try:
            with held_session.held(self.for_process(None), session_id, ended_ok=True) as run:
                run.append(ev.CheckpointCreated(label="after all"))
            verified = self.store().verify(session_id)
            problems += [f"the log is not whole: {one.code}" for one in verified.problems]
        except AcodeError as error:
            problems.append(f"the next one is refused: {type(error).__name__}")
        return problems

    def for_process(self, process: Process | None, session_id: str | None = None) -> World:
        """The world as one process sees it; a session that it begins in it gets this id."""
        named = session_id or self.id
        return msgspec.structs.replace(self.world, listener=Listener(self, named), new_id=lambda: named)

    def newest(self) -> str:
        """As a command that names no session finds it."""
        return self.store().session_ids()[-1]

    def bound(self, life: Callable[[LockStage, Process], str]) -> Callable[[Process], str]:
        return lambda process: life(self, process)

    def close(self) -> None:
        self.conductor.dismiss()
        for store in self._stores.values():
            with contextlib.suppress(AcodeError, apsw.Error):
                store.close()
