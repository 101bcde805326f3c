"""A run as JSON Lines on stdout: every line is a fact that survives a power cut."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Any

from acode.cli.screen import Screen, as_json
from acode.engine.notices import Notice, StepOutput, public_form
from acode.engine.world import Result
from acode.errors import AcodeError, CoolingDown
from acode.redact import Redactor
from acode.text.durations import stamp


class JsonLines:
    """Notices wait in line until the event behind them is durable; what never becomes durable is never printed."""

    def __init__(self, screen: Screen, redactor: Redactor) -> None:
        self.screen = screen
        self.redactor = redactor
        self.session_id: str | None = None
        self._waiting: deque[Notice] = deque()
        self._durable = 0
        self._closed = False
        self.unwritten = False  # lines were lost that somebody wanted to have

    def emit(self, notice: Notice) -> None:
        if self.session_id is None:
            self.session_id = notice.session_id
            # The beginning of a resume was read from the log, so it is durable already.
            self._durable = max(self._durable, notice.seq or 0)
        self._waiting.append(notice)
        self._print_durable()

    def durable(self, seq: int) -> None:
        self._durable = max(self._durable, seq)
        self._print_durable()

    def end(
        self,
        *,
        at: datetime,
        state: str,
        exit_code: int,
        next_action: str,
        result: Result | None = None,
        error: AcodeError | None = None,
        reason_code: str | None = None,
    ) -> None:
        """The last line. Anything that is still waiting was never durable."""
        self.ended(
            at=at,
            state=state,
            exit_code=exit_code,
            reason_code=result.reason_code if result else reason_code or _reason(error),
            executed_steps=result.executed_steps if result else 0,
            skipped_steps=result.skipped_steps if result else 0,
            next_action=next_action,
            error=error,
        )

    def ended(
        self,
        *,
        at: datetime,
        state: str,
        exit_code: int | None,
        reason_code: str,
        executed_steps: int,
        next_action: str,
        skipped_steps: int = 0,
        error: AcodeError | None = None,
    ) -> None:
        """The same for somebody who has only watched. No exit code: the process was cut off."""
        data = {
            "state": state,
            "exit_code": exit_code,
            "reason_code": reason_code,
            "executed_steps": executed_steps,
            "skipped_steps": skipped_steps,
            "next_action": next_action,
            "error": redacted(error.as_dict(), self.redactor) if error else None,
        }
        if exit_code == CoolingDown.exit_code and error is not None:
            data["retry_after_seconds"] = error.details.get("cooldown_seconds_remaining")
        self._print("session_end", at=at, seq=self._durable, data=data)

    def _print_durable(self) -> None:
        while self._waiting and (self._waiting[0].seq or 0) <= self._durable:
            notice = self._waiting.popleft()
            event, data = public_form(notice.body)
            clean = data if isinstance(notice.body, StepOutput) else redacted(data, self.redactor)
            self._print(event, at=notice.at, seq=notice.seq, data=clean, task=notice.task, step=notice.step)

    def _print(
        self,
        event: str,
        *,
        at: datetime,
        seq: int | None,
        data: Any,
        task: str | None = None,
        step: str | None = None,
    ) -> None:
        if self._closed:
            return
        line = {
            "event": event,
            "at": stamp(at),
            "session_id": self.session_id,
            "seq": seq,
            "task": task,
            "step": step,
            "data": data,
        }
        try:
            self.screen.json_text(as_json(line))
        except BrokenPipeError:
            self._closed = True  # the reader has gone; the work continues
        except AcodeError as error:  # a full disk behind the pipe stops nothing either; the exit status shows it
            self._closed = self.unwritten = True
            self.screen.warn(f"{error.message}; the work continues without")


def _reason(error: AcodeError | None) -> str:
    if error is None:
        return "paused_by_user"
    named = "".join(f"_{char.lower()}" if char.isupper() else char for char in type(error).__name__).lstrip("_")
    return str(error.details.get("reason_code", named))


def redacted(value: Any, redactor: Redactor) -> Any:
    """Text in it loses its secrets: a command line of a plan may hold one."""
    match value:
        case str():
            return redactor.text(value)
        case dict():
            return {key: redacted(item, redactor) for key, item in value.items()}
        case list() | tuple():
            return [redacted(item, redactor) for item in value]
        case _:
            return value
