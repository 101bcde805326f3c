"""A person's answer to a session of the fleet, from any machine: the event and what follows in one transaction.

The session comes here from the server into a place of its own, the answer is recorded as everywhere, and goes back with
the next job; nothing of it stays. A worker that has moved the session on meanwhile has changed its end on the server,
which is compared under the row's lock: then nothing is recorded.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from acode import seal
from acode.engine.survey import step_named
from acode.engine.workspace_store import has_database, opened, resolve_id
from acode.engine.world import StopSwitch, World, short
from acode.errors import AcodeError, LeaseLost, NotInFleet, Usage
from acode.events.definition import Run
from acode.fleet.furnish import furnish
from acode.fleet.server import FleetServer, Member, opened_fleet
from acode.hints import Command, Hint, Resolve
from acode.state import Session
from acode.store import sync_cursor
from acode.store.session_index import find_session
from acode.store.store import Store
from acode.sync.outbox import SessionOutbox, about, node_of
from acode.sync.take_over import bring

WAITING = ("parked", "queued", "waiting")  # no worker has it
CANDIDATES_MAX = 5
STATE_OF_END = {"COMPLETED": "done", "FAILED": "failed", "CANCELLED": "cancelled"}


def find_member(server: FleetServer, text: str) -> Member:
    found = server.ledger.named_by(text)
    return server.member(find_session(found or server.ledger.latest_ids(CANDIDATES_MAX)[::-1], text))


def is_here(world: World, text: str) -> bool:
    """Whether this workspace has the session itself: then it is answered as ever. A copy of a session of the fleet was
    brought here to look at it, and is answered on the server like one that nobody has here."""
    if not has_database(world):
        return False
    try:
        with opened(world, look_only=True) as store:
            session_id = resolve_id(world, store, text)
            copied = sync_cursor.cursor_of(store, session_id).standing == "copy"
    except AcodeError:
        return False
    return not copied or not is_in_fleet(world, session_id)


def is_in_fleet(world: World, session_id: str) -> bool:
    """As far as the server says; without it, the copy is refused with the reason."""
    try:
        with opened_fleet(world) as server:
            server.member(session_id)
    except AcodeError:
        return False
    return True


def answer(
    world: World,
    text: str,
    say: Callable[[World, str], Session],
    *,
    goes_on: bool = True,
    applied: str | None = None,
) -> tuple[Session, bool]:
    """Record what a person says about a session that no worker has; and whether its next attempt was queued with it.

    `goes_on`: there is something to do behind it. A no leaves the session parked: an attempt would only ask again.
    `applied`: a step that is taken as done. Its end is recorded with the files, so they must be here as on record:
    else it would have removed them all.
    """
    with opened_fleet(world) as server:
        member = find_member(server, text)
        if member.state not in WAITING:
            name = short(member.session_id)
            see = "See: {}; to end it: {}" if member.state == "running" else "See: {}"
            raise LeaseLost(
                f"session {name} is {member.state}: it does not wait for an answer",
                hint=Hint(see, Command("fleet status"), Command("fleet cancel SESSION"), of=name),
            )
        with scratch_world(world) as there:
            bring(there, member.session_id, own=False)
            before = make_writable(there, member.session_id)
            if applied is not None:
                refuse_files_of_elsewhere(there, member.session_id, applied)
                furnish(there, member.session_id, member.source)
            session = say(there, member.session_id)
            return session, put_back(server, there, member, before, goes_on=goes_on)


def refuse_files_of_elsewhere(world: World, session_id: str, step_id: str) -> None:
    """The files that a cut-off command left are on the machine of its worker, if anywhere."""
    with opened(world, look_only=True) as store:
        session = store.load(session_id).session
    open_step = step_id in session.in_flight or session.record(step_id) is not None
    action = step_named(session, step_id).action if open_step else None
    if isinstance(action, Run) and action.outputs:
        raise Usage(
            f"step {step_id} leaves files, {', '.join(action.outputs)}, and those of a cut-off command do not travel:"
            " it cannot be taken as done",
            hint=Hint("Have it done again: {}", Resolve(step_id, "--retry"), of=short(session_id)),
        )


@contextlib.contextmanager
def scratch_world(world: World) -> Iterator[World]:
    """A workspace and a state directory of their own, with the keys of this machine."""
    with tempfile.TemporaryDirectory(prefix="acode-answer-") as place:
        state, workspace = Path(place) / "state", Path(place) / "workspace"
        state.mkdir(mode=0o700)
        workspace.mkdir(mode=0o700)
        if seal.key_file(world.state_dir).exists():
            seal.import_keys(state, seal.export_keys(world.state_dir))
        yield msgspec.structs.replace(
            world,
            workspace=workspace,
            state_dir=state,
            confirm_ownership=lambda store, session_id, must: None,
            stop=StopSwitch(world.monotonic, 0.0),
        )


def make_writable(world: World, session_id: str) -> int:
    """The end of the log as it came. What is written behind it counts only if the server still has that end."""
    with opened(world, look_only=False) as store:
        sync_cursor.change_cursor(store, session_id, standing="owner", holder="")
        return sync_cursor.last_seq(store, session_id)


def put_back(server: FleetServer, world: World, member: Member, before: int, *, goes_on: bool) -> bool:
    """The new events, the end of the session or its next job: all of it, or nothing. Whether a job was queued."""
    session_id, ledger = member.session_id, server.ledger
    with opened(world, look_only=False) as store:
        sync_cursor.make_durable(store)
        for sha256, purpose in ledger.lacks(session_id, sync_cursor.shared_blobs(store, session_id)):
            ledger.put_blob(session_id, sha256, purpose, store.blob(session_id, sha256))
        with server.transaction():
            now = append_if_unmoved(server, world, store, member, before)
            session = store.peek(session_id)[0]
            if session.terminal:
                if now.job is not None:
                    server.queue.finish(now.job, None)
                server.close(now, STATE_OF_END[str(session.state)], code=0)
                return False
            if goes_on and now.state == "parked":
                server.enqueue(now)
            return goes_on


def append_if_unmoved(server: FleetServer, world: World, store: Store, member: Member, before: int) -> Member:
    """In the caller's transaction, with the rows locked."""
    session_id, ledger = member.session_id, server.ledger
    last = sync_cursor.last_seq(store, session_id)
    box = SessionOutbox(store, session_id, last)
    now, remote = server.locked_member(session_id), ledger.look(session_id)
    if now is None or remote is None:
        raise NotInFleet(f"session {short(session_id)} is not in the fleet any more")
    if now.state not in WAITING or (remote.owner, remote.seq, remote.head) != (None, before, box.code_at(before)):
        raise LeaseLost(
            f"session {short(session_id)} was continued meanwhile: nothing was recorded",
            hint=Hint("Look at it again: {}", Command("fleet status")),
            holder=remote.holder,
        )
    batch = box.batch(before)
    if batch.events:
        seq, head = batch.events[-1][0], batch.events[-1][3]
        lease = msgspec.structs.replace(
            remote,
            generation=remote.generation + 1,
            seq=seq,
            head=head,
            last=node_of(world.state_dir, world.workspace),
            signed=box.sign(seq, head),
            lease_s=None,
        )
        ledger.put(session_id, lease, new=False)
        ledger.append(session_id, batch)
    shown = about(store, session_id)
    if shown is not None:
        ledger.describe_new(session_id, shown)
    return now


def cancel(world: World, text: str, reason: str, end: Callable[[World, str], Session]) -> tuple[Member, Session | None]:
    """End a session of the fleet; None: a worker has it, and ends it at its next boundary."""
    with opened_fleet(world) as server:
        member = find_member(server, text)
        with server.transaction():
            now = server.locked_member(member.session_id)
            if now is not None and now.state == "running":
                server.ask_to_cancel(member.session_id, reason or "cancelled")
                return now, None
    if member.state not in WAITING:
        raise NotInFleet(f"session {short(member.session_id)} is {member.state} already")
    return member, answer(world, member.session_id, end)[0]


def retry(world: World, text: str, *, force: str | None) -> Member:
    """A person wants a parked session to be tried again: the next attempt is that person's, not the policy's."""
    with opened_fleet(world) as server:
        member = find_member(server, text)
        with server.transaction():
            now = server.locked_member(member.session_id)
            if now is None or now.state != "parked":
                state = now.state if now is not None else "gone"
                raise NotInFleet(f"session {short(member.session_id)} is {state}, not parked")
            server.enqueue(now, by="user", force=force)
    return member
