"""Notify a person once that a session is parked: the worker that parked it does, for all machines of the fleet."""

from __future__ import annotations

from acode.engine.world import short
from acode.fleet.overview import way
from acode.fleet.schedule import Parked
from acode.fleet.server import Member
from acode.notify import Alert, Alerts


def notify_parked(alerts: Alerts, member: Member, parked: Parked) -> None:
    """The worker does not wait: a notify command that hangs must cost no slot and no other session its time."""
    alert = Alert(
        cause="parked",
        event="parked",
        level="warning",
        key=f"{member.attempts} {parked.exit_code}",
        attention="parked",
        data={"exit_code": parked.exit_code, "reason": parked.why, "queue": member.queue, "key": member.key},
        next_action=way(parked.exit_code, parked.next_action, of=short(member.session_id)).as_command(),
    )
    alerts.send(alert, session_id=member.session_id, title="")
