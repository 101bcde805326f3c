"""What was said for a whole command line, without the parser that read it: a quick command needs none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acode.engine.world import World
    from acode.log_file import Log


class Flags:
    """What was said for the whole command line, before or after the command; and what its error handler must know."""

    def __init__(self) -> None:
        self.json = False
        self.no_input = False
        self.quiet = False
        self.verbose = False
        self.directory: str | None = None
        self.offline = False
        self.reason = ""  # why, for the record; what --offline cannot do without
        self.session_id: str | None = None
        self.error_told = False  # the last JSON line carries the error already
        self.way_on = ""  # the last line of stderr: how to resume
        self._world: World | None = None

    def remember(self, world: World) -> None:
        """From now on errors go to this workspace's log, if it has one."""
        self._world = world

    def log(self) -> Log | None:
        import os

        # Not Path.is_dir, which raises where the disk is sick: the error that is to be told would be lost over it.
        if self._world is None or not os.path.isdir(self._world.agent_dir / "logs"):
            return None
        from acode.log_file import log_of

        return log_of(self._world)

    def redacted(self, text: str) -> str:
        if self._world is not None:
            return self._world.redactor.text(text)
        from acode.redact import redactor

        return redactor([]).text(text)
