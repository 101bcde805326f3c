"""A small language for logs: `log(created("a", "b"), started("a"), crash())`.

A word is one event or a row of them; `log` numbers, dates and names them as a journal would, without touching a disk.
A step's bare name belongs to the task `main`; `crash()` says nothing, as a crash does.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from acode.events import ENVELOPE_VERSION, Envelope, event_id_of, make_key
from acode.events import types as ev
from acode.events.definition import Approve, Plan, Read, Run, Step, Task, Write
from acode.state import Session, fold

SESSION = "01980000-0000-7000-8000-00000000cafe"
OTHER_SESSION = "01980000-0000-7000-8000-00000000beef"
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWNER = ev.Owner(pid=1, host="here", user="you", boot_id="b")

Said = ev.Known | ev.Unknown
Word = Said | timedelta | Iterable["Word"]


class By(NamedTuple):
    """An event that somebody other than the system said."""

    event: Said
    actor: str


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def id_of(number: int) -> str:
    """Of an event of a log in which no time has passed but a second for each event."""
    return event_id_of(SESSION, number, at(number - 1))


def log(*words: Word, session_id: str = SESSION) -> list[Envelope]:
    """Envelopes one second apart; a `timedelta` among the words lets time pass."""
    envelopes: list[Envelope] = []
    now = START
    for word in flat(words):
        if isinstance(word, timedelta):
            now += word
            continue
        event, actor = word if isinstance(word, By) else (word, "system")
        seq = len(envelopes) + 1
        envelopes.append(envelope(event, seq, now, actor=actor, session_id=session_id))
        now += timedelta(seconds=1)
    return envelopes


def envelope(
    event: Said, seq: int, when: datetime = START, *, actor: str = "system", session_id: str = SESSION
) -> Envelope:
    return Envelope(
        v=ENVELOPE_VERSION,
        session_id=session_id,
        seq=seq,
        at=when,
        actor=actor,
        key_id="k",
        event=event,
    )


def flat(words: Iterable[Word]) -> Iterable[Said | By | timedelta]:
    for word in words:
        if isinstance(word, list | tuple) and not isinstance(word, By):
            yield from flat(word)
        else:
            yield word  # type: ignore[misc]


def session(*words: Word) -> Session:
    return fold(log(*words))


# Plans.


def named(step: str) -> str:
    return step if "." in step else f"main.{step}"


def read(step: str, path: str = "in.txt") -> Step:
    return Step(id=named(step), action=Read(path=path))


def write(step: str, path: str = "out.txt", content: str = "x") -> Step:
    return Step(id=named(step), action=Write(path=path, content=content))


def run(step: str, command: str = "true", *, idempotent: bool = False, **action: Any) -> Step:
    return Step(id=named(step), action=Run(command=command, **action), idempotent=idempotent)


def gate(step: str, question: str = "Go?") -> Step:
    return Step(id=named(step), action=Approve(question=question))


def task(name: str, *steps: Step | str, needs: Iterable[str] = ()) -> Task:
    made = tuple(run(f"{name}.{step}") if isinstance(step, str) else step for step in steps)
    return Task(id=name, title=name, needs=tuple(needs), steps=made)


def plan(*tasks: Task, on_failure: Any = "pause") -> Plan:
    return Plan(title="A plan", tasks=tasks, on_failure=on_failure)


# Words.


def born(made: Plan | None = None) -> ev.SessionCreated:
    """The creation alone."""
    return ev.SessionCreated(title="A plan", task="A plan", plan=made, owner=OWNER, acode_version="0")


def created(*steps: Step | str | Plan) -> list[Said]:
    """A session from its creation to its first step: a whole plan, or the steps of the one task `main`."""
    if len(steps) == 1 and isinstance(steps[0], Plan):
        made = steps[0]
    else:
        own = [step if isinstance(step, Step) else run(step) for step in steps if not isinstance(step, Plan)]
        made = plan(Task(id="main", title="main", steps=tuple(own)))
    count = sum(len(one.steps) for one in made.tasks)
    planned = ev.SessionPlanned(tasks=len(made.tasks), steps=count, plan_digest="d")
    return [born(made), planned, ev.SessionExecuting(reason="run")]


def started(step: str, attempt: int = 1, *, kind: str = "run", **more: Any) -> ev.StepStarted:
    name = named(step)
    key = make_key(SESSION, name, attempt)
    return ev.StepStarted(
        step=name, task=name.partition(".")[0], kind=kind, attempt=attempt, key=key, action_digest="d", **more
    )


def completed(step: str, attempt: int = 1, **more: Any) -> ev.StepCompleted:
    name = named(step)
    key = make_key(SESSION, name, attempt)
    return ev.StepCompleted(step=name, task=name.partition(".")[0], attempt=attempt, key=key, **more)


def did(*steps: str) -> list[Said]:
    return [event for step in steps for event in (started(step), completed(step))]


def failed(step: str, attempt: int = 1, reason: Any = "exit", **more: Any) -> list[Said]:
    """An attempt that ended badly; one that ended by itself is settled in the same breath."""
    name = named(step)
    failure = ev.StepFailed(
        step=name, task=name.partition(".")[0], attempt=attempt, reason=reason, message="it failed", **more
    )
    return [failure, settled(step, "not_applied", attempt)] if reason in ("exit", "error") else [failure]


def settled(step: str, outcome: str, attempt: int = 1) -> ev.StepSettled:
    return ev.StepSettled(step=named(step), attempt=attempt, outcome=ev.Settled(outcome), evidence="as it was found")


def paused(reason: str = "user", interruption: str | None = None, **more: Any) -> ev.SessionPaused:
    cls = ev.InterruptionClass(interruption) if interruption else None
    return ev.SessionPaused(reason=reason, interruption=cls, **more)


def executing() -> ev.SessionExecuting:
    return ev.SessionExecuting(reason="resume")


def awaiting(step: str) -> ev.SessionAwaitingApproval:
    return ev.SessionAwaitingApproval(step=named(step), question="Go?", action_digest="d")


def decided(eligible: bool, reason: str = "resume_blocked_cooldown") -> ev.ResumeDecision:
    return ev.ResumeDecision(
        run_id=SESSION,
        interruption_class=None,
        eligible=eligible,
        reason_code="resume_allowed" if eligible else reason,
        cooldown_seconds_remaining=0,
        attempt=1,
        max_attempts=3,
        at="2026-01-01T12:00:00Z",
        actor="system",
    )


def resumed(*, counted: bool = True, automatic: bool = False) -> list[Said]:
    return [
        decided(True),
        ev.ResumeStarted(scenario="mid_operation", counted=counted, automatic=automatic, owner=OWNER),
    ]


def task_done(name: str = "main") -> ev.TaskCompleted:
    return ev.TaskCompleted(task=name)


def finished() -> ev.SessionCompleted:
    return ev.SessionCompleted()


def by_user(event: Said) -> By:
    return By(event, "user")


def crash() -> list[Said]:
    """Nothing: that is how it looks in the log."""
    return []


def passing(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)
