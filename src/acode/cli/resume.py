"""acode resume: resume an interrupted session, or show what that would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from acode.cli.agent import with_model
from acode.cli.candidates import plan_files, unfinished_sessions
from acode.cli.flags import OFFLINE, ON_SIGNAL, Command, Flags, reason_option
from acode.cli.screen import Screen
from acode.cli.session_picker import announce_wait, foreign_run, most_recent_to_resume, to_resume
from acode.cli.world import build_world
from acode.engine.workspace_store import opened, resolve_id, share_store
from acode.engine.world import Options, Result, World, short
from acode.errors import AcodeError, Usage
from acode.plan import Strategy

if TYPE_CHECKING:
    from acode.formats.interface import Run
    from acode.planfile import PlanFile
    from acode.state import Session

LENIENT = (
    "Turn missing inputs of later steps, and unknown events, into warnings; audited. --changed-files decides about"
    " files that others changed or deleted."
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
@ON_SIGNAL
@click.option("--wait", is_flag=True, help="Wait for the lock if another process holds it.")
@click.option("--strategy", type=click.Choice(["rollback", "retry", "prompt"]), help="For a step found in progress.")
@click.option(
    "--changed-files", type=click.Choice(["prompt", "continue", "abort"]), help="If others changed files meanwhile."
)
@click.option("--skip-validation", is_flag=True, help="Do not look whether the workspace changed; audited.")
@click.option("--lenient", is_flag=True, help=LENIENT)
@click.option("--source", type=click.Choice(["native", "agent-memory", "arc"]), help="Only sessions of this kind.")
@click.option(
    "--plan", metavar="FILE", shell_complete=plan_files, help="Continue with an edited plan; finished steps are kept."
)
@click.option("--remote", is_flag=True, help="Take it over from the shared copy; --force if it was not given back.")
@click.option("--take-over", is_flag=True, help="Like --remote, also from a worker of a fleet whose lease has ended.")
@click.option("--no-launch", is_flag=True, help="An observed agent's session: settle it, and only print its command.")
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
    plan: str | None,
    remote: bool,
    take_over: bool,
    no_launch: bool,
    full: bool,
) -> int:
    """Resume an interrupted session where it stopped. ID is a session's id, or any 4 or more characters of its
    beginning or end. Without one the most recent session is shown and confirmed.
    """
    flags.only_looks = dry_run
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
        plan=edited_plan(world, plan, auto=auto),
    )
    if remote or take_over:
        session = bring(world, screen, session, options, take_over=take_over, dry_run=dry_run, yes=yes)
    if (run := foreign_run(world, screen, session, source, sure=last or yes or dry_run)) is not None:
        if plan is not None:
            raise Usage(f"{run.run_id} is a run of another tool: no plan file can replace its steps")
        return resume_foreign(flags, world, run, options, dry_run=dry_run, full=full)
    if dry_run:
        return preview(world, screen, session, options, full=full)
    name = session if session is not None else picked(world, screen, last=last, yes=yes, asks=not auto)
    with share_store(world, look_only=False) as one_store:
        if not is_observed(one_store, name):
            if no_launch:
                raise Usage("--no-launch is for the session of an observed agent")
            return resume_native(flags, one_store, name, options)
    from acode.cli.observed_agent import resume_agent

    return resume_agent(flags, world, name, options, starts=not no_launch)


def picked(world: World, screen: Screen, *, last: bool, yes: bool, asks: bool) -> str:
    """The session that a person chooses. Until then the store is only looked at: a choice that is not made creates no
    key and upgrades no database. So a resume without an id opens it twice.
    """
    with share_store(world, look_only=True) as looking:
        return to_resume(looking, screen, last=last, yes=yes, asks=asks)


def edited_plan(world: World, plan: str | None, *, auto: bool) -> PlanFile | None:
    if plan is None:
        return None
    if auto:
        raise Usage("--plan is a person's decision, and --auto decides for nobody", hint="Leave one of them out.")
    from acode.cli.plan_argument import read_plan

    return read_plan(world, plan)


def is_observed(world: World, name: str) -> bool:
    """Whether another agent does the work of the session; one that cannot be read is refused where it is resumed."""
    try:
        with opened(world, look_only=True) as store:
            session, _ = store.peek(resolve_id(world, store, name))
    except AcodeError:
        return False
    return session.steps_from.observed and not session.terminal


def bring(
    world: World,
    screen: Screen,
    session: str | None,
    options: Options,
    *,
    take_over: bool,
    dry_run: bool,
    yes: bool,
) -> str:
    """Take the session over from the shared copy; from here on it is one of this machine's. With `take_over` force has
    its other meanings alone: an owner whose lease has not ended keeps the session."""
    if session is None or dry_run:
        flag = "--take-over" if take_over else "--remote"
        raise Usage(f"{flag} needs the ID of a session, and no --dry-run", hint="See: acode session list --remote")
    from acode.cli.pull import brought_here, settle_files

    force = options.force and not take_over
    reason = options.reason or ""
    brought = brought_here(world, screen, session, own=True, force=force, reason=reason, take_over=take_over)
    settle_files(world, screen, brought, yes=yes)
    return brought.session_id


def resume_foreign(flags: Flags, world: World, run: Run, options: Options, *, dry_run: bool, full: bool) -> int:
    """A run that another tool began."""
    from acode.cli import foreign

    screen = Screen(flags, world.env)
    if dry_run:
        return foreign.show(world, screen, run, options, full=full, resuming=True)
    from acode.cli.follow_run import Execution

    execute = Execution(flags, world, asks=options.actor == "user", name=run.run_id).execute
    return foreign.resume(world, screen, run, options, execute=execute)


def preview(world: World, screen: Screen, session: str | None, options: Options, *, full: bool) -> int:
    from acode.cli.dry_run import show

    with share_store(world, look_only=True) as looking:
        name = session if session is not None else most_recent_to_resume(looking, screen).session_id
        return show(looking, screen, name, options, full=full)


def resume_native(flags: Flags, world: World, name: str, options: Options) -> int:
    """A session of acode's own; a person who forces it is asked for the reason."""
    from acode.cli.follow_run import Execution

    screen, asks = Screen(flags, world.env), options.actor == "user"
    if options.force and options.reason is None and screen.can_ask and asks:
        from acode.cli.prompts import ask_for_text

        given = ask_for_text(screen, "Why is it forced? (for the record; Enter for none given)")
        options = msgspec.structs.replace(options, reason=given or None)
    execution = Execution(flags, world, asks=asks, name=name)

    def work(ready: World) -> Result:
        return by_its_kind(announce_wait(ready, screen, name, wait=options.wait), name, options)

    from acode.cli.begin_anew import carry_out_or_begin_anew

    return carry_out_or_begin_anew(flags, world, execution, work)


def by_its_kind(world: World, name: str, options: Options) -> Result:
    """acode itself walks a plan; a program's session is resumed by its program, which is called again."""
    from acode.engine.resume import resume

    def call_program(session: Session) -> Result:
        from acode.library.decorators import resume_program

        assert session.created is not None
        if options.plan is not None:
            name = short(session.session_id)
            raise Usage(f"session {name} has its steps from a program: no plan file can replace them")
        return resume_program(world, session, session.created, options)

    return resume(world, name, options, call_program=call_program)
