"""What every tool has: its words for the model, the work, and a way to tell from the record what came of it.

A tool that only looks records what the model is told. A tool that does something is executed by the engine, and what
the model is told is made from the record of that alone: a later run tells it the same, whatever the world has become.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from acode.agent import messages
from acode.agent.context import Job
from acode.errors import OF_THE_MACHINE, AcodeError, UnsafePath
from acode.events import types as ev
from acode.events.definition import Action, Call
from acode.library.declarations import Begun
from acode.workspace import Root, visible

BY_HAND = "A person said that this took effect; nothing more is known of it."


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the model is told of its call. `error`: it was not done, or ended badly; `malformed`: not understood."""

    text: str
    error: bool = False
    malformed: bool = False


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    told: messages.Tool
    do: Callable[[Job, Begun, Any], Answer]
    recount: Callable[[Job, ev.StepCompleted, Any], Answer] | None = None  # None: it only looks


def looked(job: Job, begun: Begun, answer: Answer, *files: ev.FileState) -> Answer:
    """Nothing was changed: what was found, or why nothing was done, is the step's result."""
    tool = begun.id.rpartition(".")[2].partition("-")[0]
    job.bench.answer(begun, Call(function=tool), msgspec.to_builtins(answer), files=files)
    return answer


def refused(job: Job, begun: Begun, text: str, *files: ev.FileState) -> Answer:
    return looked(job, begun, Answer(text=text, error=True), *files)


def on_record(begun: Begun) -> Answer | None:
    """The answer that was recorded as such; None where the engine did something and recorded that."""
    found = begun.result
    return msgspec.convert(found, Answer) if isinstance(found, dict) and "text" in found else None


def execute(
    job: Job,
    begun: Begun,
    action: Action,
    *,
    idempotent: bool = False,
    timeout_s: float | None = None,
    expected_sha256: str | None = None,
) -> ev.StepCompleted | Answer:
    """Have the engine do it; an Answer where the place turned out to be one that must not be touched."""
    try:
        return job.bench.execute(
            begun, action, idempotent=idempotent, timeout_s=timeout_s, expected_sha256=expected_sha256
        )
    except UnsafePath as error:
        if begun.started is not None:
            raise
        return refused(job, begun, f"Refused: {error.message}.")


class Ending(msgspec.Struct, frozen=True):
    """How something ended that did not end well."""

    reason: str
    exit: int | None
    message: str


def ending_of(job: Job, completed: ev.StepCompleted) -> Ending | None:
    found = job.bench.result(completed)
    return msgspec.convert(found, Ending) if isinstance(found, dict) and "reason" in found else None


# Looking.


def root_of(job: Job) -> Root:
    return job.bench.run.root


def raise_if_of_the_machine(error: Exception) -> None:
    """A sick disk or a limit ends the run: a model that is told so takes it for the state of the work."""
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
