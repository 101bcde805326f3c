"""acode status: where a session stands, at a glance. Runs no probe, changes nothing."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from acode.attention import state_in_words
from acode.cli import rows as listing
from acode.cli import sync_state
from acode.cli.candidates import all_sessions
from acode.cli.flags import Command, Flags
from acode.cli.positions import outline_of, titled_position
from acode.cli.screen import Screen
from acode.cli.session_picker import foreign_run, look_at, stopped_at
from acode.cli.world import build_world
from acode.engine.preview import Preview, Row, decision_json, next_action
from acode.engine.world import World, short
from acode.lock import Seen
from acode.text import one_line
from acode.text.durations import ago


@click.command(cls=Command, name="status")
@click.argument("session", metavar="[ID]", required=False, shell_complete=all_sessions)
@click.pass_obj
def command(flags: Flags, *, session: str | None) -> int:
    """Where a session stands: state, position, what an automatic resume would do now, lock, sync."""
    flags.only_looks = True
    world = build_world(flags)
    screen = Screen(flags, world.env)
    if (run := foreign_run(world, screen, session, None, sure=True)) is not None:
        from acode.cli import foreign

        return foreign.status(world, screen, run)
    found = look_at(world, screen, session, probes=False, environment=False)
    if flags.json:
        screen.document(as_json(found))
        return 0
    for warning in found.warnings:
        screen.warn(one_line(warning))
    for line in lines(world, screen, found):
        screen.data(line)
    return 0


def as_json(found: Preview) -> dict[str, Any]:
    return {
        **listing.as_json(row_of(found)),
        "decision": decision_json(found.survey.decision) if found.survey else None,
        "lock": lock_json(found.lock),
        "sync": found.sync.as_json(),
    }


def row_of(found: Preview) -> Row:
    survey = found.survey
    return Row(
        session_id=found.session.session_id,
        session=found.session,
        interruption=survey.interruption if survey else None,
        decision=survey.decision if survey else None,
        lock=found.lock,
        changed=found.changed,
    )


def lock_json(seen: Seen) -> dict[str, Any]:
    owner = msgspec.to_builtins(seen.holder) if seen.held and seen.holder else None
    return {"held": seen.held, "owner": owner}


def lines(world: World, screen: Screen, found: Preview) -> list[str]:
    session, now = found.session, world.clock()
    state = state_in_words(session, found.attention, running=found.lock.held)
    tasks = f"{session.plan_tasks_done}/{session.plan_tasks_total}"
    out = [
        f"Session: {short(session.session_id)}",
        f"Title: {one_line(session.title)}",
        f"State: {state}",
        f"Progress: {tasks} tasks, {session.steps_done}/{session.steps_total} steps",
    ]
    if found.survey is None:
        out.append(f"Ended: {ago(session.updated_at, now)}")
        return [*out, *sync_state.in_full(found.sync.as_json(), now)]
    survey, decision = found.survey, found.survey.decision
    out.append(f"Position: {titled_position(session, outline_of(session), world.redactor)}")
    if found.lock.held:
        out.append(f"Lock: {describe_owner(found.lock)}")
    else:
        out.append(f"Stopped: {ago(stopped_at(session), now)}, {one_line(survey.interruption.evidence)}")
        verdict = "allowed" if decision.eligible else "refused"
        waiting = f", {decision.cooldown_s_remaining} s remain" if decision.cooldown_s_remaining else ""
        out.append(f"Automatic resume now: {verdict} ({decision.describe}{waiting})")
        out.append("Lock: free")
    out += sync_state.in_full(found.sync.as_json(), now)
    out.append(f"Next: {next_action(found)}")
    return out


def describe_owner(seen: Seen) -> str:
    if seen.holder is None:
        return "held by another process"
    return f"held by pid {seen.holder.pid} of {seen.holder.user} on {seen.holder.host}: it is running now"
