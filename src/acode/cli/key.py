"""acode key: rotate, export and import the keys that sign the log."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click

from acode import seal
from acode.cli.flags import Command, Flags, Group
from acode.cli.screen import Screen, is_terminal
from acode.config import state_dir
from acode.errors import KeyMissing, Usage

COMMANDS = {
    "rotate": ("key:rotate", "Make a new signing key; the old ones stay to verify."),
    "export": ("key:export", "Print the keys, to bring them to another machine."),
    "import": ("key:import_keys", "Add keys that may verify sessions made elsewhere."),
}
command = Group("key", table=COMMANDS, help="The keys that sign the log.")


@click.command(cls=Command, name="rotate")
@click.pass_obj
def rotate(flags: Flags) -> int:
    """Make a new signing key. Sessions signed with older keys can still be verified and resumed."""
    screen = Screen(flags, os.environ)
    made = seal.rotate_key(state_dir(os.environ))
    if flags.json:
        screen.document({"key_id": made})
    else:
        screen.data(f"New signing key: {made}")
    if seal.SECRET_VARIABLE in os.environ:
        screen.warn(f"{seal.SECRET_VARIABLE} is set, and signs instead of it")
    return 0


@click.command(cls=Command, name="export")
@click.option("--force", is_flag=True, help="Although stdout is a terminal.")
@click.pass_obj
def export(flags: Flags, *, force: bool) -> int:
    """Print the secret keys, one per line. Anyone who has them can forge your sessions."""
    screen = Screen(flags, os.environ)
    if is_terminal(sys.stdout) and not force:
        raise Usage(
            "this would show your secret keys on the screen", hint="Into a file: (umask 077; acode key export > FILE)"
        )
    text = seal.export_keys(state_dir(os.environ))
    if not text:
        raise KeyMissing("there is no key yet", hint="The first session makes one.")
    if flags.json:
        screen.document({"keys": text.split()})
    else:
        screen.data(text.rstrip("\n"))
    return 0


@click.command(cls=Command, name="import")
@click.argument("file", type=click.File("r", encoding="ascii", errors="replace"))
@click.pass_obj
def import_keys(flags: Flags, *, file: TextIO) -> int:
    """Add the keys in FILE (or - for stdin), as acode key export prints them."""
    screen = Screen(flags, os.environ)
    added = seal.import_keys(state_dir(os.environ), file.read(seal.KEY_FILE_BYTES_MAX))
    if flags.json:
        screen.document({"added": list(added)})
    else:
        screen.data(f"Added: {', '.join(added)}" if added else "All of these keys were here already.")
    return 0
