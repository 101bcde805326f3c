"""acode resume: carry an interrupted session on, or show what that would do."""

from __future__ import annotations

import click
import msgspec

from acode.cli import foreign
from acode.cli.agent import with_model
from acode.cli.candidates import unfinished_sessions
from acode.cli.flags import OFFLINE, Command, Flags, reason_option
from acode.cli.follow_run import Execution
from acode.cli.prompts import ask_for_text
from acode.cli.screen import Screen
from acode.cli.session_picker import announce_wait, resumable_rows, to_resume
from acode.cli.world import build_world
from acode.engine.held_session import ended
from acode.engine.resume import resume
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import Options, Result, World
from acode.errors import CheckpointMissing, Usage
from acode.events.types import SessionCreated
from acode.formats.interface import Run
from acode.plan import Strategy

LENIENT = (
    "What steps to come need and do not find, and unknown events, are warnings; audited. Files that others changed or"
    " deleted are decided by --changed-files."
)


@click.command(cls=Command, name="resume")
@click.argument("session", metavar="[ID]", required=False, shell_complete=unfinished_sessions)
@click.option("--last", is_flag=True, help="The most recently active unfinished session.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen; nothing is changed.")
@click.option("--yes", is_flag=True, help="Confirm which session, and trust the workspace's configuration.")
@click.option("--force", is_flag=True, help="Past the attempt limit and changed files, once; audited.")
@reason_option(None)
@OFFLINE
@click.option("--auto", is_flag=True, help="One automatic attempt under the resume policy; asks nobody.")
@click.option("--wait", is_flag=True, help="Wait for the lock if another process holds it.")
@click.option("--strategy", type=click.Choice(["rollback", "retry", "prompt"]), help="For a step found in progress.")
@click.option(
    "--changed-files", type=click.Choice(["prompt", "continue", "abort"]), help="If others changed files meanwhile."
)
@click.option("--skip-validation", is_flag=True, help="Do not look whether the workspace changed; audited.")
@click.option("--lenient", is_flag=True, help=LENIENT)
@click.option("--source", type=click.Choice(["native", "agent-memory", "arc"]), help="Only sessions of this kind.")
@click.option("--remote", is_flag=True, help="Take it over from the shared copy; --force if it was not given back.")
@click.option("--full", is_flag=True, help="With --dry-run --json: all step ids, not the nearest 1,000.")
@click.pass_obj
def command(
    flags: Flags,
    *,
    session: str | None,
    last: bool,
    dry_run: bool,
    yes: bool,
    force: bool,
    reason: str | None,
    auto: bool,
    wait: bool,
    strategy: str | None,
    changed_files: str | None,
    skip_validation: bool,
    lenient: bool,
    source: str | None,
    remote: bool,
    full: bool,
) -> int:
    """Carry an interrupted session on from where it stopped.

    ID is a session's id, or any 4 or more characters of its beginning or end. Without one the most recent session is
    shown and confirmed.
    """
    world = with_model(build_world(flags, force=force, yes=yes, wants_trust=not dry_run))
    if auto:
        world = msgspec.structs.replace(world, ask_offline=lambda stated: None)
    screen = Screen(flags, world.env)
    options = Options(
        actor="system" if auto else "user",
        strategy=Strategy(strategy) if strategy else None,
        changed_files=changed_files,  # type: ignore[arg-type]  # click has checked the choice
        validate_environment=False if skip_validation else None,
        force=force,
        reason=reason,
        lenient=lenient,
        wait=wait,
    )
    if remote:
        session = bring(world, screen, session, options, dry_run=dry_run, yes=yes)
    if (run := foreign.meant(world, screen, session, source, sure=last or yes or dry_run)) is not None:
        return resume_foreign(flags, world, run, options, dry_run=dry_run, full=full)
    if dry_run:
        return preview(world, screen, session, options, full=full)
    name = session if session is not None else to_resume(world, screen, last=last, yes=yes, asks=not auto)
    return resume_native(flags, world, name, options)


def bring(world: World, screen: Screen, session: str | None, options: Options, *, dry_run: bool, yes: bool) -> str:
    """Take the session over from the shared copy; from here on it is one of this machine's."""
    if session is None or dry_run:
        raise Usage("--remote needs the ID of a session, and no --dry-run", hint="See: acode session list --remote")
    from acode.cli.pull import brought_here, settle_files

    brought = brought_here(world, screen, session, own=True, force=options.force, reason=options.reason or "")
    settle_files(world, screen, brought, yes=yes)
    return brought.session_id


def resume_foreign(flags: Flags, world: World, run: Run, options: Options, *, dry_run: bool, full: bool) -> int:
    """A run that another tool began."""
    screen = Screen(flags, world.env)
    if dry_run:
        return foreign.show(world, screen, run, options, full=full, resuming=True)
    carry_out = Execution(flags, world, asks=options.actor == "user", name=run.run_id).carry_out
    return foreign.resume(world, screen, run, options, carry_out=carry_out)


def preview(world: World, screen: Screen, session: str | None, options: Options, *, full: bool) -> int:
    from acode.cli.dry_run import show

    name = session if session is not None else resumable_rows(world, screen)[0].session_id
    return show(world, screen, name, options, full=full)


def resume_native(flags: Flags, world: World, name: str, options: Options) -> int:
    """A session of acode's own; a person who forces it is asked for the reason."""
    screen, asks = Screen(flags, world.env), options.actor == "user"
    if options.force and options.reason is None and screen.can_ask and asks:
        given = ask_for_text(screen, "Why is it forced? (for the record; Enter for none given)")
        options = msgspec.structs.replace(options, reason=given or None)
    execution = Execution(flags, world, asks=asks, name=name)
    wait = options.wait
    return execution.carry_out(lambda ready: by_its_kind(announce_wait(ready, screen, name, wait=wait), name, options))


def by_its_kind(world: World, name: str, options: Options) -> Result:
    """acode itself walks a plan; a program's session is resumed by its program, which is called again."""
    with opened(world, look_only=True) as store:
        session_id = resolve_id(world, store, name)
        try:
            session, _ = store.peek(session_id)
        except CheckpointMissing:  # whatever made it: the engine refuses, and records that
            return resume(world, session_id, options)
        created = store.first_event(session_id, session)[0].event if session.steps_from.asked else None
    if not isinstance(created, SessionCreated):
        return resume(world, name, options)
    if session.terminal:
        raise ended(session)
    from acode.library.decorators import resume_program

    return resume_program(world, session, created, options)
