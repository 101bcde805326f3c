"""Tell somebody who is not looking: the user's own `notify` command gets what is critical, as JSON on its input.

It only listens. A command that fails, hangs or is not there costs a few seconds and a line in the log, never the run.
It is taken from the configuration, which holds it back until the file is trusted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import Any

import msgspec

from acode.engine.notices import EnvironmentChecked, Escalated, Notice
from acode.engine.world import World, short
from acode.log_file import Log
from acode.steps.run import WITHHELD

NOTIFY_S_MAX = 10.0


class Alerts:
    """Escalations are critical, a workspace that is not the one the session left is an error; nothing else is told."""

    def __init__(self, world: World, log: Log) -> None:
        self._workspace = world.workspace
        self._env = {name: value for name, value in world.env.items() if name not in WITHHELD}
        self._command = world.config.settings.notify.command
        self._log = log

    def emit(self, notice: Notice) -> None:
        if self._command is None:
            return
        match notice.body:
            case Escalated() as body:
                self._send("critical", "escalated", notice, msgspec.to_builtins(body))
            case EnvironmentChecked(report=report) if not report.valid:
                self._send("error", "state_mismatch", notice, msgspec.to_builtins(report))

    def durable(self, seq: int) -> None:
        """An alert promises nothing."""

    def _send(self, level: str, event: str, notice: Notice, data: dict[str, Any]) -> None:
        alert = {
            "level": level,
            "event": event,
            "at": notice.at.isoformat().replace("+00:00", "Z"),
            "session_id": notice.session_id,
            "short_id": short(notice.session_id),
            "title": notice.session.title if notice.session else "",
            "workspace": os.fspath(self._workspace),
            "data": data,
            "next_action": f"acode explain {short(notice.session_id)}",
        }
        problem = self._run(msgspec.json.encode(self._log.clean(alert), enc_hook=str) + b"\n")
        if problem is not None:
            self._log.write("warning", "notify_failed", session_id=notice.session_id, message=problem)

    def _run(self, text: bytes) -> str | None:
        """What went wrong, in words."""
        try:
            process = subprocess.Popen(
                self._argv(),
                cwd=self._workspace,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=sys.platform != "win32",
            )
        except OSError as error:
            return f"the notify command cannot be started: {error.strerror}"
        try:
            process.communicate(text, timeout=NOTIFY_S_MAX)
        except subprocess.TimeoutExpired:
            _end(process)
            return f"the notify command took over {NOTIFY_S_MAX:g} s and was stopped"
        return f"the notify command ended with {process.returncode}" if process.returncode else None

    def _argv(self) -> list[str]:
        assert self._command is not None
        if not isinstance(self._command, str):
            return list(self._command)
        return ["/bin/sh", "-c", self._command] if sys.platform != "win32" else ["cmd", "/c", self._command]


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
