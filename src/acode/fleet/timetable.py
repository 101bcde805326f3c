"""Plans that are submitted again and again: a timetable on the server, from which a worker makes the sessions.

The plan is kept as it was submitted. The session, its first job and the next time are one transaction, so that a time
makes one session, whatever dies; times that passed while no worker lived make one session together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from acode.engine.world import World, short
from acode.errors import NotInFleet
from acode.events.definition import Plan
from acode.fleet.cron import next_time, read_cron
from acode.fleet.server import FleetServer, opened_fleet
from acode.fleet.sources import Source, keep_source
from acode.fleet.submit import Wanted, make_session, member_of, put_session, refuse_secret_plan, scratch_store
from acode.planfile import PlanFile
from acode.sync.postgres import translated

DUE_MAX = 20  # in one look


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    schedule_id: str
    title: str
    cron: str
    next_at: datetime
    last_session: str | None
    queue: str


def add_entry(world: World, planfile: PlanFile, wanted: Wanted, cron: str) -> Entry:
    refuse_secret_plan(world, planfile)
    schedule_id = world.new_id()
    with opened_fleet(world) as server:
        source = keep_source(world, server.ledger, schedule_id, wanted.source)
        kept = msgspec.structs.replace(wanted, source=source)
        next_at = next_time(read_cron(cron), server.clock())
        with server.transaction():
            server.ledger.connection.execute(
                "INSERT INTO acode_fleet_schedules(schedule_id, title, cron, next_at, queue, plan, plan_path,"
                " plan_sha256, wanted) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    *(schedule_id, planfile.plan.title, cron, next_at, kept.queue, msgspec.json.encode(planfile.plan)),
                    *(planfile.path, planfile.sha256, msgspec.json.encode(kept)),
                ),
            )
    return Entry(
        schedule_id=schedule_id,
        title=planfile.plan.title,
        cron=cron,
        next_at=next_at,
        last_session=None,
        queue=kept.queue,
    )


def entries(server: FleetServer) -> list[Entry]:
    names = Entry.__struct_fields__
    query = f"SELECT {', '.join(names)} FROM acode_fleet_schedules ORDER BY next_at"
    with translated(server.ledger.url):
        rows = server.ledger.connection.execute(query.encode()).fetchall()
    return [msgspec.convert(dict(zip(names, row, strict=True)), Entry) for row in rows]


def remove_entry(world: World, text: str) -> Entry | None:
    """None: the text names no entry of the timetable."""
    with opened_fleet(world) as server:
        found = [one for one in entries(server) if text in (one.schedule_id, short(one.schedule_id))]
        if not found:
            return None
        with server.transaction():
            gone = server.ledger.connection.execute(
                "DELETE FROM acode_fleet_schedules WHERE schedule_id = %s", (found[0].schedule_id,)
            )
        if gone.rowcount != 1:
            raise NotInFleet(f"{text} was removed meanwhile")
        return found[0]


def submit_due(world: World, server: FleetServer) -> list[str]:
    """The sessions of all entries that are due; each in a transaction of its own."""
    made: list[str] = []
    while len(made) < DUE_MAX:
        with scratch_store(world) as store, server.transaction():
            row = server.ledger.connection.execute(
                "SELECT schedule_id, cron, plan, plan_path, plan_sha256, wanted FROM acode_fleet_schedules"
                " WHERE next_at <= clock_timestamp() ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED"
            ).fetchone()
            if row is None:
                return made
            schedule_id, cron, plan, path, sha256, kept = row
            planfile = PlanFile(plan=msgspec.json.decode(bytes(plan), type=Plan), path=path, sha256=sha256)
            wanted: Wanted = msgspec.json.decode(bytes(kept), type=Wanted)
            session_id = make_session(world, store, planfile)
            put_session(server, store, session_id, member_of(session_id, wanted, _as_kept(wanted.source)))
            server.ledger.connection.execute(
                "UPDATE acode_fleet_schedules SET next_at = %s, last_session = %s WHERE schedule_id = %s",
                (next_time(read_cron(cron), server.clock()), session_id, schedule_id),
            )
            made.append(session_id)
    return made


def _as_kept(source: Source) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(source)
    return plain
