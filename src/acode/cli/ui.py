"""acode ui: the page that shows sessions and takes answers."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from acode.cli.early_flags import Flags as EarlyFlags
from acode.cli.flags import Command, Flags
from acode.cli.screen import Screen
from acode.cli.world import build_world
from acode.errors import Usage
from acode.store.store import DATABASE
from acode.workspacepath import OWN_DIRECTORY

if TYPE_CHECKING:
    from acode.engine.world import World
    from acode.fleet.overview import Overview
    from acode.ui.pages import Remote
    from acode.ui.server import Server

NEEDED = ("starlette", "uvicorn")


@click.command(cls=Command, name="ui")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, metavar="P", help="The port. Default: a free one.")
@click.option("--no-open", is_flag=True, help="Do not open a browser; print the address only.")
@click.option("--read-only", is_flag=True, help="Show sessions, take no answers.")
@click.pass_obj
def command(flags: Flags, *, port: int, no_open: bool, read_only: bool) -> int:
    """Show the sessions of this machine in a browser, and take answers there.

    The page listens on 127.0.0.1 only. The address holds a token that opens it once; stop it with Ctrl+C.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Usage(f"the page needs {' and '.join(missing)}", hint='Install them with: pip install "acode-cli[ui]"')
    from acode.ui.guards import Guards
    from acode.ui.places import Places
    from acode.ui.server import Server

    world = build_world(flags, wants_trust=True)
    screen = Screen(flags, world.env)
    listening = listen(port)
    number = listening.getsockname()[1]
    guards = Guards(number, read_only=read_only)
    places = Places(world, other_workspaces(world), world_of)
    server = Server(places, guards, list_remote=remote_list(world), look_at_fleet=fleet_look(world))
    address = f"http://127.0.0.1:{number}/?token={guards.token}"
    try:
        if flags.json:
            screen.document({"address": address, "port": number})
        else:
            screen.data(address)
            screen.line("The address opens the page once. Stop it with Ctrl+C.")
        if not no_open:
            click.launch(address)
        serve(server, listening)
    except KeyboardInterrupt:  # how a person stops it; its connections are closed
        return 130
    return 0


def listen(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        raise Usage(f"port {port} cannot be used: {error.strerror}", hint="Choose another with --port P.") from error
    found.listen(64)
    return found


def serve(server: Server, listening: socket.socket) -> None:
    import uvicorn

    settings = uvicorn.Config(
        server.app,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(settings).run(sockets=[listening])


def world_of(path: Path) -> World:
    other = EarlyFlags()
    other.directory = str(path)
    return build_world(other)


def other_workspaces(world: World) -> list[Path]:
    """Workspaces that the anchors of this user know, and that still hold a database."""
    from acode import seal

    known = (Path(workspace) for workspace in seal.anchored_workspaces(world.state_dir))
    return [path for path in known if (path / OWN_DIRECTORY / DATABASE).is_file()]


def remote_list(world: World) -> Callable[[], list[Remote]] | None:
    if world.config.settings.sync.url is None:
        return None
    from acode.ui.server import remote_rows

    return lambda: remote_rows(world)


def fleet_look(world: World) -> Callable[[], Overview] | None:
    """None: there is no fleet to look at from here."""
    if world.config.settings.sync.url is None or importlib.util.find_spec("procrastinate") is None:
        return None
    from acode.fleet.overview import look_at_fleet

    return lambda: look_at_fleet(world)
