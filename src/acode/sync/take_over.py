"""Pull a session that another machine wrote: to look at it, or to resume it here.

Rows come down as they stand and are verified with the keys of this machine before one of them is kept. The lease comes
last: a machine that cannot prove the log does not get it. Files that the session wrote there are compared with those
here; files whose content the session holds can be restored, after a person was asked.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import msgspec

from acode import seal
from acode.engine import owed_decisions
from acode.engine.held_session import held
from acode.engine.lease_state import offline_reason, server_id
from acode.engine.session_place import find_place
from acode.engine.workspace_store import CANDIDATES_MAX, opened
from acode.engine.world import World, short
from acode.errors import LeaseLost, LogRolledBack, SyncFailed, UnknownSession
from acode.events import types as ev
from acode.events.definition import Write
from acode.hints import Command, Hint
from acode.seal import Anchor
from acode.state import Session
from acode.store import sync_cursor
from acode.store.imported_rows import Arrival, take_in
from acode.store.session_index import find_session
from acode.store.store import Store
from acode.sync.delivery import PUSH_NOW, Delivery, as_error, own_here
from acode.sync.diverged_history import common_with, tails_of
from acode.sync.exchange import Pushed
from acode.sync.outbox import alone, describe_holder, doubted_since_s, node_of
from acode.sync.postgres import PostgresLedger, SharedSession
from acode.sync.protocol import (
    Bring,
    Cut,
    Diverged,
    Doubtful,
    Elsewhere,
    Fenced,
    Keep,
    Remote,
    Take,
    UpToDate,
    decide_pull,
    decide_take,
    in_doubt,
)
from acode.sync.push_now import connected
from acode.sync.signed_end import read_end
from acode.workspace import ChangedFile, Root, changed, write_atomic

ROUNDS_MAX = 5  # an owner that is taken over by force may write on until its lease is gone


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that were pulled, and the state of the lease."""

    session_id: str
    events: int
    last_seq: int
    generation: int
    owned: bool
    changed_hands: bool = False
    forced_from: str | None = None
    expired: bool = False  # it was taken from somebody whose lease had ended
    aside: int = 0
    backup: str | None = None
    lost: int = 0  # events that were recorded here once, and were never pushed
    ended: bool = False
    unanchored: bool = False  # this machine did not know how far it had come: a log cut short would not be noticed


class Taking(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants of a session besides its rows, and by what right."""

    own: bool
    force: bool = False
    take_over: bool = False
    reason: str = "none given"


class FileHere(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not what the session left on the other machine; `known`: its content can be put here."""

    path: str
    change: str
    known: bool


def shared_sessions(world: World) -> list[SharedSession]:
    with connected(world) as ledger:
        return ledger.sessions()


def bring(
    world: World, text: str, *, own: bool, force: bool = False, reason: str = "", take_over: bool = False
) -> Brought:
    """The session named `text` as the server has it; `own`: take its lease too, to resume it here. `take_over`: also
    from an owner whose lease has ended; it means nothing else that `force` means."""
    with connected(world) as ledger, opened(world, look_only=False, create=True) as store:
        send_ours_first(store, Delivery(world, store, ledger), text)
        session_id = find_session(ledger.named_by(text) or ledger.latest_ids(CANDIDATES_MAX)[::-1], text)
        with alone(world, store, session_id):
            words = world.redactor.text(reason) or "none given"
            how = Taking(own=own, force=force, take_over=take_over, reason=words)
            brought = fetch(world, store, ledger, session_id, how)
            lost = never_pushed(world, session_id, sync_cursor.last_seq(store, session_id))
            anchor = find_place(world, session_id).anchor
            brought = msgspec.structs.replace(
                brought,
                lost=lost,
                ended=store.peek(session_id)[0].terminal,
                unanchored=anchor is None or anchor.arrived,
            )
            owes_words = bool(owed_decisions.of(sync_cursor.cursor_of(store, session_id)).done)
    # Nothing is written on a log of which the end is lost, until a person has accepted that; nor on another's.
    if owes_words and brought.owned and not lost:
        with held(world, session_id, ended_ok=True):
            pass  # its holder reports the pending rows
    return brought


def send_ours_first(store: Store, delivery: Delivery, text: str) -> None:
    """Push the pending rows before anything is pulled; another history in the way is met later."""
    lost = delivery.find_lost()
    try:
        session_id = find_session(store.session_ids(), text)
    except UnknownSession:
        return
    cursor, last = delivery.cursor(session_id), sync_cursor.last_seq(store, session_id)
    if (last > cursor.pushed_seq or session_id in lost) and cursor.standing in sync_cursor.HOLDERS:
        sync_cursor.make_durable(store)
        done = delivery.deliver(session_id, last)
        if isinstance(done, Pushed) and done.seq < last:
            raise SyncFailed(f"events of session {short(session_id)} are still pending here")


# Rows.


def fetch(world: World, store: Store, ledger: PostgresLedger, session_id: str, how: Taking) -> Brought:
    """Come level with the server, then take the lease; if somebody wrote in between, once more."""
    node, events, aside, backup = node_of(world.state_dir, world.workspace), 0, 0, None
    doubt: ev.Forced | None = None
    for _ in range(ROUNDS_MAX):
        remote = looked(store, ledger, session_id)
        refuse_lease(session_id, node, remote, how)
        refuse_older(world, ledger, session_id, remote)
        doubt = doubt or settle_doubt(world, store, ledger, session_id, remote)
        plan = planned(store, ledger, session_id, remote, force=how.force, keep_ahead=how.own)
        if isinstance(plan, Bring):
            if plan.aside:
                aside, backup = plan.aside, store.back_up()
            given_up = set_aside(plan, how.reason)
            events += come_down(
                world, store, ledger, remote, session_id=session_id, plan=plan, node=node, given_up=given_up
            )
        if not how.own or store.peek(session_id)[0].terminal:  # what has ended needs no owner
            return Brought(
                session_id=session_id,
                events=events,
                last_seq=sync_cursor.last_seq(store, session_id),
                generation=remote.generation,
                owned=remote.owner == node,
                aside=aside,
                backup=backup.name if isinstance(backup, Path) else None,
            )
        taken = take_lease(world, store, ledger, session_id, how, doubt=doubt)
        if taken is not None:
            if not find_place(world, session_id).own:  # a copy that has got the lease is none any more
                anchor_arrival(world, store, session_id, chosen=False)
            return msgspec.structs.replace(
                taken, events=events, aside=aside, backup=backup.name if isinstance(backup, Path) else None
            )
    raise SyncFailed(f"session {short(session_id)} is being written all the time: it cannot be taken over now")


def looked(store: Store, ledger: PostgresLedger, session_id: str) -> Remote:
    with ledger.transaction():
        remote = ledger.look(session_id)
        if remote is None or remote.seq == 0:
            raise SyncFailed(f"the server holds no events of session {short(session_id)}")
        refuse_cut(store, ledger, session_id, remote)
    return remote


def refuse_cut(store: Store, ledger: PostgresLedger, session_id: str, remote: Remote) -> None:
    """The signed end must be there: a log that was cut off before it looks whole in itself."""
    end = read_end(store.keyring, session_id, remote.signed)
    if end is None:
        return
    there = ledger.code_at(session_id, end.seq) if remote.seq >= end.seq else None
    if there is None or there.hex() != end.head:
        raise as_error(session_id, Cut(seq=remote.seq, signed=end.seq))


def refuse_lease(session_id: str, node: str, remote: Remote, how: Taking) -> None:
    if not how.own:
        return
    verdict = decide_take(node, remote, force=how.force, take_over=how.take_over)
    if not isinstance(verdict, Fenced):
        return
    name, ends_in_s = short(session_id), remote.ends_in_s()
    if ends_in_s is None:
        said = f"session {name} is owned by {remote.holder}, which has not given it back"
        hint = Hint(
            "Pause it there, or let it end. If that machine is gone: {} (what it does meanwhile cannot be prevented;"
            " the decision is recorded)",
            Command("resume SESSION --remote --force"),
            of=name,
        )
    else:
        said = f"session {name} is owned by {remote.holder}, a worker of a fleet, until its lease ends"
        when = f"in {math.ceil(ends_in_s)} s, unless it is renewed" if ends_in_s else "now"
        hint = Hint(f"Its lease ends {when}; then: {{}}", Command("resume SESSION --take-over"), of=name)
    raise LeaseLost(
        f"{said} (last heard of at {remote.heard_at})", hint=hint, holder=remote.holder, lease_ends_in_s=ends_in_s
    )


def refuse_older(world: World, ledger: PostgresLedger, session_id: str, remote: Remote) -> None:
    """A session that was collected here once: the server must still have all of it, or finished steps run again."""
    anchor = seal.read_collected(world.state_dir, session_id)
    if anchor is None:
        return
    there = ledger.code_at(session_id, anchor.seq) if remote.seq >= anchor.seq else None
    if there is None or there.hex() != anchor.head:
        raise LogRolledBack(
            f"session {short(session_id)} had come to event {anchor.seq} when it was collected here; the server has"
            f" {remote.seq} events of it: it was restored from an older backup",
            hint=Hint("Push it again from a machine that has all of it: {}", PUSH_NOW),
            seq=remote.seq,
            anchor=anchor.seq,
        )


def settle_doubt(
    world: World, store: Store, ledger: PostgresLedger, session_id: str, remote: Remote
) -> ev.Forced | None:
    """A server that was restored from a backup, or is another one, may not know the machine that continued a session:
    a person must decide.
    """
    server = server_id(ledger.url)
    owned = store.has(session_id) and sync_cursor.cursor_of(store, session_id).standing == "owner"
    owned = owned and find_place(world, session_id).original is None  # a copy has its original's standing
    free = remote.owner in (None, node_of(world.state_dir, world.workspace))
    known = not store.has(session_id) or Delivery(world, store, ledger).knows_owner(session_id)
    doubted = in_doubt(doubted_since_s(world.state_dir, server), remote)
    if owned or not free or (known and not doubted):
        return None
    why = as_error(session_id, Doubtful(seq=remote.seq, pushed=0) if known else Elsewhere()).message
    stated = (
        f"session {short(session_id)} was given back: another machine may have continued it since, and the"
        f" server does not know ({why})"
    )
    reason = offline_reason(world, stated)
    return ev.Forced(what=f"taken over although the server did not know its owner ({why})", reason=reason)


def planned(
    store: Store, ledger: PostgresLedger, session_id: str, remote: Remote, *, force: bool, keep_ahead: bool
) -> Bring | UpToDate:
    here = sync_cursor.last_seq(store, session_id) if store.has(session_id) else 0
    common = common_with(store, ledger, session_id, remote)
    plan = decide_pull(here, remote, common=common, force=force, keep_ahead=keep_ahead)
    if isinstance(plan, Diverged):
        error = as_error(session_id, plan)
        tails = tails_of(store, ledger, session_id)
        error.details["tails"] = msgspec.to_builtins(tails)
        raise error
    return plan


def set_aside(plan: Bring, reason: str) -> ev.Forced | None:
    what = f"the shared history was chosen: {plan.aside} events of this machine were set aside"
    return ev.Forced(what=what, reason=reason) if plan.aside else None


def come_down(
    world: World,
    store: Store,
    ledger: PostgresLedger,
    remote: Remote,
    *,
    session_id: str,
    plan: Bring,
    node: str,
    given_up: ev.Forced | None,
) -> int:
    """Rows, their seals and blobs, in one transaction here; how many events came."""
    known = store.has(session_id)
    present = set(store.blob_purposes(session_id)) if known else set()
    ours = remote.owner == node
    # Looking at a session is not holding it: its generation becomes ours with the lease, not with the rows.
    before = sync_cursor.cursor_of(store, session_id)
    held = remote.generation if ours else before.generation
    span = (session_id, plan.after, remote.seq)
    arrival = Arrival(
        session_id=session_id,
        after=plan.after,
        events=ledger.events(*span),
        checkpoints=ledger.checkpoints(*span),
        snapshots=ledger.snapshots(*span),
        blobs=(
            (sha256, purpose, ledger.blob(sha256))
            for sha256, purpose in ledger.blobs(session_id)
            if (sha256, purpose) not in present and purpose in sync_cursor.SHARED
        ),
    )

    def cursor(last: int) -> sync_cursor.Cursor:
        arrived = sync_cursor.Cursor(
            session_id=session_id,
            server=server_id(ledger.url),
            pushed_seq=last,
            taken_seq=last,
            generation=held,
            standing="owner" if ours else "copy",
            holder="" if ours else remote.holder,
            attempted_at=world.clock(),
        )
        return owed_decisions.after_arrival(arrived, before, last, given_up)

    last = take_in(store, arrival, cursor)
    anchor_arrival(world, store, session_id, chosen=plan.aside > 0)
    return last - plan.after


def anchor_arrival(world: World, store: Store, session_id: str, *, chosen: bool) -> None:
    """An anchor that knows more than came down stays, unless a person chose what came down: where the database was lost
    with events that were never pushed, steps may be done that nobody knows of, and that is for a repair to accept."""
    directory = seal.anchor_directory(world.state_dir, world.workspace)
    loaded = store.load(session_id)
    session = loaded.session
    if not chosen and never_pushed(world, session_id, session.seq):
        return
    known = find_place(world, session_id).anchor or seal.read_collected(world.state_dir, session_id)
    seal.note_place(world.state_dir, world.workspace, session_id)
    seal.write_anchor(
        directory,
        Anchor(
            session_id=session_id,
            seq=session.seq,
            head=loaded.head.hex(),
            title=session.title,
            workspace=str(world.workspace),
            at=session.updated_at,
            ended=session.terminal,
            arrived=known is None or known.arrived,
        ),
        durable=True,
    )


def never_pushed(world: World, session_id: str, last_seq: int) -> int:
    """How many events were recorded on this machine that are neither here any more nor in the shared copy."""
    anchor = seal.read_anchor(seal.anchor_directory(world.state_dir, world.workspace), session_id)
    return max(0, anchor.seq - last_seq) if anchor is not None else 0


def take_lease(
    world: World, store: Store, ledger: PostgresLedger, session_id: str, how: Taking, *, doubt: ev.Forced | None
) -> Brought | None:
    """Ours, if nobody has written since we looked; None: look again."""
    node = node_of(world.state_dir, world.workspace)
    last, cursor = sync_cursor.last_seq(store, session_id), sync_cursor.cursor_of(store, session_id)
    before = cursor.standing
    with ledger.transaction():
        remote = ledger.look(session_id)
        if remote is None or remote.head != sync_cursor.code_at(store, session_id, remote.seq):
            return None
        verdict = decide_take(node, remote, force=how.force, known=cursor.generation, take_over=how.take_over)
        if isinstance(verdict, Fenced):
            return None  # another machine was faster; the next look refuses it with a message
        if isinstance(verdict, Take):
            decision = doubt or taken(world, verdict, new_here=before not in sync_cursor.HOLDERS, reason=how.reason)
            if decision is not None:
                owed_decisions.intend(store, session_id, verdict.generation, decision)
            lease = msgspec.structs.replace(
                remote,
                generation=verdict.generation,
                owner=node,
                last=node,
                holder=describe_holder(world),
                lease_s=world.lease.seconds if world.lease is not None else None,
            )
            ledger.put(session_id, lease, new=False)
        elif world.lease is not None:  # what is taken again runs from now on here: let it do so on the server too
            ledger.put(session_id, remote, new=False)
    own_here(store, session_id, verdict.generation, pushed_seq=remote.seq)
    if doubt is not None and isinstance(verdict, Keep):
        owed_decisions.decide_here(store, session_id, doubt, last)
    return Brought(
        session_id=session_id,
        events=0,
        last_seq=last,
        generation=verdict.generation,
        owned=True,
        changed_hands=isinstance(verdict, Take) and before not in sync_cursor.HOLDERS,
        forced_from=None if isinstance(verdict, Keep) else verdict.forced_from,
        expired=isinstance(verdict, Take) and verdict.expired,
    )


def taken(world: World, verdict: Take, *, new_here: bool, reason: str) -> owed_decisions.Decision | None:
    """A lease that was taken from another machine, by whatever right, is an event of the session."""
    data = {"generation": verdict.generation, "holder": describe_holder(world)}
    if verdict.expired:
        what = f"taken over from {verdict.forced_from}, whose lease had ended"
        return ev.Noted(what=what, data=data)
    if verdict.forced_from is not None:
        return ev.Forced(what=f"taken over from {verdict.forced_from}, which had not given it back", reason=reason)
    if not new_here:
        return None
    return ev.Noted(what="taken over from another machine", data=data)


# Files.


def files_here(world: World, session_id: str) -> list[FileHere]:
    """Files that the session wrote or read elsewhere and that are not the same here."""
    with opened(world, look_only=True) as store, Root(world.workspace) as root:
        session = store.load(session_id).session
        return [
            FileHere(path=one.path, change=one.change, known=content_of(store, session, one) is not None)
            for one in changed(root, manifest(session))
        ]


def put_files_here(world: World, session_id: str, paths: list[str]) -> list[str]:
    """Put files that are missing here as the session left them there. A file that stands here is never touched."""
    done = []
    with opened(world, look_only=True) as store, Root(world.workspace) as root:
        session = store.load(session_id).session
        for one in changed(root, manifest(session)):
            content = content_of(store, session, one) if one.path in paths else None
            if content is not None:
                mode = manifest(session)[one.path].mode or None
                write_atomic(root, one.path, content, mode, f"{session_id}:take-over")
                done.append(one.path)
    return done


def manifest(session: Session) -> dict[str, ev.FileState]:
    return session.records.manifest if session.records is not None else {}


def content_of(store: Store, session: Session, file: ChangedFile) -> bytes | None:
    """The content that a step left, if the file is missing here and the session expects that content: it is in the
    plan, or came with the session."""
    if file.change != "deleted":
        return None
    if file.expected_hash is not None and store.has_blob(session.session_id, file.expected_hash):
        return store.blob(session.session_id, file.expected_hash)
    for step in session.steps() if session.plan is not None else ():
        if isinstance(step.action, Write) and step.action.path == file.path:
            data = step.action.content.encode()
            if hashlib.sha256(data).hexdigest() == file.expected_hash:
                return data
    return None
