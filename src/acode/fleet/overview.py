"""The fleet at a glance: one look for `acode fleet status` and for the page."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from acode.engine.world import World, short
from acode.fleet.server import OPEN, FleetServer, Member, opened_fleet
from acode.fleet.timetable import Entry, entries
from acode.sync.postgres import SharedSession

SHOWN_MAX = 200


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    counts: dict[str, int]  # open sessions by their state
    paused_queues: list[str]
    members: list[Member]
    about: dict[str, SharedSession]  # titles and progress of those, by session
    workers: list[dict[str, Any]]
    timetable: list[Entry]
    now: datetime  # by the server's clock


def overview(server: FleetServer, limit: int) -> Overview:
    members = server.members(OPEN, limit)
    return Overview(
        counts=server.counts(),
        paused_queues=sorted(server.paused_queues()),
        members=members,
        about={one.session_id: one for one in server.ledger.sessions([one.session_id for one in members])},
        workers=workers_seen(server),
        timetable=entries(server),
        now=server.clock(),
    )


def look_at_fleet(world: World) -> Overview:
    with opened_fleet(world) as server:
        return overview(server, SHOWN_MAX)


def workers_seen(server: FleetServer) -> list[dict[str, Any]]:
    found = server.workers()
    for one in found:
        one["alive"] = one["silent_s"] < one["lease_seconds"]
        one["silent_s"] = round(one["silent_s"], 1)
    return found


def state_of_worker(worker: dict[str, Any]) -> str:
    return "draining" if worker["drain"] else "alive" if worker["alive"] else "silent"


def needs_of(member: Member) -> str:
    """Why it does not continue: of a parked one with the exit status of its last attempt."""
    return f"{member.ended_with}: {member.reason}" if member.state == "parked" else member.reason


def way_of(member: Member) -> str:
    """What a person types next, by the reason for which it was parked."""
    name = short(member.session_id)
    ways = {
        10: f"acode session approve {name} (or deny)",
        12: f"acode session approve {name}, or acode fleet cancel {name}",
        16: f"acode sync now in each workspace that has it, then acode fleet retry {name} --force --reason TEXT",
        18: f"acode fleet retry {name} --force --reason TEXT",
        19: f"acode session resolve {name} STEP --applied, --not-applied or --retry",
    }
    return ways.get(member.ended_with or 0, f"acode fleet retry {name}")
