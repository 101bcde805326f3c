"""The root command, and the one handler of everything that goes wrong.

An error is one sentence with a code and a hint; a traceback goes to the log file, and to stderr only with -v.
"""

from __future__ import annotations

import gc
import os
import sys

import click

from acode import __version__
from acode.cli.error_report import report, unexpected
from acode.cli.flags import Flags, Group
from acode.cli.screen import Screen, close_streams
from acode.cli.session import COMMANDS as SESSION_COMMANDS
from acode.errors import AcodeError, Interrupted, Usage

# One line per command: where it lives, and what help says of it. Commands of a group stand in the group's own table.
COMMANDS = {
    "run": ("run", "Start a session from a plan file and execute it."),
    "resume": ("resume", "Resume an interrupted session where it stopped."),
    "init": ("init", "Write a commented plan to begin with."),
    "check": ("check", "Report all errors of a plan, and how its steps would be settled, without running it."),
    "supervise": ("supervise", "Run or resume under the policy until it ends or needs a person."),
    "submit": ("submit", "Hand a plan to the fleet: some worker runs it."),
    "worker": ("worker", "Take sessions from the fleet's queue and move them on."),
    "fleet": ("fleet", "What the fleet does: sessions, workers, those that need a person."),
    "status": ("status", "Where a session stands."),
    "explain": ("explain", "Why a session stopped and what a resume would do."),
    "session": ("session", "List, inspect, answer, pause and end sessions."),
    "sync": ("sync", "The shared copy of the sessions in PostgreSQL."),
    "pull": ("pull", "Bring a session here from the shared copy."),
    "ui": ("ui", "Show the sessions in a browser, and answer there."),
    "inspect": ("inspect", "Dead sessions of other agents: what was in flight, what to type next."),
    "hook": ("hook", "Set acode up in Claude Code, Codex, Gemini CLI or opencode; the entry point of their hooks."),
    "mcp": ("mcp", "Serve durable tools to an agent that speaks the Model Context Protocol."),
    "config": ("config", "Show, check and trust the settings."),
    "key": ("key", "The keys that sign the log."),
    "doctor": ("doctor", "Check that this machine and workspace keep acode's promises."),
    "schema": ("schema", "Print the JSON Schema of plans or settings."),
    "completion": ("completion", "Print or install the completion script of a shell."),
}

# Typed by habit. A command of this name, should there be one, comes first.
HABITS = {
    "ls": ("session", "list"),
    "list": ("session", "list"),
    "ps": ("session", "list"),
    "show": ("session", "show"),
    "history": ("session", "history"),
    "log": ("session", "logs"),
    "logs": ("session", "logs"),
    "watch": ("session", "watch"),
    "diff": ("session", "diff"),
    "version": ("--version",),
}

HELP = """Run plans that survive being killed.

Every finished step stays finished; a step that was cut off is settled by evidence, or a person decides. Kill it
anywhere, then: acode resume.
"""


def root() -> Group:
    group = Group("acode", table=COMMANDS, habits=HABITS, inner={"session": tuple(SESSION_COMMANDS)}, help=HELP)
    group.params.append(
        click.Option(
            ["-V", "--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version and exit.",
        )
    )
    return group


def _version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        Screen(Flags(), os.environ).data(f"acode {__version__}")
        context.exit()


def run(arguments: list[str], *, own_process: bool = False) -> int:
    gc.disable()  # loading a command makes many objects and no garbage; the command itself switches it on again
    flags = Flags()
    screen = Screen(flags, os.environ)
    try:
        if sys.platform == "win32":
            from acode.config.platforms import refuse_unsupported

            flags.json = "--json" in arguments  # the flags are not parsed yet
            refuse_unsupported(sys.platform, os.environ)
        answer = root().main(args=arguments, prog_name="acode", standalone_mode=False, obj=flags)
        code = answer if isinstance(answer, int) else 0
    except click.exceptions.NoArgsIsHelpError as shown:
        if flags.json:
            code = report(screen, Usage("a command is missing", hint=f"See: {shown.ctx.command_path} --help"))
        else:
            screen.insist(shown.format_message())
            code = 2
    except click.UsageError as error:
        flags.json = flags.json or "--json" in arguments
        code = report(screen, _usage(error))
    except AcodeError as error:
        code = report(screen, error)
    except (click.Abort, KeyboardInterrupt):
        code = report(screen, Interrupted("stopped before anything was done"))
    except Exception as error:
        code = report(screen, unexpected(screen, error))
    finally:
        gc.enable()
    code = close_streams(code)
    if own_process and flags.only_looks:
        os._exit(code)  # nothing is left open, and taking the interpreter apart takes a sixth of such a command
    return code


def _usage(error: click.UsageError) -> Usage:
    command = error.ctx.command_path if error.ctx is not None else "acode"
    if isinstance(error, click.NoSuchOption):
        message = f"no such option {error.option_name!r}{_option_meant(error)}"
    else:
        message = error.format_message().rstrip(".").replace("\n\t", " ")  # choices come indented, one on each line
    return Usage(message[:1].lower() + message[1:], hint=f"See: {command} --help")


def _option_meant(error: click.NoSuchOption) -> str:
    """click suggests whatever looks a little like it: `--yes` to somebody who has typed `gc --days 7`."""
    from acode.yamlfile import closest

    params = error.ctx.command.params if error.ctx is not None else []
    known = [name for one in params for name in (*one.opts, *one.secondary_opts) if name.startswith("--")]
    close = closest(error.option_name, known, likeness=0.8)
    return f"; did you mean {close!r}?" if close else ""
