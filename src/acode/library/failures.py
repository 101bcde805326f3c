"""Raise a recorded failure again: an exception that a program has handled, for a later run of the same program.

It comes back as an object of its class, because the program's `except` asks for that, with its arguments and
attributes; its constructor is not called, which might want other arguments, or do something.
"""

from __future__ import annotations

from typing import Any

import msgspec

from acode.errors import StepFailed
from acode.events import types as ev
from acode.library import values

RECORDED_BYTES_MAX = 64 * 1024
NOTE = "Raised again from the record; attributes that could not be stored are missing."


def describe(error: BaseException) -> str:
    """Its message, in characters that a log can hold; a failure is recorded whatever its class does."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except Exception as unable:
        return f"it cannot say what it is: {type(unable).__name__}"


def text_only(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, "text": text[:RECORDED_BYTES_MAX], "state": {}, "part": True}


def describe_error(error: BaseException) -> dict[str, Any]:
    """An exception as a later run can raise it again; what of it is no value, is left out."""
    kind, text = values.name_of(type(error)), describe(error)
    try:
        told = {"type": kind, "text": text, **_parts(error)}
        return told if len(msgspec.json.encode(told)) <= RECORDED_BYTES_MAX else text_only(kind, text)
    except Exception:
        return text_only(kind, text)


def _parts(error: BaseException) -> dict[str, Any]:
    told: dict[str, Any] = {}
    _, arguments, *rest = _builtin(type(error)).__reduce__(error)
    state = rest[0] if rest and isinstance(rest[0], dict) else {}
    kept = {name: item for name, value in state.items() if (item := _stored(value)) is not None}
    if (stored := _stored(list(error.args))) is not None:
        told["args"] = stored[0]
        if (made_of := _stored(list(arguments))) is not None and made_of != stored:
            told["made_of"] = made_of[0]  # an OSError's name of the file is no argument of it, but of its making
    told["state"] = {name: item[0] for name, item in kept.items()}
    if "args" not in told or len(kept) < len(state):
        told["part"] = True
    return told


def _stored(value: Any) -> tuple[Any] | None:
    try:
        values.encode(value)
        return (values.plain(value, 0),)
    except Exception:
        return None


def raised_again(failure: ev.StepFailed | None, step: str) -> Exception:
    """The exception that the step once raised, or the failure as a text where its class is gone."""
    told = failure.error if failure is not None else {}
    try:
        cls = values.find(told["type"], "a failure")
        if isinstance(cls, type) and issubclass(cls, Exception):
            return _made(cls, told)
    except Exception:  # then only its text is raised
        pass
    if failure is None:
        return StepFailed(f"step {step}: it failed", step=step)
    tail = failure.output.tail if failure.output else ""
    return StepFailed(f"step {step}: {failure.message}", step=step, exit_status=failure.exit_status, output=tail)


def _made(cls: type[Exception], told: dict[str, Any]) -> Exception:
    args = values.decode(told["args"]) if "args" in told else [told["text"]]
    if "state" not in told and "args" in told:  # as it was recorded once: only its constructor knows the rest
        try:
            return cls(*args)
        except Exception:
            args = [told["text"]]
    builtin, made_of = _builtin(cls), values.decode(told["made_of"]) if "made_of" in told else args
    try:
        made = builtin.__new__(cls, *made_of)
        builtin.__init__(made, *made_of)
    except TypeError:  # one of the language's own that wants more than a text
        made = Exception.__new__(cls, *args)
    made.args = tuple(args)
    for name, item in told.get("state", {}).items():
        object.__setattr__(made, name, values.decode(item))
    if "part" in told:
        made.add_note(NOTE)
    assert isinstance(made, Exception)
    return made


def _builtin(cls: type[BaseException]) -> Any:
    """The class of the language itself that it is made of."""
    return next(one for one in cls.__mro__ if one.__module__ == "builtins")
