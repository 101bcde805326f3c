"""A program's plain calls: asked for, performed and recorded in one piece, as `engine.plain_step` says.

This is what most steps are, and between two syncs nothing of it is in the processor's caches: what counts is how little
code and how few objects it touches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acode.engine import plain_step
from acode.engine.async_commits import settle_async
from acode.engine.held_session import Recorded
from acode.engine.step import Since, perform, perform_async
from acode.errors import NotStorable
from acode.events import types as ev
from acode.library import values
from acode.library.arguments import VERSION, digest_of_call
from acode.library.declarations import Begun, How, Work
from acode.library.step_identity import CURRENT, Current, Scope, Taken, runner

if TYPE_CHECKING:
    from acode.engine.plain_step import PlainSteps
    from acode.library.session import Session
    from acode.library.step_requests import StepRequests
    from acode.steps.interface import Done, Failed

Outcome = Callable[[Begun], "Done | Failed"]


def perform_plain(
    session: Session,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    how: How,
    plain: PlainSteps,
) -> Any:
    """The result of the call. `plain`: how the session takes such steps."""
    requests, durable = session._requests, plain.careful_if_idempotent if how.idempotent else plain.careful
    run = requests.run
    begun, taken, scope = append_start(requests, name, function, args, kwargs, how=how, durable=durable)
    if begun is None:
        return session._do_at_length(name, function, args, kwargs, how, taken=taken)
    started, record = begun
    plain_step.confirm_start(run, started, record)
    since = started, run.world.monotonic()
    failures: list[Exception] = []
    owner = scope.owner if taken.ordered else runner()
    token = CURRENT.set(Current(session, Scope(taken.id, certain=taken.certain, within=scope, owner=owner)))
    try:
        value = function(*args, **kwargs)
    except Exception as error:
        failures.append(error)
    finally:
        CURRENT.reset(token)
    if failures:  # which this frame does not keep: the traceback holds the frame
        return conclude(requests, since, scope, how, lambda begun: requests.raised(begun, failures.pop()))
    ended = append_end(requests, since, scope, value, durable=not durable)
    if not isinstance(ended, Recorded):
        conclude(requests, since, scope, how, ended)
    elif ended.durable or run.journal.committed.seq < ended.seq:
        run.settle(ended)
    return value


async def perform_plain_async(
    session: Session,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    how: How,
    plain: PlainSteps,
) -> Any:
    """The same for a coroutine function: what the tasks of a loop record in one turn shares a commit and a sync."""
    requests, durable = session._requests, plain.careful_if_idempotent if how.idempotent else plain.careful
    run = requests.run
    try:
        asked = append_start(requests, name, function, args, kwargs, how=how, durable=durable, together=True)
    except KeyboardInterrupt:
        await requests.let_others_end()
        raise
    begun, taken, scope = asked
    if begun is None:
        return await session._do_async_at_length(name, function, args, kwargs, how, taken=taken)
    started, record = begun
    await plain_step.confirm_start_async(run, started, record)
    since = started, run.world.monotonic()
    failures: list[Exception] = []
    owner = scope.owner if taken.ordered else runner()
    token = CURRENT.set(Current(session, Scope(taken.id, certain=taken.certain, within=scope, owner=owner)))
    requests.acting.add(taken.id)
    try:
        value = await function(*args, **kwargs)
    except Exception as error:
        failures.append(error)
    finally:
        requests.acting.discard(taken.id)
        CURRENT.reset(token)
    if failures:
        return await conclude_async(requests, since, scope, how, lambda begun: requests.raised(begun, failures.pop()))
    ended = append_end(requests, since, scope, value, durable=not durable, together=True)
    if isinstance(ended, Recorded):
        await settle_async(run, ended)
    else:
        await conclude_async(requests, since, scope, how, ended)
    return value


def append_start(
    requests: StepRequests,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    how: How,
    durable: bool,
    together: bool = False,
) -> tuple[tuple[ev.StepStarted, Recorded] | None, Taken, Scope]:
    """The identity of the step, and its start; none where it is not plain. `together`: it is committed with others."""
    run = requests.run
    arguments = digest_of_call([*args], kwargs)
    with run.journal.turn:
        if requests.closed or requests.forked or run.world.stop.at_boundary():
            requests.at_boundary()
        scope = requests.scope()
        if scope is not requests.top:
            requests.refuse_given_up(scope)
        taken = scope.take(name)
        if scope.failed or not requests.record.is_new(taken.id, scope):
            return None, taken, scope
        asked = ev.Asked(arguments=arguments, digest_version=VERSION, after=taken.after, ordered=taken.certain)
        shown = run.world.redactor.text(values.shown(args, kwargs))
        begun = plain_step.append_start(
            run,
            taken.id,
            values.name_of(function),
            asked,
            shown,
            idempotent=how.idempotent,
            durable=durable,
            together=together,
        )
    return begun, taken, scope


def append_end(
    requests: StepRequests, since: Since, scope: Scope, value: Any, *, durable: bool, together: bool = False
) -> Recorded | Outcome:
    """Append the completion with its result. Where there is more to record, nothing is: the outcome is to be."""
    run, (started, began_at) = requests.run, since
    took_ms = int((run.world.monotonic() - began_at) * 1000)
    if requests.closed or requests.forked:
        requests.refuse_if_not_usable()
    try:
        done = requests.record.pack(value)
    except NotStorable:
        return lambda begun: requests.returned(begun, value)
    with run.journal.turn:
        if requests.closed or requests.forked:
            requests.refuse_if_not_usable()
        ended = plain_step.append_end(run, started, done, took_ms, durable=durable, together=together)
        if ended is not None:
            requests.finished_in(scope)
            return ended
    return lambda begun: done


def conclude(requests: StepRequests, since: Since, scope: Scope, how: How, outcome: Outcome) -> Any:
    """A step that has acted, and whose end is not plain, is ended like any other."""
    begun = begun_at(since, scope, how)
    requests.conclude(begun, perform(requests.run, requests.attempts(begun, since), lambda _: outcome(begun)))
    return begun.result


async def conclude_async(requests: StepRequests, since: Since, scope: Scope, how: How, outcome: Outcome) -> Any:
    begun = begun_at(since, scope, how)

    async def act(_: ev.StepStarted) -> Done | Failed:
        return outcome(begun)

    requests.conclude(begun, await perform_async(requests.run, requests.attempts(begun, since), act))
    return begun.result


def begun_at(since: Since, scope: Scope, how: How) -> Begun:
    started, _ = since
    assert started.definition is not None and started.asked is not None
    work = Work(step=started.definition, how=how, asked=started.asked, shown=started.shown)
    return Begun(started.step, scope, work, started=started)
