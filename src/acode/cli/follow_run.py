"""Follow a session while it runs, for a person or a program: listeners, answers, signals, and the last line. `run` and
`resume` call different functions of the engine; following, stopping and ending are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from acode.cli.error_report import print_error, unexpected
from acode.cli.flags import Flags
from acode.cli.jsonlines import JsonLines
from acode.cli.progress import Progress
from acode.cli.prompts import AtTerminal
from acode.cli.screen import Screen
from acode.cli.signals import Signals
from acode.engine import notices
from acode.engine.next_action import command_for, next_command
from acode.engine.notices import Notice
from acode.engine.world import Answers, Listener, Nobody, Result, World, short
from acode.errors import AcodeError, CannotContinue, Interrupted, LeaseLost
from acode.hints import Force, Resume
from acode.log_file import Several, log_of
from acode.notify import Alerts
from acode.state import NESTED, TERMINAL, Session
from acode.text.durations import count, took

if TYPE_CHECKING:
    from acode.cli.meter import Meter
    from acode.integrations.telemetry import Telemetry

# Refusals that the same command would meet again: wrong words or settings, no such session, one that has ended, and a
# log or a place that must be repaired or left first.
SILENT_ENDINGS = (2, 3, 14, 15, 20)


class Follower:
    """Remembers what the last words need: which session, in which state, at which steps."""

    def __init__(self, flags: Flags, begun: Callable[[], None]) -> None:
        self.flags = flags
        self.begun = begun
        self.session: Session | None = None
        self.resumed = False
        self._open: dict[str, None] = {}  # steps that run, or are waited for

    def steps(self) -> list[str]:
        """The steps that run now, by name, without those that asked for another. A signal's handler calls this too."""
        names = sorted(self._open)
        return [one for one in names if not any(other.startswith(f"{one}{NESTED}") for other in names)]

    @property
    def step(self) -> str | None:
        return next(iter(self.steps()), None)

    def emit(self, notice: Notice) -> None:
        if notice.session is not None:
            self.session = notice.session
        match notice.body:
            case notices.SessionStart(resumed=resumed) | notices.SessionReopened(resumed=resumed):
                self.resumed = resumed
                self.flags.session_id = notice.session_id
                self.begun()
            case notices.StepStarted() | notices.StepWaiting() if notice.step is not None:
                if self.session is None or not (self.session.steps_from.follows_model and NESTED not in notice.step):
                    self._open[notice.step] = None
            case notices.StepCompleted() | notices.StepFailed() | notices.StepSettled():
                self._open.pop(notice.step or "", None)

    def durable(self, seq: int) -> None:
        """Nothing to remember."""


class Execution:
    """One run or resume, from its first listener to its exit status."""

    def __init__(self, flags: Flags, world: World, *, asks: bool = True, name: str | None = None) -> None:
        self.flags = flags
        self.screen = Screen(flags, world.env)
        self.name = name  # the session that is to be resumed, as the person called it
        self.progress = Progress(self.screen, world.redactor, world.monotonic)
        self.lines = JsonLines(self.screen, world.redactor) if flags.json else None
        if self.lines is None and self.screen.lively:
            self.progress.meter_of = self._meter_of
        self.follower = Follower(flags, self._begun)
        grace_s = world.config.settings.steps.stop_grace_seconds
        self.signals = Signals(world.stop, grace_s=grace_s, waits_for=self.follower.steps)
        # Until a resume has begun it may wait for a lock, and nothing is lost by stopping at once.
        self.signals.interrupts = name is not None
        answers: Answers = Nobody()
        if asks and self.screen.can_ask:
            answers = AtTerminal(
                *(self.screen, self.signals, world.redactor, self.progress.line.close),
                holding=self.progress.holding,
                title_of=self.progress.title,
            )
        log = log_of(world)
        self.alerts = Alerts(world, log)
        heard: list[Listener] = [self.follower, self.lines or self.progress, log, self.alerts]
        self.telemetry = telemetry_of(world)
        if self.telemetry is not None:
            heard.append(self.telemetry)
        self.world = msgspec.structs.replace(world, listener=Several(*heard), answers=answers)

    def _meter_of(self, session: Session) -> Meter | None:
        """Only a terminal shows it: nobody else waits for its modules to load."""
        from acode.cli.meter import meter_of_run

        return meter_of_run(self.world, session)

    def _begun(self) -> None:
        self.signals.interrupts = False

    def execute(self, work: Callable[[World], Result]) -> int:
        began = self.world.monotonic()
        try:
            with self.signals, shared(self.world) as ready:
                result = work(ready)
        except (AcodeError, KeyboardInterrupt, Exception) as problem:
            error = self._as_error(problem)
            self._stopped(error)
            self._notify(error)
            raise error from problem
        finally:
            self.progress.line.stop()
        status = self._ended(result, self.world.monotonic() - began)
        self._notify(result.error)
        return status

    def _notify(self, error: AcodeError | None) -> None:
        """After the last words: a person at the terminal waits for no notify command."""
        if self.follower.session is not None:
            self.alerts.ended(self.follower.session, error)
        if self.telemetry is not None:
            self.telemetry.traces.ended(self.follower.session, error)
            self.telemetry.close()
        self.alerts.close()

    def _as_error(self, problem: BaseException) -> AcodeError:
        if isinstance(problem, AcodeError):
            return problem
        if isinstance(problem, KeyboardInterrupt):
            error = Interrupted("stopped at your wish; nothing was changed")
            if self.world.stop.signal not in (None, "SIGINT"):
                error.exit_code = 143  # type: ignore[misc]  # the status says which signal it was
            return error
        return unexpected(self.screen, problem)

    def _stopped(self, error: AcodeError) -> None:
        """The session stopped: the last JSON line holds the error, the last line on stderr the next command."""
        session = self.follower.session
        refused_again = error.exit_code in SILENT_ENDINGS or isinstance(error, CannotContinue | LeaseLost)
        if session is not None:
            self.flags.resume_line = "" if refused_again or session.state in TERMINAL else resume_line_of(session)
            log_of(self.world).error(error, session_id=session.session_id, step=self.follower.step, seq=session.seq)
            if self.lines is not None:
                self.lines.end(
                    at=self.world.clock(),
                    result=None,
                    error=error,
                    state=str(session.state),
                    exit_code=error.exit_code,
                    next_action=next_command(session, error),
                )
            self.flags.error_printed = True
        elif self.name is not None and not refused_again:
            self.flags.resume_line = resume_line(self.name)

    def _ended(self, result: Result, elapsed_s: float) -> int:
        if result.error is not None:
            log_of(self.world).error(result.error, session_id=result.session_id, step=self.follower.step)
        if self.lines is not None:
            self.lines.end(
                at=self.world.clock(),
                result=result,
                error=result.error,
                state=str(result.state),
                exit_code=result.exit_code,
                next_action=result.next_action,
            )
        else:
            self._print_last_lines(result, elapsed_s)
        if result.state not in TERMINAL:
            session = self.follower.session
            self.screen.insist(resume_line_of(session) if session is not None else resume_line(result.session_id))
        return result.exit_code or int(self.lines is not None and self.lines.unwritten)

    def _print_last_lines(self, result: Result, elapsed_s: float) -> None:
        line, name = self.screen.line, short(result.session_id)
        skipped = f", {count(result.skipped_steps, 'step')} skipped" if self.follower.resumed else ""
        numbers = f"{count(result.executed_steps, 'step')} executed{skipped}, {took(elapsed_s * 1000)}"
        if result.exit_code == 0:
            what = "Resume completed: session" if self.follower.resumed else "Completed: session"
            line(f"\n{self.screen.paint('✓', 'good')} {what} {name} is done ({numbers})")
            return
        line("")
        if result.error is not None:
            print_error(self.screen, result.error)
        how = "Paused" if result.state not in TERMINAL else f"Ended as {result.state}"
        line(f"{how}: session {name} ({numbers}). Remaining: {self._remaining(result)}")

    def _remaining(self, result: Result) -> str:
        session = self.follower.session
        if session is not None and session.steps_from.follows_model:
            return count(session.plan_tasks_total - session.plan_tasks_done, "task")
        return count(result.remaining_steps, "step")


def telemetry_of(world: World) -> Telemetry | None:
    """Where nobody has configured OpenTelemetry, nothing of it is loaded."""
    if not any(name.startswith("OTEL_") for name in world.env) and "opentelemetry.metrics" not in sys.modules:
        return None
    from acode.integrations.telemetry import telemetry

    return telemetry(world.env, world.redactor, world.monotonic)


def shared(world: World) -> AbstractContextManager[World]:
    """Where a server is configured, the log is pushed in the background; without one nothing of it is loaded."""
    if world.config.settings.sync.url is None:
        return nullcontext(world)
    from acode.sync.pusher import pushing

    return pushing(world)


def resume_line_of(session: Session) -> str:
    """The last line: how the session is resumed.

    An escalated one is refused without --force; a program that `acode resume` cannot call is run again instead.
    """
    return f"To resume: {command_for(session, Force() if session.escalated else Resume())}"


def resume_line(name: str) -> str:
    return f"To resume: acode resume {short(name) if len(name) == 36 else name}"
