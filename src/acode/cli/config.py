"""acode config: show, check and trust the settings."""

from __future__ import annotations

import os
from typing import Any

import click
import msgspec

from acode.cli.candidates import config_keys
from acode.cli.flags import Command, Flags, Group
from acode.cli.screen import Screen, as_json
from acode.cli.world import find_workspace
from acode.config import (
    Config,
    effective,
    is_trusted,
    known_keys,
    load_config,
    state_dir,
    trust,
    without_password,
    workspace_config_path,
)
from acode.errors import Usage
from acode.text import one_line

COMMANDS = {
    "show": ("config:show", "The settings in force, and where each was said."),
    "check": ("config:check", "Read all settings and say what is wrong with them."),
    "trust": ("config:trust_config", "Let this workspace's file execute and send what it says."),
}
command = Group("config", table=COMMANDS, help="Show, check and trust the settings.")


def load(flags: Flags) -> tuple[Screen, Config]:
    env = dict(os.environ)
    workspace = find_workspace(flags.directory, env)
    config = load_config(workspace, env, {})
    sha256 = config.workspace_file_sha256
    if config.executes and sha256 is not None and is_trusted(state_dir(env), workspace, sha256):
        config = effective(config, trusted=True)
    return Screen(flags, env), config


@click.command(cls=Command, name="show")
@click.argument("key", metavar="[KEY]", required=False, shell_complete=config_keys)
@click.option("--origin", is_flag=True, help="Also where each value was said.")
@click.pass_obj
def show(flags: Flags, *, key: str | None, origin: bool) -> int:
    """The settings in force: flag, environment, .agent/config.yml, your own config.yml, default.

    KEY: only this setting, such as sync.url, or all of a section, such as sync.
    """
    screen, config = load(flags)
    values = chosen(settings_by_key(config), key)
    if flags.json:
        if origin:
            screen.document({name: {"value": value, "origin": config.origin(name)} for name, value in values.items()})
        else:
            screen.document(values)
        return 0
    width = max(map(len, values))
    for name, value in values.items():
        shown = one_line(value if isinstance(value, str) else as_json(value))
        where = f"  # {one_line(config.origin(name))}" if origin else ""
        screen.data(f"{name:<{width}}  {shown}{where}")
    warn_untrusted(screen, config)
    return 0


def chosen(values: dict[str, Any], key: str | None) -> dict[str, Any]:
    found = {name: value for name, value in values.items() if key in (None, name) or name.startswith(f"{key}.")}
    if not found:
        raise Usage(f"there is no setting {key!r}", hint="See all of them: acode config show")
    return found


def settings_by_key(config: Config) -> dict[str, Any]:
    """Every setting under its dotted name; a URL without its password."""
    found: dict[str, Any] = {}
    for key in known_keys():
        value: Any = config.settings
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else getattr(value, name)
        if key == "sync.url" and value:
            value = without_password(value)
        found[key] = msgspec.to_builtins(value)
    return found


def warn_untrusted(screen: Screen, config: Config) -> None:
    if config.executes and not config.trusted:
        screen.warn(
            f".agent/config.yml is not trusted; not in effect: {', '.join(config.executes)}"
            " (read it, then: acode config trust)"
        )


@click.command(cls=Command, name="check")
@click.pass_obj
def check(flags: Flags) -> int:
    """Read all settings; a mistake is an error with file, line and what was expected."""
    screen, config = load(flags)
    if flags.json:
        screen.document(
            {
                "ok": True,
                "warnings": list(config.warnings),
                "executes": list(config.executes),
                "trusted": config.trusted,
            }
        )
        return 0
    for warning in config.warnings:
        screen.warn(warning)
    warn_untrusted(screen, config)
    screen.data(f"{screen.paint_data('✓', 'good')} The configuration is valid")
    return 0


@click.command(cls=Command, name="trust")
@click.option("--yes", is_flag=True, expose_value=False, help="Accepted for scripts: the command itself is the answer.")
@click.pass_obj
def trust_config(flags: Flags) -> int:
    """Let this workspace's file, as it is now, execute and send what it says. Any change of it asks again."""
    screen, config = load(flags)
    env = dict(os.environ)
    workspace = find_workspace(flags.directory, env)
    needed = bool(config.executes) and config.workspace_file_sha256 is not None
    if needed and config.workspace_file_sha256 is not None:
        trust(state_dir(env), workspace, config.workspace_file_sha256)
    if flags.json:
        screen.document({"trusted": needed, "settings": list(config.executes), "sha256": config.workspace_file_sha256})
    elif needed:
        screen.data(
            f"Trusted: {workspace_config_path(workspace)} as it is now. In effect: {', '.join(config.executes)}"
        )
    else:
        screen.data("Nothing to trust: no setting of this workspace executes or sends anything.")
    return 0
