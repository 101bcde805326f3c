"""The interface of a tool: its description for the model, the work, and the answer that is made from the record.

A tool that only reads records its answer. A tool with effects is executed by the engine, and its answer is made from
that record alone: a later run gives the same answer, whatever has changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from acode.agent import messages
from acode.agent.context import Context
from acode.errors import OF_THE_MACHINE, AcodeError, UnsafePath
from acode.events import types as ev
from acode.events.definition import Action, Call
from acode.library.declarations import Begun
from acode.library.deferred_steps import DeferredSteps
from acode.workspace import Root, visible

BY_HAND = "A person said that this took effect; nothing more is known of it."


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to the model's call. `error`: it was not done, or ended badly; `malformed`: not understood."""

    text: str
    error: bool = False
    malformed: bool = False


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    schema: messages.Tool
    do: Callable[[Context, Begun, Any], Answer]
    recount: Callable[[Context, ev.StepCompleted, Any], Answer] | None = None  # None: it only looks


def looked(context: Context, begun: Begun, answer: Answer, *files: ev.FileState) -> Answer:
    """Nothing was changed: what was found, or why nothing was done, is the step's result."""
    tool = begun.id.rpartition(".")[2].partition("-")[0]
    context.steps.answer(begun, Call(function=tool), msgspec.to_builtins(answer), files=files)
    return answer


def refused(context: Context, begun: Begun, text: str, *files: ev.FileState) -> Answer:
    return looked(context, begun, Answer(text=text, error=True), *files)


def on_record(begun: Begun) -> Answer | None:
    """The answer that was recorded as such; None where the engine did something and recorded that."""
    found = begun.result
    return msgspec.convert(found, Answer) if isinstance(found, dict) and "text" in found else None


def execute(
    context: Context,
    begun: Begun,
    action: Action,
    *,
    idempotent: bool = False,
    timeout_s: float | None = None,
    expected_sha256: str | None = None,
) -> ev.StepCompleted | Answer:
    """Have the engine do it; an Answer where the place turned out to be one that must not be touched."""
    try:
        return context.steps.execute(
            begun, action, idempotent=idempotent, timeout_s=timeout_s, expected_sha256=expected_sha256
        )
    except UnsafePath as error:
        if begun.started is not None:
            raise
        return refused(context, begun, f"Refused: {error.message}.")


class Ending(msgspec.Struct, frozen=True):
    """How something ended that did not end well."""

    reason: str
    exit: int | None
    message: str


def ending_of(context: Context, completed: ev.StepCompleted) -> Ending | None:
    return ending_in(context.steps, completed)


def ending_in(steps: DeferredSteps, completed: ev.StepCompleted) -> Ending | None:
    found = steps.result(completed)
    return msgspec.convert(found, Ending) if isinstance(found, dict) and "reason" in found else None


# Looking.


def root_of(context: Context) -> Root:
    return context.steps.run.root


def raise_if_of_the_machine(error: Exception) -> None:
    """A failing disk or a limit ends the run: a model would take the error for the state of the work."""
    if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
        raise error


def why(error: Exception, path: str) -> str:
    """Why a path could not be looked at, for the model."""
    raise_if_of_the_machine(error)
    if isinstance(error, AcodeError):
        return f"{error.message}."
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{visible(path)} does not exist."
    return f"{visible(path)} cannot be read: {getattr(error, 'strerror', None) or error}."


def text_in(data: bytes) -> str | None:
    """The text of a file; None: it is binary."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
