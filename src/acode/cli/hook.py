"""acode hook: the entry point of agents' hooks, and how acode is set up in an agent of somebody else."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from acode.cli.flags import Command, Flags, Group
from acode.cli.screen import Screen, is_terminal
from acode.errors import HookNotSeen, Usage

if TYPE_CHECKING:
    from acode.observed.setup.check import Checked
    from acode.observed.setup.config_file import Scope, Where
    from acode.observed.setup.install import Changes

NAMES = ("claude", "codex", "gemini", "opencode")
COMMANDS = {
    "install": ("hook:install_hook", "Set acode up in an agent: its hooks and the front under its shell."),
    "uninstall": ("hook:uninstall_hook", "Take acode out of an agent's settings again."),
    "check": ("hook:check_hook", "Run one command through an agent and look whether acode sees it."),
}


@click.pass_context
def _entry(context: click.Context) -> int:
    if context.invoked_subcommand is not None:
        return 0
    if is_terminal(sys.stdin):
        raise Usage(
            "agents call this with the event on its standard input",
            hint=f"To set it up: acode hook install {'|'.join(NAMES)}",
        )
    from acode.config import state_dir
    from acode.hook_entry import run
    from acode.observed.doors import doors_in

    return run(os.fspath(doors_in(state_dir(os.environ)).directory), os.getppid())


command = Group(
    "hook",
    table=COMMANDS,
    invoke_without_command=True,
    callback=_entry,
    help="Record what an agent does: called by its hooks, with the event on stdin.",
)

AGENT = click.argument("agent", type=click.Choice(NAMES))
SCOPE = click.option(
    "--user/--project", "user", default=True, help="In your own settings (the default), or in this project's."
)


def _where(flags: Flags, user: bool) -> Where:
    from acode.observed.setup.config_file import Where
    from acode.workspace.git_state import look

    directory = Path(flags.directory or ".").resolve()
    if not directory.is_dir():
        raise Usage(f"{directory} is no directory")
    scope: Scope = "user" if user else "project"
    if scope == "project":
        top = look(directory, "rev-parse", "--show-toplevel")
        if top is not None and top[0] == 0:
            directory = Path(os.fsdecode(top[1].rstrip(b"\n")))
    return Where(scope=scope, project=directory, environment=dict(os.environ))


@click.command(cls=Command, name="install")
@AGENT
@SCOPE
@click.pass_obj
def install_hook(flags: Flags, *, agent: str, user: bool) -> int:
    """Set acode up in AGENT: claude, codex, gemini or opencode.

    Only acode's own settings are added to the agent's files; permissions stay as they are. A prefix, shell or BASH_ENV
    of yours keeps its effect. A second time changes nothing.
    """
    from acode.observed import AGENTS
    from acode.observed.setup.install import install

    where = _where(flags, user)
    done = install(agent, where, front=_front_is_wanted(where))
    screen = Screen(flags, os.environ)
    if flags.json:
        screen.document(_document(agent, where, done))
        return 0
    _show(screen, done, "Written")
    title = AGENTS[agent].TITLE
    screen.line(f"{title} reads its settings when it starts: restart one that is running.")
    if agent == "codex":
        screen.line("Codex runs no hook until you trust it: start codex, type /hooks and trust acode's.")
    if not user:
        screen.line("The files name paths of this machine: do not commit them.")
    screen.line(f"To see whether it works: acode hook check {agent}{'' if user else ' --project'}")
    return 0


@click.command(cls=Command, name="uninstall")
@AGENT
@SCOPE
@click.pass_obj
def uninstall_hook(flags: Flags, *, agent: str, user: bool) -> int:
    """Take acode's settings out of AGENT's files; where nothing else has changed, every byte is as it was."""
    from acode.observed import AGENTS
    from acode.observed.setup.install import uninstall

    where = _where(flags, user)
    done = uninstall(agent, where)
    screen = Screen(flags, os.environ)
    if flags.json:
        screen.document(_document(agent, where, done))
        return 0
    _show(screen, done, "As it was before")
    for path in done.left:
        screen.data(f"Without acode's settings; you have changed others since: {path}")
    if done.written or done.left:
        title = AGENTS[agent].TITLE
        screen.line(f"Restart {title} where it is running: it still names programs of acode that are gone.")
    else:
        screen.line(f"acode was not set up in {AGENTS[agent].TITLE} {'for you' if user else 'for this project'}.")
    return 0


def _show(screen: Screen, done: Changes, words: str) -> None:
    for path in done.written:
        screen.data(f"{words}: {path}")
    for path in done.unchanged:
        screen.data(f"Unchanged: {path}")


def _document(agent: str, where: Where, done: Changes) -> dict[str, object]:
    files = {name: [str(path) for path in getattr(done, name)] for name in ("written", "unchanged", "left")}
    return {"agent": agent, "scope": where.scope, **files}


def _front_is_wanted(where: Where) -> bool:
    from acode.config import load_config

    return load_config(where.project, where.environment, {}).settings.hooks.front != "never"


@click.command(cls=Command, name="check")
@AGENT
@SCOPE
@click.pass_obj
def check_hook(flags: Flags, *, agent: str, user: bool) -> int:
    """Run one harmless command through AGENT, and look whether hook and front report its beginning and its end.

    It uses the model that you have set up in the agent, for one short request.
    """
    from acode.cli.world import build_world
    from acode.observed import AGENTS
    from acode.observed.binding import workspace_for
    from acode.observed.setup.check import check, find_program

    screen = Screen(flags, os.environ)
    where = _where(flags, user)
    program = find_program(agent, where)  # first: nobody is asked, and no store is made, where the agent is missing
    flags.directory = str(workspace_for(where.project, where.environment))
    world = build_world(flags, force=True)
    screen.line(f"Asking {AGENTS[agent].TITLE} to run one command in {where.project} ...")
    found = check(agent, program, where, world=world, front=_front_is_wanted(where))
    if found.ok and flags.json:
        screen.document(_checked(found))
        return 0
    if not flags.json:
        for line in _lines(found):
            screen.data(line)
        for note in found.notes:
            screen.warn(note)
        for problem in found.problems if found.ok else ():
            screen.warn(problem)
    if found.ok:
        return 0
    raise HookNotSeen("; ".join(found.problems), hint=_hint(agent, user), **_checked(found))


def _hint(agent: str, user: bool) -> str:
    return f"Set it up again with: acode hook install {agent}{'' if user else ' --project'}; then restart the agent."


def _lines(found: Checked) -> list[str]:
    seen = found.seen
    reports = (
        ("hook, before the call", seen.hook_start),
        ("front, command begun", seen.front_begin),
        ("front, command ended", seen.front_end),
        ("hook, after the call", seen.hook_end),
    )
    return [f"{name}: {'seen' if is_seen else 'NOT SEEN'}" for name, is_seen in reports]


def _checked(found: Checked) -> dict[str, object]:
    seen = found.seen
    return {
        "agent": found.agent,
        "program": found.program,
        "version": found.version,
        "tested_version": found.tested_version,
        "ok": found.ok,
        "seen": {
            "hook_start": seen.hook_start,
            "front_begin": seen.front_begin,
            "front_end": seen.front_end,
            "hook_end": seen.hook_end,
        },
        "problems": found.problems,
        "notes": found.notes,
    }
