"""acode session verify, repair, export and gc."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from acode import hints
from acode.cli.candidates import all_sessions
from acode.cli.flags import OFFLINE, Command, Flags, reason_option
from acode.cli.follow_run import resume_line_of, shared
from acode.cli.foreign import refuse_unrecorded
from acode.cli.prompts import confirm
from acode.cli.screen import Screen, is_terminal
from acode.cli.session_picker import to_look_at
from acode.cli.world import build_world
from acode.disk.private_files import put_private
from acode.engine.gc import DAYS_MAX, OLDER_THAN_DAYS, GcPlan, collect, plan_gc
from acode.engine.preview import verify
from acode.engine.repair import Repaired, repair
from acode.engine.workspace_store import opened
from acode.engine.world import World, short
from acode.errors import AcodeError, BlobDamaged, CopiedWorkspace, InputRequired, Interrupted, NotWritable, Usage
from acode.hints import Hint
from acode.log_file import log_of
from acode.state import TERMINAL
from acode.store.verification import Verified
from acode.text import one_line
from acode.text.durations import SPAN_EXAMPLES, count, span

ID = click.argument("session", metavar="[ID]", required=False, shell_complete=all_sessions)
LISTED_MAX = 20
REMOVED_SHOWN_EVERY = 1_000
BYTES_ARE_GONE = (
    "Restore them from a backup of .agent/blobs. Until then, every action that needs them is refused by name."
)


# Verify.


@click.command(cls=Command, name="verify")
@ID
@click.option(
    "--bundle",
    type=click.Path(exists=True, dir_okay=False, readable=False, path_type=Path),
    metavar="FILE",
    help="An exported bundle instead.",
)
@click.pass_obj
def verified(flags: Flags, *, session: str | None, bundle: Path | None) -> int:
    """Check chain, seals, blobs and anchor of one session, all of it. Ends with 20 if anything does not match."""
    world = build_world(flags)
    screen = Screen(flags, world.env)
    if bundle is not None:
        from acode.engine.bundle import verify_bundle
        from acode.seal import load_keyring

        session_id, found = verify_bundle(bundle, load_keyring(world.state_dir, world.env, create=False))
    else:
        if session is not None:
            refuse_unrecorded(world, session)
        session_id, found = verify(world, named(world, screen, session))
    if flags.json:
        screen.document(verdict(found))
    else:
        show_verdict(screen, session_id, found, bundle=bundle is not None)
    return 20 if found.problems else 0


def verdict(found: Verified) -> dict[str, Any]:
    return {
        "ok": not found.problems,
        "events": found.events,
        "checkpoints": found.checkpoints,
        "blobs": found.blobs,
        "problems": msgspec.to_builtins(found.problems),
        "noted": msgspec.to_builtins(found.noted),
    }


def show_verdict(screen: Screen, session_id: str, found: Verified, *, bundle: bool) -> None:
    name = short(session_id)
    numbers = f"{count(found.events, 'event')}, {count(found.checkpoints, 'checkpoint')}, {count(found.blobs, 'blob')}"
    sign = screen.paint_data("✗", "bad") if found.problems else screen.paint_data("✓", "good")
    what = "The bundle of session" if bundle else "Session"
    screen.data(f"{sign} {what} {name} {standing(found)}: {numbers}")
    for problem in found.problems:
        where = f"event {problem.seq}: " if problem.seq is not None else ""
        screen.data(f"  {problem.code} {where}{one_line(problem.message)}")
    for problem in found.noted:
        screen.data(f"  set aside by a repair: event {problem.seq}: {one_line(problem.message)}")
    if bundle or not found.problems:
        return
    if way_out := next((problem.hint for problem in found.problems if problem.hint), ""):
        screen.insist(f"hint: {one_line(way_out)}")
    elif all(problem.code == BlobDamaged.code for problem in found.problems):  # which no repair makes again
        screen.insist(f"hint: {BYTES_ARE_GONE}")
    else:
        screen.insist(f"hint: repair it, audited: acode session repair {name}")


def standing(found: Verified) -> str:
    """The log of a copy is whole: it is only not the one that is continued."""
    if not found.problems:
        return "is whole"
    return "is only a copy" if all(one.code == CopiedWorkspace.code for one in found.problems) else "is damaged"


def named(world: World, screen: Screen, text: str | None) -> str:
    """A damaged session can be named by nobody but itself, if it is the only one there is."""
    from acode.engine.session_list import listed

    if text is not None:
        return text
    first = listed(world, limit=1)
    if first.total == 1:
        return first.rows[0].session_id
    return to_look_at(world, screen, None)


# Repair.


@click.command(cls=Command, name="repair")
@ID
@click.option("--accept-rollback", is_flag=True, help="Events are lost (a backup was restored): accept that.")
@click.option("--accept-lost-key", is_flag=True, help="The signing key is lost: take the log as it stands.")
@reason_option()
@OFFLINE
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.pass_obj
def repair_session(
    flags: Flags,
    *,
    session: str | None,
    accept_rollback: bool,
    accept_lost_key: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
) -> int:
    """Make a session usable whose log was damaged or tampered with.

    Damaged events are set aside and named, never removed; the steps that they may concern are open afterwards; a backup
    is made first; the repair is recorded with its reason.
    """
    world = build_world(flags)
    screen = Screen(flags, world.env)
    if session is None and not accept_rollback:
        session = named(world, screen, None)
    look = repair(world, session, accept_rollback=accept_rollback, accept_lost_key=accept_lost_key, dry_run=True)
    if not flags.json or not dry_run:
        show_repair(screen, look)
    if dry_run or look.kind == "nothing":
        if flags.json:
            screen.document(repair_json(look))
        return 0
    agree(screen, "Repair it so?", "to repair it", yes=yes)
    told = msgspec.structs.replace(world, listener=log_of(world))
    with shared(told) as pushed:
        done = repair(
            pushed,
            look.session_id or session,
            accept_rollback=accept_rollback,
            accept_lost_key=accept_lost_key,
            reason=reason,
        )
    if flags.json:
        screen.document(repair_json(done))
    after_repair(screen, world, done)
    return 0


def agree(screen: Screen, question: str, what: str, *, yes: bool) -> None:
    if yes:
        return
    if not screen.can_ask:
        raise InputRequired(f"nobody can be asked whether {what}", hint="Add --yes, or only look with --dry-run.")
    if not confirm(screen, question, default=False):
        raise Interrupted("nothing was changed")


def repair_json(found: Repaired) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


WORDS = {
    "checkpoints": "Its checkpoints are rebuilt from its log, which is whole.",
    "quarantine": "Damaged events are set aside: none of them is believed.",
    "rollback": "The log continues from its present end; the events after that are lost.",
    "lost_key": "The log is taken as it stands, although nobody can verify it any more.",
}


def show_repair(screen: Screen, found: Repaired) -> None:
    if found.kind == "forgotten":
        for one in found.forgotten:
            screen.line(f"Lost: {short(one.session_id)} “{one_line(one.title)}”, at event {one.seq}, {one.at:%Y-%m-%d}")
        return
    name = short(found.session_id or "")
    for line in found.remaining[:LISTED_MAX]:
        screen.warn(f"cannot be repaired: {one_line(line)}")
    if found.kind == "nothing" and found.remaining:
        screen.line(f"Session {name}: its log is whole, and a repair would change nothing.")
        screen.line(f"  {BYTES_ARE_GONE}")
        return
    if found.kind == "nothing":
        screen.line(f"Session {name} is whole: nothing to repair.")
        return
    screen.line(f"Session {name}: {WORDS[found.kind]}")
    for line in found.problems[:LISTED_MAX]:
        screen.line(f"  {one_line(line)}")
    if found.lost is not None:
        screen.line(f"  Events {found.lost[0]} to {found.lost[1]} are lost.")
    if found.steps:
        screen.line(f"  Open afterwards, settled by evidence or by you: {', '.join(map(one_line, found.steps))}")
    if found.kind != "checkpoints":
        screen.line("  No approval that was not used yet outlives it.")


def after_repair(screen: Screen, world: World, done: Repaired) -> None:
    if done.kind == "forgotten":
        screen.line(f"{count(len(done.forgotten), 'lost session')} forgotten.")
        return
    screen.line(f"Repaired, as event {done.seq} records. The database as it was: {done.backup}")
    if done.session_id is not None and done.state is not None and done.state not in TERMINAL:
        with opened(world, look_only=True) as store:
            screen.insist(resume_line_of(store.load(done.session_id).session))


# Export.


@click.command(cls=Command, name="export")
@ID
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Instead of stdout."
)
@click.option(
    "--kept",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Instead: the files that rollbacks replaced, into a new directory.",
)
@click.pass_obj
def export_session(flags: Flags, *, session: str | None, output: Path | None, kept: Path | None) -> int:
    """Write the session as one verifiable file: its rows, checkpoints and outputs; no secrets and no user's files.

    Anyone who has the key verifies it with: acode session verify --bundle FILE With --kept, write the files that
    rollbacks set aside from a command's outputs, from .agent/blobs.
    """
    from acode.engine.bundle import export

    world = build_world(flags)
    screen = Screen(flags, world.env)
    if kept is not None:
        if output is not None:
            raise Usage("--kept and --output are two different things", hint="Give one of them.")
        return export_kept(flags, screen, world, named(world, screen, session), kept)
    if output is None and is_terminal(sys.stdout):
        raise Usage("a bundle is no text for a screen", hint="Into a file: acode session export ID -o FILE")
    name = named(world, screen, session)
    if output is None:
        for line in export(world, name):
            screen.data(line.decode().rstrip("\n"))
        return 0
    size = write_bundle(output, export(world, name))
    if flags.json:
        screen.document({"path": str(output), "bytes": size})
    else:
        screen.data(f"{one_line(str(output))}: {size:,} bytes")
        screen.line(f"Verify it with: acode session verify --bundle {one_line(str(output))}")
    return 0


def write_bundle(output: Path, lines: Iterable[bytes]) -> int:
    """Private, and whole or not at all: half a bundle could be taken for one. Its size in bytes.

    A device or a pipe gets the lines as they come; through a link the file is written that it leads to.
    """
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for line in lines:
            size += len(line)
            yield line

    try:
        if output.exists() and not output.is_file():
            with open(output, "wb") as file:
                file.writelines(counted())
        else:
            put_private(Path(os.path.realpath(output)), counted())
    except OSError as error:
        raise NotWritable(f"{output} cannot be written: {error.strerror}") from error
    return size


def export_kept(flags: Flags, screen: Screen, world: World, session: str, directory: Path) -> int:
    from acode.engine.set_aside_files import bring_out

    done = bring_out(world, session, directory)
    if flags.json:
        screen.document(msgspec.to_builtins(done))
    elif not done.files:
        screen.line(f"Session {short(done.session_id)}: no rollback has replaced anything.")
    for one in done.files:
        if one.to is None:
            screen.warn(f"{one_line(one.path)}, replaced by event {one.seq}: {one_line(one.reason)}")
        elif not flags.json:
            screen.data(one_line(one.to))
    return BlobDamaged.exit_code if done.damaged else 0


# Collecting.


def days_of(context: click.Context, option: click.Parameter, text: str) -> float:
    """A number of days, or a duration with its unit."""
    found = span(text)
    days = found / timedelta(days=1) if found is not None else float(text) if text.isdecimal() else -1.0
    if not 0 <= days <= DAYS_MAX:
        expected = f"a number of days from 0 to {DAYS_MAX}, or a span such as {SPAN_EXAMPLES}"
        raise click.BadParameter(f"expected {expected}, found {text!r}", context, option)
    return int(days) if days == int(days) else days


@click.command(cls=Command, name="gc")
@click.option(
    "--older-than",
    "days",
    callback=days_of,
    default=str(OLDER_THAN_DAYS),
    show_default=True,
    metavar="DAYS",
    help="Only sessions that ended so long ago: a number of days, or 12h, 7d, 2w.",
)
@click.option("--unpushed", is_flag=True, help="Also sessions of which the shared copy does not have everything.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.pass_obj
def collect_garbage(flags: Flags, *, days: float, unpushed: bool, dry_run: bool, yes: bool) -> int:
    """Remove sessions that ended long ago, and what killed processes left. Never an unfinished session.

    Where a server for a shared copy is configured, a session that it is not known to hold whole is kept and named.
    """
    world = asking_the_server(build_world(flags), unpushed=unpushed)
    screen = Screen(flags, world.env)
    plan = plan_gc(world, older_than_days=days, unpushed=unpushed)
    if not flags.json:
        show_plan(screen, plan)
    if dry_run or plan.empty:
        if flags.json:
            screen.document({**msgspec.to_builtins(plan), "bytes": plan.bytes, "done": False})
        return 0
    agree(screen, "Remove all of this?", "to remove it", yes=yes)
    done = collect(world, plan, lambda so_far, total: show_removed(screen, so_far, total))
    if flags.json:
        screen.document({**msgspec.to_builtins(done), "done": True})
    else:
        screen.data(
            f"Removed: {count(len(done.sessions), 'session')}, {count(done.files, 'file')}, {done.bytes:,} bytes"
        )
    for line in done.kept:
        screen.warn(f"kept: {one_line(line)}")
    return 0


def show_removed(screen: Screen, so_far: int, total: int) -> None:
    """One line per thousand sessions, so that a person who removes many sees progress."""
    if so_far % REMOVED_SHOWN_EVERY == 0 and so_far < total:
        screen.line(f"Removed {so_far:,} of {total:,} sessions …")


def asking_the_server(world: World, *, unpushed: bool) -> World:
    """The server may have lost rows that it held once: where it cannot be asked now, none of them is removed here."""
    if unpushed or world.config.settings.sync.url is None:
        return world
    from acode.sync.push_now import comparing

    try:
        return click.get_current_context().with_resource(comparing(world))
    except AcodeError as error:
        why = Hint("{} ({} removes it anyway)", error.message, hints.Command("session gc --unpushed"))
        return msgspec.structs.replace(world, missing_there=lambda store, session_id: why)


def show_plan(screen: Screen, plan: GcPlan) -> None:
    if plan.empty and plan.kept:
        screen.line("Nothing to remove.")
    elif plan.empty:
        screen.line(
            f"Nothing to remove: no session ended over {plan.older_than_days} days ago, and nothing lies about."
        )
    for one in plan.sessions[:LISTED_MAX]:
        title = one_line(one.title)
        screen.data(f"{short(one.session_id)}  {one.state:<9}  {one.ended_at:%Y-%m-%d}  {one.bytes:>12,}  {title}")
    if len(plan.sessions) > LISTED_MAX:
        screen.data(f"… and {len(plan.sessions) - LISTED_MAX} more sessions")
    for session_id in plan.secrets_of:
        screen.data(f"{short(session_id)}  what stood in files before it, left by a crash")
    kinds = {one.kind for one in plan.litter}
    for kind in sorted(kinds):
        some = [one for one in plan.litter if one.kind == kind]
        screen.data(f"left over: {len(some)} of kind {kind}, {sum(one.bytes for one in some):,} bytes")
    for line in plan.kept:
        screen.warn(f"kept: {one_line(line)}")
