"""Drive a foreign run: its next task or phase becomes a task of the native session, is performed, and is recorded.

Between the native completion and the record in the run a crash may come; so the last outcome is recorded again before
anything else, and a run that has it already ignores it. The engine performs every step: intent, keeper,
settlement and audit are those of any other session.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

from acode.config import Driver
from acode.disk.own_files import open_own
from acode.disk.write_errors import refusing_write_errors
from acode.engine import notices
from acode.engine.endings import Ending, ending, pause_by_signal
from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.engine.plan_changes import RUN_CONTINUES, adopt_task, adopted, event_at, open_tasks, put_task
from acode.engine.step import awake
from acode.engine.walk import Finish, Walk, perform_step
from acode.engine.world import Result
from acode.errors import AcodeError, CannotContinue, DiskFull, InputRequired, LockLost, TerminalState, WriteFailed
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Approve, Step, Task
from acode.events.definition import Run as RunAction
from acode.formats.agent_driver import command_of
from acode.formats.interface import ActiveRun, Finished, Gate, Outcome, Stuck, Work
from acode.hints import Resume
from acode.state import State

TASK_NAME_CHARS_MAX = 60
TIMES_TAKEN_MAX = 3  # of one piece in one resume
PLACEHOLDER = re.compile(r"(--?[A-Za-z0-9][A-Za-z0-9_-]*=)?\{(prompt_file|run_id|task)\}")


def walk(active: ActiveRun, driver: Driver) -> Walk:
    """The way through a run, for the engine to go."""

    def go(run: Held, skipped: int, finish: Finish) -> Result:
        try:
            return _go(run, active, driver, skipped, finish)
        except (DiskFull, WriteFailed, LockLost):
            raise  # the engine knows what to do when its own log cannot be written
        except AcodeError as error:
            return pause(run, error, "run_refused", skipped)

    return go


def _go(run: Held, active: ActiveRun, driver: Driver, skipped: int, finish: Finish) -> Result:
    told = record_last(run, active)
    if told is not None:
        return pause(run, told, "step_failed", skipped)
    taken: list[str] = []
    while True:
        if run.world.stop.at_boundary():
            return pause_by_signal(run, skipped)
        match active.next(run):
            case Finished(ending=how):
                return _end(run, how, skipped, finish)
            case Stuck(message=message):
                hint = session_hint(run.session, "Settle that in the run itself, then: {}", Resume())
                return pause(run, InputRequired(message, hint=hint), "nothing_runnable", skipped)
            case Gate() | Work() as piece:
                refuse_to_turn_in_circles(piece.name, taken)
                taken.append(piece.name)
                stopped = take(run, active, driver, piece, skipped)
                if stopped is not None:
                    return stopped


def refuse_to_turn_in_circles(name: str, taken: list[str]) -> None:
    """Refuse a piece that the run requests again at once, or again and again; a verifier may request a finished piece
    again.
    """
    if taken[-1:] == [name] or taken.count(name) >= TIMES_TAKEN_MAX:
        raise CannotContinue(
            f"the driver has done {name} with success, and the run asks for it again",
            hint="Look at the run's own records: an event dated in the future hides all that come after it.",
            task=name,
        )


def take(run: Held, active: ActiveRun, driver: Driver, piece: Work | Gate, skipped: int) -> Ending:
    """One piece of the run, from its place in the plan to its record; None: continue."""
    task = task_for(run, driver, piece)
    for other in open_tasks(run):
        if is_gate(other) and other.id != task.id:
            adopt_task(run, other, evidence="the run has gone past this gate")
    put_task(run, task, reason=f"the run's next piece: {piece.name}")
    run.emit(notices.PlanChanged(title=task.title, tasks=run.session.tasks_total), task=task.id)
    step = task.steps[0]
    if isinstance(piece, Work):
        waking = awake(run, RUN_CONTINUES)
        if waking:
            run.append(*waking)
        attempt = run.session.next_attempt(step.id)
        write_prompt(prompt_file(run, task.id), piece.prompt)
        active.begin(run, piece, key=make_key(run.session.session_id, step.id, attempt), attempt=attempt)
    stopped = perform_step(run, step, last=lambda: True, skipped=skipped)
    outcome = outcome_of(run, step)
    told = active.record(run, task.origin, outcome) if outcome is not None else None
    if stopped is None and told is not None:
        return pause(run, told, "step_failed", skipped)
    return stopped


def _end(run: Held, how: str, skipped: int, finish: Finish) -> Result:
    """The run is over. Steps that others did are settled by that, and the session ends as the run did."""
    if how != "completed":
        said: ev.Known = (
            ev.SessionCancelled(reason="the run was cancelled")
            if how == "cancelled"
            else ev.SessionFailed(reason="the run was given up as failed")
        )
        run.append(said)
        return ending(run, TerminalState(f"the run {run.session.run_id} was {how}"), f"run_{how}", skipped)
    for task in open_tasks(run):
        adopt_task(run, task, evidence="the run is complete without it")
    waking = awake(run, RUN_CONTINUES)
    if waking:
        run.append(*waking)
    return finish(run, skipped)


def pause(run: Held, error: AcodeError, code: str, skipped: int) -> Result:
    """Pause the session, with the reason. Only a failed step counts as an interruption of the work."""
    failed = code == "step_failed"
    if run.session.state is not State.PAUSED:
        run.append(
            ev.SessionPaused(
                reason="step_failed" if failed else "error",
                interruption=ev.InterruptionClass.TOOL_FAILURE if failed else None,
                step=run.session.last_attempted if failed else None,
                message=run.world.redactor.text(error.message),
            )
        )
    return ending(run, error, code, skipped)


# Records in the run.


def record_last(run: Held, active: ActiveRun) -> AcodeError | None:
    """The outcome of the last attempt, once more: a crash may have come before the run heard of it."""
    last, plan = run.session.last_attempted, run.session.plan
    assert plan is not None
    task = next((task for task in plan.tasks if any(step.id == last for step in task.steps)), None)
    if task is None:
        return None
    outcome = outcome_of(run, task.steps[0])
    return active.record(run, task.origin, outcome) if outcome is not None else None


def outcome_of(run: Held, step: Step) -> Outcome | None:
    """How the last attempt of a step ended, as the log says; None while it is open, or where the run itself knew."""
    session = run.session
    record, flight, failure = session.record(step.id), session.in_flight.get(step.id), session.failure
    if record is not None and record.status == "completed":
        envelope = event_at(run, record.seq)
        assert isinstance(envelope.event, ev.StepCompleted)
        if adopted(envelope.event):
            return None
        started = envelope.at - timedelta(milliseconds=envelope.event.duration_ms)
        return Outcome(key=envelope.event.key, status="completed", started=started, finished=envelope.at)
    if failure is None or failure.step != step.id:
        return None
    timed_out = flight is not None and flight.stopped is not None and flight.stopped.reason == "timeout"
    if not timed_out and (record is None or record.status != "failed"):
        return None
    envelope = event_at(run, failure.seq)
    assert isinstance(envelope.event, ev.StepFailed)
    return Outcome(
        key=make_key(session.session_id, step.id, envelope.event.attempt),
        status="timeout" if timed_out else "failed",
        started=envelope.at - timedelta(milliseconds=envelope.event.duration_ms),
        finished=envelope.at,
        message=envelope.event.message,
    )


# The native task.


def task_for(run: Held, driver: Driver, piece: Work | Gate) -> Task:
    """The open task of this piece, defined as the driver's settings say now; else a new one beside the finished."""
    plan = run.session.plan
    assert plan is not None
    open_one = next((task for task in open_tasks(run) if task.origin.get("name") == piece.name), None)
    task_id = open_one.id if open_one is not None else free_id(piece.name, {task.id for task in plan.tasks})
    title = run.world.redactor.text(piece.title)
    step = gate_step(task_id, piece) if isinstance(piece, Gate) else driver_step(run, driver, task_id, piece)
    return Task(id=task_id, title=title, steps=(step,), origin={"name": piece.name, **piece.origin})


def free_id(name: str, taken: set[str]) -> str:
    """A name that a step id and a file can hold; a piece that runs a second time gets a number."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:TASK_NAME_CHARS_MAX] or "task"
    return next(one for number in range(1, len(taken) + 2) if (one := _numbered(plain, number)) not in taken)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def gate_step(task_id: str, gate: Gate) -> Step:
    return Step(id=f"{task_id}.approve", action=Approve(question=gate.question))


def is_gate(task: Task) -> bool:
    return any(isinstance(step.action, Approve) for step in task.steps)


def driver_step(run: Held, driver: Driver, task_id: str, work: Work) -> Step:
    values = {
        "prompt_file": os.fspath(prompt_file(run, task_id)),
        "run_id": run.session.run_id,
        "task": work.name,
    }
    action = RunAction(
        command=tuple(filled(argument, values) for argument in command_of(driver, run.world.env)),
        probe=driver.probe,
        cwd=driver.cwd,
        env={
            "ACODE_RUN_ID": values["run_id"],
            "ACODE_TASK": values["task"],
            "ACODE_PROMPT_FILE": values["prompt_file"],
        },
    )
    return Step(id=f"{task_id}.drive", action=action, idempotent=driver.idempotent, timeout_s=driver.timeout_s)


def filled(argument: str, values: dict[str, str]) -> str:
    """A whole argument, or the value of a long option; never a piece of a line that a shell would read."""
    found = PLACEHOLDER.fullmatch(argument)
    return f"{found[1] or ''}{values[found[2]]}" if found else argument


def prompt_file(run: Held, task_id: str) -> Path:
    return run.world.agent_dir / "run" / run.session.session_id / "prompts" / f"{task_id}.md"


def write_prompt(path: Path, text: str) -> None:
    """The prompt file is private and written again for every attempt: a run's texts may be confidential."""
    with refusing_write_errors(f"the prompt file {path} cannot be written"):
        for level in (path.parent.parent, path.parent):
            level.mkdir(mode=0o700, exist_ok=True)
        with open(open_own(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
            file.truncate(0)
            file.write(text.encode("utf-8", "replace"))
