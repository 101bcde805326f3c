"""The recorded calls of observed agents: what a hook wrote down of a command, and what its front noted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from acode.engine.workspace_store import has_database, opened
from acode.engine.world import World
from acode.errors import AcodeError
from acode.events import types as ev
from acode.events.definition import Run, command_line
from acode.state.source import OBSERVED_AGENT
from acode.steps.keeper_notes import claimed, read_mark, read_status, run_directory
from acode.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontNotes:
    """What the front of a command noted."""

    began: bool
    ended: bool
    exit: int | None = None
    signal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A command of an agent whose start a hook recorded. `front` is None where none took it."""

    agent: str
    agent_session: str
    session_id: str
    step: str
    started_at: datetime
    ended: bool
    front: FrontNotes | None
    begun: bool = True


def recorded_calls(world: World, *, agent: str, command: str | None = None) -> tuple[RecordedCall, ...]:
    """The commands of this agent in the workspace, or the calls of one command; the newest first."""
    if not has_database(world):
        return ()
    with opened(world, look_only=True) as store:
        found = [one for session_id in store.session_ids() for one in _of_session(world, store, session_id, agent)]
    wanted = [call for call, line in found if command is None or line == world.redactor.text(command)]
    return tuple(sorted(wanted, key=lambda one: one.started_at, reverse=True))


def _of_session(world: World, store: Store, session_id: str, agent: str) -> Iterator[tuple[RecordedCall, str]]:
    try:
        session, _ = store.peek(session_id)
        if session.kind != OBSERVED_AGENT.kind or session.source != agent:
            return
        envelopes = [envelope for envelope, _, _ in store.events(session_id)]
    except AcodeError:
        return  # one that cannot be trusted shows nothing; its own commands say why
    ended = {one.event.key for one in envelopes if isinstance(one.event, ev.StepCompleted)}
    for envelope in envelopes:
        started = envelope.event
        if not isinstance(started, ev.StepStarted) or started.definition is None:
            continue
        if isinstance(started.definition.action, Run):
            call = RecordedCall(
                agent=agent,
                agent_session=session.run_id,
                session_id=session_id,
                step=started.step,
                started_at=envelope.at,
                ended=started.key in ended,
                front=_notes(run_directory(world.agent_dir, started.key)),
            )
            yield call, world.redactor.text(command_line(started.definition.action.command))


def _notes(place: Path) -> FrontNotes | None:
    if not claimed(place):
        return None
    status = read_status(place)
    return FrontNotes(
        began=read_mark(place) is not None,
        ended=status is not None,
        exit=status.exit if status is not None else None,
        signal=status.signal if status is not None else None,
    )
