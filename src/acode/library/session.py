"""A program's session: it asks for its steps, and each is given from the record, or done and recorded.

All writing takes turns, so that threads may work on several steps at once; the functions themselves run outside of it.
A step is begun before its function is called and ended after, whatever becomes of the process in between.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple, overload

from acode.engine import called
from acode.engine.hold import Held
from acode.errors import (
    AcodeError,
    NotStorable,
    OutcomeUnknown,
    StepFailed,
    StepTimeout,
    TerminalState,
    Usage,
)
from acode.events import types as ev
from acode.events.definition import Action, Approve, Run, Step, Write
from acode.library import values
from acode.library.gates import asked_a_person
from acode.library.record import Record
from acode.library.scope import CURRENT, Current, Scope, name_from
from acode.library.work import (
    Begun,
    How,
    OnChange,
    Retry,
    TimedOut,
    Undo,
    Work,
    bound_arguments,
    bounded,
    call_of,
    describe_error,
    how,
    is_async,
    raised_again,
)
from acode.steps import kind_of
from acode.steps.shape import Done, Failed, Site

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
FLUSH_EVERY_S = 0.5  # what was committed and not synced is power-safe within a second


class Session:
    """An open session; made by `acode.session`, and usable until its block ends.

    Every method that does something is a step: it runs once, and a later run of the program is given its result.
    """

    def __init__(self, run: Held, *, on_change: OnChange, resumed: bool) -> None:
        self._run = run
        self._record = Record(run, on_change)
        self._top = Scope()
        self._resumed = resumed
        self._pid = os.getpid()
        self._closed = False
        self._flusher: threading.Thread | None = None
        self._ended = threading.Event()
        self.found = 0

    @property
    def id(self) -> str:
        """The session's id, as `acode session list` shows it."""
        return self._run.session.session_id

    @property
    def key(self) -> str:
        """The key that the program gave it."""
        return self._run.session.run_id

    @property
    def resumed(self) -> bool:
        """Whether an earlier run of the program is carried on."""
        return self._resumed

    # Functions.

    @overload
    def step(
        self,
        name: str,
        function: Callable[[*Ts], Coroutine[Any, Any, T]],
        *args: *Ts,
        idempotent: bool = False,
        retry: Retry | int | None = None,
        timeout: float | None = None,
        undo: Undo | None = None,
        version: str | int | None = None,
        on_change: OnChange | None = None,
    ) -> Awaitable[T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[[*Ts], T],
        *args: *Ts,
        idempotent: bool = False,
        retry: Retry | int | None = None,
        timeout: float | None = None,
        undo: Undo | None = None,
        version: str | int | None = None,
        on_change: OnChange | None = None,
    ) -> T: ...
    def step(  # type: ignore[misc]  # mypy does not see that Any takes every Ts
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        idempotent: bool = False,
        retry: Retry | int | None = None,
        timeout: float | None = None,
        undo: Undo | None = None,
        version: str | int | None = None,
        on_change: OnChange | None = None,
    ) -> Any:
        """Call `function(*args)` once and return its result; on a resume return the recorded result.

        name: identifies the step; asked for again, it gets a counter: `fetch`, `fetch#2`. idempotent: it may be
        repeated when nobody knows whether it took effect. retry: a `Retry`, or how often to try. timeout: seconds.
        undo: a function of the result, or a command, that `rollback` runs. version: change it when the function now
        does something else. on_change: what to do if arguments, order or version are not those on record.
        An async function gives an awaitable.
        """
        declared = how(
            idempotent=idempotent, retry=retry, timeout=timeout, undo=undo, version=version, on_change=on_change
        )
        return self.do(name, function, args, {}, declared)

    def do(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], how: How
    ) -> Any:
        """A step with its declarations in one value; what decorators use."""
        if is_async(function):
            return self._do_async(name, function, args, kwargs, how)
        begun = self._ask_call(name, function, args, kwargs, how)
        while not begun.found:
            try:
                return self._called(begun, function, args, kwargs)
            except Exception as error:
                wait_s = self._failed(begun, error)
                if wait_s is None:
                    raise
                time.sleep(wait_s)
            self._begin_again(begun)
        return begun.result

    async def _do_async(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], how: How
    ) -> Any:
        import asyncio

        begun = self._ask_call(name, function, args, kwargs, how)
        while not begun.found:
            try:
                return await self._awaited(begun, function, args, kwargs)
            except Exception as error:
                wait_s = self._failed(begun, error)
                if wait_s is None:
                    raise
                await asyncio.sleep(wait_s)
            self._begin_again(begun)
        return begun.result

    def _called(self, begun: Begun, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scope = begun.inside()
        token = CURRENT.set(Current(self, scope))
        try:
            if begun.work.how.timeout_s is None:
                value = function(*args, **kwargs)
            else:
                value = bounded(lambda: function(*args, **kwargs), scope, begun.work.how.timeout_s)
        finally:
            CURRENT.reset(token)
        self.complete(begun, value)
        return value

    async def _awaited(
        self, begun: Begun, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        import asyncio

        token = CURRENT.set(Current(self, begun.inside()))
        try:
            async with asyncio.timeout(begun.work.how.timeout_s) as clock:
                value = await function(*args, **kwargs)
        except TimeoutError as error:
            raise (TimedOut() if clock.expired() else error) from None
        finally:
            CURRENT.reset(token)
        self.complete(begun, value)
        return value

    def _ask_call(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], how: How
    ) -> Begun:
        arguments = values.digest_of(bound_arguments(function, args, kwargs))
        return self._ask(name, arguments, how, lambda: call_of(function, how.undo), lambda: values.shown(args, kwargs))

    # Steps that somebody else executes.

    def begin(self, name: str, *arguments: Any, idempotent: bool = False, version: str | int | None = None) -> Begun:
        """Begin a step whose work is done elsewhere, such as in a hook of an agent's loop.

        If it is on record, `found` is true and `result` holds its result. Otherwise do the work, and end it with
        `complete` or `fail`. `arguments` are what a later run must give again.
        """
        declared = how(idempotent=idempotent, version=version)
        return self._ask(
            name,
            values.digest_of(list(arguments)),
            declared,
            lambda: call_of(self.begin, None),
            lambda: values.shown(arguments, {}),
        )

    def complete(self, begun: Begun, result: Any = None) -> None:
        """The work of a begun step is done, and this is its result."""
        assert begun.started is not None
        try:
            done = self._record.pack(result)
        except NotStorable as error:
            error.message = f"step {begun.id} has run, but its result is lost: {error.message}"
            error.args = (error.message,)
            error.details["step"] = begun.id
            raise
        with self._run.turn:
            self._usable()
            called.end(self._run, begun.started, done, took_ms=self._took_ms(begun))
            self._finished(begun)

    def fail(self, begun: Begun, error: Exception) -> None:
        """The work of a begun step has failed, without effect."""
        assert begun.started is not None
        with self._run.turn:
            self._usable()
            told = self._told(error)
            failed = Failed(reason="error", message=f"{type(error).__name__}: {error}")
            called.fail(self._run, begun.started, failed, took_ms=self._took_ms(begun), error=told)
            begun.parent.failed = begun.id

    # Files, commands, gates.

    def write(
        self, path: str | os.PathLike[str], content: str, *, mode: str | None = None, name: str | None = None
    ) -> None:
        """Put a file of the workspace in place, whole or not at all; found in flight, its hash decides."""
        place = os.fspath(path).replace(os.sep, "/")
        action = Write(path=place, content=content, mode=mode)
        arguments = values.digest_of([place, mode, content])
        name = name or name_from("write", place)
        begun = self._ask(name, arguments, how(), lambda: action, lambda: place, starts=False)
        self._perform(begun)

    def run(
        self,
        command: str | tuple[str, ...] | list[str],
        *,
        idempotent: bool = False,
        probe: str | None = None,
        outputs: tuple[str, ...] | list[str] = (),
        retry: Retry | int | None = None,
        timeout: float | None = None,
        undo: str | tuple[str, ...] | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        secret_env: tuple[str, ...] | list[str] = (),
        name: str | None = None,
    ) -> str:
        """Run a command under a keeper and return what it printed; a status other than 0 raises `StepFailed`.

        The keeper outlives the program, so that even a killed one finds out how the command ended. probe, outputs,
        undo and the rest are those of a `run` step in a plan file.
        """
        line = command if isinstance(command, str) else tuple(command)
        action = Run(
            command=line,
            probe=probe,
            outputs=tuple(outputs),
            cwd=cwd,
            env=env or {},
            secret_env=tuple(secret_env),
        )
        how(idempotent=idempotent or bool(probe or outputs), retry=retry, timeout=timeout)
        declared = How(
            idempotent=idempotent,
            retry=Retry(attempts=retry) if isinstance(retry, int) else retry,
            timeout_s=timeout,
            undo=undo,
        )
        text = line if isinstance(line, str) else " ".join(line)
        arguments = values.digest_of([line, probe, list(action.outputs), cwd, sorted(action.env)])
        name = name or name_from("run", text)
        begun = self._ask(name, arguments, declared, lambda: action, lambda: text, starts=False)
        return self._perform(begun)

    def approve(self, question: str, *, name: str | None = None) -> bool:
        """Whether a person allows to go on. The answer is a step: it is asked once.

        Where nobody can be asked, `InputRequired` is raised, and the session waits: `acode session approve` or `deny`,
        then run the program again.
        """
        with self._run.turn:
            text = self._run.world.redactor.text(question)
            action = Approve(question=text)
            arguments = values.digest_of([question])
            name = name or name_from("approve", text)
            begun = self._ask(name, arguments, how(), lambda: action, lambda: text, starts=False)
            return bool(begun.result) if begun.found else self._pass_gate(begun)

    def _pass_gate(self, begun: Begun) -> bool:
        granted, before = asked_a_person(self._run, begun)
        begun.started = called.gate_passed(self._run, begun.work.step, begun.work.asked)
        actor = "user" if before else "system"
        said = (*before, *called.awake(self._run), begun.started)
        done = self._record.pack(granted)
        called.end(self._run, begun.started, done, took_ms=0, before=said, actor=actor, durable=True)
        self._finished(begun)
        return granted

    @contextlib.contextmanager
    def branch(self, name: str) -> Iterator[Session]:
        """A place of its own for the steps of a thread, a task or an item.

        Steps in it are called `name.step`, whatever other branches do at the same time.
        """
        with self._run.turn:
            around = self._scope()
            taken = around.take(name)
        # Inside a step that is tried again, its steps may be on record already.
        token = CURRENT.set(Current(self, Scope(taken.id, repeated=around.repeated)))
        try:
            yield self
        finally:
            CURRENT.reset(token)

    # One step, from its asking to its end.

    def _ask(
        self,
        name: str,
        arguments: str,
        how: How,
        action: Callable[[], Action],
        shown: Callable[[], str],
        *,
        starts: bool = True,
    ) -> Begun:
        """Find it on record, or begin it. `starts` False: somebody has to prepare before it can begin."""
        with self._run.turn:
            self._usable()
            scope = self._scope()
            taken = scope.take(name)
            asked = ev.Asked(arguments=arguments, after=taken.after, version=how.version)
            completed = self._record.find(taken.id, scope)
            if completed is not None:
                completed = self._record.as_asked(completed, asked, taken, scope, shown=shown, choice=how.on_change)
            if completed is not None:
                self.found += 1
                self._record.finished_top += scope.top
                return Begun(taken.id, scope, completed=completed, result=self._record.unpack(completed))
            self._refuse_what_cannot_run(taken.id)
            undo = how.undo if isinstance(how.undo, str | tuple) else None
            step = Step(id=taken.id, action=action(), idempotent=how.idempotent, timeout_s=how.timeout_s, undo=undo)
            text = self._run.world.redactor.text(shown())
            begun = Begun(taken.id, scope, work=Work(step=step, how=how, asked=asked, shown=text))
            if starts:
                self._begin(begun)
            return begun

    def recall(self, step_id: str) -> Begun | None:
        """A step of the session itself by its id, out of its turn; None where it is not on record."""
        with self._run.turn:
            completed = self._record.find(step_id, self._top)
            if completed is None:
                return None
            return Begun(step_id, self._top, completed=completed, result=self._record.unpack(completed))

    def _refuse_what_cannot_run(self, step_id: str) -> None:
        session = self._run.session
        if session.terminal:
            raise TerminalState(
                f"session {self.id[-8:]} is {session.state}, and step {step_id} is none of its steps",
                hint="Begin anew: acode.session(key, on_completed='new'), or another key.",
                step=step_id,
            )
        if step_id in session.in_flight:
            raise OutcomeUnknown(
                f"step {step_id} was begun and has not ended",
                hint=f"Say what became of it: acode session resolve {self.id[-8:]} {step_id}, or acode.resolve(…)",
                step=step_id,
            )
        record = session.record(step_id)
        if record is not None and record.handled:
            raise raised_again(self._record.failure(record), step_id)

    def _begin(self, begun: Begun, site: Site | None = None) -> None:
        """Say that it begins; together with that an earlier failure was handled, if there was one."""
        with self._run.turn:
            before: tuple[ev.Known, ...] = ()
            scope = begun.parent
            if scope.failed is not None and scope.failed != begun.id:
                before, scope.failed = (ev.FailureHandled(step=scope.failed),), None
            prepared = kind_of(begun.work.step.kind).prepare(begun.work.step, site) if site is not None else None
            begun.started = called.begin(
                self._run, begun.work.step, begun.work.asked, shown=begun.work.shown, before=before, prepared=prepared
            )
            begun.began_at = self._run.world.monotonic()

    def _begin_again(self, begun: Begun) -> None:
        with self._run.turn:
            self._usable()
            begun.parent.failed = None
            called.put_back_leftovers(self._run, begun.work.step)
            self._begin(begun)

    def _perform(self, begun: Begun) -> str:
        """A step that the engine itself executes: a write or a command."""
        while not begun.found:
            with self._run.turn:
                called.put_back_leftovers(self._run, begun.work.step)
                site = self._run.site()
                self._begin(begun, site)
            assert begun.started is not None
            outcome = kind_of(begun.work.step.kind).execute(begun.work.step, site, begun.started)
            with self._run.turn:
                if isinstance(outcome, Done):
                    begun.completed = called.end(self._run, begun.started, outcome, took_ms=self._took_ms(begun))
                    self._finished(begun)
                    return self._record.output(begun.completed)
                called.fail(self._run, begun.started, outcome, took_ms=self._took_ms(begun))
                begun.parent.failed = begun.id if outcome.reason in ("exit", "error") else None
            error = self._error_of(begun, outcome)
            wait_s = self._retry_after_s(begun, error) if outcome.reason == "exit" else None
            if wait_s is None:
                raise error
            time.sleep(wait_s)
        assert begun.completed is not None
        return self._record.output(begun.completed)

    def _error_of(self, begun: Begun, failed: Failed) -> StepFailed:
        cls = StepTimeout if failed.reason == "timeout" else StepFailed
        message = self._run.world.redactor.text(failed.message)
        tail = failed.output.tail if failed.output else ""
        return cls(f"step {begun.id}: {message}", step=begun.id, exit_status=failed.exit_status, output=tail)

    def _failed(self, begun: Begun, error: Exception) -> float | None:
        """Record how the function failed; seconds until its next attempt, or None to let the program hear of it."""
        assert begun.started is not None
        if isinstance(error, NotStorable) and error.details.get("step") == begun.id:
            return None  # it has run: what is open is only its result, and a person decides
        if isinstance(error, TimedOut):
            return self._ran_out_of_time(begun)
        self.fail(begun, error)
        return self._retry_after_s(begun, error)

    def _ran_out_of_time(self, begun: Begun) -> float | None:
        assert begun.started is not None
        with self._run.turn:
            message = f"it ran out of its {begun.work.how.timeout_s:g} s"
            failed = Failed(reason="timeout", message=message)
            called.fail(self._run, begun.started, failed, took_ms=self._took_ms(begun))
            flight = self._run.session.in_flight[begun.id]
            again = begun.work.how.retry is not None and flight.failures < begun.work.how.retry.attempts
            if begun.work.how.idempotent and again and begun.work.how.retry is not None:
                called.accept_retry(self._run, begun.started, f"{message}; it is declared idempotent")
                return begun.work.how.retry.wait_s(flight.failures)
        raise StepTimeout(f"step {begun.id}: {message}", step=begun.id) from None

    def _retry_after_s(self, begun: Begun, error: Exception) -> float | None:
        record = self._run.session.record(begun.id)
        failures = record.failures if record is not None else 1
        retry = begun.work.how.retry
        return retry.wait_s(failures) if retry is not None and retry.again_after(error, failures) else None

    def _told(self, error: Exception) -> dict[str, Any]:
        told = describe_error(error)
        clean = not self._run.world.redactor.matches(str(told))
        return told if clean else {"type": told["type"], "text": self._run.world.redactor.text(told["text"])}

    def _finished(self, begun: Begun) -> None:
        self._record.finished_top += begun.parent.top
        if self._flusher is None and self._run.journal.durable_seq < self._run.session.seq:
            self._flusher = threading.Thread(target=self._keep_flushing, name="acode-flush", daemon=True)
            self._flusher.start()

    def _keep_flushing(self) -> None:
        """A completion that was not synced is power-safe within a second, whatever the program does meanwhile."""
        while not self._ended.wait(FLUSH_EVERY_S):
            with contextlib.suppress(AcodeError):  # whoever writes next hears of it
                self._run.flush()

    def _took_ms(self, begun: Begun) -> int:
        return int((self._run.world.monotonic() - begun.began_at) * 1000)

    def _scope(self) -> Scope:
        current = CURRENT.get()
        return current.scope if current is not None and current.session is self else self._top

    def _usable(self) -> None:
        if self._closed:
            raise Usage(f"the session {self.key} is closed: its block has ended")
        if self._run.world.stop.at_boundary():
            raise KeyboardInterrupt  # somebody at the command line wants it to end, and this is a boundary
        if os.getpid() != self._pid:
            raise Usage(
                f"the session {self.key} belongs to process {self._pid}",
                hint="A forked process opens a session of its own, or hands its results back.",
            )
