"""The log file for people: JSON lines in `.agent/logs/acode.jsonl`.

It only listens. A log that cannot be written never stops or changes a run. acode reads nothing of it back: the truth is
the session's own log. Where OpenTelemetry is configured, each line names its trace.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from acode.disk.own_files import open_own
from acode.engine import notices
from acode.engine.notices import Notice
from acode.engine.world import Listener, World
from acode.errors import AcodeError
from acode.events.keys import span_id_of, trace_id_of
from acode.redact import Redactor

if TYPE_CHECKING:
    from acode.engine.environment import Report

LOG_NAME = "acode.jsonl"
LOG_BYTES_MAX = 5 * 1_048_576
LOGS_KEPT = 3
VALUES_LISTED_MAX = 50

# The names of a resume's decisions are fixed: `rollback_retry`, and nothing where a person or time will decide.
_ACTIONS = {"skip": "skip", "retry": "retry", "rollback_and_retry": "rollback_retry"}


class Several:
    """One listener made of many; each hears everything in order."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def emit(self, notice: Notice) -> None:
        for listener in self.listeners:
            listener.emit(notice)

    def durable(self, seq: int) -> None:
        for listener in self.listeners:
            listener.durable(seq)


class Log:
    """One JSON object per line: at, level, event, and what belongs to it."""

    def __init__(self, path: Path, redactor: Redactor, clock: Callable[[], datetime], *, traced: bool = False) -> None:
        self.path = path
        self.redactor = redactor
        self.clock = clock
        self.traced = traced

    # Listening.

    def emit(self, notice: Notice) -> None:
        body = notice.body
        match body:
            case notices.StepOutput():
                return  # it is in the session
            case notices.ResumeStarted():
                self._resume(notice, body)
            case notices.EnvironmentChecked():
                self._environment(notice, body.report)
            case notices.ResumeDecision():
                self._decision(notice, body)
            case notices.StepStarted():
                self._as_logged("debug", notice)
            case notices.RunWarning() | notices.StepWarning() | notices.StepRetry():
                self._as_logged("warning", notice)
            case notices.StepFailed():
                self._as_logged("error", notice)
            case notices.Escalated():
                self._as_logged("critical", notice)
            case (
                notices.StepCompleted()
                | notices.StepSettled()
                | notices.StepWaiting()
                | notices.StepRolledBack()
                | notices.FinishedStepRolledBack()
                | notices.ApprovalRequest()
                | notices.ContextCompacted()
                | notices.SessionStart()
                | notices.SessionReopened()
                | notices.Backup()
                | notices.Repaired()
                | notices.PlanChanged()
                | notices.PlanReplaced()
                | notices.TaskCompleted()
                | notices.SyncChanged()
                | notices.ChangesAccepted()
                | notices.ResumeCompleted()
            ):
                self._as_logged("info", notice)
            case _:
                assert_never(body)

    def durable(self, seq: int) -> None:
        """The log follows what is said; it promises nothing."""

    def _as_logged(self, level: str, notice: Notice) -> None:
        event, data = notices.public_form(notice.body)
        self._line(level, event, notice, **data)

    def _resume(self, notice: Notice, body: notices.ResumeStarted) -> None:
        started = body.started
        self.write(
            "info",
            "session_resume",
            session_id=notice.session_id,
            checkpoint_id=started.checkpoint_id,
            skipped_tasks=started.skipped_tasks,
            skipped_steps=started.skipped_steps,
            remaining_steps=started.remaining_steps,
            in_progress_action=_ACTIONS.get(started.in_progress_action or ""),
            sync_status=body.sync.status,
            environment_valid=started.environment_valid,
        )
        self._line(
            "info",
            "resume_scenario",
            notice,
            scenario=started.scenario,
            interruption_class=started.interruption_class,
            point_seq=started.point_seq,
        )
        first, last = started.replay_first, started.replay_last
        self._line("info", "replay_order", notice, first=first, last=last, count=last - first + 1, order="seq")

    def _environment(self, notice: Notice, report: Report) -> None:
        if report.valid:
            self._line("info", "environment_valid", notice, total_files=report.total_files)
            return
        mismatches = msgspec.to_builtins([*report.errors, *report.changed_files])
        self._line(
            "error",
            "environment_mismatch",
            notice,
            code="ACODE-RESUME-004",
            total_files=report.total_files,
            mismatches=mismatches[:VALUES_LISTED_MAX],
            mismatches_total=len(mismatches),
            recommendation=report.recommendation,
        )

    def _decision(self, notice: Notice, body: notices.ResumeDecision) -> None:
        over = body.reason_code == "resume_attempt_limit_reached"
        level = "info" if body.eligible else "error" if over else "warning"
        event, data = notices.public_form(body)
        self._line(level, "attempt_limit_exceeded" if over else event, notice, **data)

    # Errors.

    def error(
        self, error: AcodeError, *, session_id: str | None, step: str | None = None, seq: int | None = None
    ) -> None:
        self.write(
            "error",
            "error",
            session_id=session_id or error.details.get("session_id"),
            step=error.details.get("step", step),
            seq=error.details.get("seq", seq),
            code=error.code,
            exit_code=error.exit_code,
            message=error.message,
            details=error.details,
        )

    def crash(self, trace: str, *, session_id: str | None) -> None:
        """An unexpected exception, with everything that is needed to fix it."""
        self.write("critical", "unexpected_error", session_id=session_id, code="ACODE-000", traceback=trace)

    # Writing.

    def _line(self, level: str, event: str, notice: Notice, **fields: Any) -> None:
        self.write(
            level, event, session_id=notice.session_id, seq=notice.seq, task=notice.task, step=notice.step, **fields
        )

    def write(self, level: str, event: str, **fields: Any) -> None:
        at = self.clock().isoformat().replace("+00:00", "Z")
        line = {"at": at, "level": level, "event": event, **self.clean(fields), **self._trace(fields)}
        try:
            raw = msgspec.json.encode(line, enc_hook=str) + b"\n"
        except (UnicodeEncodeError, TypeError):
            raw = repr(line).encode("ascii", "backslashreplace") + b"\n"
        # A full or read-only disk stops the session itself with a clear error; its log must not do so first.
        with contextlib.suppress(OSError):
            self._append(raw)

    def _trace(self, fields: Mapping[str, Any]) -> dict[str, str]:
        """The trace of the session and the span of the attempt, where the line belongs to one."""
        if not self.traced or not fields.get("session_id"):
            return {}
        span = {"span_id": span_id_of(fields["key"])} if fields.get("key") else {}
        return {"trace_id": trace_id_of(fields["session_id"]), **span}

    def clean(self, value: Any) -> Any:
        """Without secrets, and without lists that nobody reads to their end."""
        match value:
            case str():
                return self.redactor.text(value)
            case Mapping():
                return {str(key): self.clean(item) for key, item in value.items()}
            case list() | tuple():
                return [self.clean(item) for item in value[:VALUES_LISTED_MAX]]
            case _:
                return value

    def _append(self, raw: bytes) -> None:
        """One write per line, so that the lines of two processes never mix; opened again each time, because either
        may rotate.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = open_own(self.path, flags)
        try:
            full = os.fstat(descriptor).st_size + len(raw) > LOG_BYTES_MAX
            if not full:
                os.write(descriptor, raw)
        finally:
            os.close(descriptor)
        if full:
            self._rotate()
            self.path.touch(mode=0o600)
            self._append_to_new(raw, flags)

    def _append_to_new(self, raw: bytes, flags: int) -> None:
        descriptor = open_own(self.path, flags)
        try:
            os.write(descriptor, raw)
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        for number in range(LOGS_KEPT, 0, -1):
            older = self.path if number == 1 else self.path.with_name(f"{LOG_NAME}.{number - 1}")
            with contextlib.suppress(FileNotFoundError):
                os.replace(older, self.path.with_name(f"{LOG_NAME}.{number}"))


def log_of(world: World) -> Log:
    """The workspace's log; its directory is made with the first session, and until then nothing is written."""
    traced = any(name.startswith("OTEL_") for name in world.env)
    return Log(world.agent_dir / "logs" / LOG_NAME, world.redactor, world.clock, traced=traced)
