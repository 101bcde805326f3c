"""Record the calls of an observed agent as steps, and settle what it left open.

Every guard stands in the engine, once for all sources of steps. What is added here is what only hooks know: which call
of which agent it is, when a turn is over, and what the agent is told.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from acode.config import effective, is_trusted, load_config, state_dir
from acode.engine import split_step
from acode.engine.create import create_observed
from acode.engine.held_session import Held
from acode.engine.make_world import make_world
from acode.engine.notices import Notice, StepCompleted, StepOutput, StepStarted
from acode.engine.split_step import Repeat, Settled
from acode.engine.start_lock import start_lock
from acode.engine.survey import step_named
from acode.engine.workspace_store import has_database, opened
from acode.engine.world import World
from acode.events import types as ev
from acode.events.definition import Step
from acode.observed import lone_calls
from acode.observed.binding import Binding, keep_binding, read_binding
from acode.observed.call_step import action_of, command_of, shown_arguments
from acode.observed.doors import Doors, front_known, note_front, process_name, publish, take_lone, withdraw
from acode.observed.hook_payload import HookEvent
from acode.observed.transcript import open_regular
from acode.plan import Action, Outcome, Settlement, Strategy, settle
from acode.state.session import InFlight
from acode.state.source import OBSERVED_AGENT
from acode.steps import kind_of
from acode.steps import run as commands
from acode.steps.interface import Done, Failed, Site
from acode.steps.keeper_notes import (
    Mark,
    claimed,
    read_mark,
    read_status,
    read_unredacted,
    run_directory,
    still_running,
)
from acode.store.session_index import sessions_of_key
from acode.store.step_index import Finished

LOCK_WAIT_S = 10.0  # well under the time that an agent gives its hooks
BEGINNING = "another hook is just beginning the session of this agent, and does not come to an end with it"
TITLE_CHARS_MAX = 120
NAME_CHARS_MAX = 40
TAIL_BYTES = 4_096
TAIL_CHARS_MAX = 600
LINES_TOLD_MAX = 10
TOLD_MAX = 200


@dataclass(frozen=True, slots=True)
class AgentSession:
    """One session of an agent, as a hook of it finds it."""

    world: World
    doors: Doors
    binding: Binding
    agent: ev.Performer

    def place(self, started: ev.StepStarted) -> Path:
        """Where the front makes its notes of a command."""
        return run_directory(self.world.agent_dir, started.key)


class Nobody:
    """A hook has no terminal: what happens stands in the log."""

    unheard: tuple[type, ...] = (StepStarted, StepCompleted, StepOutput)

    def emit(self, notice: Notice) -> None:
        pass

    def durable(self, seq: int) -> None:
        pass


def world_for(binding: Binding, env: Mapping[str, str]) -> World:
    workspace = Path(binding.workspace)
    config = load_config(workspace, env, {})
    sha256 = config.workspace_file_sha256
    if config.executes and sha256 is not None and is_trusted(state_dir(env), workspace, sha256):
        config = effective(config, trusted=True)
    waits = msgspec.structs.replace(config.settings.session, lock_timeout_seconds=LOCK_WAIT_S)
    settings = msgspec.structs.replace(config.settings, session=waits)
    config = msgspec.structs.replace(config, settings=settings)
    return make_world(workspace=workspace, env=env, config=config, listener=Nobody())


# The session.


def find_session(world: World, binding: Binding) -> str | None:
    """The unfinished session of acode for this session of the agent. What the binding names is the one; a process that
    opens it finds out if a person has ended it meanwhile."""
    if binding.session_id:
        return binding.session_id
    if not has_database(world):
        return None
    with opened(world, look_only=True) as store:
        for session_id in sessions_of_key(store, binding.agent_session, OBSERVED_AGENT.kind, binding.agent):
            if not store.peek(session_id)[0].terminal:
                return session_id
    return None


def without_session(doors: Doors, binding: Binding) -> Binding:
    """The session has ended: the next call begins another one."""
    ended = msgspec.structs.replace(binding, session_id="", ended_session=binding.session_id or binding.ended_session)
    keep_binding(doors, ended)
    return ended


def ensure_session(world: World, doors: Doors, binding: Binding) -> str:
    """The session for the agent's calls; of two first calls at once, one begins it."""
    found = find_session(world, binding)
    if found is not None:
        return found
    name = f"observed-{binding.agent}"
    with start_lock(world, name, wait_s=LOCK_WAIT_S, busy=BEGINNING, hint="Try again."):
        found = find_session(world, binding)
        if found is None:
            title = binding.title or f"{binding.agent} session {binding.agent_session[:8]}"
            with create_observed(world, binding.agent, binding.agent_session, title) as run:
                found = run.session.session_id
    keep_binding(doors, msgspec.structs.replace(binding, session_id=found))
    return found


def titled(binding: Binding, title: str) -> Binding:
    return msgspec.structs.replace(binding, title=title)


def last_words(world: World, place: Path, mark: Mark | None) -> str:
    """The end of a command's output: what the front kept, or what stands in the file that its agent gave it."""
    text = read_unredacted(place, world.redactor)
    if not text and mark is not None and mark.output:
        with contextlib.suppress(OSError), open_regular(Path(mark.output)) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = world.redactor.text(file.read(TAIL_BYTES).decode("utf-8", "replace")).encode("utf-8", "replace")
    lines = text.decode("utf-8", "replace")[-TAIL_CHARS_MAX:].splitlines()
    return "\n".join(lines[-LINES_TOLD_MAX:])


# Before a tool.


def begin_call(at: AgentSession, event: HookEvent) -> Repeat | list[Settled] | None:
    """Make the start durable. What must be answered instead: a repeat, or open questions that block everything."""
    world, doors, agent = at.world, at.doors, at.agent
    session_id = ensure_session(world, doors, at.binding)
    command = command_of(event)
    asked = ev.Asked(arguments=event.digest)
    with split_step.briefly_held(world, session_id) as run:
        known = open_call(run, event, agent) if event.call_id else None
        if known is not None:  # the same hook once more: a copy of it is configured, or the first one was cut off
            publish_call(at, known, command)
            return None
        settled = settle_returned(run, at)
        alike = lone_calls.same_lines(run, command) if command is not None else ()
        for one in (asked, *alike):
            if (repeat := split_step.repeat_of(run, one, agent)) is not None:
                return repeat
        unknown = [one for one in settled if one.action is Action.ASK]
        if unknown and world.config.settings.hooks.unknown == "block":
            return unknown
        step = Step(id=step_name(run, event), action=action_of(event, world.workspace))
        call = ev.ToolCall(
            id=event.call_id,
            tool=event.tool[:NAME_CHARS_MAX],
            fronted=command is not None and front_known(doors, agent, world.env),
            subagent=event.subagent,
        )
        shown = "" if command is not None else world.redactor.text(shown_arguments(event))
        started = split_step.begin_held(run, step, agent, asked=asked, shown=shown, call=call)
    publish_call(at, started, command)
    return None


def record_denial(at: AgentSession, session_id: str, repeat: Repeat) -> None:
    with split_step.briefly_held(at.world, session_id) as run:
        split_step.record_denial(run, repeat, at.agent)


def publish_call(at: AgentSession, started: ev.StepStarted, command: str | None) -> None:
    if command is not None and at.world.config.settings.hooks.front == "auto":
        publish(at.doors, at.agent, at.place(started), command)


def flights(run: Held) -> list[InFlight]:
    return list(run.session.in_flight.values())


def step_name(run: Held, event: HookEvent) -> str:
    """Short, because a person may have to type it; its number is that of the event that begins it."""
    plain = "".join(char if char.isalnum() else "-" for char in event.tool.lower())[:NAME_CHARS_MAX].strip("-")
    return f"{plain or 'tool'}-{run.session.seq + 1}"


# After a tool.


def end_call(at: AgentSession, event: HookEvent) -> None:
    """The completion. Of a command the front's word counts, if one took it. One in the background has not ended."""
    session_id = find_session(at.world, at.binding)
    if session_id is None:
        return
    with split_step.briefly_held(at.world, session_id) as run:
        started = open_call(run, event, at.agent)
        if started is None:
            return
        if started.kind == "run" and claimed(at.place(started)):
            note_front(at.doors, at.agent)
        if split_step.end_held(run, started, lambda step, site, begun: seen_end(step, site, begun, event)):
            withdraw(at.doors, at.agent, at.place(started))


def open_call(run: Held, event: HookEvent, agent: ev.Performer) -> ev.StepStarted | None:
    """By the agent's id of the call; where it gives none, the oldest open one with the same arguments."""
    mine = [flight.started for flight in flights(run) if flight.started.performer == agent]
    if event.call_id:
        return next((one for one in mine if one.call is not None and one.call.id == event.call_id), None)
    return next((one for one in mine if one.asked is not None and one.asked.arguments == event.digest), None)


def seen_end(step: Step, site: Site, started: ev.StepStarted, event: HookEvent) -> Done | Failed | None:
    place = run_directory(site.agent_dir, started.key)
    if started.kind == "run" and read_status(place) is not None:
        return collected(step, site, started)
    if started.kind == "run" and (event.background or still_running(place, read_mark(place)) is not None):
        return None
    done = kind_of(started.kind).adopt(step, site, started)
    told = {"by": "hook", "failed": True} if event.failed else {"by": "hook"}
    return msgspec.structs.replace(done, result={"v": told})


def collected(step: Step, site: Site, started: ev.StepStarted) -> Done:
    """What the front noted. However the command ended: it has been run, and its agent was told how."""
    ended = commands.collect(step, site, started)
    return commands.as_ended(ended) if isinstance(ended, Failed) else ended


# When the agent comes back, or a turn is over.


def settle_returned(run: Held, at: AgentSession) -> tuple[Settled, ...]:
    """What other processes of the agent left open, and what has ended in the background of this one."""
    for flight in flights(run):
        started = flight.started
        if lone_calls.is_taken_over(started):
            continue
        if started.kind == "run" and started.performer is not None and started.performer != at.agent:
            take_lone(at.doors, started, at.place(started))
    for started in lone_calls.take_over(run, at.doors, at.binding, at.agent):
        split_step.end_held(run, started, collected)
    settled = split_step.settle_left(run)
    for one in settled:
        if one.action is not Action.WAIT and one.started.performer is not None:
            withdraw(at.doors, one.started.performer, at.place(one.started))
    return settled


def end_turn(run: Held, at: AgentSession, *, over: bool) -> None:
    """The agent has ended its turn: its own calls that have no end were denied or cancelled.

    A command that a front took and that still runs continues in the background. A helper's calls are its own affair. A
    prompt may come in the middle of a turn (`over` is false): then only what the evidence shows is settled.
    """
    for flight in flights(run):
        started, place = flight.started, at.place(flight.started)
        mine = started.performer == at.agent and (started.call is None or not started.call.subagent)
        if not mine or (started.kind == "run" and still_running(place, read_mark(place)) is not None):
            continue
        finding = finding_of(run, started)
        if not over and finding.outcome not in (Outcome.APPLIED, Outcome.NOT_APPLIED):
            continue
        told = f"{at.agent.name} is alive and ended its turn without it: denied or cancelled, and its model knows"
        split_step.give_up(run, started, finding, evidence=told)
        withdraw(at.doors, at.agent, place)


def finding_of(run: Held, started: ev.StepStarted) -> Settlement:
    """What the evidence says of it, although its performer lives."""
    finding = kind_of(started.kind).look(step_named(run.session, started.step), run.site(), started)
    return settle(started.step, started.kind, finding, strategy=Strategy.RETRY, retry_unknown=False)


def pause_or_end(at: AgentSession, *, ends: bool) -> None:
    """The agent waits for its person; or it has ended, and with it what was kept for its return."""
    session_id = find_session(at.world, at.binding)
    if session_id is None:
        return
    with split_step.briefly_held(at.world, session_id) as run:
        settle_returned(run, at)
        end_turn(run, at, over=True)
        if not ends:
            split_step.pause_for(run, f"{at.agent.name} waits for a prompt")
        elif not run.session.in_flight:
            split_step.complete_held(run)
            without_session(at.doors, at.binding)


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What another process of the agent left behind."""

    session_id: str = ""
    settled: tuple[Settled, ...] = ()
    ended: tuple[ev.StepCompleted, ...] = ()  # it may not have kept their results, and this process was not told them


def settle_for_return(at: AgentSession) -> Left:
    """At a start or a prompt: what was settled; nothing where nothing was recorded yet."""
    session_id = find_session(at.world, at.binding)
    if session_id is None and any(lone_calls.lone_calls(at.doors, at.binding, at.agent)):
        session_id = ensure_session(at.world, at.doors, at.binding)
    if session_id is None:
        return Left()
    with split_step.briefly_held(at.world, session_id) as run:
        unkept = run.session.fresh if run.session.performer != at.agent else {}
        steps = dict.fromkeys([*run.session.untold.values(), *unkept.values()])
        known = told_to(at)
        found = [Finished(run.store, session_id).find(step) for step in steps if step not in known]
        settled = settle_returned(run, at)
        end_turn(run, at, over=False)
        return Left(session_id=session_id, settled=settled, ended=tuple(one for one in found if one is not None))


def told_to(at: AgentSession) -> tuple[str, ...]:
    """The steps of which this process was told how they ended. A hook that was killed before it printed has noted none:
    the next one tells them."""
    return at.binding.told if at.binding.told_to == process_name(at.agent) else ()


def note_told(at: AgentSession, left: Left) -> None:
    """Called when it was printed."""
    steps = [*(one.step for one in left.ended), *(one.started.step for one in left.settled)]
    now = read_binding(at.doors, at.binding.agent, at.binding.agent_session) or at.binding
    told = tuple(dict.fromkeys([*told_to(at), *steps]))[-TOLD_MAX:]
    keep_binding(at.doors, msgspec.structs.replace(now, told_to=process_name(at.agent), told=told))
