"""Open the workspace's store and name its sessions; all that a list of them needs, and nothing heavier.

A lost database is an error that says what was lost, never an empty workspace.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator

import msgspec

from acode import seal
from acode.engine.world import World, short
from acode.errors import (
    ACCEPT_ROLLBACK,
    AcodeError,
    CheckpointMissing,
    DatabaseCorrupt,
    DiskFull,
    LogRolledBack,
    NoResumableSession,
    NotWritable,
    StoreBusy,
    StoreUnusable,
    UnknownSession,
    WriteFailed,
)
from acode.events import types as ev
from acode.hints import Command, Hint
from acode.seal import Anchor
from acode.state import Session
from acode.state.source import FOREIGN_RUN
from acode.store import session_index
from acode.store.session_index import ID_PART_CHARS_MIN, find_session, is_named_by
from acode.store.store import DATABASE, Store, refuse_unreadable
from acode.store.strange_files import refuse_strange_files

CANDIDATES_MAX = 5  # shown to a person who has mistyped an id

# None of these errors concerns a log: it may be readable in the next moment.
OF_THE_DATABASE = (DatabaseCorrupt, DiskFull, NotWritable, StoreBusy, StoreUnusable, WriteFailed)


def has_database(world: World) -> bool:
    """An empty file is none: its creator was killed, or somebody emptied it, and the anchors know which."""
    refuse_unreadable(world.agent_dir)
    path = world.agent_dir / DATABASE
    refuse_strange_files(path)
    return path.exists() and path.stat().st_size > 0


class SharedStore:
    """The one store of a command that looks more than once: opened by the first look, closed at the end.

    Only for the thread that began to share: a connection is never used by two threads at once.
    """

    def __init__(self, stack: contextlib.ExitStack, *, look_only: bool) -> None:
        self._stack = stack
        self._look_only = look_only
        self._thread = threading.get_ident()
        self._store: Store | None = None

    def serves(self, *, look_only: bool) -> bool:
        """A store that was opened to look cannot write."""
        return (look_only or not self._look_only) and threading.get_ident() == self._thread

    def get(self, world: World, *, create: bool) -> Store:
        if self._store is None or not self._store.usable:  # after an error of the disk a run opens it again itself
            self._store = self._stack.enter_context(_opened(world, look_only=self._look_only, create=create))
        return self._store


@contextlib.contextmanager
def share_store(world: World, *, look_only: bool) -> Iterator[World]:
    """A world in which all that is opened in this thread is one store."""
    with contextlib.ExitStack() as stack:
        yield msgspec.structs.replace(world, shared_store=SharedStore(stack, look_only=look_only))


@contextlib.contextmanager
def opened(world: World, *, look_only: bool, create: bool = False) -> Iterator[Store]:
    """The workspace's store; a lost database is an error that says what was lost, not an empty workspace."""
    if world.shared_store is not None and world.shared_store.serves(look_only=look_only):
        with world.shared_store.get(world, create=create).lent() as store:
            yield store
        return
    with _opened(world, look_only=look_only, create=create) as store:
        yield store


@contextlib.contextmanager
def _opened(world: World, *, look_only: bool, create: bool) -> Iterator[Store]:
    if not has_database(world):
        lost = known_anchors(world)
        if lost and not create:
            raise lost_error(world, lost)
        if not create:
            raise none_here(world)
    if create:
        from acode.workspace import Root, ensure_agent_dir

        with Root(world.workspace) as root:
            ensure_agent_dir(root)
    keyring = seal.load_keyring(world.state_dir, world.env, create=not look_only)
    store = Store(world.agent_dir, keyring, clock=world.clock, new_id=world.new_id, look_only=look_only)
    with store:
        yield store


def none_here(world: World) -> NoResumableSession:
    return NoResumableSession(f"there is no session in this workspace, {world.workspace}")


def known_anchors(world: World) -> list[Anchor]:
    return list(seal.all_anchors(seal.anchor_directory(world.state_dir, world.workspace)))


def anchored_ids(world: World) -> list[str]:
    return seal.anchor_names(seal.anchor_directory(world.state_dir, world.workspace))


def anchor_of(world: World, session_id: str) -> Anchor | None:
    return seal.read_anchor(seal.anchor_directory(world.state_dir, world.workspace), session_id)


def lost_anchors(world: World, store: Store, session_ids: Iterable[str]) -> list[Anchor]:
    """The anchors of those among these sessions whose rows are gone."""
    found = (anchor_of(world, one) for one in session_ids if not store.has(one))
    return [anchor for anchor in found if anchor is not None]


def lost_error(world: World, anchors: list[Anchor]) -> LogRolledBack:
    what = "; ".join(f"{short(one.session_id)} “{one.title}” at event {one.seq}" for one in anchors[:5])
    shared = Hint(", or the sessions from the shared copy: {}", Command("pull ID"))
    return LogRolledBack(
        f"the database of {world.workspace} is gone, but sessions were recorded here: {what}",
        hint=Hint(
            "Bring .agent/ back from a backup{}, or let them go: {}",
            shared if world.config.settings.sync.url else "",
            ACCEPT_ROLLBACK,
        ),
        sessions=[one.session_id for one in anchors],
    )


def refuse_lost(world: World) -> None:
    """A database that is gone may have held an unfinished session of what is to be begun, unless all had ended."""
    lost = [anchor for anchor in known_anchors(world) if not anchor.ended]
    if lost:
        raise lost_error(world, lost)


def resolve_id(world: World, store: Store, text: str) -> str:
    """A session by id, prefix or suffix; one that only an anchor remembers was lost, and that is said.

    A whole id or short id is looked up and nothing else is read; any other part might be that of a lost session.
    """
    found = session_index.named_by(store, text)
    if len(found) == 1 and text.strip().lower() in (found[0], short(found[0])):
        return found[0]
    lost = lost_anchors(world, store, [one for one in anchored_ids(world) if is_named_by(one, text)])
    if any(text in (one.session_id, short(one.session_id)) for one in lost):
        raise lost_error(world, lost)
    try:
        return find_session(found or session_index.latest(store, CANDIDATES_MAX), text)
    except UnknownSession as unknown:
        if lost and not found:
            raise lost_error(world, lost) from None
        native_session = native_session_of(store, text)
        if native_session is None and len(text.strip()) < ID_PART_CHARS_MIN:
            raise too_short(text, unknown.details.get("candidates", [])) from None
        if native_session is None:
            raise
        return native_session.session_id


def too_short(text: str, candidates: list[str]) -> UnknownSession:
    there = f"; there are: {', '.join(map(short, candidates))}" if candidates else ""
    return UnknownSession(
        f"no session is named by “{text}”: it takes {ID_PART_CHARS_MIN} or more characters of its id{there}",
        candidates=candidates,
    )


def named_by_log(store: Store, session_id: str) -> Session:
    """Where its checkpoints are gone, the log still names the run: a resume is refused, no second session begun."""
    try:
        return store.peek(session_id)[0]
    except CheckpointMissing:
        return store.load_log(session_id).session


def native_session_of(store: Store, run_id: str, source: str | None = None) -> Session | None:
    """The native session of the foreign run with this id, or a unique part of it; an unfinished one before others.

    One whose log cannot be trusted is refused where `source` is given: a second session would be begun beside it, and
    repeat its steps. Otherwise the caller that names it decides.
    """
    known: list[Session] = []
    for session_id in reversed(store.session_ids()):
        try:
            session = named_by_log(store, session_id)
        except OF_THE_DATABASE:  # it may be the carrier: a second one would be begun beside it
            raise
        except AcodeError:
            if source is not None and may_be(store, session_id, lambda first: is_native_of(first, run_id, source)):
                raise
            continue
        if session.steps_from.carries_run and source in (None, session.source):
            known.append(session)
    found = [one for one in known if one.run_id == run_id]
    if not found and source is None and len(run_id) >= ID_PART_CHARS_MIN:
        found = [one for one in known if one.run_id.startswith(run_id) or one.run_id.endswith(run_id)]
    if len({(one.source, one.run_id) for one in found}) != 1:
        return None
    return next((one for one in found if not one.terminal), found[0])


def is_native_of(created: ev.SessionCreated, run_id: str, source: str) -> bool:
    return (created.kind, created.source, created.task) == (FOREIGN_RUN.kind, source, run_id)


def may_be(store: Store, session_id: str, fits: Callable[[ev.SessionCreated], bool]) -> bool:
    """By its first event, which is verified by itself; where that cannot be trusted either, it may be anybody's."""
    try:
        created = next(iter(store.events(session_id)))[0].event
    except OF_THE_DATABASE:
        raise
    except (AcodeError, StopIteration):
        return True
    return isinstance(created, ev.SessionCreated) and fits(created)
