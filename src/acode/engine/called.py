"""Steps that a program asks for, one by one: begun and ended here, executed by whoever asked.

There is no plan to walk. The program is the plan, and a later run of it is held to what is on record. Durability is
that of any step: one that may be repeated ends durably, every other one begins durably, so that a step costs one sync.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import msgspec

from acode import __version__
from acode import lock as locks
from acode.engine import notices
from acode.engine.create import TITLE_CHARACTERS_MAX
from acode.engine.environment import git_position
from acode.engine.held_session import Held, created
from acode.engine.shared_paths import attribute, warn_of_shared
from acode.engine.step import guard_after_act
from acode.engine.walk import NAMES_IN_EVENT_MAX, in_pieces, warn_of
from acode.engine.world import SETTLED_BY_ANSWER, World
from acode.errors import AcodeError
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Approve, Commit, Run, Step, Write, command_line, declared_outputs, describe, digest
from acode.state import AGENT, NESTED, State
from acode.steps.interface import Done, Prepared
from acode.steps.run import make_place
from acode.workspace import restat


def create(
    world: World,
    key: str,
    *,
    entry: str | None,
    arguments: dict[str, Any],
    kind: Literal["library", "agent"] = "library",
    model: dict[str, Any] | None = None,
) -> contextlib.AbstractContextManager[Held]:
    """A new session for a program, under the key that the program gave it; an agent's begins with planning."""
    head, branch = git_position(world.workspace)
    event = ev.SessionCreated(
        title=key[:TITLE_CHARACTERS_MAX],
        task=key,
        kind=kind,
        model=model,
        config_digest=world.config.digest,
        git_head=head,
        git_branch=branch,
        entry=entry,
        entry_arguments=arguments,
        arguments_version=2,
        owner=locks.owner(),
        acode_version=__version__,
    )
    begun: tuple[ev.Known, ...] = () if kind == AGENT else (ev.SessionExecuting(reason="run"),)
    return created(world, event, PLANNING, *begun, blobs={})


PLANNING = ev.SessionPlanned(tasks=0, steps=0, plan_digest="")


# One step.


def begin(
    run: Held,
    step: Step,
    asked: ev.Asked,
    *,
    shown: str = "",
    before: tuple[ev.Known, ...] = (),
    prepared: Prepared | None = None,
) -> ev.StepStarted:
    """Say what is going to happen; durably, unless nothing can come of repeating it."""
    prepared, session = prepared if prepared is not None else NOTHING, run.session
    number = session.next_attempt(step.id)
    key = make_key(session.session_id, step.id, number)
    fit = fit_for_the_log(run, step)
    whole, blobs = kept_whole(run, step) if fit is not step and needs_secrets(step) else ("", {})
    started = ev.StepStarted(
        step=step.id,
        task=step.task,
        kind=step.kind,
        attempt=number,
        key=key,
        action_digest="",
        idempotent=step.idempotent,
        boot_id=locks.boot_id(),
        place_made=step.kind == "run" and make_place(run.world.agent_dir, key),
        before=prepared.before,
        before_complete=prepared.before_complete,
        astray=prepared.astray[:NAMES_IN_EVENT_MAX],
        after_sha256=prepared.after_sha256,
        after_mode=prepared.after_mode,
        target=prepared.target,
        asked=asked,
        definition=fit,
        definition_blob=whole,
        shown=shown,
    )
    warn_of_shared(run, step.id, started.before)
    run.append(*before, *awake(run), started, durable=careful(started), blobs={**prepared.blobs, **blobs})
    if heard(run, notices.StepStarted):
        run.emit(
            notices.StepStarted(
                kind=step.kind,
                title=run.world.redactor.text(describe(step)),
                attempt=number,
                shown=shown,
                number=0,
                of=0,
                key=started.key,
            ),
            step=step.id,
        )
    return started


NOTHING = Prepared()


def heard(run: Held, body: type[notices.Body]) -> bool:
    """Whether anybody listens; a step is over so quickly that telling it to nobody would be felt."""
    return body not in getattr(run.world.listener, "unheard", ())


def careful(started: ev.StepStarted) -> bool:
    """Whether the start must survive a power cut: the step may not be repeated, or it changes the workspace."""
    outputs = started.definition is not None and declared_outputs(started.definition)
    return started.kind not in ("call", "run", "model") or not started.idempotent or bool(started.before or outputs)


def awake(run: Held) -> tuple[ev.Known, ...]:
    """A session that waited at a gate, or was paused meanwhile, goes on; with planning, if that is where it was."""
    if run.session.state in (State.EXECUTING, State.PLANNING):
        return ()
    if run.session.state is State.PAUSED and run.session.before_pause is State.PLANNING:
        return (PLANNING,)
    return (ev.SessionExecuting(reason="the program goes on"),)


def fit_for_the_log(run: Held, step: Step) -> Step:
    """The definition as people and policies read it: without the content, and without anything secret."""
    redactor = run.world.redactor
    match step.action:
        case Write(path=path, mode=mode):
            return msgspec.structs.replace(step, action=Write(path=path, content="", mode=mode))
        case Run() as action if redactor.matches(msgspec.json.encode(step).decode()):
            bare = msgspec.structs.replace(
                action,
                command=redactor.text(command_line(action.command)),
                probe=None if action.probe is None else redactor.text(action.probe),
                env={},
            )
            return msgspec.structs.replace(step, action=bare, undo=shown_undo(run, step))
        case Commit(message=message) as action if redactor.matches(message):
            return msgspec.structs.replace(step, action=msgspec.structs.replace(action, message=redactor.text(message)))
        case _ if step.undo is not None and redactor.matches(command_line(step.undo)):
            return msgspec.structs.replace(step, undo=shown_undo(run, step))
        case _:
            return step


def shown_undo(run: Held, step: Step) -> str | None:
    return None if step.undo is None else run.world.redactor.text(command_line(step.undo))


def needs_secrets(step: Step) -> bool:
    """Whether a later process executes something of the definition: its undo, or the probe that settles it."""
    return step.undo is not None or (isinstance(step.action, Run) and step.action.probe is not None)


def kept_whole(run: Held, step: Step) -> tuple[str, dict[str, tuple[str, bytes | None]]]:
    """The definition with its secrets, as a private file: without it a probe or an undo would be as if undeclared."""
    name, blob = run.store.keep(msgspec.json.encode(step), "sensitive")
    return name, {name: blob}


def end(
    run: Held,
    started: ev.StepStarted,
    done: Done,
    *,
    took_ms: int,
    settled: bool = False,
    before: tuple[ev.Known, ...] = (),
    actor: str = "system",
    durable: bool = False,
) -> ev.StepCompleted:
    """The completion; after a durable start it is power-safe with the next durable word, or within a second."""
    guard_after_act(run, started.step)
    found, undeclared = done.files, done.touched
    if started.kind == "call" and not settled:
        meanwhile = changed_meanwhile(run)
        found, undeclared = (*found, *meanwhile), (*undeclared, *content_changed(run, meanwhile))
    own = attribute(run, started.step, found, undeclared)
    touched = tuple(path for path in done.touched if path in own.touched)
    seen, files = in_pieces(started.step, started.attempt, own.files)
    completed = ev.StepCompleted(
        step=started.step,
        task=started.task,
        attempt=started.attempt,
        key=started.key,
        duration_ms=done.duration_ms if done.duration_ms is not None else took_ms,
        settled=settled,
        output=done.output,
        files=files,
        touched=touched[:NAMES_IN_EVENT_MAX],
        unrecorded=done.unrecorded,
        result=done.result,
        asked=started.asked,
        spent=done.spent,
    )
    synced = durable or settled or not careful(started)
    said = run.append(*before, *own.accepted, *seen, completed, durable=synced, blobs=done.blobs, actor=actor)
    run.executed += not settled
    warn_of(run, completed, own)
    if heard(run, notices.StepCompleted):
        run.emit(
            notices.StepCompleted(
                duration_ms=completed.duration_ms,
                settled=settled,
                touched=list(touched),
                done=run.session.steps_done,
                total=run.session.steps_total,
            ),
            seq=said[-1].seq,
            step=started.step,
        )
    return completed


def changed_meanwhile(run: Held) -> tuple[ev.FileState, ...]:
    """Files that the session knows and that changed while the function ran: the change belongs to the step.

    The function has run, and that is recorded also where nobody can look: the next resume finds what differs.
    """
    records = run.session.records
    if records is None or not records.manifest:
        return ()
    try:
        return restat(run.root, records.manifest)
    except (AcodeError, OSError) as error:
        run.warn(f"whether the step changed files that the session knows could not be seen: {error}")
        return ()


def content_changed(run: Held, files: tuple[ev.FileState, ...]) -> tuple[str, ...]:
    assert run.session.records is not None
    known = run.session.records.manifest
    return tuple(one.path for one in files if (known[one.path].sha256, known[one.path].mode) != (one.sha256, one.mode))


def accept_retry(run: Held, started: ev.StepStarted, evidence: str) -> None:
    """A step that was stopped in the middle and may be repeated is cleared for its next attempt."""
    run.append(
        ev.StepSettled(step=started.step, attempt=started.attempt, outcome=ev.Settled.RETRY_ACCEPTED, evidence=evidence)
    )


# Settling what a program left open.


def settle(
    run: Held, step_id: str, answer: str, *, evidence: str, note: str = "", actor: str, done: Done | None = None
) -> None:
    """What became of a step in flight, by the word of a program or a person: applied, not_applied or retry."""
    started = run.session.in_flight[step_id].started
    outcome = SETTLED_BY_ANSWER[answer]
    settled = ev.StepSettled(step=step_id, attempt=started.attempt, outcome=outcome, evidence=evidence, note=note)
    if outcome is not ev.Settled.APPLIED:
        run.append(settled, actor=actor)
        return
    end(run, started, done or Done(), took_ms=0, settled=True, before=(settled,), actor=actor)


def take_back_record(run: Held, step_id: str) -> None:
    """A finished step is to run again, because its program says so: it is pending from here on."""
    run.append(taken_back(step_id), actor="user")


def taken_back(step_id: str) -> ev.StepsRolledBack:
    return ev.StepsRolledBack(to=None, steps=(step_id,), tasks=() if NESTED in step_id else (step_id,))


def give_result(run: Held, lost: ev.StepCompleted, answer: str, *, evidence: str, note: str, done: Done | None) -> None:
    """A finished step whose result could not be stored is given one by a person, or is to run again."""
    outcome = SETTLED_BY_ANSWER[answer]
    settled = ev.StepSettled(step=lost.step, attempt=lost.attempt, outcome=outcome, evidence=evidence, note=note)
    if done is None:
        run.append(taken_back(lost.step), settled, actor="user")
        return
    started = ev.StepStarted(
        step=lost.step,
        task=lost.task,
        kind="call",
        attempt=lost.attempt,
        key=lost.key,
        action_digest="",
        asked=lost.asked,
    )
    end(run, started, done, took_ms=0, settled=True, before=(taken_back(lost.step), settled), actor="user")


# Gates.


def gate_digest(run: Held, step: Step) -> str:
    """The hash of what a grant allows: this question, asked by this session at this place."""
    assert isinstance(step.action, Approve)
    return digest({"session": run.session.session_id, "gate": step.id, "question": step.action.question})


def gate_passed(run: Held, step: Step, asked: ev.Asked) -> ev.StepStarted:
    """What a gate begins with; said together with its passing, because nothing happens in between."""
    number = run.session.next_attempt(step.id)
    key = make_key(run.session.session_id, step.id, number)
    return ev.StepStarted(
        step=step.id,
        task=step.task,
        kind="approve",
        attempt=number,
        key=key,
        action_digest="",
        asked=asked,
        definition=step,
    )
