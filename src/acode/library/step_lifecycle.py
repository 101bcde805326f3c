"""One step of a program, from its asking to its end: given from the record, or begun, ended, failed and tried again.

All writing takes turns, so that threads may work on several steps at once; the functions themselves run outside of it.
What stands here runs once or twice for every step, between two syncs: it must never do for each step what can be done
for each session.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

from acode.engine import called, hints
from acode.engine.held_session import Held
from acode.engine.step import guard_after_act, guard_before_act, refuse_outside, wait, wait_async
from acode.engine.walk import put_back_leftovers, record_failure
from acode.errors import AcodeError, NotStorable, OutcomeUnknown, StepFailed, StepTimeout, TerminalState, Usage
from acode.events import types as ev
from acode.events.definition import Action, Step
from acode.library.arguments import VERSION, Arguments
from acode.library.declarations import Begun, How, OnChange, TimedOut, Work, close_unbegun, unfinished
from acode.library.failures import describe_error, in_words, raised_again, told_in_words
from acode.library.recorded_steps import Question, Record, without_result
from acode.library.step_identity import CURRENT, Scope, runner
from acode.steps import kind_of
from acode.steps.interface import Done, Failed, Site

FLUSH_EVERY_S = 0.5  # what was committed and not synced is power-safe within a second


class Asking:
    """What a session does for each step that its program asks for."""

    def __init__(self, run: Held, *, on_change: OnChange) -> None:
        self.run = run
        self.record = Record(run, on_change)
        self.top = Scope()
        self.found = 0  # steps that were on record
        self.closed = False
        self._pid = os.getpid()
        self._flusher: threading.Thread | None = None
        self._ended = threading.Event()

    def ask(
        self,
        name: str,
        arguments: Arguments,
        how: How,
        action: Callable[[], Action],
        shown: Callable[[], str],
        *,
        starts: bool = True,
    ) -> Begun:
        """Find it on record, or begin it. `starts` False: somebody has to prepare before it can begin."""
        self.refuse_if_not_usable()
        with self.run.turn:
            self.at_boundary()
            scope = self.scope()
            self._refuse_given_up(scope)
            taken = scope.take(name)
            asked = ev.Asked(
                arguments=arguments.digest,
                digest_version=VERSION,
                after=taken.after,
                version=how.version,
                ordered=taken.certain,
            )
            question = Question(asked, arguments, taken, scope, shown, how.on_change)
            completed = self._on_record(question)
            if completed is not None:
                self.found += 1
                self.record.finished_top += scope.top
                return Begun(taken.id, scope, completed=completed, result=self.record.unpack(completed))
            self._raise_caught(question)
            self._refuse_what_cannot_run(taken.id)
            undo = how.undo if isinstance(how.undo, str | tuple) else None
            step = Step(id=taken.id, action=action(), idempotent=how.idempotent, timeout_s=how.timeout_s, undo=undo)
            if taken.ordered:
                self.record.refuse_the_same_by_another_name(step, question)
            text = self.run.world.redactor.text(shown())
            begun = Begun(taken.id, scope, work=Work(step=step, how=how, asked=asked, shown=text))
            if starts:
                self.begin(begun)
            return begun

    def _on_record(self, question: Question) -> ev.StepCompleted | None:
        """The completion that answers the question; one that is to be done again is taken off the record."""
        step = question.taken.id
        completed = self.record.find(step, question.scope)
        if completed is None or self.record.is_as_asked(question, completed.asked, completed.attempt):
            return completed
        called.take_back_record(self.run, step)
        return None

    def _raise_caught(self, question: Question) -> None:
        """A failure that the program caught is the step's outcome: it is raised again, and nothing is called."""
        step = question.taken.id
        record = self.record.caught(step)
        if record is None:
            return
        then = record.left_behind.asked if record.left_behind is not None else None
        if self.record.is_as_asked(question, then, record.attempt):
            raise raised_again(self.record.failure(record), step)

    def recall(self, step_id: str) -> Begun | None:
        """A step of the session itself by its id, out of its turn; None where it is not on record."""
        self.refuse_if_forked()
        with self.run.turn:
            completed = self.record.find(step_id, self.top)
            if completed is None:
                return None
            return Begun(step_id, self.top, completed=completed, result=self.record.unpack(completed))

    def scope(self) -> Scope:
        """The place in this session at which this thread or task stands."""
        current = CURRENT.get()
        return current.scope if current is not None and current.session._asking is self else self.top

    def at_boundary(self) -> None:
        """Between two steps: whoever wants the program to end is heard here, and not inside a step."""
        self.refuse_if_not_usable()
        if self.run.world.stop.at_boundary():
            raise KeyboardInterrupt

    def refuse_if_not_usable(self) -> None:
        if self.closed:
            raise Usage(f"the session {self.run.session.run_id} is closed: its block has ended")
        self.refuse_if_forked()

    def refuse_if_forked(self) -> None:
        """A copy of a session in a forked child would write the same log beside its parent."""
        if self.forked:
            raise Usage(
                f"the session {self.run.session.run_id} belongs to process {self._pid}, of which this one is a"
                " forked child",
                hint="Let the child hand its results back, and the parent ask for the steps.",
            )

    @property
    def forked(self) -> bool:
        """Whether this process is not the one that opened the session."""
        return os.getpid() != self._pid

    def _refuse_given_up(self, scope: Scope) -> None:
        """A thread that nobody waits for any more would do the next attempt's steps beside it, or take their names."""
        step = scope.attempt_given_up()
        if step is not None:
            raise StepTimeout(f"step {step} ran out of its time: this attempt of it is given no more steps", step=step)

    def _refuse_what_cannot_run(self, step_id: str) -> None:
        session = self.run.session
        if session.terminal:
            raise TerminalState(
                f"session {session.session_id[-8:]} is {session.state}, and step {step_id} is none of its steps",
                hint="Begin anew: acode.session(key, on_completed='new'), or another key.",
                step=step_id,
            )
        if step_id in session.in_flight:
            raise OutcomeUnknown(
                f"step {step_id} was begun and has not ended",
                hint=hints.hint(session, "Say what became of it: {}", hints.Resolve(step=step_id)),
                step=step_id,
            )

    # Begun and ended.

    def begin(self, begun: Begun, site: Site | None = None) -> None:
        """Say that it begins; together with that an earlier failure was handled, if there was one."""
        work, scope = begun.work, begun.parent
        with self.run.turn:
            before = tuple(ev.FailureHandled(step=step) for step in scope.goes_on_after(begun.id))
            prepared = None
            if site is not None:
                refuse_outside(work.step, site)
                prepared = kind_of(work.step.kind).prepare(work.step, site)
            begun.started = called.begin(
                self.run, work.step, work.asked, shown=work.shown, before=before, prepared=prepared
            )
            guard_before_act(self.run)
            begun.began_at = self.run.world.monotonic()

    def begin_again(self, begun: Begun) -> None:
        with self.run.turn:
            self.at_boundary()
            put_back_leftovers(self.run, begun.work.step)
            self.begin(begun)

    def complete(self, begun: Begun, result: Any) -> None:
        """The completion and its result; said even where somebody wants the program to end, because it is true."""
        assert begun.started is not None
        self.refuse_if_not_usable()
        try:
            done = self.record.pack(result)
        except NotStorable as error:
            if not unfinished(result):  # else it may be at work still, and what becomes of it nobody knows
                self._end_without_result(begun, error.message)
            close_unbegun(result)
            error.message = f"step {begun.id} has run, but its result is lost: {error.message}"
            error.args = (error.message,)
            error.hint = f"{error.hint or ''} {self.record.way_to_a_result(begun.id)}".strip()
            error.details["step"] = begun.id
            raise
        self._end(begun, done)

    def _end(self, begun: Begun, done: Done) -> None:
        assert begun.started is not None
        with self.run.turn:
            self.refuse_if_not_usable()
            called.end(self.run, begun.started, done, took_ms=self.took_ms(begun))
            self.finished(begun)

    def _end_without_result(self, begun: Begun, why: str) -> None:
        """It has run, and that is known; what is missing is asked for when the program needs it.

        What may be repeated stays open instead: the next run does it again, with a function that was mended since.
        """
        if not begun.work.how.idempotent:
            self._end(begun, without_result(self.run.world.redactor.text(why)))

    def finished(self, begun: Begun) -> None:
        self.record.finished_top += begun.parent.top
        if self._flusher is None and self.run.journal.durable_seq < self.run.session.seq:
            self._flusher = threading.Thread(target=self._keep_flushing, name="acode-flush", daemon=True)
            self._flusher.start()

    def _keep_flushing(self) -> None:
        """A completion that was not synced is power-safe within a second, whatever the program does meanwhile."""
        while not self._ended.wait(FLUSH_EVERY_S):
            with contextlib.suppress(AcodeError):  # whoever writes next hears of it
                self.run.flush()

    def close(self) -> None:
        """No step is asked for any more."""
        self.closed = True
        self._ended.set()
        if self._flusher is not None:
            self._flusher.join()

    def perform(self, begun: Begun) -> str:
        """A step that the engine itself executes: a write or a command."""
        while not begun.found:
            with self.run.turn:
                put_back_leftovers(self.run, begun.work.step)
                site = self.run.site()
                self.begin(begun, site)
            assert begun.started is not None
            outcome = kind_of(begun.work.step.kind).execute(begun.work.step, site, begun.started)
            with self.run.turn:
                if isinstance(outcome, Done):
                    begun.completed = called.end(self.run, begun.started, outcome, took_ms=self.took_ms(begun))
                    self.finished(begun)
                    return self.record.output(begun.completed)
                guard_after_act(self.run, begun.id)
                record_failure(self.run, begun.started, outcome, self.took_ms(begun))
                if outcome.reason in ("exit", "error"):
                    begun.parent.failed[begun.id] = runner()
            error = self.error_of(begun, outcome)
            wait_s = self._retry_after_s(begun, error) if outcome.reason == "exit" else None
            if wait_s is None:
                raise error
            self.wait(wait_s)
        assert begun.completed is not None
        return self.record.output(begun.completed)

    def wait(self, seconds: float) -> None:
        """Between two attempts. A Ctrl+C that only sets the switch, as under `acode resume`, ends the wait too."""
        if wait(self.run, seconds):
            raise KeyboardInterrupt

    async def wait_async(self, seconds: float) -> None:
        if await wait_async(self.run, seconds):
            raise KeyboardInterrupt

    # Failed.

    def fail(self, begun: Begun, error: Exception) -> None:
        assert begun.started is not None
        with self.run.turn:
            self.refuse_if_not_usable()
            guard_after_act(self.run, begun.id)
            told = self._told(error)
            failed = Failed(reason="error", message=f"{type(error).__name__}: {in_words(error)}")
            record_failure(self.run, begun.started, failed, self.took_ms(begun), error=told)
            begun.parent.failed[begun.id] = runner()

    def failed(self, begun: Begun, error: Exception) -> float | None:
        """Record how the function failed; seconds until its next attempt, or None to let the program hear of it."""
        assert begun.started is not None
        if isinstance(error, NotStorable) and error.details.get("step") == begun.id:
            self._end_without_result(begun, error.message)  # it has run, says who encodes its result itself
            return None
        if isinstance(error, TimedOut):
            return self._ran_out_of_time(begun)
        self.fail(begun, error)
        return self._retry_after_s(begun, error)

    def _ran_out_of_time(self, begun: Begun) -> float | None:
        assert begun.started is not None
        how = begun.work.how
        with self.run.turn:
            message = f"it ran out of its {how.timeout_s:g} s"
            failed = Failed(reason="timeout", message=message)
            record_failure(self.run, begun.started, failed, self.took_ms(begun))
            flight = self.run.session.in_flight[begun.id]
            if how.idempotent and how.retry is not None and flight.failures < how.retry.attempts:
                called.accept_retry(self.run, begun.started, f"{message}; it is declared idempotent")
                return how.retry.wait_s(flight.failures)
        raise StepTimeout(f"step {begun.id}: {message}", step=begun.id) from None

    def _retry_after_s(self, begun: Begun, error: Exception) -> float | None:
        record = self.run.session.record(begun.id)
        failures = record.failures if record is not None else 1
        retry = begun.work.how.retry
        return retry.wait_s(failures) if retry is not None and retry.again_after(error, failures) else None

    def error_of(self, begun: Begun, failed: Failed) -> StepFailed:
        cls = StepTimeout if failed.reason == "timeout" else StepFailed
        message = self.run.world.redactor.text(failed.message)
        tail = failed.output.tail if failed.output else ""
        return cls(f"step {begun.id}: {message}", step=begun.id, exit_status=failed.exit_status, output=tail)

    def _told(self, error: Exception) -> dict[str, Any]:
        told = describe_error(error)
        clean = not self.run.world.redactor.matches(str(told))
        return told if clean else told_in_words(told["type"], self.run.world.redactor.text(told["text"]))

    def took_ms(self, begun: Begun) -> int:
        return int((self.run.world.monotonic() - begun.began_at) * 1000)
