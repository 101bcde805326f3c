"""Our side of the shared copy: who this workspace is to others, and its log as an outbox."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from acode import lock as locks
from acode.disk.private_files import write_private
from acode.engine.world import World
from acode.errors import AcodeError
from acode.state import State
from acode.store import sync_cursor
from acode.store.journal import stamp
from acode.store.store import Store
from acode.sync.exchange import Batch
from acode.sync.postgres import About
from acode.sync.signed_end import SignedEnd, read_end, sign_end

BATCH_ROWS_MAX = 2_000
BATCH_BYTES_MAX = 4 * 1_048_576
NODE_BYTES = 16
CLEAN = (State.PAUSED, State.AWAITING_APPROVAL, State.COMPLETED, State.FAILED, State.CANCELLED)


def node_of(state_dir: Path, workspace: Path) -> str:
    """The name of this user's workspace on this machine. A copied workspace is another node, and so is a moved one."""
    machine = locks.machine_id()
    known = hashlib.sha256(b"acode node\0" + machine.encode()).hexdigest()[:NODE_BYTES] if machine else ""
    place = os.fsencode(os.path.realpath(workspace))
    return hashlib.sha256(name_on(state_dir / "node", known) + b"\n\0" + place).hexdigest()[:24]


def name_on(path: Path, machine: str) -> bytes:
    """A state directory that was copied here, with its keys, brings the name of the machine it comes from: two with
    one name would both hold its leases. Where a machine does not say who it is, the name stays with the directory."""
    if not path.exists():
        write_private(path, _named(os.urandom(NODE_BYTES).hex(), machine), exclusive=True)
    name, noted = path.read_text(encoding="ascii").strip().partition(" ")[::2]
    if machine and noted != machine:
        name = os.urandom(NODE_BYTES).hex() if noted else name
        write_private(path, _named(name, machine))
        return name_on(path, machine)  # as it stands there: another process may have named it at the same time
    return name.encode()


def _named(name: str, machine: str) -> bytes:
    return f"{name} {machine}".strip().encode() + b"\n"


@contextlib.contextmanager
def alone(world: World, store: Store, session_id: str) -> Iterator[None]:
    """Nobody works on it here meanwhile."""
    if not store.has(session_id):
        yield
        return
    lock, _ = locks.acquire(
        world.agent_dir / "locks", session_id, lambda: store.generation(session_id), now=world.clock
    )
    try:
        yield
    finally:
        lock.release()


def describe_holder(world: World) -> str:
    """The owner in words: a worker by its name."""
    if world.lease is not None and world.lease.holder:
        return world.lease.holder
    return f"{locks.user_name()} on {locks.host_name()}"


class SessionOutbox:
    """The log of one session, up to the last event that others may hear of."""

    def __init__(self, store: Store, session_id: str, through: int) -> None:
        self._store = store
        self._session_id = session_id
        self._through = through

    def code_at(self, seq: int) -> bytes | None:
        return sync_cursor.code_at(self._store, self._session_id, seq)

    def sign(self, seq: int, head: bytes) -> bytes | None:
        return sign_end(self._store.keyring, self._session_id, seq, head)

    def signed_end(self, signed: bytes | None) -> SignedEnd | None:
        return read_end(self._store.keyring, self._session_id, signed)

    def batch(self, after: int) -> Batch:
        """Consecutive events, few enough for memory; checkpoints and snapshots that were made for them go along."""
        with self._store.one_view():
            events, size = [], 0
            for row in sync_cursor.owed(self._store, self._session_id, after, self._through, BATCH_ROWS_MAX):
                events.append(row)
                size += len(row[2])
                if size >= BATCH_BYTES_MAX:
                    break
            if not events:
                return Batch()
            span = (self._session_id, after, events[-1][0])
            return Batch(
                events=events,
                checkpoints=sync_cursor.sealed_rows(self._store, "checkpoints", *span),
                snapshots=sync_cursor.sealed_rows(self._store, "snapshots", *span),
            )


def about(store: Store, session_id: str) -> About | None:
    """The list's fields of the session; None where its log cannot be read, which is reported elsewhere."""
    try:
        session, _ = store.peek(session_id)
    except AcodeError:
        return None
    return About(
        title=session.title,
        state=str(session.state),
        source=session.source,
        steps_done=session.steps_done,
        steps_total=session.steps_total,
        created_at=stamp(session.created_at),
        updated_at=stamp(session.updated_at),
    )


def ended_cleanly(store: Store, session_id: str, *, keep: bool = False) -> bool:
    """Whether another machine may have it without asking: it waits or has ended, and no evidence is only here.

    A task of an agent's that is in the middle leaves none: its steps do. `keep`: one that waits stays ours.
    """
    session, _ = store.peek(session_id)
    clean = session.terminal if keep else session.state in CLEAN
    return clean and all(map(session.is_open_task, session.in_flight))


# A server that was restored from an older backup.


def doubted_since_s(state_dir: Path, server: str) -> float | None:
    """When this server was last found to have lost what it held, by its own clock; None: never."""
    try:
        return float(_server_file(state_dir, server)[0])
    except (IndexError, ValueError):
        return None


def note_restored(state_dir: Path, server: str, at_s: float, missing: Collection[str] = ()) -> None:
    """Known to all workspaces of this user: of a session that was given back, such a server may know too little."""
    write_private(state_dir / "servers" / server, "\n".join([repr(at_s), *sorted(missing), ""]).encode("ascii"))


def note_comparison(
    state_dir: Path, server: str, clock_s: Callable[[], float], *, compared: Collection[str], lost: Collection[str]
) -> None:
    """Note the sessions of which the server has lost rows. A loss that was noted before is not a new one: a session
    that a machine has held there since is not doubted again because of it.
    """
    noted = set(_server_file(state_dir, server)[1:])
    since = doubted_since_s(state_dir, server)
    missing = (noted - set(compared)) | set(lost)
    if since is None or not noted.issuperset(lost):
        since = clock_s() if lost else None
    if since is not None and (missing != noted or lost):
        note_restored(state_dir, server, since, missing)


def _server_file(state_dir: Path, server: str) -> list[str]:
    try:
        return (state_dir / "servers" / server).read_text(encoding="ascii").split()
    except (FileNotFoundError, ValueError):
        return []
