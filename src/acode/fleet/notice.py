"""Notify a person once that a session is parked: the worker that parked it does, for all machines of the fleet."""

from __future__ import annotations

from acode.engine.world import World, short
from acode.fleet.schedule import Parked
from acode.fleet.server import Member
from acode.log_file import log_of
from acode.notify import Alert, send_alert


def notify_parked(world: World, member: Member, parked: Parked) -> None:
    if world.config.settings.notify.command is None or "parked" not in world.config.settings.notify.on:
        return
    alert = Alert(
        cause="parked",
        event="parked",
        level="warning",
        key=f"{member.attempts} {parked.exit_code}",
        attention="parked",
        data={"exit_code": parked.exit_code, "reason": parked.why, "queue": member.queue, "key": member.key},
        next_action=parked.next_action or f"acode fleet retry {short(member.session_id)}",
    )
    send_alert(world, log_of(world), alert, session_id=member.session_id, title="")
