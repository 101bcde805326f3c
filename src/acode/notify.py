"""Notify a person who is not watching: the user's own command gets one line of JSON on its input for each cause.

It only listens, and a step never waits for it: each command runs in a thread of its own, for a few seconds at most. A
command that fails, hangs or is missing costs a line in the log, never the run. A cause is noted on disk before its
command starts, so that a session that is resumed again and again reports the same gate or failure once. The command
comes from the configuration, which withholds it until the file is trusted.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from acode.attention import Attention
from acode.child_process import end_group
from acode.disk.own_files import open_own
from acode.disk.private_files import make_private_directory
from acode.engine.next_action import command_for, next_command
from acode.engine.notices import EnvironmentChecked, Escalated, Notice
from acode.engine.world import World, short
from acode.errors import (
    AcodeError,
    ApprovalDenied,
    ChangedFiles,
    InputRequired,
    OutcomeUnknown,
    StepFailed,
    StepTimeout,
)
from acode.hints import Command
from acode.log_file import Log
from acode.state import Session, State
from acode.steps.keeper_notes import run_directory
from acode.steps.run import WITHHELD

NOTIFY_S_MAX = 10.0
PARKING_CAUSES = ("gate", "unknown", "escalated", "mismatch")


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody should know. `key` tells two causes of the same kind apart."""

    cause: str  # as `notify.on` names it
    event: str
    level: str
    key: str
    attention: Attention | None
    data: dict[str, Any]
    next_action: str


class Alerts:
    """Listens to one run of a session; its end is reported by `ended`, because no notice says how a run ended. A worker
    of a fleet has one for all its sessions."""

    def __init__(self, world: World, log: Log, complain: Callable[[str, str], None] | None = None) -> None:
        """`complain` is told the session and what went wrong with its command; the log is by default."""
        settings = world.config.settings.notify
        self._world = world
        self._env = {name: value for name, value in world.env.items() if name not in WITHHELD}
        self._command = settings.command
        # In a fleet such a session is parked, and the worker notifies once for all machines.
        self._on = tuple(one for one in settings.on if world.lease is None or one not in PARKING_CAUSES)
        self._log = log
        self._complain = complain or self._complain_in_log
        self._sent: list[threading.Thread] = []
        self._turn = threading.Lock()  # a worker's slots send from threads of their own

    def emit(self, notice: Notice) -> None:
        if self._command is None or notice.session is None:
            return
        match notice.body:
            case Escalated() as body:
                self._send(notice.session, escalation(notice.session, body))
            case EnvironmentChecked(report=report) if not report.valid:
                self._send(notice.session, mismatch(notice.session, msgspec.to_builtins(report)))

    def durable(self, seq: int) -> None:
        """An alert promises nothing."""

    def ended(self, session: Session, error: AcodeError | None) -> None:
        """The run has ended: with a question, an unknown outcome, a failure, or well."""
        alert = at_the_end(session, error) if self._command is not None else None
        if alert is not None:
            self._send(session, alert)

    def close(self) -> None:
        """Wait for commands that still run; each has its time limit."""
        with self._turn:
            sent, self._sent = self._sent, []
        for thread in sent:
            thread.join()

    def _send(self, session: Session, alert: Alert) -> None:
        if alert.cause in self._on and is_new(self._world.agent_dir, session.session_id, alert):
            self.send(alert, session_id=session.session_id, title=session.title)

    def send(self, alert: Alert, *, session_id: str, title: str) -> None:
        """For a caller that knows by itself that it is new; nobody waits for the command but `close`."""
        if self._command is None or alert.cause not in self._on:
            return
        text = line_of(self._world, self._log, alert, session_id=session_id, title=title)
        thread = threading.Thread(target=self._run, args=(session_id, text), name="acode-notify", daemon=True)
        with self._turn:
            thread.start()
            self._sent = [*filter(threading.Thread.is_alive, self._sent), thread]

    def _run(self, session_id: str, text: bytes) -> None:
        problem = self._problem(text)
        if problem is not None:
            self._complain(session_id, problem)

    def _complain_in_log(self, session_id: str, problem: str) -> None:
        self._log.write("warning", "notify_failed", session_id=session_id, message=problem)

    def _problem(self, text: bytes) -> str | None:
        """Run the command; the reason if it failed, in words."""
        try:
            process = subprocess.Popen(
                self._argv(),
                cwd=self._world.workspace,
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
            end_group(process)
            return f"the notify command took over {NOTIFY_S_MAX:g} s and was stopped"
        return f"the notify command ended with {process.returncode}" if process.returncode else None

    def _argv(self) -> list[str]:
        assert self._command is not None
        if not isinstance(self._command, str):
            return list(self._command)
        return ["/bin/sh", "-c", self._command] if sys.platform != "win32" else ["cmd", "/c", self._command]


def line_of(world: World, log: Log, alert: Alert, *, session_id: str, title: str) -> bytes:
    line = {
        "level": alert.level,
        "event": alert.event,
        "cause": alert.cause,
        "attention": alert.attention,
        "at": world.clock().isoformat().replace("+00:00", "Z"),
        "session_id": session_id,
        "short_id": short(session_id),
        "title": title,
        "workspace": os.fspath(world.workspace),
        "data": alert.data,
        "next_action": alert.next_action,
    }
    return msgspec.json.encode(log.clean(line), enc_hook=str) + b"\n"


# Causes.


EXPLAIN = Command("explain SESSION")


def escalation(session: Session, body: Escalated) -> Alert:
    return Alert(
        cause="escalated",
        event="escalated",
        level="critical",
        key=f"{body.reason_code} {session.furthest}",
        attention="escalated",
        data=msgspec.to_builtins(body),
        next_action=command_for(session, EXPLAIN),
    )


def mismatch(session: Session, report: dict[str, Any]) -> Alert:
    changed = [(one["path"], one.get("found_hash")) for one in report.get("changed_files", ())]
    return Alert(
        cause="mismatch",
        event="state_mismatch",
        level="error",
        key=repr((changed, [one["code"] for one in report.get("errors", ())])),
        attention="changed_files",
        data=report,
        next_action=command_for(session, EXPLAIN),
    )


def at_the_end(session: Session, error: AcodeError | None) -> Alert | None:
    """The alert for the way in which a run ended; None where nobody is needed."""
    way = next_command(session, error)
    match error:
        case None if session.state is State.COMPLETED:
            return Alert(cause="done", event="done", level="info", key="", attention=None, data={}, next_action="")
        case OutcomeUnknown():
            step = str(error.details.get("step") or session.last_attempted or "")
            flight = session.in_flight.get(step)
            attempt = flight.started.attempt if flight is not None else 0
            return ending_alert("unknown", f"{step} {attempt}", "resolve", error, way)
        case InputRequired() if session.waiting_for is not None:
            waiting = session.waiting_for
            return ending_alert("gate", f"{waiting.step} {waiting.action_digest}", "approve", error, way)
        case StepFailed() | StepTimeout():
            return ending_alert("failed", f"{error.details.get('step')} {error.message}", None, error, way)
        case ChangedFiles() | ApprovalDenied() | None:
            return None  # the mismatch was reported when it was found; a denial is somebody's own answer
        case _ if session.state is State.FAILED:
            return ending_alert("failed", error.message, None, error, way)
        case _:
            return None


def ending_alert(cause: str, key: str, attention: Attention | None, error: AcodeError, way: str) -> Alert:
    return Alert(
        cause=cause,
        event=cause,
        level="error" if cause == "failed" else "warning",
        key=key,
        attention=attention,
        data={"error": error.as_dict()},
        next_action=way,
    )


def is_new(agent_dir: Path, session_id: str, alert: Alert) -> bool:
    """Whether this cause is reported for the first time; from now on it is not new.

    One empty file for each cause, made only where it is missing, so that of two processes one reports it. Where the
    note cannot be made the cause is reported: a second call is better than none.
    """
    place = run_directory(agent_dir, f"{session_id}:notified")
    name = hashlib.sha256(f"{alert.cause} {alert.key}".encode(errors="surrogatepass")).hexdigest()[:32]
    try:
        make_private_directory(place)
        os.close(open_own(place / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    except (OSError, AcodeError):
        return True
    return True
