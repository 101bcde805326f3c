"""Find the run that a name means: its id, a unique part of it, or the id of its native session. Only reads."""

from __future__ import annotations

from acode.engine.session_list import Row
from acode.engine.workspace_store import named_by_log, opened, resolve_id
from acode.engine.world import World
from acode.errors import CannotContinue, MachineRefused, NoResumableSession, UnknownSession
from acode.formats import locate, present
from acode.formats.interface import Located, Run
from acode.hints import Command, Hint
from acode.state import Session
from acode.store.session_index import ID_PART_CHARS_MIN

CANDIDATES_SHOWN_MAX = 20


def find_run(world: World, text: str, source: str | None = None) -> Run | None:
    """The foreign run that a person named; None where the name is a native session's, or unknown."""
    if source == "native" or (source is None and not present(world.workspace)):
        return None
    located = locate(world.workspace, source)
    runs = located.runs
    exact = [run for run in runs if run.run_id == text]
    if exact:
        return the_one(exact, text)
    if not runs and not located.unread and source is None:
        return None
    parts: list[Run] = []
    if len(text) >= ID_PART_CHARS_MIN:
        parts = [run for run in runs if run.run_id.startswith(text) or run.run_id.endswith(text)]
    session = session_named(world, text)
    if session is not None and session.steps_from.carries_run:
        return run_of(session, located)
    if session is not None and not parts and source is None:
        return None
    if located.unread:
        raise MachineRefused(f"which run {text} means cannot be found out: {'; '.join(located.unread)}")
    if session is not None and parts:
        names = ", ".join([session.session_id[-8:], *(run.run_id for run in parts[:CANDIDATES_SHOWN_MAX])])
        raise UnknownSession(f"{text} fits a session and a run: {names}", hint="Type more of the id.")
    if parts:
        return the_one(parts, text)
    if source is not None:
        listed = [run.run_id for run in runs][:CANDIDATES_SHOWN_MAX]
        there = f"; there are: {', '.join(listed)}" if listed else ""
        raise UnknownSession(f"no {source} run here is called {text}{there}", candidates=listed)
    return None


def the_one(found: list[Run], text: str) -> Run:
    if len(found) == 1:
        return found[0]
    names = [f"{run.run_id} ({run.source})" for run in found[:CANDIDATES_SHOWN_MAX]]
    raise UnknownSession(
        f"{text} fits {len(found)} runs: {', '.join(names)}",
        hint="Type more of the id, or name the format with --source.",
        candidates=[run.run_id for run in found],
    )


def session_named(world: World, text: str) -> Session | None:
    try:
        with opened(world, look_only=True) as store:
            return named_by_log(store, resolve_id(world, store, text))
    except (NoResumableSession, UnknownSession):
        return None


def run_of(session: Session, located: Located) -> Run:
    for run in located.runs:
        if (run.source, run.run_id) == (session.source, session.run_id):
            return run
    if located.unread:
        raise MachineRefused(f"the run {session.run_id} cannot be looked for: {'; '.join(located.unread)}")
    raise CannotContinue(
        f"session {session.session_id[-8:]} belongs to the {session.source} run {session.run_id}, which is not here",
        hint=Hint("Restore the run's files, or abandon the session: {}", Command("session abandon")),
    )


def native_sessions(rows: list[Row]) -> dict[tuple[str, str], Row]:
    """The native session of each run: the unfinished one, else the latest."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.session is None or not row.session.steps_from.carries_run:
            continue
        known = found.get((row.session.source, row.session.run_id))
        if known is None or (known.session is not None and known.session.terminal and not row.session.terminal):
            found[(row.session.source, row.session.run_id)] = row
    return found
