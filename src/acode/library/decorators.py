"""Durable functions: decorators, and the call of a program from `acode resume`. A session may record the function that
continues it. Called again with the arguments of the first time, that function asks for its steps as before, and finds
what is done.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from acode.engine.held_session import Held
from acode.engine.world import Options, Result, World, short
from acode.errors import AcodeError, CannotContinue, NonDeterminism, NotStorable, Usage
from acode.events.types import Noted, SessionCreated
from acode.library import values
from acode.library.arguments import digest_of
from acode.library.declarations import Begun, How, OnChange, Retry, Undo, how, is_async
from acode.library.importable_name import find_function, name_to_find
from acode.library.open_session import OPEN, OnCompleted, Opening
from acode.library.session import Session
from acode.library.step_identity import CURRENT, checked_name
from acode.library.world import LENT, Lent
from acode.state import Session as State

P = ParamSpec("P")
R = TypeVar("R")
RETURN = "return"  # the step that holds what a durable function returned


def current() -> Session:
    """The session in whose block this code runs."""
    found = CURRENT.get()
    if found is None:
        raise Usage("there is no open session here", hint="Open one: with acode.session(key) as s:")
    return found.session


def step(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    idempotent: bool = False,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    undo: Undo | None = None,
    version: str | int | None = None,
    on_change: OnChange | None = None,
) -> Any:
    """Make a function a step of whatever session is open when it is called; outside of any it is called as it is.

    The declarations are those of `Session.step`. Without parentheses, all of them have their defaults.
    """
    declared = how(idempotent=idempotent, retry=retry, timeout=timeout, undo=undo, version=version, on_change=on_change)
    if function is not None:
        return as_step(function, name, declared)
    return lambda given: as_step(given, name, declared)


def as_step(function: Callable[P, R], name: str | None, declared: How) -> Callable[P, R]:
    called = name or function.__name__
    checked_name(called)

    @functools.wraps(function)
    def in_session(*args: P.args, **kwargs: P.kwargs) -> R:
        found = CURRENT.get()
        if found is None:
            refuse_lost_thread(called)
            return function(*args, **kwargs)
        return cast("R", found.session.do(called, function, args, kwargs, declared))

    return in_session


def refuse_lost_thread(name: str) -> None:
    """A new thread knows nothing of the session; done there in silence, the step would be no step."""
    if OPEN:
        raise Usage(
            f"the step {name} is called in a thread that knows of no session, while {OPEN[-1].key} is open",
            hint="Use the session's own step method there: session.step(name, function, …).",
        )


def durable(
    *,
    key: str,
    workspace: str | os.PathLike[str] = ".",
    on_completed: OnCompleted = "return",
    on_change: OnChange = "raise",
    automatic: bool = False,
    wait: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a whole function durable: it runs in a session of its own, and `acode resume` can call it again.

    key: a format string over the function's arguments, such as `"nightly-{day}"`. Its return value is recorded; a
    completed one returns it without running. The arguments must be values that can be stored. A key is one call's: with
    another function or other arguments than on record, NonDeterminism is raised; with on_change="keep" the session on
    record continues, or returns its result.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        options = Options(actor="system" if automatic else "user", wait=wait)

        def block(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Opening:
            return Opening(
                key_of(function, key, args, kwargs),
                workspace,
                on_completed=on_completed,
                on_change=on_change,
                probes={},
                options=options,
                entry=name_to_find(function),
                arguments=stored_arguments(args, kwargs),
                check=lambda run: as_first_called(run, function, args, kwargs, on_change),
            )

        if is_async(function):
            running = cast("Callable[..., Awaitable[Any]]", function)

            @functools.wraps(function)
            async def survive_async(*args: Any, **kwargs: Any) -> Any:
                async with block(args, kwargs) as session:
                    begun = returned_before(session)
                    if begun is not None:
                        return begun.result
                    value = await running(*args, **kwargs)
                    keep_return(session, value)
                    return value

            return cast("Callable[P, R]", survive_async)

        @functools.wraps(function)
        def survive(*args: P.args, **kwargs: P.kwargs) -> R:
            with block(args, kwargs) as session:
                begun = returned_before(session)
                if begun is not None:
                    return cast("R", begun.result)
                value = function(*args, **kwargs)
                keep_return(session, value)
                return value

        return survive

    return decorate


def returned_before(session: Session) -> Begun | None:
    """The recorded return value of a completed session; its steps need not be asked for."""
    return session.recall(RETURN) if session._run.session.terminal else None


def keep_return(session: Session, value: Any) -> None:
    if not session._run.session.terminal:
        if session.recall(RETURN) is None:
            session._requests.record.refuse_unasked()
        begun = session.begin(RETURN, idempotent=True)
        if not begun.found:
            session.complete(begun, value)


def key_of(function: Callable[..., Any], key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if "{" not in key:
        return key
    import inspect

    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    try:
        return key.format(**bound.arguments)
    except (KeyError, IndexError) as error:
        raise Usage(f"the key {key!r} names {error}, which is no argument of {function.__name__}") from error


def stored_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"args": values.plain(list(args), 0), "kwargs": values.plain(kwargs, 0)} if args or kwargs else {}
    except NotStorable as error:
        raise Usage(f"the arguments of a durable function are recorded with its session: {error.message}") from error


# The same call as on record.


def as_first_called(
    run: Held, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], on_change: OnChange
) -> Noted | None:
    """Refuse to give one call's record to another; what to note where that was decided on."""
    created, clean = run.session.created, run.world.redactor.text
    if created is None or (created.entry is None and not created.entry_arguments):
        return None  # it was begun without a durable function
    entry, then = name_to_find(function), created.entry_arguments
    if entry is not None and created.entry is not None and plain_name(entry) != plain_name(created.entry):
        what, sides = "function", (created.entry, entry)
    elif not same_arguments(function, then, stored_arguments(args, kwargs), version=created.arguments_version):
        first = values.decode(then)
        recorded = values.shown(tuple(first.get("args", ())), first.get("kwargs", {}))
        what, sides = "arguments", (clean(f"({recorded})"), clean(f"({values.shown(args, kwargs)})"))
    else:
        return None
    if on_change == "keep" or (on_change == "rerun" and not run.session.terminal):
        data = {"of": what, "recorded": sides[0], "asked": sides[1]}
        return Noted(what="change_kept" if on_change == "keep" else "change_taken", data=data)
    raise NonDeterminism(
        f"the key {run.session.run_id} belongs to another call: recorded {what} {sides[0]}, called with {sides[1]}",
        hint="Let the key name the difference, such as"
        " key='nightly-{day}'; or"
        " decide: on_change='keep'"
        " takes what is on"
        " record, on_completed='new' begins another one once it is complete.",
        what=what,
        recorded=sides[0],
        asked=sides[1],
    )


def plain_name(entry: str) -> tuple[str, str]:
    """Module and function, whether it was run as a script or imported, and wherever its directory stands today."""
    place, _, name = entry.rpartition(":")
    module = os.path.basename(place).removesuffix(".py") if place.endswith(".py") else place.rpartition(".")[2]
    return module, name


def same_arguments(function: Callable[..., Any], then: dict[str, Any], now: dict[str, Any], *, version: int) -> bool:
    """Whether the function is given the same, by position, by name or by default."""
    same = same_stored if version > 1 else same_by_first_rule
    if same(then, now):
        return True
    import inspect

    signature = inspect.signature(function)
    try:
        first, second = (signature.bind(*one.get("args", ()), **one.get("kwargs", {})).arguments for one in (then, now))
    except TypeError:
        return False
    for name, parameter in signature.parameters.items():
        given = [one[name] for one in (first, second) if name in one]
        if len(given) == 1:
            given.append(comparable_default(parameter.default))
        if given and not same(given[0], given[1]):
            return False
    return True


def same_stored(one: Any, other: Any) -> bool:
    return digest_of(one) == digest_of(other)


def same_by_first_rule(one: Any, other: Any) -> bool:
    """As sessions of 0.1 are compared: 1 and 1.0 were the same then."""
    return bool(values.as_first_encoded(one) == values.as_first_encoded(other))


def comparable_default(default: Any) -> Any:
    try:
        return values.plain(default, 0)
    except NotStorable:
        return {values.TAG: "nothing"}  # no stored value looks like this


# From the command line.


def resume_program(world: World, session: State, created: SessionCreated, options: Options) -> Result:
    """Call the session's program again; its session takes the world of this command, with its terminal."""
    name = short(session.session_id)
    if created.entry is None:
        raise CannotContinue(
            f"session {name} belongs to a program that did not record how to call it",
            hint=f"Run the program again: with the key {session.run_id} it resumes the session.",
        )
    here = os.fspath(world.workspace)
    # The agent's program is acode itself: a module that lies about in the workspace must not be loaded in its stead,
    # least of all one that the model wrote.
    if not session.steps_from.follows_model and here not in sys.path:
        sys.path.insert(0, here)
    function = find_function(created.entry, "the program of this session")
    stored = created.entry_arguments
    args, kwargs = values.decode(stored.get("args", [])), values.decode(stored.get("kwargs", {}))
    return lend(world, session.session_id, options, lambda: function(*args, **kwargs), created.entry)


def lend(world: World, session_id: str, options: Options, program: Callable[[], Any], name: str) -> Result:
    """Call the program in the world of a command; how its session ended is the command's result."""
    lent = Lent(session_id, world, options, [])
    token = LENT.set(lent)
    try:
        outcome = program()
        if hasattr(outcome, "__await__"):
            import asyncio

            asyncio.run(finished(outcome))
    except KeyboardInterrupt:
        if not lent.endings:
            raise
    except AcodeError:
        raise
    except Exception as error:
        if not lent.endings:
            raise
        return msgspec.structs.replace(lent.endings[-1], error=failed(error))
    finally:
        LENT.reset(token)
    if not lent.endings:
        raise CannotContinue(f"{name} was called, and did not open its session {session_id[-8:]}".rstrip())
    return lent.endings[-1]


async def finished(work: Awaitable[Any]) -> Any:
    return await work


def failed(error: Exception) -> AcodeError:
    from acode.errors import StepFailed

    return StepFailed(f"the program ended with {type(error).__name__}: {error}")
