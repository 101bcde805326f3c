"""A program's plain calls: asked for, performed and recorded in one piece, as `engine.plain_step` says.

This is what most steps are, and between two syncs nothing of it is in the processor's caches: what counts is how little
code and how few objects it touches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acode.engine import plain_step
from acode.engine.step import Since, perform
from acode.errors import NotStorable
from acode.events import types as ev
from acode.library import values
from acode.library.arguments import VERSION, digest_of_call
from acode.library.declarations import Begun, How, Work
from acode.library.step_identity import CURRENT, Current, Scope, runner

if TYPE_CHECKING:
    from types import FunctionType

    from acode.engine.held_session import Recorded
    from acode.engine.plain_step import PlainSteps
    from acode.library.session import Session
    from acode.library.step_requests import StepRequests
    from acode.steps.interface import Done, Failed

Outcome = Callable[[Begun], "Done | Failed"]


def perform_plain(
    session: Session,
    name: str,
    function: FunctionType,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    how: How,
    plain: PlainSteps,
) -> Any:
    """The result of the call. `plain`: how the session takes such steps."""
    requests = session._requests
    run = requests.run
    turn = run.journal.turn
    durable = plain.careful_if_idempotent if how.idempotent else plain.careful
    arguments = digest_of_call([*args], kwargs)
    with turn:
        requests.at_boundary()
        scope = requests.scope()
        if scope is not requests.top:
            requests.refuse_given_up(scope)
        taken = scope.take(name)
        begun = None
        if not scope.failed and requests.record.is_new(taken.id, scope):
            asked = ev.Asked(arguments=arguments, digest_version=VERSION, after=taken.after, ordered=taken.certain)
            shown = run.world.redactor.text(values.shown(args, kwargs))
            named = values.name_of(function)
            begun = plain_step.append_start(
                run, taken.id, named, asked, shown, idempotent=how.idempotent, durable=durable
            )
    if begun is None:
        return session._do_at_length(name, function, args, kwargs, how, taken=taken)
    started, record = begun
    plain_step.confirm_start(run, started, record)
    owner = scope.owner if taken.ordered else runner()
    inside = Scope(taken.id, certain=taken.certain, within=scope, owner=owner)
    since = started, run.world.monotonic()
    failures: list[Exception] = []
    token = CURRENT.set(Current(session, inside))
    try:
        value = function(*args, **kwargs)
    except Exception as error:
        failures.append(error)
    finally:
        CURRENT.reset(token)
    if failures:  # which this frame does not keep: the traceback holds the frame
        return conclude(requests, since, scope, how, lambda begun: requests.raised(begun, failures.pop()))
    ended = append_end(requests, since, scope, value, how=how, durable=not durable)
    if ended is not None and (ended.durable or run.journal.committed.seq < ended.seq):
        run.settle(ended)
    return value


def append_end(
    requests: StepRequests, since: Since, scope: Scope, value: Any, *, how: How, durable: bool
) -> Recorded | None:
    """Append the completion with its result; None where more was to be recorded, which is done and settled."""
    run, (started, began_at) = requests.run, since
    took_ms = int((run.world.monotonic() - began_at) * 1000)
    if requests.closed or requests.forked:
        requests.refuse_if_not_usable()
    try:
        done = requests.record.pack(value)
    except NotStorable:
        conclude(requests, since, scope, how, lambda begun: requests.returned(begun, value))
        return None
    with run.journal.turn:
        if requests.closed or requests.forked:
            requests.refuse_if_not_usable()
        ended = plain_step.append_end(run, started, done, took_ms, durable=durable)
        if ended is not None:
            requests.finished_in(scope)
            return ended
    conclude(requests, since, scope, how, lambda begun: done)
    return None


def conclude(requests: StepRequests, since: Since, scope: Scope, how: How, outcome: Outcome) -> Any:
    """A step that has acted, and whose end is not plain, is ended like any other."""
    started, _ = since
    assert started.definition is not None and started.asked is not None
    work = Work(step=started.definition, how=how, asked=started.asked, shown=started.shown)
    begun = Begun(started.step, scope, work, started=started)
    requests.conclude(begun, perform(requests.run, requests.attempts(begun, since), lambda _: outcome(begun)))
    return begun.result
