"""acode check: all errors of a plan at once, and what a resume would do about each step, without running anything."""

from __future__ import annotations

from typing import Any

import click

from acode.cli.candidates import plan_files
from acode.cli.error_report import clean
from acode.cli.flags import Command, Flags
from acode.cli.plan_argument import plan_text
from acode.cli.screen import Screen
from acode.cli.table import show_table
from acode.cli.world import build_world
from acode.engine.plan_check import Checked, Prospect, check_plan
from acode.engine.world import World
from acode.errors import AcodeError, BadPlan
from acode.events.definition import describe
from acode.plan import Action
from acode.planfile import Reading, examine_plan
from acode.text import one_line
from acode.text.durations import count

HEADINGS = ("STEP", "IF THE MACHINE GOES DOWN IN IT", "BECAUSE")
SETTLED = {
    Action.RETRY: "repeated",
    Action.ROLLBACK_AND_RETRY: "rolled back and repeated",
    Action.ASK: "asked",
}


@click.command(cls=Command, name="check")
@click.argument("plan", metavar="PLAN", shell_complete=plan_files)
@click.pass_obj
def command(flags: Flags, *, plan: str) -> int:
    """Report all errors of a plan file without running it, and how each step would be settled after a crash.

    Errors are in the plan itself, or in the files it names: sql files, files to read, working directories, a git
    repository for commit steps. PLAN may be - for a plan from stdin. Ends with 0, or with 2 where there is an error.
    """
    world = build_world(flags)
    screen = Screen(flags, world.env)
    checked, reading, name = examine(world, plan)
    if flags.json:
        screen.document(clean(flags, as_json(name, reading, checked)))
    else:
        show(screen, name, reading, checked)
    return BadPlan.exit_code if checked.errors else 0


def examine(world: World, plan: str) -> tuple[Checked, Reading | None, str]:
    try:
        given = plan_text(world, plan)
    except BadPlan as error:  # it is there and cannot be read
        return Checked(errors=(error,), warnings=(), prospects=()), None, plan
    reading = examine_plan(given.text, given.name, timeout_s_default=world.config.settings.steps.timeout_seconds)
    return check_plan(world, reading), reading, given.name


def show(screen: Screen, name: str, reading: Reading | None, checked: Checked) -> None:
    def line(text: str) -> str:
        return one_line(screen.flags.redacted(text))

    for warning in checked.warnings:
        screen.warn(line(warning.message))
    for error in checked.errors:
        screen.data(line(error.message))
        if error.hint:
            screen.data(f"  {screen.paint_data('hint:', 'now')} {line(error.hint)}")
    if checked.errors:
        screen.insist(f"{screen.paint('✗', 'bad')} {line(name)}: {count(len(checked.errors), 'error')}")
        return
    assert reading is not None and reading.plan is not None
    size = f"{count(len(reading.plan.tasks), 'task')}, {count(len(checked.prospects), 'step')}"
    screen.line(f"{screen.paint('✓', 'good')} {line(name)}: {size}, no errors")
    show_table(screen, HEADINGS, [(one.step.id, SETTLED[one.action], one.because) for one in checked.prospects])
    asked = [one.step.id for one in checked.prospects if one.reason == "none" and one.action is Action.ASK]
    if asked:
        screen.line(
            f"{count(len(asked), 'step')} would need a person: declare idempotent, outputs or probe where it is true."
        )


def as_json(name: str, reading: Reading | None, checked: Checked) -> dict[str, Any]:
    plan = reading.plan if reading is not None else None
    return {
        "ok": not checked.errors,
        "path": name,
        "title": plan.title if plan is not None else None,
        "errors": [_problem(error) for error in checked.errors],
        "warnings": [_problem(warning) for warning in checked.warnings],
        "steps": [_prospect(one) for one in checked.prospects],
    }


def _problem(error: AcodeError) -> dict[str, Any]:
    place = {key: error.details.get(key) for key in ("path", "line", "column")}
    return {"code": error.code, **place, "message": error.message, "hint": error.hint}


def _prospect(one: Prospect) -> dict[str, Any]:
    return {
        "step": one.step.id,
        "kind": one.step.kind,
        "title": describe(one.step),
        "action": str(one.action),
        "reason": one.reason,
        "because": one.because,
    }
