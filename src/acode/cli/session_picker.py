"""Which session is meant: by its id, the most recent one, or the one a person picks from a list."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from acode.attention import state_in_words
from acode.cli.positions import outline_of, titled_position
from acode.cli.screen import Screen
from acode.engine.next_action import subject_of
from acode.engine.preview import Preview, Row, preview
from acode.engine.session_list import listed, lock_seen, most_recent, unfinished_glances
from acode.engine.workspace_store import none_here, opened, resolve_id, share_store
from acode.engine.world import Options, World, begin_again, short
from acode.errors import FIRST_PLAN, AcodeError, InputRequired, Interrupted, NoResumableSession
from acode.formats import present
from acode.hints import Resume
from acode.state import Session, State
from acode.text import one_line
from acode.text.durations import ago, count

if TYPE_CHECKING:  # formats of others and questions are loaded where there are any
    from acode.formats.interface import Run

LISTED_MAX = 10


def foreign_run(
    world: World, screen: Screen, text: str | None, source: str | None, *, sure: bool, verb: str = "resume"
) -> Run | None:
    """The foreign run that a command is about; None: it is about a native session."""
    if source == "native" or (source is None and not present(world.workspace)):
        return None
    from acode.cli.foreign import meant

    return meant(world, screen, text, source, sure=sure, verb=verb)


def to_resume(world: World, screen: Screen, *, last: bool, yes: bool, asks: bool, verb: str = "resume") -> str:
    """The session a resume without an id is about; never a guess that nobody confirmed. `verb`: the command."""
    found = resumable_rows(world, screen)
    if asks and screen.can_ask and not (last or yes):
        return _picked(world, screen, found)
    if last or yes:
        session = found[0]
        screen.line(f"Taking the most recent session: {in_one_line(glance(world, session.session_id))}")
        return session.session_id
    raise InputRequired(
        f"{count(len(found), 'session')} can be resumed, and nobody can be asked which is meant: "
        + "; ".join(in_one_line(glance(world, one.session_id)) for one in found[:LISTED_MAX]),
        hint=_how_to_name(world, found, verb),
        candidates=[one.session_id for one in found],
    )


def _how_to_name(world: World, found: list[Session], verb: str) -> str:
    """The first that acode itself can resume; a program without an entry point is run again instead."""
    subjects = [subject_of(whole(world, one.session_id)) for one in found[:LISTED_MAX]]
    able = next((one for one in subjects if not one.only_by_program), None)
    if able is None:
        return f"To continue the first: {Resume().as_command(subjects[0])}"
    most_recent = "" if subjects[0].only_by_program else f"; or take the most recent: acode {verb} --last"
    return f"Name one: acode {verb} {able.name}{most_recent}"


def whole(world: World, session_id: str) -> Session:
    """With its first event, which a list does without."""
    return glance(world, session_id).session


def glance(world: World, session_id: str) -> Preview:
    """Enough to tell what it is and what it needs: no probe is run, no file compared."""
    return preview(world, session_id, Options(), probes=False, environment=False)


def resumable_rows(world: World, screen: Screen) -> list[Session]:
    """Unfinished sessions, the most recently active first. An untrusted session is an error, not an empty list."""
    everything = unfinished_glances(world)
    found = [row.session for row in everything if row.session is not None]
    found = [session for session in found if not session.steps_from.carries_run]  # those are resumed as foreign runs
    _refuse_none(world, screen, found, [row for row in everything if row.error is not None])
    return found


def most_recent_to_resume(world: World, screen: Screen) -> Session:
    """The first of `resumable_rows`, without a look at the others."""
    found, damaged = most_recent(world, unfinished=True)
    _refuse_none(world, screen, [found] if found is not None else [], damaged)
    assert found is not None
    return found


def _refuse_none(world: World, screen: Screen, found: list[Session], damaged: list[Row]) -> None:
    if not found:
        raise damaged_error(damaged) or _nothing_here(world)
    for row in damaged:
        screen.warn(f"session {short(row.session_id)} cannot be trusted: {row.error}")


def damaged_error(damaged: list[Row]) -> AcodeError | None:
    return damaged[0].error if damaged else None


def _nothing_here(world: World) -> NoResumableSession:
    here = listed(world, limit=1)
    if not here.rows:
        return none_here(world)
    ended = "the one there is has ended" if here.total == 1 else f"all {here.total} have ended"
    return NoResumableSession(
        f"no session here can be resumed: {ended}",
        hint=f"Start a new one: {_begin_again(world, here.rows)}; or look at them: acode session list --all",
    )


def _begin_again(world: World, newest: list[Row]) -> str:
    """As the most recent session was begun."""
    latest = next((row.session_id for row in newest if row.session is not None), None)
    return (begin_again(whole(world, latest)) if latest is not None else FIRST_PLAN).as_command()


def to_look_into(world: World, screen: Screen, text: str | None) -> str:
    """The session whose own log is examined; a foreign run may be named, once it has a native session."""
    if text is not None:
        from acode.cli.foreign import refuse_unrecorded

        refuse_unrecorded(world, text)
    return to_look_at(world, screen, text)


def look_at(
    world: World, screen: Screen, text: str | None, *, probes: bool = True, environment: bool = True
) -> Preview:
    """The session that a look is about, from one store."""
    with share_store(world, look_only=True) as looking:
        name = to_look_at(looking, screen, text)
        return preview(looking, name, Options(actor="system"), probes=probes, environment=environment)


def to_look_at(world: World, screen: Screen, text: str | None) -> str:
    """The session a look without an id is about: the most recent unfinished one, else the most recent."""
    if text is not None:
        return text
    found, damaged = most_recent(world)
    if found is None:
        raise damaged_error(damaged) or none_here(world)
    return found.session_id


def _picked(world: World, screen: Screen, found: list[Session]) -> str:
    from acode.cli.prompts import ask, confirm

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
    found = glance(world, session_id)
    session = found.session
    word = {State.PAUSED: "Paused", State.AWAITING_APPROVAL: "Waiting"}.get(session.state, "Stopped")
    indent = " " * len(lead)
    screen.insist(f"{lead}{in_one_line(found)}")
    screen.insist(f"{indent}{word} at: {titled_position(session, outline_of(session), world.redactor)}")
    if found.lock.held and found.lock.holder is not None:
        screen.insist(f"{indent}Running now: pid {found.lock.holder.pid}")
    else:
        screen.insist(f"{indent}{word}: {ago(stopped_at(session), world.clock())}")


def in_one_line(found: Preview) -> str:
    """With its state in the words for people: a dead session is not executing, whatever its last event says."""
    session = found.session
    state = state_in_words(session, found.attention, running=found.lock.held)
    return f'{short(session.session_id)} - {state} - "{one_line(session.title)}"'


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
