"""What a trial has shown: how often the effect happened, what acode recorded, and what the model was told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from tests.agents import trial as trials
from tests.agents.client import client_of
from tests.agents.trial import NOTE, Killing, Kind, Trial
from tests.agents.wanted_calls import is_told

Verdict = Literal["once", "asked", "repeated", "lost", "silent"]
ACCEPTED: tuple[Verdict, ...] = ("once", "asked")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    acode: bool
    kind: Kind
    number: int
    since: str
    after_s: float
    was_alive: bool  # it was killed, and had not ended before
    effects: int
    verdict: Verdict
    recorded: list[str]  # what acode's record says of each call: how it ended or was settled
    told: bool  # the model was told about the call in acode's words
    second_effect: bool = True  # of a command that prints: it was not cut off in the middle


def run_trial(agent: str, directory: Path, killing: Killing, number: int, *, acode: bool) -> Outcome:
    """Start, kill, let the agent resume itself, and look."""
    with trials.trial(agent, client_of(agent), directory, killing.kind) as one:
        if acode:
            trials.install_acode(one)
        was_alive = trials.kill_in_call(one, killing)
        if killing.waits:
            one.wait_for_quiet()
        trials.resume(one)
        return looked_at(one, killing, number, was_alive=was_alive, acode=acode)


def looked_at(one: Trial, killing: Killing, number: int, *, was_alive: bool, acode: bool) -> Outcome:
    recorded = recorded_outcomes(one) if acode else []
    told = any(
        is_told(said.text) for request in one.server.requests for said in request.conversation if said.kind != "call"
    )
    effects = written(one) if killing.kind == "write" else one.effects()
    return Outcome(
        agent=one.name,
        acode=acode,
        kind=killing.kind,
        number=number,
        since=killing.since,
        after_s=round(killing.after_s, 3),
        was_alive=was_alive,
        effects=effects,
        verdict=judged(effects, recorded, told=told),
        recorded=recorded,
        told=told,
        second_effect=killing.kind != "printing" or one.effects("y") > 0,
    )


def judged(effects: int, recorded: list[str], *, told: bool) -> Verdict:
    """Repeated: more than one effect, and the record does not say that a person or the model knew of the first.

    Lost: no effect, and nobody was asked. Silent: the outcome is unknown on record, and nobody was told.
    """
    if effects > 1:
        return "repeated"
    if "unknown" in recorded:
        return "asked" if told else "silent"
    return "once" if effects == 1 else "lost"


def written(one: Trial) -> int:
    """1 if the file is there as it was wanted, 0 if it is not, 2 if it is something else."""
    path = Path(one.call.path)
    if not path.exists():
        return 0
    return 1 if path.read_text() == NOTE else 2


def recorded_outcomes(one: Trial) -> list[str]:
    """Of every call of this trial's tool: `started` where the record ends there, else how it ended or was settled."""
    found: dict[tuple[str, str], str] = {}
    for session_id, event in recorded_events(one):
        key = (session_id, str(event["step"]))
        if event["type"] == "step_started":
            found[key] = "started"
        elif event["type"] in ("step_completed", "step_failed"):
            found[key] = event["type"].removeprefix("step_")
        elif event["type"] == "step_settled":
            found[key] = event["data"]["outcome"]
    return list(found.values())


def recorded_events(one: Trial) -> Iterator[tuple[str, dict[str, Any]]]:
    """With the session that each is of."""
    for session in json.loads(one.acode("session", "list", "--json").stdout):
        history = json.loads(one.acode("session", "history", session["session_id"], "--json").stdout)
        yield from ((session["session_id"], event) for event in history)
