"""The steps that a program asks for: each is given from the record, or handed to the engine to be performed.

All writing takes turns, so that threads may work on several steps at once; the functions themselves run outside of it.
This runs once or twice for every step, between two syncs: it must never do for each step what can be done for each
session.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from acode import forked
from acode.engine import step as lifecycle
from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.engine.plain_step import PlainSteps, plain_steps_of
from acode.engine.program_answers import reopen_step
from acode.engine.step import Lifecycle, Performed, Request, Since
from acode.errors import AcodeError, NotStorable, OutcomeUnknown, StepFailed, StepTimeout, TerminalState, Usage
from acode.events import types as ev
from acode.events.definition import Action, Call, Step
from acode.hints import Hint, Resolve
from acode.library.arguments import VERSION, Arguments
from acode.library.declarations import Begun, How, OnChange, TimedOut, Work, close_unbegun, unfinished
from acode.library.failures import describe, describe_error, raised_again, text_only
from acode.library.recorded_steps import Question, Record, without_result
from acode.library.step_identity import CURRENT, Current, Scope, Taken, runner
from acode.state import NESTED
from acode.steps.interface import Done, Failed

FLUSH_EVERY_S = 0.5  # what was committed and not synced is power-safe within a second


class StepRequests:
    """The work of a session for each step that its program asks for."""

    def __init__(self, run: Held, *, on_change: OnChange) -> None:
        self.run = run
        self.record: Record = Record(run, on_change)
        self._replays = not self.record.is_fresh  # until the program has asked for all that is on record
        self.plain: PlainSteps | None = None if self._replays else plain_steps_of(run)
        self.top: Scope = Scope()
        self.found: int = 0  # steps that were on record
        self.closed: bool = False
        self._pid = os.getpid()
        self.forked: bool = False  # whether this process is not the one that opened the session
        forked.own(self, StepRequests._disown)
        self.opened_at: Current | None = None  # the place in another session's block where this one's was opened
        self.acting: set[str] = set()  # steps whose coroutine functions are at work
        self._held: list[str] = []  # the places of tasks that wait before a pause
        self._flusher: threading.Thread | None = None
        self._ended = threading.Event()

    def _disown(self) -> None:
        self.forked = True

    def ask(
        self,
        name: str,
        arguments: Arguments,
        how: How,
        action: Callable[[], Action],
        shown: Callable[[], str],
        *,
        starts: bool = True,
        taken: Taken | None = None,
    ) -> Begun:
        """Find it on record, or begin it. `starts` False: somebody has to prepare before it can begin. `taken`: its
        identity, where it was given one already."""
        run, record = self.run, self.record
        with run.journal.turn:
            self.at_boundary()
            scope = self.scope()
            if scope is not self.top:  # nobody gives the session itself up
                self.refuse_given_up(scope)
            taken = taken or scope.take(name)
            asked = ev.Asked(
                arguments=arguments.digest,
                digest_version=VERSION,
                after=taken.after,
                version=how.version,
                ordered=taken.certain,
            )
            question = None
            if not record.is_new(taken.id, scope):
                question = Question(asked, arguments, taken, scope, shown, how.on_change)
                completed = self._on_record(question)
                if completed is not None:
                    self.found += 1
                    record.finished_top += scope.top
                    return Begun(taken.id, scope, completed=completed, result=record.unpack(completed))
                self._raise_caught(question)
                self._refuse_unrunnable(taken.id)
            if self._replays and record.is_all_found:
                self._replays, self.plain = False, plain_steps_of(run)
            step = Step(id=taken.id, action=action(), idempotent=how.idempotent)
            if how.timeout_s is not None or how.undo is not None:
                undo = how.undo if isinstance(how.undo, (str, tuple)) else None
                step = msgspec.structs.replace(step, timeout_s=how.timeout_s, undo=undo)
            if question is not None and taken.ordered:
                record.refuse_the_same_by_another_name(step, question)
            text = run.world.redactor.text(shown())
            begun = Begun(taken.id, scope, Work(step=step, how=how, asked=asked, shown=text))
        if starts:
            self.begin(begun)
        return begun

    def _on_record(self, question: Question) -> ev.StepCompleted | None:
        """The completion that answers the question; one that is to be done again is taken off the record."""
        step = question.taken.id
        completed = self.record.find(step, question.scope)
        if completed is None or self.record.is_as_asked(question, completed.asked, completed.attempt):
            return completed
        reopen_step(self.run, step)
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
        if current is None or current.session._requests is self:
            return current.scope if current is not None else self.top
        return self._scope_around(current)

    def _scope_around(self, inner: Current) -> Scope:
        """The place at which the block of another session was opened. A session of 0.1 has no such places: a step that
        it knows at its top would be done again in another one."""
        created, at = self.run.session.created, inner.session._requests.opened_at
        while at is not None and at.session._requests is not self:
            at = at.session._requests.opened_at
        by_first_rule = created is None or created.arguments_version < 2
        return self.top if at is None or by_first_rule else at.scope

    def at_boundary(self) -> None:
        """Between two steps: a request to stop the program is obeyed here, and not inside a step."""
        if self.closed or self.forked:
            self.refuse_if_not_usable()
        if self.run.world.stop.at_boundary():
            raise KeyboardInterrupt

    async def let_others_end(self) -> None:
        """A task at a boundary waits for the steps of all others before it obeys a request to stop: the error that ends
        the program ends the event loop too, which would cancel functions in the middle. Those that wait here as well
        are not waited for."""
        import asyncio

        stop, place = self.run.world.stop, self.scope().path
        self._held.append(place)
        try:
            while stop.signal is not None and stop.lost is None and not stop.at_once() and self._are_others_at_work():
                await asyncio.sleep(lifecycle.WAIT_SLICE_S)
        finally:
            self._held.remove(place)

    def _are_others_at_work(self) -> bool:
        held = [f"{place}{NESTED}" for place in self._held]
        return any(not any(one.startswith(f"{step}{NESTED}") for one in held) for step in tuple(self.acting))

    def refuse_if_not_usable(self) -> None:
        if self.closed:
            raise Usage(f"the session {self.run.session.run_id} is closed: its block has ended")
        if self.forked:
            self.refuse_if_forked()

    def refuse_if_forked(self) -> None:
        """A copy of a session in a forked child would write the same log beside its parent."""
        if self.forked:
            raise Usage(
                f"the session {self.run.session.run_id} belongs to process {self._pid}, of which this one is a"
                " forked child",
                hint="Let the child hand its results back, and the parent ask for the steps.",
            )

    def refuse_given_up(self, scope: Scope) -> None:
        """A thread that nobody waits for any more would do the next attempt's steps beside it, or take their names."""
        step = scope.attempt_given_up()
        if step is not None:
            raise StepTimeout(f"step {step} ran out of its time: this attempt of it is given no more steps", step=step)

    def _refuse_unrunnable(self, step_id: str) -> None:
        session = self.run.journal.session
        if session.terminal:
            raise TerminalState(
                f"session {session.session_id[-8:]} is {session.state}, and step {step_id} is none of its steps",
                hint="Begin another one: acode.session(key, on_completed='new'), or another key.",
                step=step_id,
            )
        if step_id in session.in_flight:
            raise OutcomeUnknown(
                f"step {step_id} was begun and has not ended",
                hint=session_hint(session, "State its outcome: {}", Resolve(step_id)),
                step=step_id,
            )

    # Steps that acode or the session's own loop performs.

    def attempts(self, begun: Begun, since: Since | None = None) -> Lifecycle:
        """The attempts of a step that is not on record, for the engine to perform. `since`: its start is recorded."""
        work = begun.work

        def retry(failed: Failed, failures: int) -> float | None:
            if failed.reason in ("exit", "error"):
                begun.parent.failed[begun.id] = runner()
            return self._retry_after_s(begun, failed, failures)

        def ended(completed: ev.StepCompleted) -> None:
            """A task that is cancelled during the commit has ended the step all the same."""
            begun.completed = completed
            self.finished(begun)

        request = Request(
            retry=retry,
            check=self.refuse_if_not_usable,
            before=lambda: self.handled(begun) if begun.parent.failed else (),
            asked=work.asked,
            shown=work.shown,
            prepares=type(work.step.action) is not Call,
            ended=ended,
        )
        return lifecycle.lifecycle(self.run, work.step, request, since)

    def handled(self, begun: Begun) -> tuple[ev.Known, ...]:
        """A program that begins a step after a failure has handled that failure."""
        return tuple([ev.FailureHandled(step=step) for step in begun.parent.continued_failures(begun.id)])

    def perform(self, begun: Begun) -> str:
        """A step that acode itself executes, a write or a command; what it printed."""
        if not begun.found:
            execute = lifecycle.execute(self.run, begun.work.step)

            def act(started: ev.StepStarted) -> Done | Failed:
                begun.started = started
                return execute(started)

            self.conclude(begun, lifecycle.perform(self.run, self.attempts(begun), act))
        assert begun.completed is not None
        return self.record.output(begun.completed)

    def conclude(self, begun: Begun, performed: Performed) -> None:
        """The step has ended: the program continues, or an error says why it cannot."""
        if performed.stopped:
            raise KeyboardInterrupt
        if performed.completed is None and isinstance(performed.outcome, Failed) and begun.error is None:
            begun.error = self.error_of(begun, performed.outcome)
        error, begun.error = begun.error, None
        if error is not None:
            raise error

    def finished(self, begun: Begun) -> None:
        self.finished_in(begun.parent)

    def finished_in(self, scope: Scope) -> None:
        if not scope.path:
            self.record.finished_top += 1
        journal = self.run.journal
        if self._flusher is None and journal.durable_seq < journal.session.seq:
            self._flusher = threading.Thread(target=self._keep_flushing, name="acode-flush", daemon=True)
            self._flusher.start()

    def _keep_flushing(self) -> None:
        """A completion that was not synced is power-safe within a second, whatever the program does meanwhile."""
        while not self._ended.wait(FLUSH_EVERY_S):
            with contextlib.suppress(AcodeError):  # the next append raises it
                self.run.flush()

    def close(self) -> None:
        """No step is asked for any more."""
        self.closed = True
        self._ended.set()
        if self._flusher is not None:
            self._flusher.join()

    # Outcomes of functions.

    def returned(self, begun: Begun, value: Any) -> Done:
        """The function has returned; a result that cannot be stored is asked for when the program needs it.

        A step that may be repeated stays open instead: the next run does it again, with a function that was corrected
        since.
        """
        if self.closed or self.forked:
            self.refuse_if_not_usable()
        begun.result, begun.error = value, None  # an earlier attempt may have raised
        try:
            return self.record.pack(value)
        except NotStorable as error:
            done = without_result(self.run.world.redactor.text(error.message))
            repeats = unfinished(value) or begun.work.how.idempotent  # or it may be at work still: nobody knows
            close_unbegun(value)
            error.message = f"step {begun.id} has run, but its result is lost: {error.message}"
            error.args = (error.message,)
            error.give_hint(Hint("{} {}", error.unrendered_hint, self.record.result_hint(begun.id)))
            error.details["step"] = begun.id
            if repeats:
                raise
            begun.error = error
            return done

    def raised(self, begun: Begun, error: Exception) -> Done | Failed:
        """The function has raised. One that encodes its result itself may have run, and have no result."""
        self.refuse_if_not_usable()
        begun.error = error
        if isinstance(error, NotStorable) and error.details.get("step") == begun.id:
            if begun.work.how.idempotent:
                raise error
            return without_result(self.run.world.redactor.text(error.message))
        if isinstance(error, TimedOut):
            message = f"it ran out of its {begun.work.how.timeout_s:g} s"
            begun.error = StepTimeout(f"step {begun.id}: {message}", step=begun.id)
            return Failed(reason="timeout", message=message)
        return self._as_failed(error)

    def _as_failed(self, error: Exception) -> Failed:
        return Failed(
            reason="error", message=f"{type(error).__name__}: {describe(error)}", error=self._described(error)
        )

    def _retry_after_s(self, begun: Begun, failed: Failed, failures: int) -> float | None:
        retry = begun.work.how.retry
        if retry is None or failed.reason == "signal":
            return None
        if failed.reason == "timeout":
            again = begun.work.how.idempotent and begun.work.step.kind == "call" and failures < retry.attempts
        else:
            error = begun.error if begun.error is not None else self.error_of(begun, failed)
            again = (failed.reason == "exit" or begun.error is not None) and retry.again_after(error, failures)
        return retry.wait_s(failures) if again else None

    def error_of(self, begun: Begun, failed: Failed) -> StepFailed:
        cls = StepTimeout if failed.reason == "timeout" else StepFailed
        message = self.run.world.redactor.text(failed.message)
        tail = failed.output.tail if failed.output else ""
        return cls(f"step {begun.id}: {message}", step=begun.id, exit_status=failed.exit_status, output=tail)

    def _described(self, error: Exception) -> dict[str, Any]:
        described = describe_error(error)
        clean = not self.run.world.redactor.matches(str(described))
        return described if clean else text_only(described["type"], self.run.world.redactor.text(described["text"]))

    # Steps that somebody else performs: begun and ended one by one.

    def begin(self, begun: Begun) -> None:
        """Record that it begins; together with that an earlier failure was handled, if there was one."""
        work = begun.work
        with self.run.turn:
            before = self.handled(begun)
        begun.started = lifecycle.begin(self.run, work.step, asked=work.asked, shown=work.shown, before=before)
        begun.began_at = self.run.world.monotonic()

    def complete(self, begun: Begun, result: Any) -> None:
        """The completion and its result; recorded even where somebody wants the program to end, because it is true."""
        self.end(begun, self.returned(begun, result))
        error, begun.error = begun.error, None
        if error is not None:
            raise error

    def end(self, begun: Begun, done: Done) -> None:
        assert begun.started is not None
        step, started = begun.work.step, begun.started
        self.refuse_if_not_usable()
        durable = not lifecycle.careful(step, started)
        begun.completed = lifecycle.end(self.run, step, started, done, took_ms=self.took_ms(begun), durable=durable)
        with self.run.turn:
            self.finished(begun)

    def fail(self, begun: Begun, error: Exception) -> None:
        assert begun.started is not None
        self.refuse_if_not_usable()
        lifecycle.fail(self.run, begun.started, self._as_failed(error), self.took_ms(begun))
        with self.run.turn:
            begun.parent.failed[begun.id] = runner()

    def took_ms(self, begun: Begun) -> int:
        return int((self.run.world.monotonic() - begun.began_at) * 1000)
