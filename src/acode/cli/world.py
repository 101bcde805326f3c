"""The one place where the world is put together: workspace, settings, environment, clock, ids.

The engine reads none of these itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from acode.cli.early_flags import Flags
from acode.cli.screen import Screen
from acode.config import Config, effective, is_trusted, load_config, state_dir, trust
from acode.engine.make_world import make_world
from acode.engine.world import Answers, Listener, World
from acode.errors import NotWritable, SyncDisabled, UnsafeWorkspace, Usage
from acode.lease_file import LEASE_VARIABLE, Lease
from acode.text import one_line
from acode.workspacepath import OWN_DIRECTORY

if TYPE_CHECKING:
    from acode.engine.notices import Notice


class Silent:
    """A listener for commands that only look."""

    def emit(self, notice: Notice) -> None:
        pass

    def durable(self, seq: int) -> None:
        pass


# The place.


def find_workspace(directory: str | None, env: Mapping[str, str], *, force: bool | None = None) -> Path:
    """-C DIR, else the nearest directory above with .agent/, else here; `/` and the home directory only by force.

    `force`: None for a command that has no such flag, and must not offer it.
    """
    if directory == "":
        raise Usage("-C: the name of the directory is empty", hint="For the current one: -C .")
    if directory is not None:
        place = Path(directory)
        if not place.exists():
            raise Usage(f"-C {directory}: there is no such directory")
        if not place.is_dir():
            raise Usage(f"-C {directory}: this is no directory")
        found = place.resolve()
    else:
        here = _current_directory()
        above = (place for place in (here, *here.parents) if (place / OWN_DIRECTORY).is_dir())
        found = next((place for place in above if place == here or not _too_wide(place, env)), here)
    if not os.access(found, os.R_OK | os.X_OK):
        raise NotWritable(f"the workspace {found} cannot be read", hint="Check its permissions.")
    if _too_wide(found, env) and not force and not (found / OWN_DIRECTORY / "workspace.db").exists():
        name = "the home directory" if found != Path(found.anchor) else "the root of the file system"
        raise UnsafeWorkspace(
            f"{found} is {name}: too wide a place for a workspace",
            hint="Go to your project's directory, or name it with -C DIR"
            + ("." if force is None else "; --force uses this one anyway."),
        )
    return found


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise Usage(
            f"the current directory cannot be used: {error.strerror}", hint="Name another with -C DIR."
        ) from error


def _too_wide(place: Path, env: Mapping[str, str]) -> bool:
    home = env.get("HOME") or env.get("USERPROFILE") or ""
    return place == Path(place.anchor) or (bool(home) and os.path.realpath(home) == os.fspath(place))


# The settings.


def load_settings(
    screen: Screen, workspace: Path, env: Mapping[str, str], given: Mapping[str, object], *, yes: bool, wants: bool
) -> Config:
    """The configuration; what would execute or send is asked about where the command may use it (`wants`)."""
    config = load_config(workspace, env, given)
    if not config.executes or config.workspace_file_sha256 is None:
        return config
    place = state_dir(env)
    if is_trusted(place, workspace, config.workspace_file_sha256):
        return effective(config, trusted=True)
    if not wants:
        return config
    if yes or (screen.can_ask and _asked_to_trust(screen, config)):
        trust(place, workspace, config.workspace_file_sha256)
        return effective(config, trusted=True)
    screen.warn(
        f".agent/config.yml is not trusted; not in effect: {', '.join(config.executes)}"
        " (read it, then: acode config trust)"
    )
    return config


def _asked_to_trust(screen: Screen, config: Config) -> bool:
    from acode.cli.prompts import confirm

    screen.insist("The configuration of this workspace, .agent/config.yml, wants to execute or send something:")
    for key in config.executes:
        screen.insist(f"  {key}")
    return confirm(screen, "Do you trust this file as it is now?", default=False)


# The world.


def build_world(
    flags: Flags,
    *,
    listener: Listener | None = None,
    answers: Answers | None = None,
    force: bool | None = None,
    yes: bool = False,
    wants_trust: bool = False,
    settings: Mapping[str, object] | None = None,
) -> World:
    env = dict(os.environ)
    screen = Screen(flags, env)
    workspace = find_workspace(flags.directory, env, force=force)
    config = load_settings(screen, workspace, env, settings or {}, yes=yes, wants=wants_trust)
    if wants_trust:
        for warning in config.warnings:
            screen.warn(warning)
    world = make_world(
        workspace=workspace,
        env=env,
        config=config,
        listener=listener or Silent(),
        answers=answers,
        offline=_offline(flags),
        ask_offline=lambda stated: _asked_offline(screen, stated),
        on_waiting=screen.line,
        lease=_lease(env, config),
    )
    world.stop.stops_at_once = flags.on_signal == "stop"
    flags.remember(world)
    return world


def _lease(env: Mapping[str, str], config: Config) -> Lease | None:
    """What a worker tells the commands that it starts: whose lease they act under, and where it says until when."""
    if not env.get(LEASE_VARIABLE):
        return None
    if config.settings.sync.url is None:
        raise SyncDisabled(f"{LEASE_VARIABLE} is set, and no server is configured that would know of the lease")
    try:
        path, seconds, holder = env[LEASE_VARIABLE].split(" ", 2)
        return Lease(path, float(seconds), holder)
    except ValueError as error:
        raise Usage(f"{LEASE_VARIABLE} is set by acode worker and not to be set by hand") from error


def _offline(flags: Flags) -> str | None:
    if flags.offline and not flags.reason.strip():
        raise Usage("--offline needs --reason TEXT: it is recorded why nobody waited for the server")
    return flags.reason if flags.offline else None


def _asked_offline(screen: Screen, stated: str) -> str | None:
    """Ask a person who knows that no other machine has continued the session to confirm it, with a reason; any other
    answer is a no.
    """
    if not screen.can_ask:
        return None
    from acode.cli.prompts import ask_for_text, confirm, forget_typed_ahead

    forget_typed_ahead()
    screen.insist(f"The {one_line(stated)}.")
    screen.insist("If another machine has continued it, its steps are repeated here.")
    if not confirm(screen, "Continue without the server?", default=False):
        return None
    return ask_for_text(screen, "Why? (for the record; Enter for none given)") or ""
