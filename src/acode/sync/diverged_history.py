"""When two machines have written: show both tails, and let a person choose one. Nothing is ever merged.

The history that was not chosen is set aside, not destroyed: here in a backup of the database, there in a table of its
own. Choosing is a recorded decision.
"""

from __future__ import annotations

import msgspec

from acode.engine import owed_decisions
from acode.engine.world import World
from acode.errors import AcodeError, NewerSchema, UnreadableEvent
from acode.events import decode
from acode.events import types as ev
from acode.store import sync_cursor
from acode.store.journal import stamp
from acode.store.store import Store
from acode.sync.delivery import Delivery, own_here
from acode.sync.exchange import Contradiction
from acode.sync.outbox import describe_holder
from acode.sync.postgres import PostgresLedger
from acode.sync.protocol import Remote, common_seq
from acode.sync.signed_end import sign_end

TAIL_SHOWN_MAX = 20


class TailEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event behind the fork, as it claims to be; for eyes only."""

    seq: int
    at: str
    type: str
    step: str | None


class Tails(msgspec.Struct, frozen=True, kw_only=True):
    """The point where two histories diverge, and the events of each after it."""

    common: int
    here_seq: int
    there_seq: int
    holder: str
    here: tuple[TailEvent, ...]
    there: tuple[TailEvent, ...]


def common_with(store: Store, ledger: PostgresLedger, session_id: str, remote: Remote) -> int:
    """The last event that both logs share; 0 where the session is not here at all."""
    here = sync_cursor.last_seq(store, session_id) if store.has(session_id) else 0

    def same(seq: int) -> bool:
        return sync_cursor.code_at(store, session_id, seq) == ledger.code_at(session_id, seq)

    return common_seq(min(here, remote.seq), same)


def tails_of(store: Store, ledger: PostgresLedger, session_id: str) -> Tails | None:
    """Both tails behind the last common event; None where one log is the beginning of the other."""
    with ledger.transaction():
        remote = ledger.look(session_id)
        if remote is None:
            return None
        here_seq = sync_cursor.last_seq(store, session_id)
        common = common_with(store, ledger, session_id, remote)
        if common == min(here_seq, remote.seq):
            return None
        here = [(seq, body) for seq, _, body, _ in store.stored(session_id, common, TAIL_SHOWN_MAX)]
        last = min(remote.seq, common + TAIL_SHOWN_MAX)
        there = [(seq, body) for seq, body, _ in ledger.events(session_id, common, last)]
    return Tails(
        common=common,
        here_seq=here_seq,
        there_seq=remote.seq,
        holder=remote.holder,
        here=tuple(claimed(session_id, *row) for row in here),
        there=tuple(claimed(session_id, *row) for row in there),
    )


def claimed(session_id: str, seq: int, body: bytes) -> TailEvent:
    try:
        envelope = decode(body, session_id, seq)
    except (UnreadableEvent, NewerSchema) as error:
        return TailEvent(seq=0, at="", type=error.message[:80], step=None)
    step = getattr(envelope.event, "step", None)
    return TailEvent(seq=envelope.seq, at=stamp(envelope.at), type=envelope.type, step=step)


def choose_ours(world: World, delivery: Delivery, session_id: str, *, reason: str) -> int:
    """The history here stays: the lease becomes ours, what others wrote after the fork is set aside there."""
    store, ledger = delivery.store, delivery.ledger
    cursor = sync_cursor.cursor_of(store, session_id)
    if cursor.standing == "copy":
        raise AcodeError(f"session {session_id[-8:]} is only a copy here: it holds nothing that could be chosen")
    words = world.redactor.text(reason) or "none given"
    if not delivery.knows_owner(session_id):
        what = "continued on another server than the one that knew its owner"
        last = sync_cursor.last_seq(store, session_id)
        owed_decisions.decide_here(store, session_id, ev.Forced(what=what, reason=words), last)
        return 0  # where this server has another history, the next push finds it
    with ledger.transaction():
        remote = ledger.look(session_id)
        if remote is None:
            raise Contradiction("there is nothing to choose: the server does not know the session")
        common = common_with(store, ledger, session_id, remote)
        aside = ledger.set_aside(session_id, common, describe_holder(world))
        generation = max(remote.generation, cursor.generation) + 1
        what = f"the history here was chosen: {aside} events of {remote.holder or 'another machine'} were set aside"
        decision = ev.Forced(what=what, reason=words)
        owed_decisions.intend(store, session_id, generation, decision)
        head = sync_cursor.code_at(store, session_id, common) or b"" if common else b""
        lease = Remote(
            generation=generation,
            owner=delivery.node,
            last=delivery.node,
            seq=common,
            head=head,
            holder=describe_holder(world),
            signed=sign_end(store.keyring, session_id, common, head),
        )
        ledger.put(session_id, lease, new=False)
    own_here(store, session_id, generation, pushed_seq=common)
    return aside
