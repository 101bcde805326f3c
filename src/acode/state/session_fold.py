"""Fold: events become one `Session` value, from zero or from a checkpoint, and any cut of the log gives the same one.

The state machine is a table. The fold never guesses: a gap, a disorder or a transition that the table does not hold is
an error by name. `fold` works on a copy; `advance` moves a session on in place and is for the one journal that owns it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from acode.errors import BadTransition, ReplayDisorder, SequenceGap
from acode.events import types as ev
from acode.events.codec import NAMES_ITS_PLACE, Envelope, event_id_of
from acode.events.definition import Run
from acode.state.observed_calls import repeat_denied, see_end, see_performer
from acode.state.session import (
    NESTED,
    TRANSITIONS,
    AcceptedPast,
    Approval,
    Conversation,
    Failure,
    InFlight,
    Mark,
    PlanOrigin,
    Records,
    Session,
    State,
    StepRecord,
)
from acode.state.source import PLAN, SOURCES

_STARTED = str(ev.StepStarted.__struct_config__.tag)
_COMPLETED = str(ev.StepCompleted.__struct_config__.tag)


def fold(events: Iterable[Envelope], start: Session | None = None) -> Session:
    """All events onto a copy of `start`; the first event of a log makes the session."""
    session = copy.deepcopy(start)
    for envelope in events:
        session = begin(envelope) if session is None else advance(session, envelope)
    if session is None:
        raise SequenceGap("the log is empty: not even the creation of the session is there")
    return session


def begin(envelope: Envelope) -> Session:
    created = envelope.event
    if not isinstance(created, ev.SessionCreated) or envelope.seq != 1:
        raise SequenceGap(f"the log begins with event {envelope.seq} {envelope.type}, not with session_created")
    session = Session(
        session_id=envelope.session_id,
        seq=0,
        state=State.CREATED,
        created_at=envelope.at,
        updated_at=envelope.at,
        last_event_id="",
        title=created.title,
        source=created.source,
        kind=created.kind,
        run_id=created.task if SOURCES[created.kind].has_run_id else "",
        boot_id=_boot_of(envelope, created.owner),
        records=Records(),
        created=created,
        plan=created.plan,
    )
    return advance(session, envelope)


def advance(session: Session, envelope: Envelope) -> Session:
    """One event further, in place; an event that is refused changes nothing."""
    if envelope.session_id != session.session_id or envelope.seq != session.seq + 1:
        raise SequenceGap(
            f"after event {session.seq} of session {session.session_id} comes event {envelope.seq}"
            f" of session {envelope.session_id}",
            expected=session.seq + 1,
            found=envelope.seq,
        )
    at, last = envelope.at, session.updated_at
    if at <= last and (at < last or not _is_next(session, envelope)):
        raise ReplayDisorder(
            f"event {envelope.seq} is not later than event {session.seq}: time and id give another order than the log",
            seq=envelope.seq,
        )
    event = envelope.event
    kind = type(event)
    apply = _APPLY.get(kind)
    if apply is not None:
        apply(session, event, envelope)
    if kind is ev.StepCompleted or kind is ev.StepStarted:
        session.refused_at = None  # and its mark is made with it
    elif kind in ev.LIFECYCLE:
        session.last_lifecycle = mark(envelope)
        session.refused_at = None
    session.seq, session.updated_at, session.last_event_id = envelope.seq, at, envelope.named_id
    return session


def _is_next(session: Session, envelope: Envelope) -> bool:
    """At the same time the ids decide; the first event follows none."""
    last_id = session.last_event_id or event_id_of(session.session_id, session.seq, session.updated_at)
    return session.seq == 0 or envelope.event_id > last_id


def mark(envelope: Envelope) -> Mark:
    event = envelope.event
    task = getattr(event, "task", None) if type(event) is not ev.SessionCreated else None
    step = getattr(event, "step", None)
    return Mark(event_id=envelope.named_id, seq=envelope.seq, at=envelope.at, type=envelope.type, task=task, step=step)


def _enter(session: Session, new: State, seq: int) -> None:
    if new not in TRANSITIONS[session.state]:
        raise BadTransition(f"event {seq}: a session cannot go from {session.state} to {new}", seq=seq)
    if new is State.PAUSED:
        session.before_pause = session.state
    else:
        session.pause = None
        session.waiting_for = session.answered_gate = None
    session.state = new


def _planned(session: Session, event: ev.SessionPlanned, envelope: Envelope) -> None:
    if session.state is not State.PLANNING:
        _enter(session, State.PLANNING, envelope.seq)
    session.tasks_total, session.steps_total = event.tasks, event.steps


def _plan_changed(session: Session, event: ev.PlanChanged, envelope: Envelope) -> None:
    session.plan_blob = event.plan_blob
    session.plan = None  # a reader loads it by its name
    if session.steps_from.asked:
        session.tasks_total = max(event.tasks + session.steps_from.planning_tasks, session.tasks_done)
        return
    session.tasks_total, session.steps_total = event.tasks, event.steps


def _plan_replaced(session: Session, event: ev.PlanReplaced, envelope: Envelope) -> None:
    replace_plan(session, event, seq=envelope.seq)


def replace_plan(session: Session, event: ev.PlanReplaced, *, seq: int) -> None:
    """A person has looked at what failed and decided: it may be tried again, whether or not its definition changed.

    A gate that is asked again is pending, and no approval of it is left.
    """
    session.plan_blob, session.plan = event.plan_blob, None
    session.plan_replaced_by = PlanOrigin(digest=event.plan_digest, path=event.plan_path, sha256=event.plan_sha256)
    session.title = event.title
    session.tasks_total, session.steps_total = event.tasks, event.steps
    session.tasks_done = event.tasks_done
    session.steps_done -= len(event.reopened)
    session.failure = None
    if session.records is None:
        return
    for step, record in session.records.steps.items():
        if record.status == "failed":
            allowed = msgspec.structs.replace(record, status="pending", resume_approved=True, failures=0)
            session.records.steps[step] = allowed
    for gate in event.reopened:
        known = session.records.steps.get(gate)
        attempt = known.attempt if known is not None else 1
        session.records.steps[gate] = StepRecord(status="pending", attempt=attempt, seq=seq, resume_approved=True)
        session.records.approvals.pop(gate, None)


def _executing(session: Session, event: ev.SessionExecuting, envelope: Envelope) -> None:
    _enter(session, State.EXECUTING, envelope.seq)
    session.answered_gate = None  # the answer is used; snapshots of earlier versions know of none either


def _awaiting(session: Session, event: ev.SessionAwaitingApproval, envelope: Envelope) -> None:
    if session.state is not State.AWAITING_APPROVAL:
        _enter(session, State.AWAITING_APPROVAL, envelope.seq)
    session.waiting_for, session.answered_gate = event, None
    session.started_any = True  # reaching a gate is work: a session that waits there is no fresh start


def _paused(session: Session, event: ev.SessionPaused, envelope: Envelope) -> None:
    _enter(session, State.PAUSED, envelope.seq)
    session.pause = event
    if session.fresh and not session.in_flight:  # its agent has ended its turn
        session.fresh = {}


def _completed(session: Session, event: ev.SessionCompleted, envelope: Envelope) -> None:
    _enter(session, State.COMPLETED, envelope.seq)
    session.escalated = False


def _failed(session: Session, event: ev.SessionFailed, envelope: Envelope) -> None:
    _enter(session, State.FAILED, envelope.seq)


def _cancelled(session: Session, event: ev.SessionCancelled, envelope: Envelope) -> None:
    _enter(session, State.CANCELLED, envelope.seq)


def _step_started(session: Session, event: ev.StepStarted, envelope: Envelope) -> None:
    step, records = event.step, session.records
    before = records.steps.get(step) if records is not None else None
    session.started_any = True
    session.last_attempted = step
    seq, at = envelope.seq, envelope.at
    session.last_lifecycle = Mark(event_id=envelope.named_id, seq=seq, at=at, type=_STARTED, task=event.task, step=step)
    session.in_flight[step] = InFlight(
        started=event if event.boot_id else with_boot(event, session.boot_id),
        seq=seq,
        at=at,
        failures=before.failures if before is not None else 0,
    )
    if event.performer is not None:
        see_performer(session, event.performer)
    if SOURCES.get(session.kind, PLAN).asked:
        known = session.steps_done + len(session.in_flight)
        session.steps_total = max(session.steps_total, known)
        if event.definition is not None and isinstance(event.definition.action, Run):
            session.secret_env = tuple(dict.fromkeys((*session.secret_env, *event.definition.action.secret_env)))


def _boot_of(envelope: Envelope, owner: ev.Owner) -> str:
    """Snapshots of older logs know of none, and neither does a fold of them: their starts name their own."""
    return owner.boot_id if envelope.v > NAMES_ITS_PLACE else ""


def with_boot(started: ev.StepStarted, boot_id: str) -> ev.StepStarted:
    """The start of a call with the boot that its row leaves out; it tells a reboot from a crash of the process."""
    if started.boot_id or not boot_id or started.kind != "call":
        return started
    return msgspec.structs.replace(started, boot_id=boot_id)


def _step_completed(session: Session, event: ev.StepCompleted, envelope: Envelope) -> None:
    flight = session.in_flight.pop(event.step, None)
    session.last_completed = session.last_lifecycle = Mark(
        event_id=envelope.named_id,
        seq=envelope.seq,
        at=envelope.at,
        type=_COMPLETED,
        task=event.task,
        step=event.step,
    )
    session.last_attempted = event.step
    if session.failure is not None and not _failed_meanwhile(session, flight):
        session.failure = None
    session.steps_done += 1
    source = SOURCES.get(session.kind, PLAN)
    if session.steps_done > session.furthest:  # new furthest progress: the count of attempts begins again
        session.furthest = session.steps_done
        if not source.follows_model or _is_progress(event, flight):
            session.resumes_since_progress = 0
            session.escalated = False
    if event.spent is not None:
        _spend(session, event.step, event.spent)
    if source.observed:
        see_end(session, event, flight)
    if source.asked:
        _library_step_completed(session, event, envelope, follows_model=source.follows_model)
        return
    if session.records is None:
        return
    session.records.steps[event.step] = StepRecord(status="completed", attempt=event.attempt, seq=envelope.seq)
    _see_files(session.records, event.files)
    session.records.task_ms[event.task] = session.records.task_ms.get(event.task, 0) + event.duration_ms
    if event.output is not None:
        session.records.outputs[event.step] = event.output


def _failed_meanwhile(session: Session, flight: InFlight | None) -> bool:
    """Whether the failure is one of another task, which a person has to repair although this step has ended well."""
    if session.failure is None or flight is None or session.steps_from.asked:
        return False
    return flight.started.step != session.failure.step and flight.seq < session.failure.seq


def _is_progress(event: ev.StepCompleted, flight: InFlight | None) -> bool:
    """In an agent's session: a task that is done, or an effect. A model that only asks and reads gets nowhere."""
    return NESTED not in event.step or (flight is not None and flight.started.kind not in ("model", "call"))


def _spend(session: Session, step: str, spent: ev.Spent) -> None:
    known = session.conversation or Conversation()
    session.conversation = msgspec.structs.replace(
        known,
        requests=known.requests + 1,
        input_tokens=known.input_tokens + spent.input_tokens,
        output_tokens=known.output_tokens + spent.output_tokens,
        usd=known.usd + (spent.usd or 0.0),
        last=step,
    )


def _compacted(session: Session, event: ev.ContextCompacted, envelope: Envelope) -> None:
    known = session.conversation or Conversation()
    if event.step not in known.compacted:
        session.conversation = msgspec.structs.replace(known, compacted=(*known.compacted, event.step))


def _library_step_completed(
    session: Session, event: ev.StepCompleted, envelope: Envelope, *, follows_model: bool
) -> None:
    """Nothing is kept of a finished step but the counts: it is looked up by its name when the program asks for it.

    Only one with a past keeps a record: which of its completions counts is not to be guessed. An agent's session keeps
    its tasks too: they are few, and a person wants to know which of the plan are done.
    """
    nested, records = NESTED in event.step, session.records
    session.steps_total = max(session.steps_total, session.steps_done)
    if not nested:
        session.tasks_done += 1
        session.tasks_total = max(session.tasks_total, session.tasks_done)
    if records is None:
        return
    if event.files:
        _see_files(records, event.files)
    if follows_model and nested:
        task = event.step.partition(NESTED)[0]
        records.inner_done[task] = records.inner_done.get(task, 0) + 1
        records.task_ms[task] = records.task_ms.get(task, 0) + event.duration_ms
    if event.step in records.steps or (follows_model and not nested):
        records.steps[event.step] = StepRecord(status="completed", attempt=event.attempt, seq=envelope.seq)


def _step_failed(session: Session, event: ev.StepFailed, envelope: Envelope) -> None:
    flight = session.in_flight.get(event.step)
    if flight is not None:
        session.in_flight[event.step] = msgspec.structs.replace(flight, stopped=event, failures=flight.failures + 1)
    session.failure = Failure(
        step=event.step,
        reason=event.reason,
        message=event.message,
        seq=envelope.seq,
        at=envelope.at,
        exit_status=event.exit_status,
        signal=event.signal,
        tail=event.output.tail if event.output else "",
        touched=event.touched,
    )
    if session.records is not None:
        _see_files(session.records, event.files)


def _step_settled(session: Session, event: ev.StepSettled, envelope: Envelope) -> None:
    flight = session.in_flight.get(event.step)
    if session.records is not None:
        _see_files(session.records, event.files)
    if event.outcome is ev.Settled.UNKNOWN:
        if flight is not None:
            session.in_flight[event.step] = msgspec.structs.replace(flight, unknown=event.evidence)
        return
    if event.outcome is ev.Settled.APPLIED:
        return  # the completion that follows in the same transaction ends the flight
    session.in_flight.pop(event.step, None)
    if session.records is not None:
        session.records.steps[event.step] = _settled_record(session, flight, event, envelope)


def _failure_handled(session: Session, event: ev.FailureHandled, envelope: Envelope) -> None:
    record = session.record(event.step)
    if session.records is not None and record is not None:
        session.records.steps[event.step] = msgspec.structs.replace(record, handled=True)


def _rollback_started(session: Session, event: ev.RollbackStarted, envelope: Envelope) -> None:
    """Only an attempt that has ended is marked; one in flight is open anyway."""
    record = session.record(event.step)
    if session.records is not None and record is not None and record.left_behind is not None:
        session.records.steps[event.step] = msgspec.structs.replace(record, rolling_back=True)


def _settled_record(session: Session, flight: InFlight | None, event: ev.StepSettled, envelope: Envelope) -> StepRecord:
    """A step that ended by itself has failed and is gated; one that a person or the evidence cleared is not."""
    known = session.record(event.step)
    ended = flight is not None and flight.stopped is not None and flight.stopped.reason in ("exit", "error")
    failed = ended and event.outcome is ev.Settled.NOT_APPLIED and envelope.actor != "user"
    left = _left_behind(session, flight, event, envelope, failed=failed)
    begun = flight.seq if flight is not None else (known.left_seq or known.seq if known is not None else 0)
    return StepRecord(
        status="failed" if failed else "pending",
        attempt=event.attempt,
        seq=envelope.seq,
        resume_approved=not failed,
        failures=flight.failures if flight else (known.failures if known else 0),
        left_behind=left,
        left_seq=begun if left is not None else 0,
    )


def _left_behind(
    session: Session, flight: InFlight | None, event: ev.StepSettled, envelope: Envelope, *, failed: bool
) -> ev.StepStarted | None:
    """The attempt whose outputs are restored before the next one: it failed, or a person wants a command repeated. An
    attempt that was settled by evidence was restored with that, or the strategy was to repeat it over its leftovers.
    """
    if failed and flight is not None:
        return (
            flight.started
            if flight.started.before or may_have_outputs(flight.started) or session.steps_from.asked
            else None
        )
    if envelope.actor != "user" or event.outcome is ev.Settled.ROLLED_BACK:
        return None
    known = session.record(event.step)
    left = flight.started if flight is not None else (known.left_behind if known is not None else None)
    return left if left is not None and may_have_outputs(left) else None


def may_have_outputs(started: ev.StepStarted) -> bool:
    """A command; where nothing stood at its outputs before, only its definition shows whether it declares any."""
    return started.kind == "run"


def _see_files(records: Records, files: tuple[ev.FileState, ...]) -> None:
    for file in files:
        records.manifest[file.path] = file


def _task_completed(session: Session, event: ev.TaskCompleted, envelope: Envelope) -> None:
    session.tasks_done += 1


def _answered(session: Session, event: ev.ApprovalGranted | ev.ApprovalDenied, envelope: Envelope) -> None:
    session.answered_gate = event.step if isinstance(event, ev.ApprovalGranted) else None
    if session.records is not None:
        contents = event.contents if isinstance(event, ev.ApprovalGranted) else {}
        session.records.approvals[event.step] = Approval(
            action_digest=event.action_digest,
            granted=isinstance(event, ev.ApprovalGranted),
            seq=envelope.seq,
            contents=contents,
        )


def _decided(session: Session, event: ev.ResumeDecision, envelope: Envelope) -> None:
    """The log's own times never go back; the time in a refusal is the clock's, and shows one that was set back."""
    if event.eligible:
        return
    try:
        at = datetime.fromisoformat(event.at).astimezone(UTC)
    except ValueError:  # it says nothing about the clock, and that is all it would be good for
        return
    session.refused_at = at if session.refused_at is None else min(session.refused_at, at)


def _resume_started(session: Session, event: ev.ResumeStarted, envelope: Envelope) -> None:
    session.resumes += 1
    session.last_resume_seq = envelope.seq
    session.boot_id = _boot_of(envelope, event.owner)
    if event.automatic:
        session.resumes_automatic += 1
    if event.counted:
        session.resumes_counted += 1
        session.resumes_since_progress += 1
    session.attempting = (event.counted, event.automatic)


def _resume_withdrawn(session: Session, event: ev.ResumeWithdrawn, envelope: Envelope) -> None:
    counted, automatic = session.attempting
    session.resumes_counted -= counted
    session.resumes_automatic -= automatic
    # Progress may have been made before it began to wait: then there is nothing to take off.
    session.resumes_since_progress = max(session.resumes_since_progress - counted, 0)
    session.attempting = (False, False)


def _files_seen(session: Session, event: ev.ChangesAccepted | ev.FilesSeen, envelope: Envelope) -> None:
    if session.records is not None:
        _see_files(session.records, event.files)


def _escalated(session: Session, event: ev.EscalatedToPerson, envelope: Envelope) -> None:
    session.escalated = True


def _quarantined(session: Session, event: ev.Quarantined, envelope: Envelope) -> None:
    """Note the events that are not believed; the steps that they may concern are open, and no approval outlives
    them.
    """
    session.quarantined = (*session.quarantined, *event.seqs)
    session.gaps = (*session.gaps, *event.gaps)
    session.heads |= dict(event.heads)
    if event.through:
        session.accepted = AcceptedPast(
            through=event.through, first_sha256=event.first_sha256, past_sha256=event.past_sha256
        )
    for started in event.opened:
        session.started_any = True
        session.last_attempted = started.step
        session.in_flight[started.step] = InFlight(started=started, seq=envelope.seq, at=envelope.at)
        if session.records is not None:
            session.records.steps.pop(started.step, None)
            session.records.outputs.pop(started.step, None)
    for step in event.steps:
        if (flight := session.in_flight.get(step)) is not None:
            # Without a boot id nobody concludes from the lack of a trace that its command never ran.
            started = msgspec.structs.replace(flight.started, boot_id="")
            session.in_flight[step] = msgspec.structs.replace(flight, started=started, unknown=event.reason)
    if event.counts is not None:
        session.steps_done, session.steps_total = event.counts.steps_done, event.counts.steps_total
        session.tasks_done, session.tasks_total = event.counts.tasks_done, event.counts.tasks_total
    point = session.last_completed
    if point is not None and (point.seq in event.seqs or any(point.step == one.step for one in event.opened)):
        # The completion it points at is not believed any more: a resume continues after the repair.
        session.last_completed = mark(envelope) if session.steps_done else None
    if session.records is not None and (event.seqs or event.gaps or event.lost or event.through):
        session.records.approvals.clear()


def _rolled_back(session: Session, event: ev.StepsRolledBack, envelope: Envelope) -> None:
    """Finished steps are pending again; the next attempt gets a new key, so that no target takes it for the old one."""
    session.undoing, session.undo_answer = None, None
    session.steps_done -= len(event.steps)
    session.tasks_done -= len(event.tasks)
    # The completion it pointed at is undone: a resume continues after the rollback, or from the beginning.
    session.last_completed = mark(envelope) if session.steps_done else None
    if session.records is None:
        return
    _see_files(session.records, event.files)
    for step in event.steps:
        record = session.records.steps.get(step)
        session.records.outputs.pop(step, None)
        session.records.approvals.pop(step, None)
        task = step.partition(NESTED)[0]
        if NESTED in step and session.records.inner_done.get(task):
            session.records.inner_done[task] -= 1
        session.records.steps[step] = StepRecord(
            status="pending", attempt=record.attempt if record else 1, seq=envelope.seq, resume_approved=True
        )
    for task in event.tasks:
        session.records.task_ms.pop(task, None)


def _undo_started(session: Session, event: ev.UndoStarted, envelope: Envelope) -> None:
    session.undoing, session.undo_answer = event, None


def _undo_settled(session: Session, event: ev.UndoSettled, envelope: Envelope) -> None:
    """An undo without effect is as if it had never begun; any other answer waits for the rollback to be given again."""
    if event.outcome is ev.Settled.NOT_APPLIED:
        session.undoing, session.undo_answer = None, None
    else:
        session.undo_answer = event.outcome


def _unknown(session: Session, event: ev.Unknown, envelope: Envelope) -> None:
    if not event.ignorable:
        session.unknown_types[envelope.seq] = event.type


_APPLY: dict[type, Callable[[Session, Any, Envelope], None]] = {
    ev.SessionPlanned: _planned,
    ev.PlanChanged: _plan_changed,
    ev.PlanReplaced: _plan_replaced,
    ev.SessionExecuting: _executing,
    ev.SessionAwaitingApproval: _awaiting,
    ev.SessionPaused: _paused,
    ev.SessionCompleted: _completed,
    ev.SessionFailed: _failed,
    ev.SessionCancelled: _cancelled,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.StepSettled: _step_settled,
    ev.RepeatDenied: repeat_denied,
    ev.FailureHandled: _failure_handled,
    ev.RollbackStarted: _rollback_started,
    ev.TaskCompleted: _task_completed,
    ev.ApprovalGranted: _answered,
    ev.ApprovalDenied: _answered,
    ev.ResumeDecision: _decided,
    ev.ResumeStarted: _resume_started,
    ev.ResumeWithdrawn: _resume_withdrawn,
    ev.ChangesAccepted: _files_seen,
    ev.FilesSeen: _files_seen,
    ev.EscalatedToPerson: _escalated,
    ev.Quarantined: _quarantined,
    ev.StepsRolledBack: _rolled_back,
    ev.UndoStarted: _undo_started,
    ev.UndoSettled: _undo_settled,
    ev.ContextCompacted: _compacted,
    ev.Unknown: _unknown,
}
