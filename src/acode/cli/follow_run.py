"""Carry a session out under the eyes of a person or a program: listeners, answers, signals, and the last words.

`run` and `resume` differ in what they call; how it is followed, stopped and ended is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import msgspec

from acode.cli.durations import count, took
from acode.cli.error_report import print_error, unexpected
from acode.cli.flags import Flags
from acode.cli.jsonlines import JsonLines
from acode.cli.progress import Progress
from acode.cli.prompts import AtTerminal
from acode.cli.screen import Screen
from acode.cli.signals import Signals
from acode.engine import hints, notices
from acode.engine.notices import Notice
from acode.engine.world import Answers, Listener, Nobody, Result, World, short
from acode.errors import AcodeError, CannotContinue, Interrupted, LeaseLost
from acode.log_file import Several, flush_metrics, log_of, meter
from acode.notify import Alerts
from acode.state import TERMINAL, Session

# Refusals that the same command would meet again: wrong words or settings, no such session, one that has ended, and a
# log or a place that must be repaired or left first.
SILENT_ENDINGS = (2, 3, 14, 15, 20)


class Follower:
    """Remembers what the last words need: which session, in which state, at which step."""

    def __init__(self, flags: Flags, begun: Callable[[], None]) -> None:
        self.flags = flags
        self.begun = begun
        self.session: Session | None = None
        self.step: str | None = None
        self.resumed = False

    def emit(self, notice: Notice) -> None:
        if notice.session is not None:
            self.session = notice.session
        match notice.body:
            case notices.SessionStart(resumed=resumed) | notices.SessionReopened(resumed=resumed):
                self.resumed = resumed
                self.flags.session_id = notice.session_id
                self.begun()
            case notices.StepStarted() | notices.StepWaiting():
                self.step = notice.step
            case notices.StepCompleted() | notices.StepFailed():
                self.step = None

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
        self.follower = Follower(flags, self._begun)
        grace_s = world.config.settings.steps.stop_grace_seconds
        self.signals = Signals(world.stop, grace_s=grace_s, waits_for=lambda: self.follower.step)
        # Until a resume has begun it may wait for a lock, and nothing is lost by stopping at once.
        self.signals.interrupts = name is not None
        answers: Answers = Nobody()
        if asks and self.screen.can_ask:
            answers = AtTerminal(
                self.screen, self.signals, world.redactor, self.progress.line.close, self.progress.title
            )
        log = log_of(world)
        heard: list[Listener] = [self.follower, self.lines or self.progress, log, Alerts(world, log)]
        measured = meter(world.env, world.monotonic)
        if measured is not None:
            heard.append(measured)
        self.world = msgspec.structs.replace(world, listener=Several(*heard), answers=answers)

    def _begun(self) -> None:
        self.signals.interrupts = False

    def carry_out(self, work: Callable[[World], Result]) -> int:
        began = self.world.monotonic()
        try:
            with self.signals, shared(self.world) as ready:
                result = work(ready)
        except (AcodeError, KeyboardInterrupt, Exception) as problem:
            error = self._as_error(problem)
            self._stopped(error)
            raise error from problem
        finally:
            self.progress.line.stop()
            flush_metrics()
        return self._ended(result, self.world.monotonic() - began)

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
        """It could not go on: the last JSON line carries the error, the last line of talk the way on."""
        session = self.follower.session
        refused_again = error.exit_code in SILENT_ENDINGS or isinstance(error, CannotContinue | LeaseLost)
        if session is not None:
            self.flags.way_on = "" if refused_again or session.state in TERMINAL else way_on_of(session)
            log_of(self.world).error(error, session_id=session.session_id, step=self.follower.step, seq=session.seq)
            if self.lines is not None:
                self.lines.end(
                    at=self.world.clock(),
                    result=None,
                    error=error,
                    state=str(session.state),
                    exit_code=error.exit_code,
                    next_action=hints.way_on(session, error),
                )
            self.flags.error_told = True
        elif self.name is not None and not refused_again:
            self.flags.way_on = way_on(self.name)

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
            self._last_words(result, elapsed_s)
        if result.state not in TERMINAL:
            session = self.follower.session
            self.screen.insist(way_on_of(session) if session is not None else way_on(result.session_id))
        return result.exit_code or int(self.lines is not None and self.lines.unwritten)

    def _last_words(self, result: Result, elapsed_s: float) -> None:
        say, name = self.screen.line, short(result.session_id)
        skipped = f", {count(result.skipped_steps, 'step')} skipped" if self.follower.resumed else ""
        numbers = f"{count(result.executed_steps, 'step')} executed{skipped}, {took(elapsed_s * 1000)}"
        if result.exit_code == 0:
            what = "Resume completed: session" if self.follower.resumed else "Completed: session"
            say(f"\n{self.screen.paint('✓', 'good')} {what} {name} is done ({numbers})")
            return
        say("")
        if result.error is not None:
            print_error(self.screen, result.error)
        how = "Paused" if result.state not in TERMINAL else f"Ended as {result.state}"
        say(f"{how}: session {name} ({numbers}). Remaining: {self._remaining(result)}")

    def _remaining(self, result: Result) -> str:
        session = self.follower.session
        if session is not None and session.steps_from.follows_model:
            return count(session.plan_tasks_total - session.plan_tasks_done, "task")
        return count(result.remaining_steps, "step")


def shared(world: World) -> AbstractContextManager[World]:
    """Where a server is configured, the log is pushed in the background; without one nothing of it is loaded."""
    if world.config.settings.sync.url is None:
        return nullcontext(world)
    from acode.sync.pusher import pushing

    return pushing(world)


def way_on_of(session: Session) -> str:
    """The last line: how the session is resumed.

    An escalated one is refused without --force; a program that `acode resume` cannot call is run again instead.
    """
    action = hints.GrantAttempt() if session.escalated else hints.Resume()
    return f"To resume: {hints.as_command(action, hints.subject_of(session))}"


def way_on(name: str) -> str:
    return f"To resume: acode resume {short(name) if len(name) == 36 else name}"
