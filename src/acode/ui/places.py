"""The workspaces whose sessions the page shows: this one, and others that acode knows on this machine.

Each has a short name for addresses, made from its path; a path never stands in an address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from acode.engine.world import World
from acode.errors import UnknownSession

MakeWorld = Callable[[Path], World]


class Places:
    """Workspaces by their short names. A world is made when its workspace is first looked at."""

    def __init__(self, here: World, others: Iterable[Path], make_world: MakeWorld) -> None:
        self._make = make_world
        self._worlds: dict[str, World] = {name_of(here.workspace): here}
        self.paths: dict[str, Path] = {name_of(here.workspace): here.workspace}
        for path in others:
            self.paths.setdefault(name_of(path), path)
        self.here: str = name_of(here.workspace)

    def world(self, name: str) -> World:
        if name not in self._worlds:
            if name not in self.paths:
                raise UnknownSession("this page shows no such workspace")
            self._worlds[name] = self._make(self.paths[name])
        return self._worlds[name]


def name_of(workspace: Path) -> str:
    return hashlib.sha256(str(workspace).encode(errors="surrogateescape")).hexdigest()[:10]
