"""Random walks through everything a session can live through, in the transactions in which the engine would say it.

A walk only takes steps that the engine could take: what is in flight at a crash is settled by a resume, gates open by a
grant, nothing follows an end. Who chooses is an argument: Hypothesis, or dice with a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from acode.events import Envelope
from acode.events import types as ev
from acode.events.definition import Approve, Plan, Step, execution_order
from acode.state import Session, State, advance, begin
from tests.builders import (
    START,
    Said,
    awaiting,
    completed,
    created,
    decided,
    envelope,
    executing,
    failed,
    finished,
    gate,
    paused,
    plan,
    read,
    resumed,
    run,
    settled,
    started,
    task,
    write,
)

Choose = Callable[[Sequence[Any]], Any]

PLANS: tuple[Plan, ...] = (
    plan(task("a", "1")),
    plan(task("a", read("a.1"), write("a.2"), run("a.3", idempotent=True)), task("b", "1", needs=["a"])),
    plan(task("a", "1", gate("a.g"), "2"), task("b", "1", gate("b.g"), needs=["a"]), task("c", "1", "2")),
)


class Transaction(NamedTuple):
    events: tuple[Said, ...]
    actor: str = "system"


class Walk:
    """Where the walk is: the session so far, and whether a process is alive that carries it on."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.transactions: list[Transaction] = []
        self.envelopes: list[Envelope] = []
        self.alive = True
        made = choose(PLANS)
        self._plan = made
        self._session: Session | None = None
        self.append(*created(made), actor="user")

    @property
    def session(self) -> Session:
        assert self._session is not None
        return self._session

    def append(self, *events: Said, actor: str = "system") -> None:
        self.transactions.append(Transaction(events, actor))
        for event in events:
            seq = len(self.envelopes) + 1
            one = envelope(event, seq, START + timedelta(seconds=seq), actor=actor)
            self._session = begin(one) if self._session is None else advance(self._session, one)
            self.envelopes.append(one)

    def steps(self) -> list[Step]:
        return [step for one in execution_order(self._plan) for step in one.steps]

    def next_step(self) -> Step | None:
        return next((step for step in self.steps() if not self.session.done(step.id)), None)

    def complete(
        self, step: Step, attempt: int, *before: Said, actor: str = "system", by_evidence: bool = False
    ) -> None:
        """A completion, and its task's if nothing of it is open any more."""
        files = (ev.FileState(path=f"{step.id}.txt", sha256="0" * 64, size=len(self.envelopes)),)
        output = ev.Output(blob="1" * 64, bytes=2, tail="ok") if step.kind == "run" else None
        done = completed(step.id, attempt, files=files, output=output, duration_ms=5, settled=by_evidence)
        own = next(one for one in self._plan.tasks if one.id == step.task)
        rest = [one for one in own.steps if one.id != step.id and not self.session.done(one.id)]
        ending = () if rest else (ev.TaskCompleted(task=own.id, duration_ms=5),)
        self.append(*before, done, *ending, actor=actor)


# What the process does while it lives.


def go_on(walk: Walk) -> None:
    step = walk.next_step()
    now = walk.session
    if now.in_flight:
        end_attempt(walk)
    elif step is None:
        walk.append(ev.ResumeCompleted(executed_steps=1, skipped_steps=0), finished())
        walk.alive = False
    elif isinstance(step.action, Approve):
        at_gate(walk, step)
    else:
        image = ev.PreImage(path=f"{step.id}.txt", kind="absent")
        walk.append(started(step.id, now.next_attempt(step.id), kind=step.kind, before=(image,)))


def end_attempt(walk: Walk) -> None:
    ((name, flight),) = walk.session.in_flight.items()
    attempt = flight.started.attempt
    step = next(one for one in walk.steps() if one.id == name)
    match walk.choose(["done", "done", "done", "failed", "failed for good", "timeout", "stopped"]):
        case "done":
            walk.complete(step, attempt)
        case "failed":  # and tried again at once
            walk.append(*failed(name, attempt, exit_status=1))
        case "failed for good":
            walk.append(*failed(name, attempt, exit_status=1))
            walk.append(paused("step_failed", "tool_failure", step=name))
            walk.alive = False
        case "timeout":
            walk.append(*failed(name, attempt, "timeout"))
            walk.append(paused("timeout", "timeout", step=name))
            walk.alive = False
        case _:
            walk.append(*failed(name, attempt, "signal", signal="SIGTERM"))
            walk.append(paused("user", signal="SIGINT"), actor="user")
            walk.alive = False


def at_gate(walk: Walk, step: Step) -> None:
    if walk.session.state is not State.AWAITING_APPROVAL:
        walk.append(awaiting(step.id))
    match walk.choose(["yes", "yes", "no", "nobody there"]):
        case "yes":
            grant = ev.ApprovalGranted(step=step.id, question="Go?", action_digest="d")
            walk.complete(step, walk.session.next_attempt(step.id), grant, executing(), actor="user")
        case "no":
            denial = ev.ApprovalDenied(step=step.id, question="Go?", action_digest="d")
            walk.append(denial, paused("denied", step=step.id), actor="user")
            walk.alive = False
        case _:
            walk.alive = False


def crash(walk: Walk) -> None:
    walk.alive = False


def pause(walk: Walk) -> None:
    if walk.session.state is State.EXECUTING and not walk.session.in_flight:
        walk.append(paused(), actor="user")
        walk.alive = False


# What happens to a session that nobody carries on.


def resume(walk: Walk) -> None:
    now = walk.session
    counted = now.pause is None or now.pause.reason != "user"
    actor = walk.choose(["user", "system"])
    words = resumed(counted=counted, automatic=actor == "system")
    going = [executing()] if now.state is State.PAUSED else []
    walk.append(*words[:1], actor=actor)
    walk.append(*words[1:], *going, actor=actor)
    walk.alive = True
    for name in list(now.in_flight):
        settle(walk, name)


def settle(walk: Walk, name: str) -> None:
    attempt = walk.session.in_flight[name].started.attempt
    step = next(one for one in walk.steps() if one.id == name)
    match walk.choose(["applied", "not_applied", "rolled_back", "retry_accepted", "unknown"]):
        case "applied":
            walk.complete(step, attempt, settled(name, "applied", attempt), by_evidence=True)
        case "unknown":
            walk.append(settled(name, "unknown", attempt))
            walk.append(paused("outcome_unknown", "process_crash", step=name))
            walk.alive = False
        case outcome:
            walk.append(settled(name, outcome, attempt))


def refuse(walk: Walk) -> None:
    walk.append(decided(False))


def resolve(walk: Walk) -> None:
    """A person says what became of an open step."""
    for name, flight in list(walk.session.in_flight.items())[:1]:
        walk.append(settled(name, walk.choose(["not_applied", "retry_accepted"]), flight.started.attempt), actor="user")


def take_back(walk: Walk) -> None:
    done = [step for step in walk.steps() if walk.session.done(step.id)]
    if done and not walk.session.in_flight:
        last = done[-1]
        own = next(one for one in walk._plan.tasks if one.id == last.task)
        whole = all(walk.session.done(step.id) for step in own.steps)
        before = done[-2].id if len(done) > 1 else None
        walk.append(ev.StepsRolledBack(to=before, steps=(last.id,), tasks=(own.id,) if whole else ()), actor="user")


def repair(walk: Walk) -> None:
    """The completion of the last step is not believed any more: it may have run, and is open."""
    done = [step for step in walk.steps() if walk.session.done(step.id)]
    if done and not walk.session.in_flight:
        last, now = done[-1], walk.session
        record = now.record(last.id)
        own = next(one for one in walk._plan.tasks if one.id == last.task)
        whole = all(now.done(step.id) for step in own.steps)
        assert record is not None
        counts = ev.Counts(
            steps_done=now.steps_done - 1,
            steps_total=now.steps_total,
            tasks_done=now.tasks_done - whole,
            tasks_total=now.tasks_total,
        )
        walk.append(
            ev.Quarantined(
                seqs=(record.seq,),
                reason="damaged",
                steps=(last.id,),
                opened=(started(last.id, record.attempt, kind=last.kind),),
                counts=counts,
            ),
            actor="user",
        )


def remark(walk: Walk) -> None:
    """Events that are for the record."""
    walk.append(
        walk.choose(
            [
                ev.LockBroken(generation=2),
                ev.Forced(what="attempt limit"),
                ev.ValidationSkipped(reason="none given"),
                ev.ResumeWithdrawn(step="a.1"),
                ev.ChangesAccepted(files=(ev.FileState(path="a.2.txt", sha256="9" * 64),)),
                ev.FilesSeen(step="a.1", attempt=1, files=(ev.FileState(path="a.3.txt", sha256="8" * 64),)),
                ev.EscalatedToPerson(reason_code="resume_attempt_limit_reached", attempt=3),
                ev.RollbackStarted(step="a.1", attempt=1),
                ev.UndoStarted(step="a.1", attempt=1, key="k"),
                ev.UndoSettled(step="a.1", attempt=1, outcome=ev.Settled.RETRY_ACCEPTED),
                ev.PlanChanged(plan_blob="3" * 64, plan_digest="d", tasks=9, steps=9),
                ev.PlanReplaced(
                    plan_blob="4" * 64, plan_digest="e", previous_digest="d", title="t", tasks=9, steps=9, tasks_done=0
                ),
                ev.RepeatDenied(step="a.1", arguments="digest"),
                ev.Noted(what="repaired", data={"path": "x"}),
                ev.FailureHandled(step="a.1"),
                ev.ContextCompacted(step="a.1", reason="long"),
                ev.Unknown(type="weather", ignorable=True),
                ev.Unknown(type="approval_revoked"),
            ]
        )
    )


def save_point(walk: Walk) -> None:
    if not walk.session.in_flight:
        walk.append(ev.CheckpointCreated(label="here"), actor="user")


def end(walk: Walk) -> None:
    walk.append(walk.choose([ev.SessionCancelled(), ev.SessionFailed(reason="abandoned")]), actor="user")


LIVING = (go_on, go_on, go_on, go_on, go_on, crash, pause)
WAITING = (resume, resume, resume, resume, refuse, resolve, take_back, repair, remark, save_point)


def walk(choose: Choose, moves: int) -> Walk:
    """So many moves, fewer where the session ends before."""
    way = Walk(choose)
    for _ in range(moves):
        if way.session.terminal:
            break
        choose(LIVING if way.alive else WAITING)(way)
    if not way.session.terminal and not way.alive and choose([True, False, False, False]):
        end(way)
    return way
