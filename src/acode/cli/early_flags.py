"""The global flags of a command line, without the parser that read them: a quick command needs none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acode.engine.world import World
    from acode.log_file import Log


class Flags:
    """The global flags, given before or after the command; and the values that the error handler needs."""

    def __init__(self) -> None:
        self.json = False
        self.no_input = False
        self.quiet = False
        self.verbose = False
        self.directory: str | None = None
        self.offline = False
        self.reason = ""  # why, for the record; what --offline cannot do without
        self.on_signal = "pause"
        self.session_id: str | None = None
        self.error_printed = False  # the last JSON line holds the error already
        self.resume_line = ""  # the last line of stderr: how to resume
        self.only_looks = False  # the command changes nothing and leaves nothing open
        self._world: World | None = None

    def remember(self, world: World) -> None:
        """From now on errors go to this workspace's log, if it has one."""
        self._world = world

    def log(self) -> Log | None:
        import os

        # Not Path.is_dir, which raises where the disk fails: the error to report would be lost.
        if self._world is None or not os.path.isdir(self._world.agent_dir / "logs"):
            return None
        from acode.log_file import log_of

        return log_of(self._world)

    def redacted(self, text: str) -> str:
        if self._world is not None:
            return self._world.redactor.text(text)
        from acode.redact import redactor

        return redactor([]).text(text)
