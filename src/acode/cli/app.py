"""The root command, and the one handler of everything that goes wrong.

An error is one sentence with a code and a hint; a traceback goes to the log file, and to stderr only with -v.
"""

from __future__ import annotations

import contextlib
import os
import sys

import click

from acode import __version__
from acode.cli.flags import Flags, Group
from acode.cli.screen import Screen
from acode.cli.trouble import report, unexpected
from acode.errors import AcodeError, Interrupted, Usage

# One line per command: where it lives, and what help says of it. Commands of a group stand in the group's own table.
COMMANDS = {
    "run": ("run", "Start a session from a plan file and execute it."),
    "resume": ("resume", "Carry an interrupted session on from where it stopped."),
    "supervise": ("supervise", "Run or resume under the policy until it ends or needs a person."),
    "status": ("status", "Where a session stands."),
    "explain": ("explain", "Why a session stopped and what a resume would do."),
    "session": ("session", "List, inspect, answer, pause and end sessions."),
    "config": ("config", "Show, check and trust the settings."),
    "key": ("key", "The keys that sign the log."),
    "doctor": ("doctor", "Check that this machine and workspace keep acode's promises."),
    "completion": ("completion", "Print the completion script of a shell."),
}

HELP = """Run plans that survive being killed.

Every finished step stays finished; a step that was cut off is settled by evidence, or a person decides. Kill it
anywhere, then: acode resume.
"""


def root() -> Group:
    group = Group("acode", table=COMMANDS, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
    version = click.version_option(__version__, "--version", prog_name="acode", message="%(prog)s %(version)s")
    version(group)
    return group


def run(argv: list[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    flags = Flags()
    screen = Screen(flags, os.environ)
    try:
        answer = root().main(args=arguments, prog_name="acode", standalone_mode=False, obj=flags)
        code = answer if isinstance(answer, int) else 0
    except click.exceptions.NoArgsIsHelpError as shown:
        screen.insist(shown.format_message())
        code = 2
    except click.UsageError as error:
        flags.json = flags.json or "--json" in arguments
        code = report(screen, _usage(error))
    except AcodeError as error:
        code = report(screen, error)
    except (click.Abort, KeyboardInterrupt):
        code = report(screen, Interrupted("stopped before anything was done"))
    except BrokenPipeError:
        code = 0  # whoever read has read enough
    except Exception as error:
        code = report(screen, unexpected(screen, error))
    return close_streams(code)


def _usage(error: click.UsageError) -> Usage:
    command = error.ctx.command_path if error.ctx is not None else "acode"
    message = error.format_message().rstrip(".")
    return Usage(message[:1].lower() + message[1:], hint=f"See: {command} --help")


def close_streams(code: int) -> int:
    """Flush what is left; a reader that has gone must not make the interpreter complain at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except ValueError:
            continue
        except OSError as error:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if not isinstance(error, BrokenPipeError) and code == 0:
                code = 1
    return code
