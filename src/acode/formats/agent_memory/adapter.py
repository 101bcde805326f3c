"""Continue an agent-memory run: read it again before every step, record every outcome in its own events.

The run has no lock of its own; acode's lock on the run keeps two of us apart. Other actors may write their own files
meanwhile, so acode remembers from one step to the next only the steps it began.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from acode.errors import AcodeError, CannotContinue, StepFailed, Usage
from acode.formats import agent_memory as memory
from acode.formats.agent_memory.diagnosis import approval_in_force, digests_of, rfc3339
from acode.formats.agent_memory.phase_numbers import EXECUTION, number_of
from acode.formats.agent_memory.values import PHASE_NAMES
from acode.formats.interface import Finished, Gate, Located, Next, Outcome, Run, Standing, Stuck, Work
from acode.formats.unreadable import unread
from acode.hints import Approve, Command, Hint

if TYPE_CHECKING:
    from acode.engine.held_session import Held
    from acode.engine.world import Options, World

SOURCE = "agent-memory"
STEPS_WITHOUT_DRIVER_MAX = 10  # phases to enter one after the other; there are five
GATE = "plan-approval"


# Looking.


def locate(root: Path) -> Located:
    located = memory.locate(root)
    return Located(runs=tuple(_as_run(one) for one in located.runs), warnings=located.warnings, unread=located.unread)


def _as_run(found: memory.Found) -> Run:
    states: dict[str | None, Any] = {"completed": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELLED"}
    return Run(
        source=SOURCE,
        run_id=found.run_id,
        path=found.path,
        title=found.title,
        state="DAMAGED" if found.problem else states.get(found.ending, "PAUSED"),
        created_at=found.created_at,
        updated_at=found.updated_at,
        tasks_done=None if found.problem else found.tasks_done,
        tasks_total=None if found.problem else found.tasks_total,
        problem=found.problem,
    )


def stand(world: World, run: Run) -> Standing:
    """A look, which uses and leaves a cache of what it has folded. What acts folds the whole run (`read_whole`): its
    decisions rest on the log alone. It takes from here only whether all files can be read, and every look reads them
    to their ends.
    """
    cache = memory.FoldCache(world.state_dir / "cache" / SOURCE)
    value = memory.read(run.path, cache=cache)
    findings = _diagnosed(world, value)
    refusals = (unread(run.run_id, value.unread),) if value.unread else ()
    action, completed = findings.next_action, findings.last_completed
    waits = {
        "wait_for_approval": Hint("the plan's approval: {}", Approve(), of=run.run_id).as_command(),
        "wait_for_person": "a person",
        "nothing": "nothing: the run has ended",
    }
    return Standing(
        run=run,
        phase=str(findings.phase),
        done=tuple(task for task, state in findings.tasks.items() if state == "done"),
        remaining=tuple(task for task, state in findings.tasks.items() if state != "done"),
        last_activity=rfc3339(findings.last_activity),
        last_completed=(completed.id, completed.title) if completed else None,
        next_action=action.summary,
        waits_for=refusals[0].message if refusals else waits.get(action.do),
        needs_person=bool(refusals) or action.do in ("wait_for_approval", "wait_for_person"),
        ended=findings.ending is not None and not refusals,
        refusals=refusals,
        warnings=findings.warnings,
        extra=memory.as_json(findings),
    )


def _diagnosed(world: World, value: memory.Run) -> memory.Findings:
    days = world.config.settings.resume.stale_after_days
    return memory.diagnose(value, world.clock(), stale_after_days=days)


def read_whole(path: str) -> memory.Run:
    """The run, for a caller that will write to it. A part of a run may contradict the whole, so a partial read is
    refused.
    """
    value = memory.read(path)
    if value.unread:
        raise unread(value.run_id, value.unread)
    return value


def repair_by_rules(world: World, run: Run, options: Options) -> tuple[str, ...]:
    """Nothing to repair: running the steps whose artifacts are missing repairs this format."""
    return ()


def approve(world: World, run: Run, *, note: str, asked: dict[str, Any] | None) -> str:
    """A person's yes at the gate of phase 1, as the event that the format has for it.

    A yes is for the bytes that a session asked about; where none has asked, for the bytes as they are.
    """
    value = read_whole(run.path)
    findings = _diagnosed(world, value)
    if findings.next_action.do != "wait_for_approval":
        raise Usage(
            f"the run {run.run_id} waits for no approval: {findings.next_action.summary}",
            hint=Hint("See where it stands: {}", Command("status SESSION"), of=run.run_id),
        )
    stamp = memory.Stamp(run_id=run.run_id, event_id=world.new_id(), now=world.clock())
    digests = digests_of(value)
    assert digests is not None  # nobody is asked before both files are there
    approved: dict[str, str] = (asked or {}).get("approved") or digests
    numbering = findings.next_action.numbering
    event = memory.plan_approved(stamp, approved=approved, notes=note, numbering=numbering)
    where = memory.append(run.path, (event,), began=world.clock())
    changed = " and of ".join(name for name in digests if approved.get(name) != digests[name])
    if changed:
        return (
            f"the plan that acode asked about ({where}); the text of {changed} is another now, so a resume asks again"
        )
    return f"the plan is approved, phase {number_of(numbering, EXECUTION)} may begin ({where})"


# Continuing the run.


@contextmanager
def activate(world: World, run: Run, options: Options) -> Iterator[MemoryRun]:
    yield MemoryRun(world, run)


class MemoryRun:
    def __init__(self, world: World, run: Run) -> None:
        self.world = world
        self.run_id = run.run_id
        self.path = run.path
        self._told = False

    def next(self, held: Held) -> Next:
        for _ in range(STEPS_WITHOUT_DRIVER_MAX):
            value = read_whole(self.path)
            findings = _diagnosed(self.world, value)
            self._record_once(held, value, findings)
            action = findings.next_action
            if action.do != "enter_phase":
                return self._piece(value, findings, action)
            self._append(held, memory.events_on_success(self._stamp(self.world.new_id()), action))
        raise CannotContinue(f"the run {self.run_id} does not enter the phase that it should: {action.summary}")

    def _record_once(self, held: Held, value: memory.Run, findings: memory.Findings) -> None:
        """The first look of a resume is announced in the run's own log; an ended run is left alone.

        A plan that another actor had approved is bound here to its bytes, because no event says which they were.
        """
        if self._told:
            return
        self._told = True
        for warning in findings.warnings:
            held.warn(warning)
        if findings.ending is None:
            unbound = findings.stage == EXECUTION and approval_in_force(value.run_events) is None
            approved = digests_of(value) if unbound else None
            stamp = self._stamp(self.world.new_id())
            self._append(held, (memory.session_resumed(stamp, findings, approved=approved),))

    def _piece(self, value: memory.Run, findings: memory.Findings, action: memory.NextAction) -> Next:
        match action.do:
            case "nothing":
                return Finished(ending=findings.ending or "completed")
            case "wait_for_person":
                return Stuck(message=action.summary)
            case "wait_for_approval":
                begins = number_of(action.numbering, EXECUTION)
                return Gate(
                    name=GATE,
                    title=f"Phase {findings.phase}: {PHASE_NAMES[action.phase]}",
                    question=f"May phase {begins} begin with {_named(digests_of(value))} of run {self.run_id}?",
                    origin={"gate": True, "approved": digests_of(value), "numbering": action.numbering},
                )
            case _:
                contract = memory.read_task_contract(self.path, action.task) if action.task else None
                return Work(
                    name=action.task or action.do,
                    title=action.summary,
                    prompt=memory.prompt(value, findings, action, task_contract=contract),
                    origin={"action": msgspec.to_builtins(action)},
                )

    def begin(self, held: Held, work: Work, *, key: str, attempt: int) -> None:
        action = msgspec.convert(work.origin["action"], memory.NextAction)
        events = memory.events_on_start(self._stamp(f"{key}:started"), action, attempt=attempt)
        if events:
            self._append(held, events)

    def record(self, held: Held, origin: dict[str, Any], outcome: Outcome) -> AcodeError | None:
        if memory.already_recorded(self.path, outcome.key, began=held.session.created_at):
            return None
        stamp = self._stamp(outcome.key, outcome.finished)
        if "gate" in origin:
            numbering = origin.get("numbering", "seed")
            event = memory.plan_approved(stamp, approved=origin.get("approved"), numbering=numbering)
            self._append(held, (event,))
            return None
        action = msgspec.convert(origin["action"], memory.NextAction)
        if outcome.status != "completed":
            self._append(held, memory.events_on_failure(stamp, action, reason=outcome.message))
            return None
        return self._record_success(held, action, stamp)

    def _record_success(self, held: Held, action: memory.NextAction, stamp: memory.Stamp) -> AcodeError | None:
        """The driver ended with success; the events that it wrote into the run are more exact than its exit status."""
        match memory.driver_outcome(read_whole(self.path), action):
            case None:
                self._append(held, memory.events_on_success(stamp, action))
                return None
            case "completed" | "blocked":
                return None  # the run knows already; a blocked task leaves the way to others free
            case "not_made":
                reason = f"the driver ended with success, but {action.artifact} is not there"
                self._append(held, memory.events_on_failure(stamp, action, reason=reason))
            case "failed":
                reason = f"the driver ended with success, but it recorded in the run that {action.task} failed"
        return StepFailed(reason, hint="Fix the cause, then resume the run.", task=action.task or action.do)

    def _stamp(self, event_id: str, now: datetime | None = None) -> memory.Stamp:
        return memory.Stamp(run_id=self.run_id, event_id=event_id, now=now or self.world.clock())

    def _append(self, held: Held, events: tuple[dict[str, Any], ...]) -> None:
        memory.append(self.path, events, began=held.session.created_at)


def _named(digests: dict[str, str] | None) -> str:
    """The two files by name and hash: a yes is for these bytes, and a changed plan is asked about again."""
    assert digests is not None  # nobody is asked before both are there
    return " and ".join(f"{name} ({digest[:12]})" for name, digest in digests.items())
