"""The flags that every command takes, before and after its name, and the click classes that make it so."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from acode.cli.early_flags import Flags

__all__ = ["OFFLINE", "ON_SIGNAL", "WHY_OFFLINE", "Command", "Flags", "Group", "reason_option"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    if (value or value == "") and isinstance(context.obj, Flags):
        setattr(context.obj, str(option.name), value)


def _keep(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Keep a flag for the command and for the builder of its world."""
    if value and isinstance(context.obj, Flags):
        setattr(context.obj, str(option.name), value)
    return value


def reason_option(default: str | None = "") -> Callable[[Decorated], Decorated]:
    return click.option("--reason", metavar="TEXT", default=default, callback=_keep, help="Why, for the record.")


# On every command that appends: a session that was given back is not written on while the server does not answer.
OFFLINE = click.option(
    "--offline",
    is_flag=True,
    expose_value=False,
    callback=_keep,
    help="Work on a session that was given back although the server does not answer; needs --reason, audited.",
)
WHY_OFFLINE = click.option(
    "--reason", metavar="TEXT", expose_value=False, callback=_keep, help="Why --offline, for the record."
)

ON_SIGNAL = click.option(
    "--on-signal",
    type=click.Choice(["pause", "stop"]),
    expose_value=False,
    callback=_keep,
    help="On Ctrl+C, TERM or HUP: pause after the step, or stop its command at once (TERM, after 5 s KILL).",
)


def _help(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(context.get_help())
        context.exit()


def _directory(_context: click.Context, _option: click.Parameter, typed: str) -> list[CompletionItem[str]]:
    """The shell completes it by itself."""
    return [CompletionItem(typed, type="dir")]


def _everywhere() -> list[click.Parameter]:
    def option(*names: str, help: str, callback: Any = _remember, **settings: Any) -> click.Option:
        return click.Option(names, help=help, expose_value=False, callback=callback, **settings)

    return [
        option("--json", is_flag=True, help="Machine-readable output on stdout."),
        option("--no-input", is_flag=True, help="Never ask anything."),
        option("-q", "--quiet", is_flag=True, help="Print only errors and the next command."),
        option("-v", "--verbose", is_flag=True, help="More detail: evidence, rules, tracebacks."),
        option(
            *("-C", "directory"),
            metavar="DIR",
            shell_complete=_directory,
            help="The workspace, instead of the nearest one above.",
        ),
        # Our own, because click's looks for a translation at every start, and finds none.
        option("-h", "--help", is_flag=True, is_eager=True, callback=_help, help="Show this message and exit."),
    ]


def _format_options(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """The command's own options first; the ones that are everywhere under a heading of their own."""
    own: list[tuple[str, str]] = []
    everywhere: list[tuple[str, str]] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            (everywhere if parameter.callback in (_remember, _help) else own).append(record)
    for title, records in (("Options", own), ("Everywhere", everywhere)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class Command(click.Command):
    """A command that takes the flags of every command."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "add_help_option": False})
        self.params = [*self.params, *_everywhere()]

    def invoke(self, context: click.Context) -> Any:
        gc.enable()
        try:
            return super().invoke(context)
        except BrokenPipeError:
            context.exit(0)  # the reader has read enough; click would make an error of it

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        _format_options(self, context, formatter)


class Group(click.Group):
    """A table of commands, each loaded when it is called: name, module, and the line that help shows for it."""

    def __init__(
        self,
        *args: Any,
        table: Mapping[str, tuple[str, str]],
        habits: Mapping[str, Sequence[str]] | None = None,  # what other programs call a command, and ours
        inner: Mapping[str, Sequence[str]] | None = None,  # the commands of its groups, for suggestions
        **settings: Any,
    ) -> None:
        super().__init__(*args, **{**settings, "add_help_option": False})
        self.table = table
        self.habits = habits or {}
        self.inner = inner or {}
        self.params = [*self.params, *_everywhere()]

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return None
        module, _, attribute = self.table[name][0].partition(":")
        found = getattr(importlib.import_module(f"acode.cli.{module}"), attribute or "command")
        assert isinstance(found, click.Command)
        return found

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """From the table: click would load every command for its line of help."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, context, incomplete)
        return [
            CompletionItem(name, help=line) for name, (_, line) in self.table.items() if name.startswith(incomplete)
        ]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        _format_options(self, context, formatter)
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Map another program's name for a command to ours; any other name is an error that suggests the closest
        one.
        """
        name = args[0] if args else ""
        if name == "help" and name not in self.table:
            if len(args) == 1:
                click.echo(context.get_help())
                context.exit()
            return self.resolve_command(context, [*args[1:], "--help"])
        if name in self.habits and name not in self.table:
            return self.resolve_command(context, [*self.habits[name], *args[1:]])
        if args and not name.startswith("-") and name not in self.table:
            context.fail(f"there is no command {name!r}{_meant(name, self.table, self.inner)}")
        return super().resolve_command(context, args)


def _meant(name: str, known: Mapping[str, object], inner: Mapping[str, Sequence[str]]) -> str:
    """A command of a group comes first where it is named exactly: `cancel` is `session cancel`, and nothing like it."""
    from acode.yamlfile import closest

    for group, commands in inner.items():
        if name in commands:
            return f"; did you mean '{group} {name}'?"
    close = closest(name, known, likeness=0.8)
    return f"; did you mean {close!r}?" if close else ""
