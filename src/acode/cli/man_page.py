"""The manual page, made from the commands themselves: python -m acode.cli.man_page > docs/man/acode.1"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

import click

from acode.cli.app import root
from acode.cli.flags import Flags


def page() -> str:
    """In the format of man(7). Without a date: the same commands give the same bytes."""
    app = root()
    context = click.Context(app, info_name="acode", obj=Flags())
    lines = [
        '.TH ACODE 1 "" "acode" "User Commands"',
        ".SH NAME",
        "acode \\- run plans that survive being killed",
        ".SH SYNOPSIS",
        ".B acode",
        "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]",
        ".SH DESCRIPTION",
        *_text(app.help or ""),
        ".SH OPTIONS",
        *_options(app, context),
        ".SH COMMANDS",
        *_commands(app, context, "acode"),
        ".SH EXIT STATUS",
        "0 is success. Every error has a code and an exit status, which the documentation lists.",
        ".SH SEE ALSO",
        "\\fBacode help\\fR, \\fBacode\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\fR",
    ]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, context: click.Context, path: str) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, below, f"{path} {name}")
            continue
        usage = " ".join(command.collect_usage_pieces(below))
        yield f".SS {_escaped(f'{path} {name} {usage}'.rstrip())}"
        yield from _text(command.help or "")
        yield from _options(command, below)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1] not in ("", "Show this message and exit."):
            yield ".TP"
            yield f"\\fB{_escaped(record[0])}\\fR"
            yield _line(" ".join(record[1].split()))


def _text(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(inspect.cleandoc(text).replace("\b\n", "").split("\n\n")):
        if number:
            yield ".PP"
        yield from (_line(line.strip()) for line in paragraph.splitlines())


def _line(text: str) -> str:
    """A line that begins with a dot or a quote would be an instruction."""
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


if __name__ == "__main__":
    sys.stdout.write(page())
