"""Fault scenarios of durable execution engines: `python3 dev.py bench scenarios`; acode alone: tests/scenarios.

Each scenario is a fault that one of the engines publishes or tests, injected from outside: a real SIGKILL, SIGSTOP and
SIGCONT, a second process, a killed PostgreSQL, changed code. All engines run the same five steps through a small module
of their own, with the settings that their documentation recommends. docs/reference/kills.md says what they are.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.peers.contenders import Contender, versions
from benchmarks.peers.faults.stage import END_S_MAX, ENGINES, Hung, Stage, stage
from benchmarks.peers.faults.verdict import Verdict
from benchmarks.peers.servers import NotHere
from benchmarks.peers.speed import postgres_or_none, say
from tests.postgres import Server

FIVE = [0, 1, 2, 3, 4]
BESIDE_S = 15.0  # a second process that is up has refused, waited or worked by then
CLAIM_DEFAULT_S = 120
DEATHS_MAX = 8
SERVER_AWAY_S = 2.0


def killed_before_the_effect(on: Stage) -> Verdict:
    """The process is killed inside a step, before its effect."""
    on.killed_at("before 2", items=FIVE)
    return on.judge(FIVE, on.finish(items=FIVE))


def killed_after_the_effect(on: Stage) -> Verdict:
    """The process is killed inside a step, after its effect and before its result is recorded."""
    on.killed_at("after 2", items=FIVE)
    return on.judge(FIVE, on.finish(items=FIVE))


def asked_for_again(on: Stage) -> Verdict:
    """A finished workflow is asked for again with the same id."""
    on.finish(items=FIVE)
    return on.judge(FIVE, on.finish(items=FIVE))


def second_process(on: Stage) -> Verdict:
    """A second process is started on the same id while the first is inside a step."""
    first = on.start("before 2", items=FIVE, claim_s=CLAIM_DEFAULT_S)
    first.until("before 2")
    second = on.start(items=FIVE, executor="second", claim_s=CLAIM_DEFAULT_S)
    on.note_refusal(second.end(BESIDE_S))
    first.process.go()
    first.end()
    return on.judge(FIVE, second.end() if second.ending is None else on.finish(items=FIVE))


def frozen_and_taken_over(on: Stage) -> Verdict:
    """The process is frozen inside a step (SIGSTOP), another one is told to take over, the first one wakes up."""
    first = on.start("before 2", items=FIVE)
    first.until("before 2")
    first.signal(signal.SIGSTOP)
    second = on.start(items=FIVE, executor="second", take_over="first")
    on.note_refusal(second.end(BESIDE_S))
    first.process.go()
    first.signal(signal.SIGCONT)
    first.end(BESIDE_S)
    return on.judge(FIVE, second.end() if second.ending is None else on.finish(items=FIVE))


def dies_every_time(on: Stage) -> Verdict:
    """A step kills its process each time after its effect; engines that can give up may try three times."""
    for _ in range(DEATHS_MAX):
        if not on.killed_at("after 2", items=FIVE, attempts_max=3):
            return on.judge(FIVE, on.finish(items=FIVE, attempts_max=3))
    return on.judge(FIVE, {"ended": "waits", "text": f"{DEATHS_MAX} deaths, and it would continue"})


def database_killed(on: Stage) -> Verdict:
    """PostgreSQL is killed inside a step, after its effect, and is back two seconds after the step has ended."""
    assert on.postgres is not None
    live = on.start("after 2", items=FIVE)
    live.until("after 2")
    on.postgres.kill()
    live.process.go()
    time.sleep(SERVER_AWAY_S)
    on.postgres.start()
    ended = live.end()
    if ended is None or ended["ended"] != "refused":
        return on.judge(FIVE, ended)
    on.note_refusal(ended)
    return on.judge(FIVE, on.finish(items=FIVE))


def one_of_several_fails(on: Stage) -> Verdict:
    """One of four steps done at once raises an error, the others have ended; the workflow is started again."""
    items = [0, [1, 2, 3, 4], 5]
    live = on.start("before 2", "fail 2", items=items, attempts_max=1)
    live.until("before 2")
    wait_for(on, 4 if on.contender.module != "on_absurd" else 2)
    live.process.go()
    on.note_refusal(live.end())
    return on.judge(items, on.finish(items=items, again=True))


def wait_for(on: Stage, lines: int) -> None:
    """Until the others have left their effects, and some more for their records."""
    deadline = time.monotonic() + END_S_MAX
    while on.ledger.count("\n") < lines and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(1)


def result_cannot_be_stored(on: Stage) -> Verdict:
    """A step has its effect and returns a value that cannot be stored; the workflow is started again."""
    ended = on.start("no value 2", items=FIVE, attempts_max=1).end()
    on.note_refusal(ended)
    return on.judge(FIVE, on.finish(items=FIVE, again=True) if ended is not None else None)


def code_was_changed(on: Stage) -> Verdict:
    """Killed before a step's effect; then the program has a new step in front of that one."""
    changed = [0, 1, 9, 2, 3, 4]
    on.killed_at("before 2", items=FIVE)
    ended = on.finish(items=changed, version="2")
    if ended.get("by") == "NonDeterminism":
        on.note_refusal(ended)
        ended = on.finish(items=changed, version="2", on_change="insert")
    return on.judge(changed, ended)


def answered_while_nothing_runs(on: Stage) -> Verdict:
    """The workflow asks a person, its process is killed, the answer comes while none runs."""
    items: list[Any] = [0, "ask", 1]
    live = on.start(items=items)
    wait_for(on, 1)
    live.process.kill()
    on.start(do="answer", items=items).end()
    return on.judge(items, on.finish(items=items))


def stopped_and_resumed(on: Stage) -> Verdict:
    """A person stops the workflow from another process while a step is under way, and lets it continue later."""
    live = on.start("before 2", items=FIVE)
    live.until("before 2")
    ended = on.start(do="stop", items=FIVE).end()
    live.process.go()
    if ended is None or ended["ended"] != "completed":
        live.end()
        return on.judge(FIVE, ended)
    on.note_refusal(live.end())
    if {"3", "4"} & set(on.ledger.split()):
        return on.judge(FIVE, {"ended": "waits", "text": "it did not stop"})
    return on.judge(FIVE, on.finish(items=FIVE, again=True))


SCENARIOS: dict[str, Callable[[Stage], Verdict]] = {
    one.__name__.replace("_", " "): one
    for one in (
        killed_before_the_effect,
        killed_after_the_effect,
        asked_for_again,
        second_process,
        frozen_and_taken_over,
        dies_every_time,
        database_killed,
        one_of_several_fails,
        result_cannot_be_stored,
        code_was_changed,
        answered_while_nothing_runs,
        stopped_and_resumed,
    )
}


def played(name: str, contender: Contender, postgres: Server | None) -> Verdict:
    scenario = SCENARIOS[name]
    with stage(contender, postgres, shared=scenario is database_killed) as on:
        try:
            return scenario(on)
        except Hung:
            return on.judge([], None)


def measure(contenders: Sequence[Contender] = ENGINES) -> dict[str, Any]:
    figures: dict[str, Any] = {"left_out": {}, "scenarios": {}}
    with postgres_or_none(by_tcp=True) as postgres:
        figures["versions"] = versions(postgres)
        for name in SCENARIOS:
            row = figures["scenarios"][name] = {}
            for contender in contenders:
                try:
                    row[contender.name] = played(name, contender, postgres).data()
                    say(f"{name}: {contender.name}: {row[contender.name]['shown']}")
                except NotHere as reason:
                    figures["left_out"][f"{name}, {contender.name}"] = str(reason)
    return figures


def shown(figures: dict[str, Any]) -> Iterator[str]:
    names = [one.name for one in ENGINES]
    yield f"| fault | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for scenario, row in figures["scenarios"].items():
        cells = [row[name]["shown"] if name in row else "–" for name in names]
        yield f"| {scenario} | {' | '.join(cells)} |"
