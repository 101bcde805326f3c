"""State the outcome of a program's step that was killed, for a caller of the library and for a person."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Literal

from acode.engine.held_session import held
from acode.engine.program_answers import give_result, settle_call
from acode.engine.session_commands import refuse_running
from acode.engine.settle import resolve as settle_by_person
from acode.engine.undo_command import answer_undo, is_being_undone
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import World, short
from acode.errors import UnknownSession, Usage
from acode.library.open_session import find_session, with_second_tier
from acode.library.recorded_steps import Record
from acode.library.world import errors_as_calls, world_of
from acode.state import Session

Answer = Literal["applied", "not_applied", "retry"]


def resolve(
    key: str,
    step: str,
    answer: Answer,
    *,
    result: Any = None,
    note: str = "",
    workspace: str | os.PathLike[str] = ".",
) -> None:
    """State the outcome of a step, or of its undo, whose outcome is unknown; the program or the rollback continues with
    it.

    answer: `applied`, it happened, and `result` is its return value; `not_applied`, it did not; `retry`, it is still
    unknown, and a repeat is accepted. It is recorded as a person's decision, like `acode session resolve`.
    """
    if answer not in ("applied", "not_applied", "retry"):
        raise Usage(f"answer: expected applied, not_applied or retry, found {answer!r}")
    with errors_as_calls(key), contextlib.ExitStack() as stack:
        world = with_second_tier(stack, world_of(workspace))
        known = find_session(world, key)
        if known is None:
            raise UnknownSession(f"there is no session under the key {key}")
        settle_by_caller(world, known[0], step, answer, key=key, result=result, note=note)


def settle_with_result(world: World, text: str, step: str, result: Any, *, note: str) -> Session:
    """A person says that a function of a program took effect, and what it returned."""
    with opened(world, look_only=True) as store:
        session_id = resolve_id(world, store, text)
        session, _ = store.peek(session_id)
    if not session.steps_from.asked:
        raise Usage(f"session {short(session_id)} has no program that a result could be given to")
    flight = session.in_flight.get(step)
    if flight is not None and flight.started.kind != "call":
        raise Usage(f"step {step} is no function of the program: its result is what it left behind")
    key = session.run_id or session.title
    settle_by_caller(world, session_id, step, "applied", key=key, result=result, note=note, said="said by a person")
    with opened(world, look_only=True) as store:
        return store.load(session_id).session


def settle_by_caller(
    world: World,
    session_id: str,
    step: str,
    answer: Answer,
    *,
    key: str,
    result: Any,
    note: str,
    said: str = "said by the program's caller",
) -> None:
    words = world.redactor.text(note)
    with held(world, session_id, doing="settle a step of", brief=True) as run:
        if is_being_undone(run.session, step):
            answer_undo(run, answer, note=words, force=False)
            return
        record = Record(run, "raise")
        if step not in run.session.in_flight and (lost := record.lost(step)) is not None:
            done = record.pack(result) if answer == "applied" else None
            give_result(run, lost, answer, evidence=said, note=words, done=done)
            return
        if step not in run.session.in_flight:
            open_steps = ", ".join(run.session.in_flight) or "none"
            raise Usage(f"step {step} of {key} is not open", hint=f"Open steps: {open_steps}")
        refuse_running(run, step)
        if run.session.in_flight[step].started.kind != "call":  # what it left, and what may still begin, is looked at
            settle_by_person(run, step, answer, evidence=said, note=words)
            return
        done = record.pack(result) if answer == "applied" else None
        settle_call(run, step, answer, evidence=said, note=words, actor="user", done=done)
