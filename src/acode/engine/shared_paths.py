"""Find out who changed a file that a session knows: another step in flight, or another session of the workspace.

Two sessions may work in one workspace, and several steps of one session at the same time. Without a look at the others,
a file that they changed would be taken for the work of a stranger, or of whatever step has just ended. Logs are read
only after a known file was found changed, and only those that were written since this session began. A log that cannot
be verified names nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from acode.engine.held_session import IMAGES_IN_EVENT_MAX, Held
from acode.engine.survey import step_named
from acode.engine.world import short
from acode.errors import AcodeError
from acode.events import types as ev
from acode.events.definition import declared_outputs
from acode.state import NESTED, InFlight, Session
from acode.store.session_index import active_since
from acode.store.store import Store
from acode.workspace import ChangedFile, Root, restat
from acode.workspace.declared_outputs import Patterns

PATHS_SHOWN_MAX = 5
IsDeclared = Callable[[str], bool]
LOOKING = frozenset({"read", "approve", "model"})  # kinds of steps that know files without changing them


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The step of another session that left a file as it is now."""

    session_id: str
    step: str
    at: datetime

    def __str__(self) -> str:
        return f"step {self.step} of session {short(self.session_id)}"


class Attributed(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a step left, without those that another session or another step of this one changed meanwhile."""

    files: tuple[ev.FileState, ...]
    touched: tuple[str, ...]
    accepted: tuple[ev.ChangesAccepted, ...] = ()
    warnings: tuple[str, ...] = ()


def attribute(run: Held, step: str, files: tuple[ev.FileState, ...], touched: tuple[str, ...]) -> Attributed:
    """Separate the changes of others from those of a step; `touched` are known files that it did not declare.

    The session expects the new content from here on, so a later step reports it no more and a resume does not stop.
    """
    if run.changed_before:
        files, touched = _without_earlier(run.changed_before, files, touched)
    with run.turn:  # threads share the connection, and record their ends one by one
        overlap = overlap_of(run, step)
        if overlap is not None:
            files, touched = without_theirs(run, overlap, files, touched)
        undeclared = set(touched)
        found = changes_by_others(run.store, run.session, [one for one in files if one.path in undeclared])
    theirs = _by_step(found, (one for one in files if one.path in found))
    warnings = [
        f"{_names(states)} changed while step {step} ran, to the content that {who} recorded: both sessions work there"
        for who, states in theirs.items()
    ]
    if overlap is not None and overlap.suspects and not undeclared <= found.keys():
        *others, last = sorted((step, *overlap.suspects))
        ran = f"changed while steps {', '.join(others)} and {last} ran"
        theirs[ran] = [one for one in files if one.path in undeclared and one.path not in found]
        warnings.append(f"{_names(theirs[ran])} {ran}: nothing shows which of them changed it")
    accepted_paths = {one.path for states in theirs.values() for one in states}
    return Attributed(
        files=tuple(one for one in files if one.path not in accepted_paths),
        touched=tuple(path for path in touched if path not in accepted_paths),
        accepted=tuple(event for who, states in theirs.items() for event in _accepted(who, states)),
        warnings=tuple(warnings),
    )


def _without_earlier(
    before: dict[str, str | None], files: tuple[ev.FileState, ...], touched: tuple[str, ...]
) -> tuple[tuple[ev.FileState, ...], tuple[str, ...]]:
    """Without files that already stood like this before the step: the end of the resume reports them."""
    earlier = {one.path for one in files if one.path in touched and before.get(one.path, "") == (one.sha256 or None)}
    return (
        tuple(one for one in files if one.path not in earlier),
        tuple(path for path in touched if path not in earlier),
    )


# Steps of the same session.


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Other steps of the session that ran at the same time as one that ends now."""

    mine: IsDeclared
    theirs: tuple[IsDeclared, ...]  # of those still in flight: their files are settled with them
    suspects: tuple[str, ...]  # those in flight that may have changed any file


def overlap_of(run: Held, step: str) -> Overlap | None:
    """None where the step had the workspace for itself."""
    session = run.session
    flight, last = session.in_flight.get(step), session.last_completed
    beside = [
        one
        for name, one in session.in_flight.items()
        if name != step and not _is_inside(name, step) and not _is_inside(step, name)
    ]
    has_ended = flight is not None and last is not None and last.seq > flight.seq
    if flight is None or not (beside or has_ended):
        return None
    suspects = [one.started.step for one in beside if _may_change_anything(session, one)]
    return Overlap(
        mine=_declared(session, flight),
        theirs=tuple(_declared(session, one) for one in beside),
        suspects=tuple(suspects) if flight.started.kind not in LOOKING else (),
    )


def without_theirs(
    run: Held, overlap: Overlap, files: tuple[ev.FileState, ...], touched: tuple[str, ...]
) -> tuple[tuple[ev.FileState, ...], tuple[str, ...]]:
    """What the step left, without files of the steps in flight and as the rest stands now.

    It was looked at before the others recorded what they know: an older state on top of theirs would make the next
    resume take their work for somebody else's change.
    """
    assert run.session.records is not None
    manifest = run.session.records.manifest
    own = tuple(one for one in files if overlap.mine(one.path))
    rest = [one for one in files if not overlap.mine(one.path) and not any(their(one.path) for their in overlap.theirs)]
    now = restat(run.root, {one.path: manifest.get(one.path, ev.FileState(path=one.path)) for one in rest})
    changed = {one.path for one in now if one.path in manifest and not _is_same_content(manifest[one.path], one)}
    return (*own, *now), tuple(path for path in touched if path in changed or overlap.mine(path))


def _is_inside(step: str, outer: str) -> bool:
    return step.startswith(f"{outer}{NESTED}")


def _is_same_content(recorded: ev.FileState, now: ev.FileState) -> bool:
    return (recorded.sha256, recorded.mode) == (now.sha256, now.mode)


def _declared(session: Session, flight: InFlight) -> IsDeclared:
    """Whether a path is one that the step said it would change."""
    started = flight.started
    paths = {image.path for image in started.before}
    if started.kind == "sql":
        from acode.steps.sql import BESIDE

        paths.update(str(started.target.get("database")) + ending for ending in BESIDE)
    declared = declared_outputs(step_named(session, started.step))
    patterns: IsDeclared = Patterns(declared) if declared else lambda path: False
    return lambda path: path in paths or patterns(path)


def _may_change_anything(session: Session, flight: InFlight) -> bool:
    started = flight.started
    declares = started.before or declared_outputs(step_named(session, started.step))
    return started.kind in ("run", "commit", "call") and not declares


def warn_of_shared(run: Held, step: str, before: Iterable[ev.PreImage]) -> None:
    """A step is about to replace what another session made of a file that this session knows."""
    assert run.session.records is not None
    manifest = run.session.records.manifest
    stale = {
        image.path: manifest[image.path]
        for image in before
        if image.path in manifest and image.kind in ("file", "absent") and image.sha256 != manifest[image.path].sha256
    }
    if not stale:
        return
    states = restat(run.root, stale)
    with run.turn:
        found = changes_by_others(run.store, run.session, states)
    for who, theirs in _by_step(found, (one for one in states if one.path in found)).items():
        run.warn(f"step {step} replaces {_names(theirs)}, which {who} changed: both sessions work there")


def with_sessions(
    store: Store, session: Session, root: Root, changes: tuple[ChangedFile, ...]
) -> tuple[ChangedFile, ...]:
    """The changed files, each with the session and the step that changed it, where another session did."""
    if not changes:
        return changes
    manifest = session.records.manifest if session.records is not None else {}
    known = {one.path: manifest.get(one.path, ev.FileState(path=one.path)) for one in changes}
    try:
        found = changes_by_others(store, session, restat(root, known))
    except AcodeError:  # a changed file is reported also where its author is unknown
        return changes
    return tuple(
        msgspec.structs.replace(one, session_id=found[one.path].session_id, step=found[one.path].step)
        if one.path in found
        else one
        for one in changes
    )


def author(change: ChangedFile) -> str:
    """The description of another session's step."""
    if change.session_id is None:
        return "somebody else"
    return f"step {change.step} of session {short(change.session_id)}"


def _by_step(found: Mapping[str, Change], states: Iterable[ev.FileState]) -> dict[str, list[ev.FileState]]:
    grouped: dict[str, list[ev.FileState]] = {}
    for state in states:
        grouped.setdefault(str(found[state.path]), []).append(state)
    return grouped


def _accepted(who: str, states: list[ev.FileState]) -> Iterator[ev.ChangesAccepted]:
    for at in range(0, len(states), IMAGES_IN_EVENT_MAX):
        yield ev.ChangesAccepted(files=tuple(states[at : at + IMAGES_IN_EVENT_MAX]), reason=who)


def _names(states: list[ev.FileState]) -> str:
    more = f" and {len(states) - PATHS_SHOWN_MAX} more" if len(states) > PATHS_SHOWN_MAX else ""
    return ", ".join(state.path for state in states[:PATHS_SHOWN_MAX]) + more


# The other logs.


def changes_by_others(store: Store, session: Session, states: Iterable[ev.FileState]) -> dict[str, Change]:
    """By path: the latest step of another session that left exactly this file."""
    wanted = {state.path: state for state in states}
    found: dict[str, Change] = {}
    if not wanted:
        return found
    for session_id in active_since(store, session.created_at):
        if session_id == session.session_id:
            continue
        try:
            changes = _changes_of(store, session_id, session.created_at, wanted)
        except AcodeError:
            continue  # its log is judged where that session is looked at
        for path, change in changes.items():
            if path not in found or found[path].at < change.at:
                found[path] = change
    return found


def _changes_of(
    store: Store, session_id: str, since: datetime, wanted: Mapping[str, ev.FileState]
) -> dict[str, Change]:
    if store.peek(session_id)[0].updated_at < since:
        return {}
    other = store.load(session_id).session
    manifest = other.records.manifest if other.records is not None else {}
    left = {path for path, state in wanted.items() if path in manifest and _is_same_file(manifest[path], state)}
    found = _recorded(store, session_id, left) if left else {}
    for flight in other.in_flight.values():
        for path, state in wanted.items():
            if path not in found and _is_making(other, flight, state):
                found[path] = Change(session_id=session_id, step=flight.started.step, at=flight.at)
    return found


def _is_same_file(recorded: ev.FileState, now: ev.FileState) -> bool:
    """Not only the same bytes: somebody else may have written those too."""
    fields = ("sha256", "mode") if now.sha256 is None else ("sha256", "mode", "size", "mtime_ns", "inode")
    return all(getattr(recorded, name) == getattr(now, name) for name in fields)


def _recorded(store: Store, session_id: str, paths: set[str]) -> dict[str, Change]:
    """The last step that changed each path, by the session's own log; none where it only read or accepted it."""
    found: dict[str, Change] = {}
    known: dict[str, tuple[str | None, int]] = {}
    begun: dict[str, ev.StepStarted] = {}
    for envelope, _, _ in store.events(session_id):
        event = envelope.event
        if isinstance(event, ev.StepStarted):
            begun[event.step] = event
            continue
        step = getattr(event, "step", None)
        for file in getattr(event, "files", ()):
            if file.path not in paths or known.get(file.path) == (file.sha256, file.mode):
                continue
            known[file.path] = (file.sha256, file.mode)
            found.pop(file.path, None)
            if step is not None and _changed(begun.get(step), file):
                found[file.path] = Change(session_id=session_id, step=step, at=envelope.at)
    return found


def _changed(started: ev.StepStarted | None, file: ev.FileState) -> bool:
    """Whether the step changed it. One that declares a whole directory also records what it left as it was."""
    if started is None or started.kind in LOOKING:
        return False
    before = next((image for image in started.before if image.path == file.path), None)
    return before is None or before.sha256 != file.sha256 or started.kind == "write"


def _is_making(other: Session, flight: InFlight, state: ev.FileState) -> bool:
    """Whether a step in flight announced this change: its completion is recorded only after the file is there."""
    started = flight.started
    if started.kind == "write":
        return any(image.path == state.path for image in started.before) and started.after_sha256 == state.sha256
    if started.kind != "run" or state.mtime_ns < flight.at.timestamp() * 1e9:
        return False
    outputs = declared_outputs(step_named(other, started.step))
    return bool(outputs) and Patterns(outputs)(state.path)
