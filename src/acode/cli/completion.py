"""acode completion: the script that teaches a shell acode's commands."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from acode.cli.flags import Command, Flags
from acode.cli.screen import Screen

SHELLS = ("bash", "zsh", "fish", "powershell")
HOW = {
    "bash": 'eval "$(acode completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(acode completion zsh)"   # in ~/.zshrc',
    "fish": "acode completion fish > ~/.config/fish/completions/acode.fish",
    "powershell": "acode completion powershell | Out-String | Invoke-Expression   # in $PROFILE",
}


@click.command(cls=Command, name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_obj
def command(flags: Flags, *, shell: str) -> int:
    """Print the completion script of a shell."""
    screen = Screen(flags, os.environ)
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    screen.data(found(root, {}, "acode", "_ACODE_COMPLETE").source())
    screen.detail(f"To use it: {HOW[shell]}")
    return 0
