"""acode run: a new session from a plan file, from creation to its end."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Iterable

import click

from acode.cli.begin_anew import carry_out_or_begin_anew
from acode.cli.candidates import plan_files
from acode.cli.flags import ON_SIGNAL, Command, Flags
from acode.cli.follow_run import Execution
from acode.cli.plan_argument import STDIN, is_file, plan_meant, read_plan
from acode.cli.prompts import choose
from acode.cli.screen import Screen
from acode.cli.session_picker import glance, in_one_line, show_candidate
from acode.cli.world import build_world
from acode.engine import session_list
from acode.engine.create import run_plan, same_plan
from acode.engine.resume import resume
from acode.engine.session_list import Row
from acode.engine.session_place import refuse_copy
from acode.engine.workspace_store import has_database, refuse_lost, share_store
from acode.engine.world import Options, World, short
from acode.errors import InputRequired, Interrupted, Usage
from acode.planfile import PlanFile
from acode.state import Session

AGENTS = ("claude", "codex", "gemini", "opencode")


@click.command(cls=Command, name="run")
@click.argument("plan", metavar="PLAN|TASK", shell_complete=plan_files)
@click.argument("arguments", metavar="[-- ARGS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--new", is_flag=True, help="Start a new session although this plan or task has an unfinished one here.")
@click.option("--auto", is_flag=True, help="Under the resume policy, in a child process: like acode supervise PLAN.")
@click.option("--yes", is_flag=True, help="Trust the workspace's configuration without being asked.")
@click.option("--force", is_flag=True, help="Allow the home directory or / as the workspace.")
@ON_SIGNAL
@click.option("--model", metavar="NAME", help="Use this model to plan and to work (for a TASK).")
@click.option("--approve-plan", is_flag=True, help="Approve the plan in advance, on record (for a TASK).")
@click.option("--agent", type=click.Choice(AGENTS), help="Let this agent do the TASK; ARGS are for it.")
@click.pass_obj
def command(
    flags: Flags,
    *,
    plan: str,
    arguments: tuple[str, ...],
    new: bool,
    auto: bool,
    yes: bool,
    force: bool,
    model: str | None,
    approve_plan: bool,
    agent: str | None,
) -> int:
    """Start a session from a plan file, or from the text of a task, and execute it.

    PLAN is a file if it ends in .yml or .yaml or holds a path separator. Anything else is a TASK: a model plans it, you
    approve the plan, and the model works with tools. With --agent another agent does the task, and its hooks record it.
    """
    if arguments and agent is None:
        raise Usage("arguments behind the plan or task are for another agent: --agent NAME")
    if agent is not None:
        from acode.cli.observed_agent import start_agent

        refuse_for_agent(model=model, approve_plan=approve_plan)
        world = build_world(flags, force=force, yes=yes, wants_trust=True)
        return start_agent(flags, world, agent, plan, arguments, auto=auto)
    plan = plan_meant(Screen(flags, os.environ), plan)
    words = not is_file(plan)
    refuse_unusable_flags(plan, words=words, model=model, approve_plan=approve_plan)
    world = build_world(flags, force=force, yes=yes, wants_trust=True, settings={"model.name": model})
    if words and auto:
        from acode.cli.supervise import supervise_task

        return supervise_task(flags, world, Screen(flags, world.env), plan, new=new, approve_plan=approve_plan)
    if words:
        from acode.cli.agent import run_task

        return run_task(flags, world, plan, new=new, approve_plan=approve_plan)
    screen = Screen(flags, world.env)
    if auto:
        from acode.cli.supervise import supervise_plan

        return supervise_plan(flags, world, screen, plan, new=new)
    planfile = read_plan(world, plan)
    with share_store(world, look_only=True) as looking:
        there = () if new else all_unfinished(looking)
        unfinished = first_of(looking, there, planfile)
        resumed = unfinished is not None and resumes(looking, screen, unfinished, plan)
    if unfinished is not None and resumed:
        session_id = unfinished.session_id
        execution = Execution(flags, world, name=session_id)
        return carry_out_or_begin_anew(flags, world, execution, lambda ready: resume(ready, session_id, Options()))
    if new or unfinished is not None:  # beside another one, because a person wants it so
        return Execution(flags, world).execute(lambda ready: run_plan(ready, planfile))
    refuse = functools.partial(refuse_second, planfile, frozenset(row.session_id for row in there))
    return Execution(flags, world).execute(lambda ready: run_plan(ready, planfile, refuse=refuse))


def refuse_for_agent(*, model: str | None, approve_plan: bool) -> None:
    if model is not None or approve_plan:
        raise Usage("--model and --approve-plan are for acode's own agent; another one gets its flags behind --")


def refuse_unusable_flags(plan: str, *, words: bool, model: str | None, approve_plan: bool) -> None:
    if not words and (model is not None or approve_plan):
        raise Usage("--model and --approve-plan are for the text of a task; a plan file needs neither")
    if words and " " not in plan and os.path.exists(plan):  # a Path would trip over a text that is too long for a name
        raise Usage(f"{plan} is a file, but not by its name", hint=f"As a plan file: acode run ./{plan}")


def unfinished_of(world: World, planfile: PlanFile) -> Session | None:
    """The most recent unfinished session of the same file or the same plan."""
    return first_of(world, all_unfinished(world), planfile)


def all_unfinished(world: World) -> tuple[Row, ...]:
    if has_database(world):
        return session_list.unfinished(world)
    refuse_lost(world)
    return ()


def first_of(world: World, rows: Iterable[Row], planfile: PlanFile) -> Session | None:
    return session_list.unfinished_of(world, rows, lambda created: same_plan(created, planfile), "plan")


def refuse_second(planfile: PlanFile, known: frozenset[str], world: World) -> None:
    """Refuse a plan that another process began since the first look; no question is asked while others wait to begin.
    `known`: the sessions of other plans, by the first look.
    """
    begun = first_of(world, (row for row in all_unfinished(world) if row.session_id not in known), planfile)
    if begun is not None:
        raise begun_already(world, begun, "plan", planfile.path or STDIN)


def begun_already(world: World, session: Session, what: str, name: str) -> InputRequired:
    return InputRequired(
        f"this {what} has an unfinished session here: {in_one_line(glance(world, session.session_id))}",
        hint=f"Resume it: acode resume {short(session.session_id)}; or begin another one beside it: acode run --new"
        f" {shlex.quote(name)}",
        session_id=session.session_id,
    )


def resumes(world: World, screen: Screen, session: Session, name: str, what: str = "plan") -> bool:
    """Ask whether to resume it or to begin another one: acode does not assume that work may be done twice. In a copy of
    a workspace only the second is possible."""
    refuse_copy(world, session.session_id)
    if not screen.can_ask:
        raise begun_already(world, session, what, name)
    screen.insist(f"This {what} has an unfinished session here:")
    show_candidate(world, screen, session.session_id, "  ")
    try:
        answer = choose(screen, "\n[R]esume it, or start a [N]ew one? [R]", {"r": "resume", "n": "new"}, "resume")
    except KeyboardInterrupt:
        raise Interrupted("nothing was started") from None
    screen.insist("")
    return answer == "resume"
