"""acode pull, and the first half of acode resume --remote: bring a session here that another machine wrote."""

from __future__ import annotations

import click
import msgspec

from acode.cli.flags import OFFLINE, Command, Flags, reason_option
from acode.cli.prompts import confirm
from acode.cli.screen import Screen
from acode.cli.sync import show_tails
from acode.cli.table import show_table
from acode.cli.world import build_world
from acode.engine.session_place import NO_ANCHOR
from acode.engine.world import World, short
from acode.errors import HistoryDiverged
from acode.sync.take_over import Brought, FileHere, bring, files_here, put_files_here, shared_sessions
from acode.text import one_line
from acode.text.durations import count

FILES_SHOWN_MAX = 20


@click.command(cls=Command, name="pull")
@click.argument("session", metavar="ID")
@click.option("--force", is_flag=True, help="Give up what was written here after the common past; audited, backed up.")
@OFFLINE
@reason_option()
@click.option("--yes", is_flag=True, help="Put missing files here without asking, and trust the configuration.")
@click.pass_obj
def command(flags: Flags, *, session: str, force: bool, reason: str, yes: bool) -> int:
    """Fetch a session from the shared copy, verified, to look at it. It stays its owner's. To resume it here: acode
    resume ID --remote
    """
    world = build_world(flags, yes=yes, wants_trust=True)
    screen = Screen(flags, world.env)
    brought = brought_here(world, screen, session, own=False, force=force, reason=reason)
    files = settle_files(world, screen, brought, yes=yes)
    if flags.json:
        screen.document({**msgspec.to_builtins(brought), "files": msgspec.to_builtins(files)})
    elif not (brought.owned or brought.ended):
        screen.line(f"To resume it here: acode resume {short(brought.session_id)} --remote")
    return 0


def brought_here(
    world: World, screen: Screen, text: str, *, own: bool, force: bool, reason: str, take_over: bool = False
) -> Brought:
    try:
        brought = bring(world, text, own=own, force=force, reason=reason, take_over=take_over)
    except HistoryDiverged as error:
        if not screen.flags.json:
            show_tails(screen, error.details.get("tails"))
        raise
    name = short(brought.session_id)
    screen.line(
        f"Session {name}: {count(brought.events, 'event')} came down, verified; it stands at {brought.last_seq}."
    )
    if brought.unanchored:
        screen.warn(f"session {name}: {NO_ANCHOR}")
    if brought.lost:
        screen.warn(
            f"{count(brought.lost, 'event')} that this machine recorded after that were never pushed and are lost:"
            f" steps may have been done without a record. To continue: acode resume {name} --remote, then"
            f" acode session repair {name} --accept-rollback"
        )
    if brought.aside:
        screen.warn(f"{count(brought.aside, 'event')} of this machine were set aside; as it was: {brought.backup}")
    if brought.forced_from is not None and brought.expired:
        screen.line(f"Taken over from {one_line(brought.forced_from)}, whose lease had ended.")
    elif brought.forced_from is not None:
        screen.warn(f"taken over by force from {one_line(brought.forced_from)}; what it still does cannot be prevented")
    return brought


def settle_files(world: World, screen: Screen, brought: Brought, *, yes: bool) -> list[FileHere]:
    """Files that the session left there and that differ here: missing ones are put here where the user agrees."""
    files = files_here(world, brought.session_id)
    missing = [one.path for one in files if one.known]
    for one in files[:FILES_SHOWN_MAX]:
        word = "missing here" if one.change == "deleted" else f"{one.change} here"
        screen.line(f"  {word}: {one_line(one.path)}" + ("" if one.known else " (its content is not in the session)"))
    if len(files) > FILES_SHOWN_MAX:
        screen.line(f"  … and {len(files) - FILES_SHOWN_MAX} more")
    if missing and (
        yes or (screen.can_ask and confirm(screen, f"Put {count(len(missing), 'file')} here?", default=True))
    ):
        done = put_files_here(world, brought.session_id, missing)
        screen.line(f"Put here: {', '.join(one_line(path) for path in done[:FILES_SHOWN_MAX])}")
    elif missing:
        screen.line("Nothing was put here; with --yes the missing ones are.")
    return files


def show_shared(flags: Flags) -> int:
    """acode session list --remote."""
    world = build_world(flags, wants_trust=True)
    screen = Screen(flags, world.env)
    found = shared_sessions(world)
    if flags.json:
        rows = [
            {"short_id": short(one.session_id), "resumable": one.state not in ENDED, **msgspec.to_builtins(one)}
            for one in found
        ]
        screen.document(rows)
        return 0
    cells = [
        (
            short(one.session_id),
            one.state,  # every cell is cleaned where the table is shown
            f"{one.steps_done}/{one.steps_total}",
            one.holder if one.owner else "nobody",
            one.title,
        )
        for one in found
    ]
    if cells:
        show_table(screen, ("ID", "STATE", "STEPS", "OWNED BY", "TASK"), cells)
    else:
        screen.line("The server holds no sessions.")
    return 0


ENDED = ("COMPLETED", "FAILED", "CANCELLED")
