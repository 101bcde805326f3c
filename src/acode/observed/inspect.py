"""The story of dead sessions: which there are, what was in flight, what shows it now, and what to type next.

Reads only. Nothing is guessed: a session is called dead only where its process is proven gone, and a call's outcome is
`unknown` until a file or a process shows it.
"""

from __future__ import annotations

import heapq
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from acode.errors import TranscriptUnreadable, Usage
from acode.observed import AGENTS
from acode.observed.evidence import Scene, evidence_of, outcome_of, traces_since
from acode.observed.session import CallInFlight, Evidence, Liveness, ObservedSession, Outcome
from acode.observed.transcript import Problem, read_head

SHOWN_MAX: Final = 10
LOOKED_AT_MAX: Final = 300
PROBLEMS_MAX: Final = 100
INTERRUPTED: Final = ("in_flight", "unnamed_call", "unfinished")
# Nothing that a shell or the agent's own parser could take for more than an id.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of an inspection: configuration directories or transcripts, and the agents' working directory."""

    configs: tuple[tuple[str, Path], ...] = ()
    transcripts: tuple[tuple[str, Path], ...] = ()
    within: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedCall:
    call: CallInFlight
    outcome: Outcome
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeCommand:
    """The agent's own command, where it must be typed, and the variables that lead it to this configuration."""

    directory: str
    variables: tuple[tuple[str, str], ...]
    command: tuple[str, ...]

    @property
    def line(self) -> str:
        words = [*(f"{name}={shlex.quote(value)}" for name, value in self.variables), *map(shlex.quote, self.command)]
        go = f"cd {shlex.quote(self.directory)} && " if self.directory else ""
        return go + " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedSession:
    """One session with everything found out about it."""

    session: ObservedSession
    liveness: Liveness
    calls: tuple[InspectedCall, ...] = ()
    traces: tuple[Evidence, ...] = ()
    checks: tuple[str, ...] = ()
    resume: ResumeCommand | None = None


@dataclass(slots=True)
class Inspection:
    """The answer: the sessions that are shown, and how far was looked."""

    sessions: list[InspectedSession] = field(default_factory=list)
    looked_at: int = 0
    not_looked_at: int = 0  # transcripts that are older than all that were looked at
    alive: int = 0
    finished: int = 0
    not_understood: int = 0
    problems: list[Problem] = field(default_factory=list)

    def problem(self, path: Path, message: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(path=path, message=message))


# Targets.


def find_target(text: str | None, environment: Mapping[str, str]) -> Target:
    """An agent's name, a transcript, a configuration directory, or the directory that agents worked in."""
    everywhere = tuple((name, one) for name, agent in AGENTS.items() for one in agent.config_directories(environment))
    if text is None:
        return Target(configs=everywhere)
    if text in AGENTS:
        return Target(configs=tuple((name, config) for name, config in everywhere if name == text))
    path = Path(os.path.abspath(text))
    if path.is_dir():
        own = tuple((name, path) for name in AGENTS if _keeps_sessions(name, path))
        return Target(configs=own) if own else Target(configs=everywhere, within=path)
    if os.path.lexists(path):
        return Target(transcripts=((_agent_of(path), path),))
    hint = (
        f"Agents: {', '.join(AGENTS)}. Or name a transcript, a project's directory, an agent's configuration directory."
    )
    raise Usage(f"{text!r} is neither an agent that acode knows nor a path that exists", hint=hint)


def _keeps_sessions(name: str, directory: Path) -> bool:
    """Whether transcripts of this agent lie where it would keep them in such a configuration directory."""
    for _, path in AGENTS[name].transcripts(directory).files[:20]:
        try:
            if AGENTS[name].recognizes(read_head(path)):
                return True
        except OSError:
            continue
    return False


def _agent_of(path: Path) -> str:
    try:
        head = read_head(path)
    except OSError as error:
        reason = error.strerror or error
        raise TranscriptUnreadable(f"{path} cannot be read: {reason}", path=str(path)) from error
    for name, agent in AGENTS.items():
        if agent.recognizes(head):
            return name
    raise TranscriptUnreadable(f"{path} is no transcript of an agent that acode knows", path=str(path))


# The story.


def inspect(target: Target, *, environment: Mapping[str, str], all_sessions: bool) -> Inspection:
    """The newest first: dead sessions whose last turn did not end, or every session."""
    inspection, scene = Inspection(), Scene()
    for session in _sessions(target, inspection, all_sessions=all_sessions):
        inspection.looked_at += 1
        inspection.finished += session.ending == "finished"
        inspection.not_understood += session.ending == "unknown"
        # A single session that was asked for by its file is shown however it ended.
        shown_anyway = all_sessions or (bool(target.transcripts) and not session.shares_transcript)
        if session.ending not in INTERRUPTED and not shown_anyway:
            continue
        liveness = scene.processes.liveness(AGENTS[session.agent], session)
        inspection.alive += liveness.state == "alive"
        if shown_anyway or liveness.state != "alive":
            inspection.sessions.append(_examine(session, liveness, scene, environment))
    inspection.sessions.sort(key=lambda one: one.session.updated_at, reverse=True)
    return inspection


def _sessions(target: Target, inspection: Inspection, *, all_sessions: bool) -> Iterator[ObservedSession]:
    """Read until enough interrupted sessions are found; how many transcripts were left is counted."""
    waiting: list[tuple[str, Path | None, Path]] = [
        (name, AGENTS[name].config_of(path), path) for name, path in target.transcripts
    ]
    waiting += [(name, config, path) for _, name, config, path in _newest_first(target, inspection)]
    for number, (name, config, path) in enumerate(waiting):
        if not all_sessions and (len(inspection.sessions) >= SHOWN_MAX or inspection.looked_at >= LOOKED_AT_MAX):
            inspection.not_looked_at = len(waiting) - number
            return
        try:
            for session in AGENTS[name].read(path, config, target.within):
                yield session
                if not all_sessions and len(inspection.sessions) >= SHOWN_MAX:
                    break
        except OSError as error:
            inspection.problem(path, f"It cannot be read: {error.strerror or error}.")


def _newest_first(target: Target, inspection: Inspection) -> Iterator[tuple[float, str, Path, Path]]:
    found: list[tuple[float, int, str, Path, Path]] = []
    tie = count()
    for name, config in target.configs:
        listing = AGENTS[name].transcripts(config)
        for problem in listing.problems:
            inspection.problem(problem.path, problem.message)
        found += [(-at, next(tie), name, config, path) for at, path in listing.files]
    heapq.heapify(found)
    while found:
        at, _, name, config, path = heapq.heappop(found)
        yield -at, name, config, path


def _examine(
    session: ObservedSession, liveness: Liveness, scene: Scene, environment: Mapping[str, str]
) -> InspectedSession:
    if liveness.state == "alive":
        calls = tuple(
            InspectedCall(call=call, outcome="unknown" if call.abandoned else "running", evidence=())
            for call in session.calls
        )
        return InspectedSession(session=session, liveness=liveness, calls=calls)
    # The session continued after a call that it has given up: later changes are no evidence about that call.
    found = [(call, () if call.abandoned else evidence_of(call, session, scene)) for call in session.calls]
    calls = tuple(InspectedCall(call=call, outcome=outcome_of(said), evidence=said) for call, said in found)
    traces = traces_since(session, scene) if session.ending == "unnamed_call" else ()
    return InspectedSession(
        session=session,
        liveness=liveness,
        calls=calls,
        traces=traces,
        checks=tuple(_checks(session, liveness, calls, traces)),
        resume=_resume_command(session, environment),
    )


def _checks(
    session: ObservedSession, liveness: Liveness, calls: tuple[InspectedCall, ...], traces: tuple[Evidence, ...]
) -> Iterator[str]:
    """The checks before the agent is resumed, most urgent first."""
    title = AGENTS[session.agent].TITLE
    if liveness.state == "unknown" and session.ending != "finished":
        yield f"Make sure that it is dead ({liveness.reason})."
    seen = [*traces, *(one for each in calls for one in each.evidence)]
    if pids := sorted({one.pid for one in seen if one.pid is not None}):
        names = ", ".join(map(str, pids))
        yield f"Wait for pid {names} to end, or end it: the command may still be at work."
    open_calls = [each for each in calls if not each.call.abandoned]
    if any(each.outcome in ("unknown", "partial", "running") for each in open_calls):
        yield (
            f"Find out whether the call took effect and write it in your next prompt: {title} cannot inform its model."
        )
    elif any(each.outcome == "applied" for each in open_calls):
        yield f"Write in your next prompt that the call took effect: {title} cannot inform its model."
    if session.ending == "unnamed_call":
        yield "Look at what changed since the last message: which call was in flight is written nowhere."
    if session.directory and session.ending != "finished" and not os.path.isdir(session.directory):
        yield "Its directory does not exist here."
    if session.config is None and session.ending != "finished":
        yield f"The transcript does not lie where {title} keeps its own, so {title} cannot resume it from there."


def _resume_command(session: ObservedSession, environment: Mapping[str, str]) -> ResumeCommand | None:
    """None where the id could be taken for something else, or the directory cannot be typed."""
    agent = AGENTS[session.agent]
    ids = [one for one in (session.session_id, session.parent_id) if one]
    if session.ending == "finished" or not session.session_id or not all(map(_ID.fullmatch, ids)):
        return None
    if session.config is None or not (session.directory + str(session.config)).isprintable():
        return None
    usual = session.config in agent.config_directories(environment)
    variables = () if usual else (agent.configuration_variable(session.config),)
    return ResumeCommand(directory=session.directory, variables=variables, command=agent.resume_command(session))
