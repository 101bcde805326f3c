"""The fleet at a glance: one look for `acode fleet status` and for the page."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from acode.engine.world import World, short
from acode.errors import ApprovalDenied, InputRequired, OutcomeUnknown
from acode.fleet.repairs import REPAIRED_FIRST
from acode.fleet.schedule import ESCALATED, HELD
from acode.fleet.server import OPEN, FleetServer, Member, opened_fleet
from acode.fleet.timetable import Entry, entries
from acode.hints import Action, Approve, Command, Hint, Resolve
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


RETRY = Command("fleet retry SESSION")
RETRY_ANYWAY = Command("fleet retry SESSION --force --reason TEXT")
WAYS: Final[dict[int, tuple[str, tuple[Action, ...]]]] = {
    InputRequired.exit_code: ("{}", (Approve(or_deny=True),)),
    ApprovalDenied.exit_code: ("{}, or {}", (Approve(), Command("fleet cancel SESSION"))),
    HELD: ("{} in each workspace that has it, then {}", (Command("sync now"), RETRY_ANYWAY)),
    ESCALATED: ("{}", (RETRY_ANYWAY,)),
}


def way_of(member: Member) -> Hint:
    """The next action of a person, by the reason for which it was parked."""
    return way(member.ended_with, member.next_action, of=short(member.session_id))


def way(ended_with: int | None, next_action: str, *, of: str) -> Hint:
    if ended_with == OutcomeUnknown.exit_code:  # the attempt that has ended knows the step
        return Hint("{}", next_action or Resolve("STEP"), of=of)
    if ended_with in REPAIRED_FIRST:
        return Hint("first {}; then {}", next_action or "repair what is named", RETRY, of=of)
    text, actions = WAYS.get(ended_with or 0, ("{}", (RETRY,)))
    return Hint(text, *actions, of=of)
