"""acode init: a commented plan to begin with, and the schema beside it by which an editor checks it.

The schema is a file beside the plan and not a URL or a file under .agent/: it works without a network, in every clone
and on machines without acode, because it can be committed with the plan. The schema is written first, so that a plan
that is there names a schema that is there, wherever acode is killed.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from acode.cli.flags import Command, Flags
from acode.cli.plan_argument import is_file
from acode.cli.schema import schema_of
from acode.cli.screen import Screen, as_json
from acode.errors import Usage
from acode.planfile.schema import COMMAND
from acode.text import one_line
from acode.workspace import Root, look, read_file, write_atomic

SCHEMA_NAME = "acode-plan.schema.json"
SCHEMA_BYTES_MAX = 1_048_576
PLAN = f"""\
# yaml-language-server: $schema={SCHEMA_NAME}
# A plan for acode. Check it with: acode check FILE. Run it with: acode run FILE
version: 1
title: My first plan

# The effect of a failed step: pause (fix it, then acode resume), or abort (the session ends).
on_failure: pause

# How many tasks may run at the same time, once what they need is done.
parallel: 1

tasks:
  - id: prepare
    title: Prepare
    steps:
      # write: the whole file or nothing of it. Its content shows after a crash whether it was written.
      - write:
          path: build/notes.txt
          content: |
            Written by the first step.

  - id: build
    title: Build
    # needs: [prepare]       # the default: the task before it
    steps:
      # run: a line for /bin/sh, or a list of arguments. Declare how a resume finds its outcome:
      #   outputs       these files are its only effects; they are rolled back, and it runs again
      #   idempotent    running it twice does no harm
      #   probe         a read-only command: exit 0 it happened, 1 it did not
      # With none of these, you are asked if the machine goes down while it runs.
      - run: tr a-z A-Z < build/notes.txt > build/result.txt
        title: Build the result
        outputs: [build/result.txt]
        timeout: 60

      - run: test -s build/result.txt
        title: Check the result
        idempotent: true
        # retry: {{attempts: 3, backoff_seconds: 2}}

  # Further kinds of steps, each made exactly once or asked for:
  # - id: ship
  #   steps:
  #     - approve: Ship it?
  #     - sql: {{database: app.db, file: migrations/001.sql}}
  #     - commit: {{message: "Add the result", paths: [build]}}
"""


@click.command(cls=Command, name="init")
@click.argument("file", metavar="[FILE]", default="plan.yml")
@click.pass_obj
def command(flags: Flags, *, file: str) -> int:
    """Write a commented plan to begin with (plan.yml), and beside it the schema for your editor.

    An existing plan is never overwritten.
    """
    screen = Screen(flags, os.environ)
    if not is_file(file) or file.endswith(("/", os.sep)) or not file.lower().endswith((".yml", ".yaml")):
        raise Usage(f"{file} is no name for a plan: it must end in .yml or .yaml", hint=f"For example: {file}.yml")
    directory = Path(flags.directory or ".") / Path(file).parent
    if not directory.is_dir():
        raise Usage(f"the directory {directory} does not exist", hint="Make it first.")
    name = Path(file).name
    with Root(directory) as root:
        if look(root, name) is not None:
            raise Usage(
                f"{directory / name} exists already, and is not overwritten", hint="Name another: acode init FILE"
            )
        refuse_other_schema(root, directory)
        written = as_json(schema_of("plan"), pretty=True)
        write_atomic(root, SCHEMA_NAME, f"{written}\n".encode(), None, "init")
        write_atomic(root, name, PLAN.replace("FILE", name).encode(), None, "init")
    if flags.json:
        screen.document({"plan": str(directory / name), "schema": str(directory / SCHEMA_NAME)})
        return 0
    screen.data(f"Written: {one_line(str(directory / name))} and {SCHEMA_NAME}, which your editor checks it with")
    screen.line(f"Next: acode check {one_line(file)}; then: acode run {one_line(file)}")
    return 0


def refuse_other_schema(root: Root, directory: Path) -> None:
    """Replace a schema of an earlier acode; refuse another file under this name."""
    if look(root, SCHEMA_NAME) is None:
        return
    try:
        ours = COMMAND.encode() in read_file(root, SCHEMA_NAME, SCHEMA_BYTES_MAX)[0]
    except OSError:
        ours = False
    if not ours:
        raise Usage(f"{directory / SCHEMA_NAME} exists already, and was not written by acode", hint="Move it away.")
