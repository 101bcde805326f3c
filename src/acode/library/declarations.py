"""How a step is to be done: its declarations, its attempts, its time."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Sequence
from types import AsyncGeneratorType, CodeType, CoroutineType, FunctionType, GeneratorType
from typing import Any, Literal, NoReturn

import msgspec

from acode.errors import Usage
from acode.events import types as ev
from acode.events.definition import Call, Command, Step
from acode.library import values
from acode.library.importable_name import name_to_find
from acode.library.step_identity import Scope, runner

ATTEMPTS_MAX = 100
CO_COROUTINE, CO_GENERATOR, CO_ASYNC_GENERATOR = 0x80, 0x20, 0x200
MAKES_GENERATOR = CO_GENERATOR | CO_ASYNC_GENERATOR
OnChange = Literal["raise", "keep", "rerun", "insert"]
Undo = Callable[[Any], object] | Command


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Try a failed step again.

    attempts: how often it is tried in all; the count survives a resume.
    backoff_s: seconds before the second attempt; each further one waits `factor` times longer, at most `backoff_max_s`.
    on: the exceptions that are worth another attempt. All others are permanent.
    """

    attempts: int
    backoff_s: float = 0.0
    factor: float = 2.0
    backoff_max_s: float = 300.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise Usage(f"attempts: expected 1 to {ATTEMPTS_MAX}, found {self.attempts}")

    def wait_s(self, failures: int) -> float:
        return float(min(self.backoff_s * self.factor ** (failures - 1), self.backoff_max_s))

    def again_after(self, error: BaseException, failures: int) -> bool:
        return failures < self.attempts and isinstance(error, self.on)


class How(msgspec.Struct, frozen=True, kw_only=True):
    """The declarations of one step."""

    idempotent: bool = False
    retry: Retry | None = None
    timeout_s: float | None = None
    undo: Undo | None = None
    version: str = ""
    on_change: OnChange | None = None


PLAIN, REPEATABLE = How(), How(idempotent=True)
UNDECLARED = (None, None, None, None, None)


def how(
    *,
    idempotent: bool = False,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    undo: Undo | None = None,
    version: str | int | None = None,
    on_change: OnChange | None = None,
) -> How:
    """Declarations as a caller writes them; contradictions are refused before anything runs."""
    if (retry, timeout, undo, version, on_change) == UNDECLARED:
        return REPEATABLE if idempotent else PLAIN
    tries = Retry(attempts=retry) if isinstance(retry, int) else retry
    if tries is not None and not idempotent and tries.on == (Exception,):
        raise Usage(
            "retry: a step that is not idempotent may only be tried again after exceptions that prove it had no effect",
            hint="Name them: Retry(attempts=3, on=(ConnectionRefusedError,)); or declare the step idempotent=True.",
        )
    if callable(undo) and name_to_find(undo) is None:
        raise Usage(
            "undo: a function made inside another one, or a lambda, cannot be found by a later process",
            hint="Use a function of a module, or a command.",
        )
    if timeout is not None and timeout <= 0:
        raise Usage(f"timeout: expected seconds above 0, found {timeout}")
    if on_change not in (None, "raise", "keep", "rerun", "insert"):
        raise Usage(f"on_change: expected raise, keep, rerun or insert, found {on_change!r}")
    return How(
        idempotent=idempotent,
        retry=tries,
        timeout_s=timeout,
        undo=undo,
        version="" if version is None else str(version),
        on_change=on_change,
    )


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a step that is not on record."""

    step: Step
    how: How
    asked: ev.Asked
    shown: str


class Begun(msgspec.Struct, eq=False):
    """A step that was asked for: found on record, or begun just now and to be ended by `complete` or `fail`.

    id: its name with its counter and place. found: whether it is on record. result: its recorded result. key: the
    idempotency key of this attempt, for a service that takes one. attempt: 1 the first time.
    """

    id: str
    parent: Scope
    todo: Work | None = None
    completed: ev.StepCompleted | None = None
    result: Any = None
    started: ev.StepStarted | None = None
    began_at: float = 0.0
    error: Exception | None = None  # what the program is raised once the end is on record

    @property
    def found(self) -> bool:
        return self.todo is None

    @property
    def work(self) -> Work:
        assert self.todo is not None, f"step {self.id} is on record: there is nothing to do for it"
        return self.todo

    @property
    def key(self) -> str:
        return self.started.key if self.started else ""

    @property
    def attempt(self) -> int:
        return self.started.attempt if self.started else 0

    def inside(self, work: Work | None = None) -> Scope:
        """The place where the step's own function asks for steps."""
        work, started = work or self.work, self.started
        return Scope(
            self.id,
            repeated=started is not None and started.attempt > 1,
            certain=work.asked.ordered,
            rerun=work.how.on_change == "rerun",
            within=self.parent,
        )


class TimedOut(Exception):
    """The function did not end in time."""


def bounded(work: Callable[[], Any], scope: Scope, timeout_s: float) -> Any:
    """Do the work, but wait no longer than that.

    A thread cannot be stopped from outside: work that did not end in time may still take effect, and is settled like a
    step that was killed. It gets nothing more of the session: the steps inside are those of the next attempt.
    """
    outcome: list[tuple[bool, Any]] = []

    def work_and_report() -> None:
        scope.owner = runner()
        try:
            outcome.append((True, work()))
        except BaseException as error:
            outcome.append((False, error))

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work_and_report,), name=f"acode-{scope.path}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not outcome:
        scope.given_up = True
        raise TimedOut
    succeeded, value = outcome[0]
    if not succeeded:
        raise value
    return value


def is_async(function: Callable[..., Any]) -> bool:
    return bool(flags_of(function) & CO_COROUTINE)


def flags_of(function: Callable[..., Any]) -> int:
    """Whether calling it makes a value, a coroutine or a generator; `inspect` is not loaded for the sake of asking."""
    code = function.__code__ if type(function) is FunctionType else code_of(function)
    return 0 if code is None else code.co_flags


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """The code that runs when it is called; None where that is not written in Python."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None:  # an object that can be called
        code = getattr(vars(type(function)).get("__call__"), "__code__", None)
    return code if isinstance(code, CodeType) else None


def unfinished(value: Any) -> bool:
    """Whether it is work that is still to be done: a coroutine, a task, a generator."""
    return hasattr(value, "__await__") or isinstance(value, GeneratorType | AsyncGeneratorType)


def close_unbegun(value: Any) -> None:
    """A coroutine that nobody awaits is complained about, far from here; closing what has begun would end it."""
    if isinstance(value, CoroutineType):
        import inspect

        if inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
            value.close()


def refuse_generator(step: str) -> NoReturn:
    """Before anything is recorded: calling a generator's function does nothing, and its result is no value."""
    raise Usage(
        f"the function of step {step} makes a generator, which cannot be recorded and has done nothing yet",
        hint="Let the step return a list: s.step(name, lambda: list(function())).",
        step=step,
    )


def call_of(function: Callable[..., Any], undo: Undo | None) -> Call:
    while type(function) is not FunctionType and isinstance(function, functools.partial):
        function = function.func
    return Call(function=values.name_of(function), undo=name_to_find(undo) if callable(undo) else None)


def bound_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The input of the digest: positional, then named; those of a partial are arguments too."""
    while isinstance(function, functools.partial):
        args, kwargs, function = (*function.args, *args), {**function.keywords, **kwargs}, function.func
    return [*args], kwargs
