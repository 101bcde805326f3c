"""A person's actions on a session besides running it: settle, answer, save, pause, end, unlock.

Each is one recorded event with the person as its actor. None of them executes a step.
"""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from acode import hints
from acode import lock as locks
from acode.engine.break_lock import break_lock
from acode.engine.gate import Answer, answer_event, gate_of
from acode.engine.grants import Allowed
from acode.engine.held_session import Held, created_by, ended, held
from acode.engine.lease_state import is_anothers
from acode.engine.next_action import session_hint
from acode.engine.rollback import let_be_done
from acode.engine.session_list import is_at_work
from acode.engine.settle import resolve as settle_by_person
from acode.engine.survey import failed_steps, look_at, step_named
from acode.engine.undo_command import answer_undo, is_being_undone
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import World, short
from acode.errors import AcodeError, CannotContinue, SessionLocked, Stale, StepStillRunning, Usage
from acode.events import types as ev
from acode.events.definition import Approve, Step
from acode.hints import Command, Hint
from acode.state import Session, State


def resolve(
    world: World, text: str, step_id: str, answer: str, *, note: str, force: bool, shown: str | None = None
) -> tuple[Session, ev.UndoStarted | None]:
    """A person states the outcome of a step: applied, not_applied, or retry; or of its undo, which is returned then.

    `shown`: the key of the attempt that the person was shown; another attempt is another question.
    """
    with held(world, text, doing="settle a step of", brief=True) as run:
        if shown is not None and (step_id not in run.session.in_flight or attempt_key(run, step_id) != shown):
            raise Stale(f"step {step_id} is not the attempt that was shown")
        if is_being_undone(run.session, step_id):
            undo = run.session.undoing
            if undo is not None and not undo.key and answer == "not_applied":
                let_be_done(run, note=world.redactor.text(note))
            else:
                answer_undo(run, answer, note=world.redactor.text(note), force=force)
            return run.session, undo
        flight, record = run.session.in_flight.get(step_id), run.session.record(step_id)
        if flight is None and (record is None or record.status != "failed"):
            half_undone = [run.session.undoing.step] if run.session.undoing else []
            open_steps = [*run.session.in_flight, *failed_steps(run.session), *half_undone]
            raise Usage(
                f"step {step_id} of session {short(run.session.session_id)} is not open",
                hint=f"Open steps: {', '.join(open_steps)}" if open_steps else "No step is open.",
            )
        if answer == "applied":
            refuse_unsayable(run.session, step_id)
        if flight is not None and not force:
            refuse_running(run, step_id)
        if answer == "applied" and flight is not None and flight.started.kind == "call":
            run.warn(
                f"{step_id} is a function, and the program is given null for what it returned; if it returns a value,"
                " give it with --result JSON"
            )
        settle_by_person(run, step_id, answer, evidence="said by a person", note=world.redactor.text(note))
        return run.session, None


def attempt_key(run: Held, step_id: str) -> str:
    return run.session.in_flight[step_id].started.key


def refuse_running(run: Held, step_id: str) -> None:
    """A step that still runs has no outcome yet; settled now, it would run beside its repeat.

    A database is asked, which changes nothing; a probe is not run: a person's answer is in its place.
    """
    in_database = run.session.in_flight[step_id].started.kind == "sql"
    finding = look_at(step_named(run.session, step_id), run.site(probes=in_database), run.session)
    if finding.still_running:
        raise StepStillRunning(
            f"step {step_id} has not ended: {finding.evidence}",
            hint=session_hint(
                run.session,
                "Wait for it or stop it. To settle it anyway: {}",
                Command(f"session resolve SESSION {step_id} {hints.Resolve.ANY} --force"),
            ),
            step=step_id,
        )


def refuse_unsayable(session: Session, step_id: str) -> None:
    """An agent's tasks and requests cannot be settled by a person: the model's answer is missing."""
    flight = session.in_flight.get(step_id)
    if session.is_open_task(step_id) or (flight is not None and flight.started.kind == "model"):
        raise Usage(
            f"{step_id} has no effect that a person could state: it is complete with the model's answer, or not at all",
            hint=session_hint(session, "It continues where the log ends: {}", hints.Resume()),
        )


def answer_gate(
    world: World, text: str, gate: str | None, *, granted: bool, note: str, shown: str | None = None
) -> tuple[Session, str]:
    """Grant or deny the gate a session waits at; the grant covers exactly what stands behind it now.

    `shown`: the digest of what the person was shown; where it is another one now, nothing is recorded.
    """
    with held(world, text, doing="approve" if granted else "deny", brief=True) as run:
        step = waiting_gate(run.session, gate)
        waiting = run.session.waiting_for
        # A program's gate is bound to its question when it stopped; only the program could ask again.
        bound = Allowed(digest=waiting.action_digest) if run.session.steps_from.asked and waiting is not None else None
        asked = gate_of(run, step, allowed=bound)
        if shown is not None and asked.allowed.digest != shown:
            raise Stale(f"what gate {step.id} covers has changed since it was shown")
        answer = answer_event(asked, Answer(granted=granted, note=world.redactor.text(note)), via=world.via)
        run.append(answer, *(() if granted else after_denial(run, step)), actor="user")
        return run.session, step.id


def after_denial(run: Held, step: Step) -> tuple[ev.Known, ...]:
    if run.session.plan is not None and run.session.plan.on_failure == "abort":
        return (ev.SessionFailed(reason="approval denied", step=step.id),)
    if run.session.state is State.PAUSED:
        return ()
    return (ev.SessionPaused(reason="denied", step=step.id, message="approval denied"),)


def waiting_gate(session: Session, gate: str | None) -> Step:
    """The gate that is asked about; a gate that is not the next open one cannot be answered in advance."""
    if session.steps_from.asked:
        return gate_asked_for(session, gate)
    gates = [step for step in session.steps() if isinstance(step.action, Approve) and not session.done(step.id)]
    if session.state is State.AWAITING_APPROVAL and session.waiting_for is not None:
        gates = [step for step in gates if step.id == session.waiting_for.step]
    else:
        pending = next((step for step in session.steps() if not session.done(step.id)), None)
        gates = [step for step in gates if pending is not None and step.id == pending.id]
    waiting = gates
    if gate is not None:
        gates = [step for step in gates if step.id == gate]
    if not gates:
        raise no_such_gate(session, gate, waiting[0].id if waiting else None)
    return gates[0]


def gate_asked_for(session: Session, gate: str | None) -> Step:
    """The gate at which a program waits; there is no plan that would know of another."""
    waiting = session.waiting_for
    if waiting is None or gate not in (None, waiting.step):
        raise no_such_gate(session, gate, waiting.step if waiting is not None else None)
    return Step(id=waiting.step, action=Approve(question=waiting.question))


def no_such_gate(session: Session, gate: str | None, waits_at: str | None) -> Usage:
    name = short(session.session_id)
    there = f"It waits at {waits_at}. " if waits_at is not None else ""
    return Usage(
        f"session {name} does not wait at {'gate ' + gate if gate else 'a gate'}",
        hint=session_hint(session, "{}See where it stands: {}", there, Command("status SESSION")),
    )


def save_point(world: World, text: str, label: str) -> tuple[Session, int]:
    """A checkpoint on demand."""
    with held(world, text, doing="save", brief=True) as run:
        if any(not run.session.is_open_task(step) for step in run.session.in_flight):
            raise CannotContinue(
                f"session {short(run.session.session_id)} has a step in flight, and none is made in the middle of one",
                hint=session_hint(run.session, "Settle it first: {}", hints.Resume()),
            )
        run.append(ev.CheckpointCreated(label=world.redactor.text(label)), actor="user")
        return run.session, run.journal.checkpoint_id


def pause(world: World, text: str) -> tuple[Session, int | None]:
    """Ask the process that runs the session to pause at the next boundary; without one, note the pause ourselves."""
    with opened(world, look_only=True) as store:
        session_id = resolve_id(world, store, text)
        session, _ = store.peek(session_id)
        if session.terminal:
            session.created = created_by(store, session)  # it says how more of its kind is begun
            raise ended(session, "pause")
        generation = store.generation(session_id)
        seen = locks.look(world.agent_dir / "locks", session_id, generation)
    if session.performer is not None and is_at_work(session):  # it holds no lock, and takes no request
        agent = f"{session.performer.name}, pid {session.performer.pid}"
        raise SessionLocked(
            f"session {short(session_id)} is that of {agent}: acode observes it and cannot pause it",
            hint="Stop it in its own window: its session is paused when its turn ends.",
        )
    if seen.held and seen.holder is not None and not seen.holder.brief and locks.alive(seen.holder):
        if sys.platform == "win32":
            raise SessionLocked(f"session {short(session_id)} runs as pid {seen.holder.pid}: press Ctrl+C there")
        locks.ask_to_pause(world.agent_dir / "locks", session_id, generation, seen.holder)
        if not session.steps_from.in_own_process:
            # So that it says at once what it waits for; it may ignore it. A program would be interrupted in its step.
            os.kill(seen.holder.pid, signal.SIGINT)
        return session, seen.holder.pid
    with held(world, session_id, brief=True) as run:
        warn_of_commands(run)
        if run.session.state in (State.PAUSED, State.AWAITING_APPROVAL):
            return run.session, None
        run.append(ev.SessionPaused(reason="user", message="paused after it had stopped", via=world.via), actor="user")
        return run.session, None


def end(world: World, text: str, *, cancelled: bool, reason: str, shown: int | None = None) -> Session:
    """Cancel: the user does not want it any more. Abandon: it has failed for good. Both are terminal.

    `shown`: the number of the last event that the person had seen; a session that continued since is not ended.
    """
    with held(world, text, doing="cancel" if cancelled else "abandon", brief=True) as run:
        if shown is not None and run.session.seq != shown:
            raise Stale(f"session {short(run.session.session_id)} has continued since it was shown")
        warn_of_commands(run)
        words = world.redactor.text(reason)
        event: ev.Known = (
            ev.SessionCancelled(reason=words, via=world.via)
            if cancelled
            else ev.SessionFailed(reason=words or "abandoned", via=world.via)
        )
        run.append(event, actor="user")
        return run.session


def warn_of_commands(run: Held) -> None:
    """Warn of a command that outlived its acode: it still runs, whatever the decision about its session."""
    for step in run.session.in_flight:
        try:
            finding = look_at(step_named(run.session, step), run.site(probes=False), run.session)
        except (AcodeError, OSError):  # what cannot be looked at must not keep anybody from ending the session
            continue
        if finding.still_running:
            run.warn(f"the command of step {step} is {finding.evidence}; it still runs, and only you can stop it")


def unlock(world: World, text: str, *, force: bool, reason: str) -> tuple[Session, locks.Holder | None, bool]:
    """Break the lock of a dead owner, or of any by force; an owner that wakes up later is fenced off by the
    generation.
    """
    with opened(world, look_only=False) as store:
        session_id = resolve_id(world, store, text)
        generation = store.generation(session_id)
        seen = locks.look(world.agent_dir / "locks", session_id, generation)
        claim = force and is_anothers(store, session_id)
        if not seen.held and not claim:
            session, _ = store.peek(session_id)
            return session, seen.holder, False
        if not force and seen.holder is not None and locks.alive(seen.holder):
            raise SessionLocked(
                f"session {short(session_id)} is in use by pid {seen.holder.pid} of {seen.holder.user}, which is alive",
                hint=Hint(
                    "Pause it: {}; or break its lock anyway: --force",
                    Command("session pause SESSION"),
                    of=short(session_id),
                ),
                owner=msgspec.to_builtins(seen.holder),
            )
    owner = msgspec.to_builtins(seen.holder) if seen.holder else {}
    event = ev.LockBroken(generation=generation, owner=owner, forced=force, reason=world.redactor.text(reason))
    return break_lock(world, session_id, event, claim=claim), seen.holder, True
