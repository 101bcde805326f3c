"""acode mcp: an MCP server on stdio, for agents that speak the protocol."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from acode.cli.flags import Command, Flags
from acode.cli.screen import is_terminal
from acode.cli.world import find_workspace
from acode.errors import Usage


@click.command(cls=Command, name="mcp")
@click.option("--key", metavar="TEXT", help="The session's key. Default: mcp and the client's name.")
@click.pass_obj
def command(flags: Flags, *, key: str | None) -> int:
    """Serve durable tools to an agent: run, write, sql, commit, approve, status, explain.

    The agent starts this and speaks the Model Context Protocol on stdin and stdout. Each call that changes something
    has a key: the same key returns the recorded answer, another key is a new step.
    """
    if importlib.util.find_spec("mcp") is None:
        raise Usage("the MCP server needs mcp", hint='Install it with: pip install "acode-cli[mcp]"')
    if is_terminal(sys.stdin):
        raise Usage(
            "an agent starts this, and speaks the Model Context Protocol on its standard input",
            hint="Add it to an agent, for example: claude mcp add acode -- acode mcp",
        )
    from acode.integrations.mcp_server import serve

    serve(find_workspace(flags.directory, os.environ), key=key)
    return 0
