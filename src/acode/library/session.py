"""A program's session: it asks for its steps, and each is given from the record, or done and recorded.

A step is begun before its function is called and ended after, whatever becomes of the process in between. This is the
public surface; what is recorded of one step stands in `engine.step`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from types import FunctionType
from typing import Any, TypeVar, TypeVarTuple, overload

from acode import hints
from acode.engine.gate import Answer, ask, by_yes_or_no, close, gate_of, nobody_to_ask
from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.engine.step import perform, perform_async
from acode.events import types as ev
from acode.events.definition import Approve, Run, Step, Write
from acode.library import values
from acode.library.arguments import arguments_of, of_command
from acode.library.declarations import (
    CO_COROUTINE,
    MAKES_GENERATOR,
    PLAIN,
    REPEATABLE,
    Begun,
    How,
    OnChange,
    Retry,
    TimedOut,
    Undo,
    bound_arguments,
    bounded,
    call_of,
    flags_of,
    how,
    refuse_generator,
)
from acode.library.plain_calls import perform_plain, perform_plain_async
from acode.library.step_identity import CURRENT, Current, Scope, Taken, name_from
from acode.library.step_requests import StepRequests
from acode.steps.declared_secrets import declared_values
from acode.steps.interface import Done, Failed

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Session:
    """An open session; made by `acode.session`, and usable until its block ends.

    Every method that does something is a step: it runs once, and a later run of the program is given its result.
    """

    def __init__(self, run: Held, *, on_change: OnChange, resumed: bool) -> None:
        self._run = run
        self._resumed = resumed
        self._requests = StepRequests(run, on_change=on_change)

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
        """Whether an earlier run of the program is continued."""
        return self._resumed

    @property
    def found(self) -> int:
        """How many steps this run was given from the record."""
        return self._requests.found

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
        does something else. on_change: what to do if arguments, order or version are not those on record; `insert`
        says that the step is new, and no other one by a new name.
        An async function gives an awaitable.
        """
        if retry is None and timeout is None and undo is None and version is None and on_change is None:
            return self.do(name, function, args, {}, REPEATABLE if idempotent else PLAIN)
        declared = how(
            idempotent=idempotent, retry=retry, timeout=timeout, undo=undo, version=version, on_change=on_change
        )
        return self.do(name, function, args, {}, declared)

    def do(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], how: How
    ) -> Any:
        """A step with its declarations in one value; what decorators use."""
        flags = function.__code__.co_flags if type(function) is FunctionType else flags_of(function)
        if flags & MAKES_GENERATOR:
            refuse_generator(name)
        plain = self._requests.plain
        if plain is not None and (how is PLAIN or how is REPEATABLE) and not isinstance(function, partial):
            perform_one = perform_plain_async if flags & CO_COROUTINE else perform_plain
            return perform_one(self, name, function, args, kwargs, how=how, plain=plain)
        if flags & CO_COROUTINE:
            return self._do_async_at_length(name, function, args, kwargs, how)
        return self._do_at_length(name, function, args, kwargs, how)

    def _do_at_length(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        how: How,
        *,
        taken: Taken | None = None,
    ) -> Any:
        """A step of an ordinary function that may be on record, or of which something is declared."""
        begun = self._ask_call(name, function, args, kwargs, how, taken=taken)
        if begun.todo is None:
            return begun.result
        requests = self._requests

        def act(started: ev.StepStarted) -> Done | Failed:
            begun.started = started
            try:
                value = self._called(begun, function, args, kwargs)
            except Exception as error:
                return requests.raised(begun, error)
            return requests.returned(begun, value)  # an error in here is not the function's

        performed = perform(self._run, requests.attempts(begun), act)
        if performed.completed is None or begun.error is not None:
            requests.conclude(begun, performed)
        return begun.result

    async def _do_async_at_length(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        how: How,
        *,
        taken: Taken | None = None,
    ) -> Any:
        requests = self._requests
        try:
            begun = self._ask_call(name, function, args, kwargs, how, taken=taken)
        except KeyboardInterrupt:
            await requests.let_others_end()
            raise
        if begun.found:
            return begun.result

        async def act(started: ev.StepStarted) -> Done | Failed:
            begun.started = started
            try:
                value = await self._awaited(begun, function, args, kwargs)
            except Exception as error:
                return requests.raised(begun, error)
            return requests.returned(begun, value)

        performed = await perform_async(self._run, requests.attempts(begun), act)
        if performed.stopped:
            await requests.let_others_end()
        requests.conclude(begun, performed)
        return begun.result

    def _called(self, begun: Begun, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        work = begun.work
        scope, timeout_s = begun.inside(work), work.how.timeout_s
        token = CURRENT.set(Current(self, scope))
        try:
            if timeout_s is None:
                return function(*args, **kwargs)
            return bounded(lambda: function(*args, **kwargs), scope, timeout_s)
        finally:
            CURRENT.reset(token)

    async def _awaited(
        self, begun: Begun, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        import asyncio

        scope = begun.inside()
        token = CURRENT.set(Current(self, scope))
        self._requests.acting.add(begun.id)
        try:
            async with asyncio.timeout(begun.work.how.timeout_s) as clock:
                return await function(*args, **kwargs)
        except TimeoutError as error:
            scope.given_up = clock.expired()
            raise (TimedOut() if clock.expired() else error) from None
        finally:
            self._requests.acting.discard(begun.id)
            CURRENT.reset(token)

    def _ask_call(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        how: How,
        *,
        taken: Taken | None = None,
    ) -> Begun:
        if type(function) is FunctionType:
            given, named = [*args], kwargs
        else:
            given, named = bound_arguments(function, args, kwargs)
        return self._requests.ask(
            name,
            arguments_of([given, named], first=[given, named] if named else given),
            how,
            lambda: call_of(function, how.undo),
            lambda: values.shown(args, kwargs),
            starts=False,
            taken=taken,
        )

    # Steps that somebody else executes.

    def begin(self, name: str, *arguments: Any, idempotent: bool = False, version: str | int | None = None) -> Begun:
        """Begin a step whose work is done elsewhere, such as in a hook of an agent's loop.

        If it is on record, `found` is true and `result` holds its result. Otherwise do the work, and end it with
        `complete` or `fail`. `arguments` are what a later run must give again.
        """
        declared = how(idempotent=idempotent, version=version)
        return self._requests.ask(
            name,
            arguments_of(list(arguments)),
            declared,
            lambda: call_of(self.begin, None),
            lambda: values.shown(arguments, {}),
        )

    def complete(self, begun: Begun, result: Any = None) -> None:
        """The work of a begun step is done, and this is its result."""
        self._requests.complete(begun, result)

    def fail(self, begun: Begun, error: Exception) -> None:
        """The work of a begun step has failed, without effect."""
        self._requests.fail(begun, error)

    # Files, commands, gates.

    def write(
        self, path: str | os.PathLike[str], content: str, *, mode: str | None = None, name: str | None = None
    ) -> None:
        """Put a file of the workspace in place, whole or not at all; found in flight, its hash decides."""
        place = os.fspath(path).replace(os.sep, "/")
        action = Write(path=place, content=content, mode=mode)
        arguments = arguments_of([place, mode, content])
        name = name or name_from("write", place)
        begun = self._requests.ask(name, arguments, how(), lambda: action, lambda: place, starts=False)
        self._requests.perform(begun)

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
        undo and the rest are those of a `run` step in a plan file. The values of env are compared by a later run, and
        recorded as codes only; those of secret_env are the ones that the program's environment has at the time.
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
        if action.secret_env or action.env:
            world = self._run.world
            world.redactor.learn(declared_values((Step(id="", action=action),), world.env))
        how(idempotent=idempotent or bool(probe or outputs), retry=retry, timeout=timeout)
        declared = How(
            idempotent=idempotent,
            retry=Retry(attempts=retry) if isinstance(retry, int) else retry,
            timeout_s=timeout,
            undo=undo,
        )
        text = line if isinstance(line, str) else " ".join(line)
        arguments = of_command(self._run, action)
        name = name or name_from("run", text)
        begun = self._requests.ask(name, arguments, declared, lambda: action, lambda: text, starts=False)
        return self._requests.perform(begun)

    def approve(self, question: str, *, name: str | None = None) -> bool:
        """Whether a person approves. The answer is a step: it is asked once.

        Where nobody can be asked, `InputRequired` is raised, and the session waits: `acode session approve` or `deny`,
        then run the program again.
        """
        self._requests.refuse_if_forked()
        with self._run.turn:
            text = self._run.world.redactor.text(question)
            action = Approve(question=text)
            arguments = arguments_of([question])
            name = name or name_from("approve", text)
            begun = self._requests.ask(name, arguments, how(), lambda: action, lambda: text, starts=False)
            return bool(begun.result) if begun.found else self._pass_gate(begun)

    def _pass_gate(self, begun: Begun) -> bool:
        run = self._run
        gate = gate_of(run, begun.work.step, asked=begun.work.asked)
        match ask(run, gate, by_yes_or_no(run, gate)):
            case Answer(granted=granted) as answer:
                begun.started = close(run, gate, answer, self._requests.record.pack(granted))
                self._requests.finished(begun)
                return granted
            case "stop":
                raise KeyboardInterrupt
            case None:
                text = "Answer with: {}, then run the program again."
                raise nobody_to_ask(gate, session_hint(run.session, text, hints.Approve(or_deny=True)))

    @contextlib.contextmanager
    def branch(self, name: str) -> Iterator[Session]:
        """A place of its own for the steps of a thread, a task or an item.

        Steps in it are called `name.step`, whatever other branches do at the same time.
        """
        self._requests.refuse_if_forked()
        with self._run.turn:
            around = self._requests.scope()
            taken = around.take(name)
        inside = Scope(
            taken.id,
            repeated=around.repeated,  # inside a step that is tried again, its steps may be on record already
            certain=taken.certain,
            rerun=around.rerun,
            around=around if taken.ordered else None,
            within=around,
        )
        token = CURRENT.set(Current(self, inside))
        try:
            yield self
        finally:
            CURRENT.reset(token)
            with self._run.turn:
                inside.left_for(around)

    def recall(self, step_id: str) -> Begun | None:
        """A step of the session itself by its id, out of its turn; None where it is not on record."""
        return self._requests.recall(step_id)
