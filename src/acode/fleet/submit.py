"""Submit a plan: the session and its first job, in one transaction on the server.

The log begins in a store of its own that nobody else can see, and is gone when the server has it: a session of a fleet
belongs to no machine until a worker takes its lease.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from acode import seal
from acode.engine.create import creation
from acode.engine.world import World
from acode.errors import StaysAtHome
from acode.events import types as ev
from acode.fleet.server import FleetServer, NewMember, opened_fleet
from acode.fleet.sources import Source, keep_source
from acode.store import sync_cursor
from acode.store.store import Store
from acode.sync.outbox import SessionOutbox, about
from acode.sync.protocol import Remote

if TYPE_CHECKING:
    from acode.planfile import PlanFile


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when a plan is to run."""

    queue: str
    priority: int = 0
    labels: tuple[str, ...] = ()
    key: str | None = None
    source: Source
    due_at: datetime | None = None


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    title: str
    job: int


@contextlib.contextmanager
def scratch_store(world: World) -> Iterator[Store]:
    """A log that is made here and lives on the server alone."""
    with tempfile.TemporaryDirectory(prefix="acode-submit-") as place:
        keyring = seal.load_keyring(world.state_dir, world.env)
        directory = Path(place) / ".agent"
        directory.mkdir(mode=0o700)
        with Store(directory, keyring, clock=world.clock, new_id=world.new_id) as store:
            yield store


def submit(world: World, planfile: PlanFile, wanted: Wanted) -> Submitted:
    """All of it or nothing: a session without a job would never run, a job without a session could not."""
    with scratch_store(world) as store, opened_fleet(world) as server:
        session_id = make_session(world, store, planfile)
        source = keep_source(world, server.ledger, session_id, wanted.source)
        member = member_of(session_id, wanted, msgspec.to_builtins(source))
        with server.transaction():
            job = put_session(server, store, session_id, member)
        title = store.peek(session_id)[0].title
    return Submitted(session_id=session_id, title=title, job=job)


def refuse_secret_plan(world: World, planfile: PlanFile) -> None:
    if creation(world, planfile)[0].plan_sensitive:
        raise StaysAtHome(
            "the plan holds what looks like a secret, and secrets never leave their machine",
            hint="Name the variable with secret_env, and set it where the workers run.",
        )


def make_session(world: World, store: Store, planfile: PlanFile) -> str:
    """Its first events, in a store of its own: the plan, and that nobody has begun it."""
    refuse_secret_plan(world, planfile)
    event, blobs = creation(world, planfile)
    event = msgspec.structs.replace(event, git_head=None, git_branch=None)  # of this directory, not of the worker's
    plan = planfile.plan
    steps = sum(len(task.steps) for task in plan.tasks)
    planned = ev.SessionPlanned(tasks=len(plan.tasks), steps=steps, plan_digest=event.plan_digest)
    session_id = world.new_id()
    journal = store.create(session_id)
    journal.append(event, planned, ev.SessionPaused(reason="submitted"), actor="user", blobs=blobs)
    return session_id


def member_of(session_id: str, wanted: Wanted, source: dict[str, Any]) -> NewMember:
    return NewMember(
        session_id=session_id,
        queue=wanted.queue,
        priority=wanted.priority,
        labels=wanted.labels,
        key=wanted.key,
        source=source,
        due_at=wanted.due_at,
    )


def put_session(server: FleetServer, store: Store, session_id: str, member: NewMember) -> int:
    """The log, the row and the job, in the caller's transaction."""
    last = sync_cursor.last_seq(store, session_id)
    box, ledger = SessionOutbox(store, session_id, last), server.ledger
    batch = box.batch(0)
    head = batch.events[-1][3]
    for sha256, purpose in sync_cursor.shared_blobs(store, session_id):
        ledger.put_blob(session_id, sha256, purpose, store.blob(session_id, sha256))
    lease = Remote(generation=1, owner=None, seq=last, head=head, signed=box.sign(last, head))
    ledger.put(session_id, lease, new=True)
    ledger.append(session_id, batch)
    shown = about(store, session_id)
    assert shown is not None
    ledger.describe_new(session_id, shown)
    return server.add(member)
