"""Starts and completions as the log stores them: without what follows from the rest of the log.

A key is made of session, step and attempt, a task is the beginning of its step's name, and most completions stand
right behind their start. A start of a plain call, of which a program's log has thousands, has a short form of its own.
The boot of a call is left out where it is that of the process which the log has last named as the owner; the fold
restores it.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any

import msgspec

from acode.events.definition import Call, Step
from acode.events.keys import make_key
from acode.events.types import Asked, Known, StepCompleted, StepStarted, Unknown

DIGEST_VERSION = 2  # the rule by which the arguments of a plain call are digested
NO_START = -1  # stored in a completion that names no start; nothing stored: the event before it
_LEFT_OUT: dict[type, dict[str, Any]] = {
    StepStarted: {"task": "", "kind": "call", "attempt": 1, "key": "", "action_digest": ""},
    StepCompleted: {"task": "", "attempt": 1, "key": ""},
}


class PlainStart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="step_started"):
    """The start of a program's call of a function, of which nothing but this needs to be known."""

    calls: str
    step: str
    attempt: int = 1
    idempotent: bool = False
    boot_id: str = ""
    arguments: str = ""
    args: bytes = b""  # the same in base64, where it is a digest in hexadecimal digits, as it nearly always is
    after: str | None = None
    version: str = ""
    ordered: bool | msgspec.UnsetType = msgspec.UNSET  # said where it is not as usual: in order if it follows a step
    shown: str = ""


class FormerStart(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="step_started"):
    """The short form as it was written before: it names `unordered` steps, and is only read."""

    function: str
    step: str
    attempt: int = 1
    idempotent: bool = False
    boot_id: str = ""
    arguments: str = ""
    digest: bytes = b""
    after: str | None = None
    version: str = ""
    unordered: bool = False
    shown: str = ""


class PlainEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="step_completed"):
    """The completion of a step that left nothing but a result. It is read like any other."""

    step: str
    attempt: int = 1
    ms: int = 0
    result: Any = None
    start: int = 0


Stored = Any  # an event, one of the short forms, or one of the classes that `stored_class` makes


@cache
def stored_class(cls: type[Known]) -> type[Any]:
    """The type as rows hold it: what follows from the rest of the row may be left out."""
    if cls not in _LEFT_OUT:
        return cls
    fields: list[Any] = []
    for field in msgspec.structs.fields(cls):
        default = _LEFT_OUT[cls].get(field.name, field.default)
        if default is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, default))
        elif field.default_factory is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, field.type))
    if cls is StepCompleted:
        fields.append(("ms", int, 0))  # the duration, as the short form calls it
    tag = cls.__struct_config__.tag
    return msgspec.defstruct(
        f"Stored{cls.__name__}", fields, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=tag
    )


# To a row.


def leave_out(event: Known | Unknown, session_id: str, seq: int, boot_id: str) -> Stored:
    """The event as it is stored. `boot_id`: as the log has last named it."""
    if isinstance(event, StepStarted):
        return _plain_start(event, session_id, boot_id) or _stored(event, session_id)
    if isinstance(event, StepCompleted):
        start = 0 if event.start == seq - 1 else event.start or NO_START
        return _plain_end(event, session_id, seq) or _stored(event, session_id, start=start)
    return event


def _stored(event: StepStarted | StepCompleted, session_id: str, **changed: Any) -> Any:
    usual_key, usual_task = make_key(session_id, event.step, event.attempt), task_of(event.step)
    key = "" if event.key == usual_key else event.key
    task = "" if event.task == usual_task else event.task
    return stored_class(type(event))(**msgspec.structs.asdict(event) | {"key": key, "task": task} | changed)


def _plain_start(event: StepStarted, session_id: str, boot_id: str) -> PlainStart | None:
    """The short form, if it says everything: all that it has no room for is usual."""
    asked, defined, step = event.asked, event.definition, event.step
    if event.kind != "call" or asked is None or defined is None:
        return None
    action = defined.action
    if (
        type(action) is not Call
        or _rest_of_start(event) != _START_USUAL
        or not _is_named_as_usual(event, session_id)
        or defined.id != step
        or defined.idempotent != event.idempotent
    ):
        return None
    return short_start(event, asked, action.function, boot_id, _digest_in(asked.arguments))


def short_start(event: StepStarted, asked: Asked, function: str, boot_id: str, digest: bytes) -> PlainStart:
    """The short form of a start of which everything else is known to be usual. `boot_id`: as the log has named it;
    `digest`: that of the arguments, none where they are no digits of one."""
    return PlainStart(
        calls=function,
        step=event.step,
        attempt=event.attempt,
        idempotent=event.idempotent,
        boot_id="" if event.boot_id == boot_id else event.boot_id,
        arguments="" if digest else asked.arguments,
        args=digest,
        after=asked.after,
        version=asked.version,
        ordered=msgspec.UNSET if asked.ordered == (asked.after is not None) else asked.ordered,
        shown=event.shown,
    )


def _digest_in(arguments: str) -> bytes:
    """The digest's bytes; none where its digits would not come back as they are."""
    try:
        digest = bytes.fromhex(arguments)
    except ValueError:
        return b""
    return digest if digest.hex() == arguments else b""


def _as_now(former: FormerStart) -> PlainStart:
    return PlainStart(
        calls=former.function,
        step=former.step,
        attempt=former.attempt,
        idempotent=former.idempotent,
        boot_id=former.boot_id,
        arguments=former.arguments,
        args=former.digest,
        after=former.after,
        version=former.version,
        ordered=not former.unordered,
        shown=former.shown,
    )


def _start_of(short: PlainStart, session_id: str) -> StepStarted:
    step = short.step
    return StepStarted(
        step=step,
        task=task_of(step),
        kind="call",
        attempt=short.attempt,
        key=make_key(session_id, step, short.attempt),
        action_digest="",
        idempotent=short.idempotent,
        boot_id=short.boot_id,
        asked=Asked(
            arguments=short.args.hex() or short.arguments,
            digest_version=DIGEST_VERSION,
            after=short.after,
            version=short.version,
            ordered=short.after is not None if short.ordered is msgspec.UNSET else short.ordered,
        ),
        definition=Step(id=step, action=Call(function=short.calls), idempotent=short.idempotent),
        shown=short.shown,
    )


def _plain_end(event: StepCompleted, session_id: str, seq: int) -> PlainEnd | None:
    """The short form, if it says everything."""
    if _rest_of_end(event) != _END_USUAL or not _is_named_as_usual(event, session_id):
        return None
    return short_end(event, seq)


def short_end(event: StepCompleted, seq: int) -> PlainEnd:
    """The short form of a completion of which everything else is known to be usual."""
    start = 0 if event.start == seq - 1 else event.start or NO_START
    return PlainEnd(step=event.step, attempt=event.attempt, ms=event.duration_ms, result=event.result, start=start)


def _is_named_as_usual(event: StepStarted | StepCompleted, session_id: str) -> bool:
    """Whether its key and its task follow from its step; as `make_key` and `task_of` make them."""
    step = event.step
    return event.key == f"{session_id}:{step}:{event.attempt}" and event.task == step.partition(".")[0]


def _rest(cls: type[msgspec.Struct], named: str, **usual: Any) -> dict[str, Any]:
    """The fields of a type that a short form has no room for, with the values that they must have. They are all fields
    but those that are named, so that none can be forgotten that is added later."""
    defaults = {field.name: _default_of(field) for field in msgspec.structs.fields(cls)} | usual
    rest = {name: value for name, value in defaults.items() if name not in named.split()}
    assert msgspec.NODEFAULT not in rest.values(), f"{cls.__name__}: it is not said which value is usual"
    return rest


def _default_of(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default


_ASKED_REST = _rest(Asked, "arguments after version ordered", digest_version=DIGEST_VERSION)
_STEP_REST = _rest(Step, "id action idempotent")
_CALL_REST = _rest(Call, "function")
_start_rest = {
    **_rest(StepStarted, "step task kind attempt key idempotent boot_id asked definition shown", action_digest=""),
    **{f"asked.{name}": value for name, value in _ASKED_REST.items()},
    **{f"definition.{name}": value for name, value in _STEP_REST.items()},
    **{f"definition.action.{name}": value for name, value in _CALL_REST.items()},
}
_end_rest = _rest(StepCompleted, "step task attempt key duration_ms result start")
_rest_of_start, _START_USUAL = attrgetter(*_start_rest), (*_start_rest.values(),)
_rest_of_end, _END_USUAL = attrgetter(*_end_rest), (*_end_rest.values(),)


# From a row.


def restore(event: Stored, session_id: str, seq: int) -> Known | Unknown:
    """The event as it was before anything was left out."""
    kind = type(event)
    if kind is PlainStart:
        return _start_of(event, session_id)
    if kind is FormerStart:
        return _start_of(_as_now(event), session_id)
    if kind is stored_class(StepCompleted):
        start = seq - 1 if event.start == 0 else max(event.start, 0)
        whole = _whole(event, session_id)
        duration_ms = whole.pop("ms") or event.duration_ms
        return StepCompleted(**whole | {"start": start, "duration_ms": duration_ms})
    if kind is stored_class(StepStarted):
        return StepStarted(**_whole(event, session_id))
    known: Known | Unknown = event
    return known


def _whole(event: Any, session_id: str) -> dict[str, Any]:
    key = event.key or make_key(session_id, event.step, event.attempt)
    return msgspec.structs.asdict(event) | {"key": key, "task": event.task or task_of(event.step)}


def task_of(step: str) -> str:
    return step.partition(".")[0]
