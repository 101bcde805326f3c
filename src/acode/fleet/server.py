"""The fleet on the server: one row per session beside its log, and one transaction for every change of both.

A session that is queued has exactly one job; one that is parked, waits for its key or is over has none. So a worker
that is killed between two statements leaves either the state before or the state after.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from acode.engine.world import World
from acode.errors import NotInFleet
from acode.fleet.procrastinate_queue import ProcrastinateQueue
from acode.fleet.queue import Job, NewJob, Queue, queue_name
from acode.fleet.schedule import Again, Outcome, Over, Parked, after_deaths
from acode.sync.postgres import PostgresLedger, translated
from acode.sync.push_now import connected

SOON_S = 0.05
OPEN = ("queued", "running", "waiting", "parked")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A session of the fleet."""

    session_id: str
    state: str
    queue: str
    priority: int
    labels: list[str]
    key: str | None
    source: dict[str, Any]
    job: int | None
    worker: int | None
    attempts: int
    deaths: int
    cancel_reason: str | None
    ended_with: int | None
    reason: str
    next_action: str
    due_at: datetime | None
    submitted_at: datetime
    changed_at: datetime


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that a worker renews."""

    session_id: str
    node: str
    generation: int


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a renewal: which leases are still ours, and what people want."""

    worker: int
    confirmed: frozenset[str]
    cancelled: dict[str, str]
    drain: bool


class Requeued(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of the dead that were moved, and when the next lease ends of a worker that is silent."""

    moved: list[tuple[str, Outcome]]
    next_in_s: float | None


_NAMES = ", ".join(Member.__struct_fields__)


@contextlib.contextmanager
def opened_fleet(world: World, give_up: Callable[[], bool] | None = None) -> Iterator[FleetServer]:
    with connected(world, give_up) as ledger:
        server = FleetServer(ledger)
        server.queue.prepare()
        yield server


class FleetServer:
    """One connection: the ledger of the shared copy, the queue, and the rows that bind them."""

    def __init__(self, ledger: PostgresLedger) -> None:
        self.ledger = ledger
        self.queue: Queue = ProcrastinateQueue(ledger.connection)
        self._execute = ledger.connection.execute

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self.ledger.transaction():
            yield

    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.ledger.clock_s(), UTC)

    # Sessions.

    def add(self, member: NewMember) -> int:
        """With its log, in the caller's transaction."""
        self._execute(
            "INSERT INTO acode_fleet_sessions(session_id, state, queue, priority, labels, key, source, due_at)"
            " VALUES (%s, 'queued', %s, %s, %s, %s, %s, %s)",
            (
                *(member.session_id, member.queue, member.priority, list(member.labels), member.key),
                *(_json(member.source), member.due_at),
            ),
        )
        return self._put(member.session_id, member.queue, member.labels, member.priority, due_at=member.due_at)

    def member(self, session_id: str) -> Member:
        found = self._members("WHERE session_id = %s", session_id)
        if not found:
            raise NotInFleet(f"session {session_id[-8:]} was not submitted to the fleet")
        return found[0]

    def locked_member(self, session_id: str) -> Member | None:
        """Of a session of the fleet; nobody changes it until the end of the transaction."""
        found = self._members("WHERE session_id = %s FOR UPDATE", session_id)
        return found[0] if found else None

    def members(self, states: Sequence[str], limit: int) -> list[Member]:
        return self._members("WHERE state = ANY(%s) ORDER BY changed_at DESC LIMIT %s", list(states), limit)

    def _members(self, where: str, *values: object) -> list[Member]:
        with translated(self.ledger.url):
            rows = self._execute(f"SELECT {_NAMES} FROM acode_fleet_sessions {where}".encode(), values).fetchall()
        names = Member.__struct_fields__
        return [msgspec.convert(dict(zip(names, row, strict=True)), Member) for row in rows]

    def counts(self) -> dict[str, int]:
        """Open sessions by their state; those that are over are only kept."""
        with translated(self.ledger.url):
            rows = self._execute(
                "SELECT state, count(*) FROM acode_fleet_sessions"
                " WHERE state IN ('queued', 'running', 'waiting', 'parked') GROUP BY state"
            ).fetchall()
        return dict.fromkeys(OPEN, 0) | {str(state): int(number) for state, number in rows}

    def _put(
        self,
        session_id: str,
        queue: str,
        labels: Sequence[str],
        priority: int,
        *,
        due_at: datetime | None = None,
        by: str = "system",
        force: str | None = None,
    ) -> int:
        new = NewJob(
            session_id=session_id,
            queue=queue_name(queue, labels),
            priority=priority,
            due_at=due_at,
            by=by,
            force=force,
        )
        job = self.queue.put(new)
        self._execute(
            "UPDATE acode_fleet_sessions SET state = 'queued', job = %s, due_at = %s, changed_at = clock_timestamp()"
            " WHERE session_id = %s",
            (job, due_at, session_id),
        )
        return job

    def enqueue(
        self,
        member: Member,
        *,
        after_s: float = 0.0,
        by: str = "system",
        force: str | None = None,
        due_at: datetime | None = None,
    ) -> int:
        """The next attempt, in the caller's transaction."""
        if after_s > 0:
            due_at = self.clock() + timedelta(seconds=after_s)
        return self._put(
            member.session_id, member.queue, member.labels, member.priority, due_at=due_at, by=by, force=force
        )

    # An attempt.

    def begin(self, job: Job, worker: int) -> Member | None:
        """The session is this worker's to move on; None: it is not wanted, or another has its key. Then its job is
        gone, and the key's next holder is queued when the key is free."""
        with self.transaction():
            member = self.locked_member(job.session_id)
            if member is None or member.state != "queued" or member.job != job.id:
                self.queue.finish(job.id, worker)
                return None
            if member.key is not None and not self._get_key(member.key, member.session_id):
                self.queue.finish(job.id, worker)
                self._change(member.session_id, "waiting", reason=f"another session has the key {member.key}")
                return None
            self._execute(
                "UPDATE acode_fleet_sessions SET state = 'running', worker = %s, attempts = attempts + 1,"
                " due_at = NULL, reason = '', next_action = '', changed_at = clock_timestamp() WHERE session_id = %s",
                (worker, member.session_id),
            )
            return member

    def _get_key(self, key: str, session_id: str) -> bool:
        self._execute(
            "INSERT INTO acode_fleet_keys(key, session_id) VALUES (%s, %s) ON CONFLICT DO NOTHING", (key, session_id)
        )
        row = self._execute("SELECT session_id FROM acode_fleet_keys WHERE key = %s", (key,)).fetchone()
        return row is not None and row[0] == session_id

    def end(self, job: Job, worker: int | None, outcome: Outcome) -> Outcome | None:
        """Record how the attempt ended, and queue what follows; None: the job is another worker's by now, and this
        one has nothing more to say. The outcome may become another, where workers have died too often."""
        with self.transaction():
            return self._end(job, worker, outcome)

    def _end(self, job: Job, worker: int | None, outcome: Outcome) -> Outcome | None:
        if not self.queue.finish(job.id, worker):
            return None
        member = self.locked_member(job.session_id)
        if member is None or member.job != job.id:
            return None
        outcome = after_deaths(outcome, self._count_death(member, outcome))
        if member.cancel_reason is not None and isinstance(outcome, Again):
            outcome = Parked(exit_code=15, why="it is to be cancelled")
        match outcome:
            case Again(after_s=after_s, why=why):
                self.enqueue(member, after_s=after_s)
                self._execute(
                    "UPDATE acode_fleet_sessions SET reason = %s WHERE session_id = %s", (why, member.session_id)
                )
            case Parked(exit_code=code, why=why, next_action=way):
                self._change(member.session_id, "parked", code=code, reason=why, way=way)
            case Over(state=state, exit_code=code, why=why):
                self.close(member, state, code=code, why=why)
        return outcome

    def _count_death(self, member: Member, outcome: Outcome) -> int:
        """How many have died with it since it last came further."""
        if not (isinstance(outcome, Again) and outcome.died):
            return member.deaths
        row = self._execute(
            "UPDATE acode_fleet_sessions f"
            " SET deaths = CASE WHEN s.steps_done > f.progress THEN 1 ELSE f.deaths + 1 END,"
            " progress = greatest(f.progress, s.steps_done)"
            " FROM acode_sessions s WHERE s.session_id = f.session_id AND f.session_id = %s RETURNING f.deaths",
            (member.session_id,),
        ).fetchone()
        return int(row[0]) if row is not None else member.deaths

    def _change(self, session_id: str, state: str, *, code: int | None = None, reason: str = "", way: str = "") -> None:
        self._execute(
            "UPDATE acode_fleet_sessions SET state = %s, job = NULL, due_at = NULL, ended_with = %s, reason = %s,"
            " next_action = %s, changed_at = clock_timestamp() WHERE session_id = %s",
            (state, code, reason, way, session_id),
        )

    def park(self, member: Member, parked: Parked) -> None:
        self._change(member.session_id, "parked", code=parked.exit_code, reason=parked.why, way=parked.next_action)

    def close(self, member: Member, state: str, *, code: int, why: str = "") -> None:
        """It is over: its key goes to the session that has waited longest for it."""
        self._change(member.session_id, state, code=code, reason=why)
        self._execute("DELETE FROM acode_fleet_keys WHERE session_id = %s", (member.session_id,))
        if member.key is None:
            return
        waiting = self._members(
            "WHERE state = 'waiting' AND key = %s ORDER BY priority DESC, submitted_at LIMIT 1 FOR UPDATE", member.key
        )
        if waiting:
            self.enqueue(waiting[0])

    # Workers.

    def renew(self, worker: int | None, held: Sequence[Held], about: dict[str, Any]) -> Renewed:
        """All leases of a worker, and its sign of life, in one transaction; times are the server's."""
        with self.transaction():
            number = self.queue.beat(worker)
            self._execute(
                "INSERT INTO acode_fleet_workers(worker, name, host, queues, labels, slots, lease_seconds, version)"
                " VALUES (%(worker)s, %(name)s, %(host)s, %(queues)s, %(labels)s, %(slots)s, %(lease_s)s, %(version)s)"
                " ON CONFLICT (worker) DO UPDATE SET seen_at = clock_timestamp()",
                {"worker": number, **about},
            )
            confirmed = self._execute(
                "UPDATE acode_sessions s SET renewed_at = clock_timestamp()"
                " FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS mine(id, node, generation)"
                " WHERE s.session_id = mine.id AND s.owner = mine.node AND s.generation = mine.generation"
                " RETURNING s.session_id",
                (
                    [one.session_id for one in held],
                    [one.node for one in held],
                    [one.generation for one in held],
                ),
            ).fetchall()
            cancelled = self._execute(
                "SELECT session_id, cancel_reason FROM acode_fleet_sessions"
                " WHERE session_id = ANY(%s) AND cancel_reason IS NOT NULL",
                ([one.session_id for one in held],),
            ).fetchall()
            drain = self._execute("SELECT drain FROM acode_fleet_workers WHERE worker = %s", (number,)).fetchone()
        return Renewed(
            worker=number,
            confirmed=frozenset(one for (one,) in confirmed),
            cancelled=dict(cancelled),
            drain=bool(drain and drain[0]),
        )

    def requeue_stalled(self, lease_s: float) -> Requeued:
        """Sessions of workers that were not heard of, whose lease has ended by the server's clock, on a server that
        has been up for longer than a lease: all three, or an outage would take work from the living."""
        moved: list[tuple[str, Outcome]] = []
        waits: list[float] = []
        with translated(self.ledger.url):
            silent = self.queue.stalled(lease_s / 2)
            dead = {job.id for job in self.queue.stalled(lease_s)} if silent else set()
        for job in silent:
            with self.transaction():
                remote = self.ledger.look(job.session_id)
                if remote is None:
                    continue
                held_s = (remote.ends_in_s() or 0.0) if remote.owner is not None else 0.0
                wait_s = max(held_s, lease_s - remote.up_s)
                if wait_s > 0 or job.id not in dead:
                    waits.append(max(wait_s, SOON_S))
                    continue
                why = "its worker was not heard of any more"
                outcome = self._end(job, job.worker, Again(after_s=0.0, why=why, died=True))
                if outcome is not None:
                    moved.append((job.session_id, outcome))
        return Requeued(moved=moved, next_in_s=min(waits, default=None))

    def requeue_unheard(self, worker: int, known: Container[int]) -> list[str]:
        """Sessions that this worker was given in an answer that never came, because the line broke behind the commit:
        it lives, so nobody else would take them from it. `known`: the jobs that it works on."""
        moved = []
        with translated(self.ledger.url):
            taken = [job for job in self.queue.stalled(0.0) if job.worker == worker and job.id not in known]
        for job in taken:
            with self.transaction():
                if self._end(job, worker, Again(after_s=0.0, why="its worker has not heard of it")) is not None:
                    moved.append(job.session_id)
        return moved

    def leave(self, worker: int) -> None:
        with self.transaction():
            self._execute("DELETE FROM acode_fleet_workers WHERE worker = %s", (worker,))
            self.queue.leave(worker)

    def forget_dead_workers(self, seconds: float) -> None:
        """Those that have no job any more; one that was only frozen comes back under a new number."""
        with self.transaction():
            rows = self._execute(
                "SELECT worker FROM acode_fleet_workers w WHERE seen_at < clock_timestamp() - make_interval(secs => %s)"
                " AND NOT EXISTS (SELECT 1 FROM acode_fleet_sessions f WHERE f.worker = w.worker"
                " AND f.state = 'running') FOR UPDATE SKIP LOCKED",
                (seconds,),
            ).fetchall()
            for (worker,) in rows:
                self._execute("DELETE FROM acode_fleet_workers WHERE worker = %s", (worker,))
                self.queue.leave(worker)

    def paused_queues(self) -> set[str]:
        with translated(self.ledger.url):
            return {str(name) for (name,) in self._execute("SELECT queue FROM acode_fleet_paused").fetchall()}

    def pause_queue(self, queue: str) -> None:
        with self.transaction():
            self._execute("INSERT INTO acode_fleet_paused(queue) VALUES (%s) ON CONFLICT DO NOTHING", (queue,))

    def resume_queue(self, queue: str) -> bool:
        with self.transaction():
            gone = self._execute("DELETE FROM acode_fleet_paused WHERE queue = %s", (queue,))
            self._execute("SELECT pg_notify('procrastinate_any_queue_v1', '{}')")
        return gone.rowcount == 1

    def workers(self) -> list[dict[str, Any]]:
        names = "worker, name, host, queues, labels, slots, lease_seconds, version, drain, started_at, seen_at"
        query = f"""
SELECT {names}, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS silent_s,
  (SELECT count(*) FROM acode_fleet_sessions f WHERE f.worker = w.worker AND f.state = 'running') AS running
FROM acode_fleet_workers w ORDER BY name, worker"""
        with translated(self.ledger.url):
            rows = self._execute(query.encode()).fetchall()
        columns = [*names.split(", "), "silent_s", "running"]
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def drain(self, name: str) -> int:
        with self.transaction():
            asked = self._execute(
                "UPDATE acode_fleet_workers SET drain = true WHERE name = %s OR worker::text = %s", (name, name)
            )
        return asked.rowcount

    def ask_to_cancel(self, session_id: str, reason: str) -> None:
        self._execute("UPDATE acode_fleet_sessions SET cancel_reason = %s WHERE session_id = %s", (reason, session_id))


class NewMember(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is submitted."""

    session_id: str
    queue: str
    priority: int
    labels: tuple[str, ...]
    key: str | None
    source: dict[str, Any]
    due_at: datetime | None = None


def _json(value: dict[str, Any]) -> Any:
    from psycopg.types.json import Jsonb

    return Jsonb(value)
