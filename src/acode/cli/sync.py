"""acode sync: push what is pending now, and say how the sessions stand to their shared copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from acode.cli import sync_state
from acode.cli.candidates import all_sessions
from acode.cli.flags import Command, Flags, Group
from acode.cli.screen import Screen
from acode.cli.world import build_world
from acode.config import without_password
from acode.engine.world import World, short
from acode.errors import AcodeError, SyncFailed
from acode.text import one_line
from acode.text.durations import count

if TYPE_CHECKING:
    from acode.sync.push_now import Standing

COMMANDS = {
    "now": ("sync:now", "Push what is pending to the server, now."),
    "status": ("sync:status", "How the sessions stand to their shared copy."),
}
command = Group("sync", table=COMMANDS, help="The shared copy of the sessions in PostgreSQL.")
ID = click.argument("session", metavar="[ID]", required=False, shell_complete=all_sessions)


@click.command(cls=Command, name="now")
@ID
@click.option("--force", is_flag=True, help="Keep the history here where another stands in the way; audited.")
@click.option("--reason", metavar="TEXT", default="", help="Why, for the record.")
@click.option("--yes", is_flag=True, help="Trust the workspace's configuration without being asked.")
@click.pass_obj
def now(flags: Flags, *, session: str | None, force: bool, reason: str, yes: bool) -> int:
    """Push what is pending, of one session or of all. Ends with 1 if the server cannot be used."""
    from acode.sync.push_now import deliver_now

    world = build_world(flags, yes=yes, wants_trust=True)
    screen = Screen(flags, world.env)
    if force and session is None:
        raise click.UsageError("--force needs the ID of the session whose history is to stay")
    delivered = deliver_now(world, session, force=force, reason=reason)
    refused = [one for one in delivered if one.refused is not None]
    if flags.json:
        screen.document(
            {
                "sent": sum(one.sent for one in delivered),
                "sessions": [
                    {
                        "session_id": one.session_id,
                        "sent": one.sent,
                        "set_aside": one.set_aside,
                        "error": one.refused.as_dict() if one.refused else None,
                        "tails": msgspec.to_builtins(one.tails),
                    }
                    for one in delivered
                ],
            }
        )
    else:
        total = sum(one.sent for one in delivered)
        screen.data(f"Pushed {count(total, 'event')} of {count(len(delivered), 'session')}.")
        for one in refused:
            assert one.refused is not None
            screen.warn(one_line(one.refused.message))
            show_tails(screen, msgspec.to_builtins(one.tails))
            screen.insist(f"hint: {one.refused.hint}")
    return refused[0].refused.exit_code if refused and refused[0].refused else 0


@click.command(cls=Command, name="status")
@ID
@click.pass_obj
def status(flags: Flags, *, session: str | None) -> int:
    """How each session stands to its shared copy, and whether the server still holds what was pushed.

    Where the server does not answer soon, this is what was last heard.
    """
    from acode.sync.push_now import standings

    world = build_world(flags)
    screen = Screen(flags, world.env)
    found = compared(world, screen, standings(world, session))
    parted = [one for one in found if one.standing in ("fenced", "diverged")]
    tails = seen_tails(world, parted[0].session_id) if session is not None and parted else None
    url = world.config.settings.sync.url
    worst = max((one.sync.as_json() for one in found), key=rank, default=sync_state.DISABLED)
    whole = {**worst, "pending_events": sum(one.sync.pending_events for one in found)}
    if url is not None and not found:
        whole["status"] = "up_to_date"
    if flags.json:
        rows = [
            {"session_id": one.session_id, "title": one.title, "standing": one.standing, **one.sync.as_json()}
            for one in found
        ]
        screen.document({**whole, "url": without_password(url) if url else None, "sessions": rows, "tails": tails})
        return 0
    for line in sync_state.in_full(whole, world.clock()):
        screen.data(line)
    for one in found:
        if one.sync.status not in ("disabled", "up_to_date") or one.standing == "copy":
            state = "a copy" if one.standing == "copy" else sync_state.in_brief(one.sync.as_json())
            screen.data(f"  {short(one.session_id)}  {state}  {one_line(one.title)}")
    show_tails(screen, tails)
    return 0


def compared(world: World, screen: Screen, found: list[Standing]) -> list[Standing]:
    """Compare with the server's present state; a look is never an error."""
    from acode.sync.push_now import compare

    if not found or world.config.settings.sync.url is None:
        return found
    try:
        return compare(world, found)
    except AcodeError as error:
        screen.line(f"As last heard: {one_line(error.message)}")
        return found


def rank(sync: dict[str, Any]) -> int:
    return ("disabled", "up_to_date", "pending", "degraded").index(sync["status"])


def seen_tails(world: World, session_id: str) -> dict[str, Any] | None:
    """Both tails, if the server answers; a look is never an error."""
    from acode.sync.push_now import both_tails

    try:
        plain: dict[str, Any] | None = msgspec.to_builtins(both_tails(world, session_id))
        return plain
    except (SyncFailed, AcodeError):
        return None


def show_tails(screen: Screen, tails: dict[str, Any] | None) -> None:
    if tails is None:
        return
    screen.data(f"  Both have the events up to {tails['common']}. After that:")
    for side, words in (("here", "here"), ("there", f"in the shared copy ({one_line(tails['holder'])})")):
        total = tails[f"{side}_seq"] - tails["common"]
        screen.data(f"  {words}: {count(total, 'event')}")
        for event in tails[side]:
            step = f" {event['step']}" if event["step"] else ""
            screen.data(f"    {event['seq']:>5}  {event['at']}  {one_line(event['type'])}{one_line(step)}")
        if total > len(tails[side]):
            screen.data(f"    … and {total - len(tails[side])} more")
