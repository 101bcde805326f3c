"""Which session is meant: by its id, the most recent one, or the one a person picks from a list."""

from __future__ import annotations

from datetime import datetime

from acode.cli.durations import ago, count
from acode.cli.positions import outline_of, titled_position
from acode.cli.prompts import ask, confirm
from acode.cli.screen import Screen, one_line
from acode.engine.preview import Row, preview, rows
from acode.engine.session_list import lock_seen
from acode.engine.workspace_store import none_here, opened, resolve_id
from acode.engine.world import Options, World, short, way_to_begin_anew
from acode.errors import AcodeError, InputRequired, Interrupted, NoResumableSession
from acode.state import Session, State

LISTED_MAX = 10


def to_resume(world: World, screen: Screen, *, last: bool, yes: bool, asks: bool) -> str:
    """The session a resume without an id is about; never a guess that nobody confirmed."""
    found = resumable_rows(world, screen)
    if asks and screen.can_ask and not (last or yes):
        return _picked(world, screen, found)
    if last or yes:
        session = found[0]
        screen.line(f"Taking the most recent session: {in_one_line(session)}")
        return session.session_id
    raise InputRequired(
        f"{count(len(found), 'session')} can be resumed, and nobody can be asked which is meant: "
        + "; ".join(in_one_line(one) for one in found[:LISTED_MAX]),
        hint=f"Name one: acode resume {short(found[0].session_id)}; or take the most recent: acode resume --last",
        candidates=[one.session_id for one in found],
    )


def resumable_rows(world: World, screen: Screen) -> list[Session]:
    """Unfinished sessions, the most recently active first. What cannot be trusted is no empty list."""
    everything = rows(world)
    damaged = [row for row in everything if row.error is not None]
    found = [row.session for row in everything if row.session is not None and not row.session.terminal]
    found = [
        session for session in found if not session.steps_from.carries_run
    ]  # those are resumed as the runs they carry
    if not found:
        raise damaged_error(damaged) or _nothing_here(world, everything)
    for row in damaged:
        screen.warn(f"session {short(row.session_id)} cannot be trusted: {row.error}")
    return found


def damaged_error(damaged: list[Row]) -> AcodeError | None:
    return damaged[0].error if damaged else None


def _nothing_here(world: World, everything: list[Row]) -> NoResumableSession:
    if not everything:
        return none_here(world)
    ended = "the one there is has ended" if len(everything) == 1 else f"all {len(everything)} have ended"
    return NoResumableSession(
        f"no session here can be resumed: {ended}",
        hint=f"Start a new one: {_begin_anew(world, everything)}; or look at them: acode session list --all",
    )


def _begin_anew(world: World, everything: list[Row]) -> str:
    """As the most recent session was begun."""
    latest = next((row.session_id for row in everything if row.session is not None), None)
    if latest is None:
        return "acode run PLAN.yml"
    return way_to_begin_anew(preview(world, latest, Options(), probes=False, environment=False).session)


def to_look_into(world: World, screen: Screen, text: str | None) -> str:
    """The session whose own log is looked into; a run that others began may be named, once a session carries it."""
    if text is not None:
        from acode.cli.foreign import refuse_unrecorded

        refuse_unrecorded(world, text)
    return to_look_at(world, screen, text)


def to_look_at(world: World, screen: Screen, text: str | None) -> str:
    """The session a look without an id is about: the most recent unfinished one, else the most recent."""
    if text is not None:
        return text
    everything = rows(world)
    known = [row.session for row in everything if row.session is not None and not row.session.steps_from.carries_run]
    unfinished = [session for session in known if not session.terminal]
    if not known:
        raise damaged_error(everything) or none_here(world)
    return (unfinished or known)[0].session_id


def _picked(world: World, screen: Screen, found: list[Session]) -> str:
    if len(found) == 1:
        screen.insist("Found 1 resumable session:")
        show_candidate(world, screen, found[0].session_id, "  ")
        screen.insist("")
        if confirm(screen, "Resume this session?", default=True):
            screen.insist("")
            return found[0].session_id
        raise Interrupted("nothing was resumed")
    screen.insist(f"Found {len(found)} resumable sessions:")
    shown = found[:LISTED_MAX]
    for number, session in enumerate(shown, 1):
        show_candidate(world, screen, session.session_id, f"  {number}. ")
    screen.insist("")
    while True:
        answer = ask(screen, f"Resume {short(shown[0].session_id)}? [Y/n], or a number from 1 to {len(shown)}:")
        if answer in ("", "y", "yes"):
            return shown[0].session_id
        if answer is None or answer in ("n", "no", "q"):
            raise Interrupted("nothing was resumed")
        if answer.isdecimal() and 1 <= int(answer) <= len(shown):
            return shown[int(answer) - 1].session_id


def show_candidate(world: World, screen: Screen, session_id: str, lead: str) -> None:
    """A session as it is offered: what it is, where it stands, since when."""
    found = preview(world, session_id, Options(), probes=False, environment=False)
    session = found.session
    word = {State.PAUSED: "Paused", State.AWAITING_APPROVAL: "Waiting"}.get(session.state, "Stopped")
    indent = " " * len(lead)
    screen.insist(f"{lead}{in_one_line(session)}")
    screen.insist(f"{indent}{word} at: {titled_position(session, outline_of(session), world.redactor)}")
    if found.lock.held and found.lock.holder is not None:
        screen.insist(f"{indent}Running now: pid {found.lock.holder.pid}")
    else:
        screen.insist(f"{indent}{word}: {ago(stopped_at(session), world.clock())}")


def in_one_line(session: Session) -> str:
    escalated = ", escalated" if session.escalated else ""
    return f'{short(session.session_id)} - {session.state}{escalated} - "{one_line(session.title)}"'


def stopped_at(session: Session) -> datetime:
    return session.last_lifecycle.at if session.last_lifecycle is not None else session.updated_at


def announce_wait(world: World, screen: Screen, name: str, *, wait: bool) -> World:
    """Before a resume waits for a lock, whose it is; a silent terminal would look dead."""
    if wait:
        with opened(world, look_only=True) as store:
            session_id = resolve_id(world, store, name)
            seen = lock_seen(world, session_id, store.generation(session_id))
        if seen.held:
            whose = f", held by pid {seen.holder.pid}" if seen.holder is not None else ""
            limit_s = world.config.settings.session.lock_timeout_seconds
            screen.line(f"Waiting for the lock of session {short(session_id)}{whose}; at most {limit_s:g} s")
    return world
