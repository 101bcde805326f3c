"""Remove sessions that ended long ago, and the leftovers of killed processes. First the collection is listed with its
size; then only the listed files and rows are removed. An unfinished session is never touched, nor one whose log cannot
be trusted: it may be needed as evidence. Where sessions are shared, one that the server is not known to hold whole goes
only when a person says so: the log here may be the only one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from acode import lock as locks
from acode import seal
from acode.engine.lease_state import sync_state
from acode.engine.workspace_store import has_database, opened
from acode.engine.world import World, short
from acode.errors import AcodeError, DiskFull, SessionLocked, Usage, WriteFailed
from acode.hints import Command, Hint
from acode.state import Session, State
from acode.store import removal, sync_cursor
from acode.store.blobs import LEFTOVER_AGE_S
from acode.store.store import DATABASE, Store

OLDER_THAN_DAYS = 30
DAYS_MAX = 36_500
ID_CHARS = 36
SESSIONS_AT_ONCE_MAX = 50  # each is locked until their one transaction has ended


class EndedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that ended long enough ago."""

    session_id: str
    title: str
    state: State
    ended_at: datetime
    bytes: int


class Litter(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of acode's that belongs to nothing any more."""

    kind: Literal["blob", "writing", "run", "lock", "backup", "anchor"]
    path: str
    bytes: int


class GcPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions and files to remove, and those passed over with the reason."""

    older_than_days: float
    sessions: tuple[EndedSession, ...] = ()
    secrets_of: tuple[str, ...] = ()  # ended sessions whose pre-images a crash kept from being removed
    litter: tuple[Litter, ...] = ()
    kept: tuple[str, ...] = ()
    unpushed: bool = False  # a person lets go what the shared copy does not have

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.sessions) + sum(one.bytes for one in self.litter)

    @property
    def empty(self) -> bool:
        return not (self.sessions or self.secrets_of or self.litter)


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    sessions: tuple[str, ...]
    files: int
    bytes: int
    kept: tuple[str, ...]


# Looking.


def plan_gc(world: World, *, older_than_days: float = OLDER_THAN_DAYS, unpushed: bool = False) -> GcPlan:
    """Plan a collection; nothing is changed. `unpushed`: also sessions that the shared copy does not have."""
    if not 0 <= older_than_days <= DAYS_MAX:
        raise Usage(f"--older-than {older_than_days}: expected a number of days from 0 to {DAYS_MAX}")
    if not has_database(world):
        return GcPlan(older_than_days=older_than_days)
    with opened(world, look_only=True) as store:
        return _plan(world, store, older_than_days, unpushed=unpushed)


def _plan(world: World, store: Store, days: float, *, unpushed: bool) -> GcPlan:
    before = world.clock() - timedelta(days=days)
    sessions: list[EndedSession] = []
    secrets: list[str] = []
    kept: list[str] = []
    for session_id in store.session_ids():
        try:
            session, _ = store.peek(session_id)
        except AcodeError as error:
            kept.append(f"{short(session_id)}: its log cannot be trusted ({error.code})")
            continue
        if not session.terminal:
            continue
        if session.updated_at < before:
            if problems := store.verify(session_id).problems:
                kept.append(f"{short(session_id)}: its log cannot be trusted ({problems[0].code})")
                continue
            if not unpushed and (owed := owed_to_others(world, store, session_id)):
                kept.append(f"{short(session_id)}: {owed.as_command()}")
                continue
            size = removal.bytes_of(store, session_id)
            sessions.append(
                EndedSession(
                    session_id=session_id,
                    title=session.title,
                    state=session.state,
                    ended_at=session.updated_at,
                    bytes=size,
                )
            )
        elif removal.holds_preimages(store, session_id):
            secrets.append(session_id)
    going = {one.session_id for one in sessions}
    return GcPlan(
        older_than_days=days,
        sessions=tuple(sessions),
        secrets_of=tuple(secrets),
        litter=tuple(_litter(world, store, going, before)),
        kept=tuple(kept),
        unpushed=unpushed,
    )


def owed_to_others(world: World, store: Store, session_id: str) -> Hint | None:
    """Why the session is not known to be safe elsewhere, where it should be, and what cures it."""
    state = sync_state(world, store, session_id)
    if state.status == "disabled":
        return None
    if state.pending_events == 0:  # the server had all of it once; it may have been restored from a backup since
        return world.missing_there(store, session_id)
    events = "1 event is" if state.pending_events == 1 else f"{state.pending_events} events are"
    if state.standing == "diverged":
        why = "{} only here, because another machine wrote another history ({})"
        return Hint(why, events, Command("sync status"))
    return Hint("{} not in the shared copy ({})", events, Command("sync now"))


def _litter(world: World, store: Store, going: set[str], before: datetime) -> Iterator[Litter]:
    """Files of sessions that are gone or going; young ones are left, they may belong to a process at work."""
    staying = set(store.session_ids()) - going
    now_s = world.clock().timestamp()
    agent_dir = world.agent_dir
    wanted = removal.files_wanted(store)
    for path in sorted(agent_dir.glob("blobs/**/*")):
        if (
            path.is_file()
            and not path.is_symlink()
            and path.name not in wanted
            and _age_s(path, now_s) > LEFTOVER_AGE_S
        ):
            kind: Literal["blob", "writing"] = "writing" if path.name.startswith(".writing-") else "blob"
            yield Litter(kind=kind, path=str(path.relative_to(agent_dir)), bytes=_size(path))
    for path in sorted(agent_dir.glob("run/*")):
        owner = path.name[:ID_CHARS]
        if path.is_dir() and _is_id(owner) and owner not in staying and _age_s(path, now_s) > LEFTOVER_AGE_S:
            yield Litter(kind="run", path=str(path.relative_to(agent_dir)), bytes=_size(path))
    for path in sorted(agent_dir.glob("locks/*")):
        owner = path.name[:ID_CHARS]
        if _is_id(owner) and owner not in staying and _age_s(path, now_s) > LEFTOVER_AGE_S:
            yield Litter(kind="lock", path=str(path.relative_to(agent_dir)), bytes=_size(path))
    for path in sorted(agent_dir.glob(f"{DATABASE}.*.bak")):
        if path.is_file() and _age_s(path, before.timestamp()) > 0:
            yield Litter(kind="backup", path=str(path.relative_to(agent_dir)), bytes=_size(path))


def _is_id(text: str) -> bool:
    return len(text) == ID_CHARS and text.count("-") == 4


def _age_s(path: Path, now_s: float) -> float:
    try:
        return now_s - path.lstat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            return sum(_size(Path(entry.path)) for entry in os.scandir(path))
        return path.lstat().st_size
    return 0


# Doing.


def collect(world: World, plan: GcPlan, progress: Callable[[int, int], None] = lambda done, total: None) -> Collected:
    """Remove what the plan says, some sessions at a time; what has changed since is looked at again.

    `progress` is told how many of the sessions were dealt with.
    """
    gone: list[str] = []
    kept = list(plan.kept)
    freed, files = 0, 0
    with opened(world, look_only=False) as store:
        traces = traces_by_session(world) if plan.sessions else {}
        for at in range(0, len(plan.sessions), SESSIONS_AT_ONCE_MAX):
            some = plan.sessions[at : at + SESSIONS_AT_ONCE_MAX]
            for one in _remove(world, store, some, kept, unpushed=plan.unpushed):
                remove_paths(traces.get(one.session_id, ()))
                gone.append(one.session_id)
                freed += one.bytes
            progress(at + len(some), len(plan.sessions))
        for session_id in plan.secrets_of:
            with contextlib.suppress(AcodeError), _alone(world, store, session_id):
                store.forget_preimages(session_id)
        # Listed again: the blobs of the removed sessions have no owner now.
        before = world.clock() - timedelta(days=plan.older_than_days)
        for litter in _still_litter(store, list(_litter(world, store, set(), before))):
            remove_paths([world.agent_dir / litter.path])
            files += 1
            freed += litter.bytes
        if gone:
            removal.shrink(store)
    return Collected(sessions=tuple(gone), files=files, bytes=freed, kept=tuple(kept))


def _still_litter(store: Store, found: list[Litter]) -> Iterator[Litter]:
    """Blobs come last, some at a time under the write lock: one without an owner may have one by now."""
    yield from (one for one in found if one.kind != "blob")
    blobs: dict[str, list[Litter]] = {}
    for one in found:
        if one.kind == "blob":
            blobs.setdefault(Path(one.path).name, []).append(one)
    for some in removal.nobodys(store, list(blobs)):
        for name in some:
            yield from blobs[name]


def _remove(
    world: World, store: Store, some: Sequence[EndedSession], kept: list[str], *, unpushed: bool
) -> list[EndedSession]:
    """These sessions in one transaction; those that went. `kept` is told why another one stays.

    The anchors go first: without one a session that is still there is only warned about, never taken for lost.
    """
    going: list[EndedSession] = []
    own_locks: list[Path] = []
    with contextlib.ExitStack() as stack:
        for one in some:
            try:
                own_locks.append(stack.enter_context(_alone(world, store, one.session_id)))
                session = _still_removable(world, store, one.session_id, unpushed=unpushed)
            except (DiskFull, WriteFailed):
                raise  # the disk failed under it: nothing more is tried on this connection, and nothing is called done
            except AcodeError as error:
                kept.append(f"{short(one.session_id)}: {error.message}")
                continue
            keep_its_end(world, store, session)
            seal.forget_anchor(world.state_dir, world.workspace, one.session_id)
            going.append(one)
        files = [sha256 for one in going for sha256 in store.file_blobs(one.session_id)]
        removal.remove_sessions(store, [one.session_id for one in going])
        for unnamed in removal.nobodys(store, files):
            for sha256 in unnamed:
                store.blobs.remove(sha256)
    # The files of the locks may go now: a process that waits for one finds that the session is gone, and holds nothing.
    ids = {one.session_id for one in going}
    remove_paths(path for path in own_locks if path.name[:ID_CHARS] in ids)
    return going


def _still_removable(world: World, store: Store, session_id: str, *, unpushed: bool) -> Session:
    session, _ = store.peek(session_id)
    if not session.terminal:
        raise Usage(f"session {short(session_id)} has not ended")
    if not unpushed and (owed := owed_to_others(world, store, session_id)):
        raise Usage(owed.as_command())
    return session


def traces_by_session(world: World) -> dict[str, list[Path]]:
    """Files of locks and notes of commands by the session whose id they begin with; each directory is read once."""
    found: dict[str, list[Path]] = {}
    for name in ("locks", "run"):
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(world.agent_dir / name):
                if _is_id(owner := entry.name[:ID_CHARS]):
                    found.setdefault(owner, []).append(Path(entry.path))
    return found


def remove_paths(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def keep_its_end(world: World, store: Store, session: Session) -> None:
    """How far it had come stays known: a server restored from a backup would offer an older state as the whole."""
    anchor = seal.Anchor(
        session_id=session.session_id,
        seq=session.seq,
        head=(sync_cursor.code_at(store, session.session_id, session.seq) or b"").hex(),
        title=session.title,
        workspace=str(world.workspace),
        at=session.updated_at,
        ended=True,
    )
    if world.config.settings.sync.url is not None:
        seal.keep_collected(world.state_dir, anchor)


@contextlib.contextmanager
def _alone(world: World, store: Store, session_id: str) -> Iterator[Path]:
    """While nobody else can hold the session; the file of its lock."""
    try:
        lock, generation = locks.acquire(
            world.agent_dir / "locks", session_id, lambda: store.generation(session_id), now=world.clock
        )
    except FileNotFoundError as error:
        raise SessionLocked(f"the lock of session {short(session_id)} cannot be made") from error
    try:
        yield world.agent_dir / "locks" / f"{session_id}.{generation}"
    finally:
        lock.release()
