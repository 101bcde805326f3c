"""acode schema: the JSON Schema of plan files or settings, for editors and other programs."""

from __future__ import annotations

import os

import click

from acode.cli.flags import Command, Flags
from acode.cli.screen import Screen, as_json
from acode.yamlfile.schema import Schema


@click.command(cls=Command, name="schema")
@click.argument("what", type=click.Choice(("plan", "config")))
@click.pass_obj
def command(flags: Flags, *, what: str) -> int:
    """Print the JSON Schema (draft 2020-12) of plan files or of the settings."""
    Screen(flags, os.environ).json_text(as_json(schema_of(what), pretty=True))
    return 0


def schema_of(what: str) -> Schema:
    if what == "plan":
        from acode.planfile.schema import plan_schema

        return plan_schema()
    from acode.config.schema import config_schema

    return config_schema()
