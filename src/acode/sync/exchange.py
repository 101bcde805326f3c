"""One exchange with the server: look, decide, write, in one transaction there.

The same few lines run against PostgreSQL and against the simulation that tests them. An answer that is lost changes
nothing: the next exchange begins with a look, and finds what the lost one has written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from acode.store.row_check import Stored
from acode.sync.protocol import Cut, Doubtful, Mine, Refusal, Remote, Write, decide, fits, lost_by_server, may_release
from acode.sync.signed_end import SignedEnd


class Ledger(Protocol):
    """The server's side, within one transaction; `look` keeps others away from the session until its end."""

    def transaction(self) -> AbstractContextManager[object]: ...
    def look(self, session_id: str) -> Remote | None: ...
    def code_at(self, session_id: str, seq: int) -> bytes | None: ...
    def append(self, session_id: str, batch: Batch) -> int: ...  # how many events were new
    # Lease and anchor. `renewed`: its holder sent it; False where another machine restores rows that the server has
    # lost.
    def put(self, session_id: str, remote: Remote, *, new: bool, renewed: bool = True) -> None: ...


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive events as they are stored, and what was made for them."""

    events: Sequence[Stored] = ()
    checkpoints: Sequence[tuple[int, bytes, bytes]] = ()
    snapshots: Sequence[tuple[int, bytes, bytes]] = ()


class Outbox(Protocol):
    """Our side: the log of one session."""

    def code_at(self, seq: int) -> bytes | None: ...
    def batch(self, after: int) -> Batch: ...  # what may be sent of it, a limited part
    def sign(self, seq: int, head: bytes) -> bytes | None: ...  # that the log has come so far; for those without it
    def signed_end(self, signed: bytes | None) -> SignedEnd | None: ...


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """The position that the server holds now; this machine may continue."""

    generation: int
    seq: int
    sent: int
    lost: bool = False  # the server had less than it was seen to have


class Contradiction(Exception):
    """Somebody else wrote there at the same time, or behind the rules: look again before anything is written."""


def push(ledger: Ledger, session_id: str, mine: Mine, outbox: Outbox, *, holder: str) -> Pushed | Refusal:
    """The next batch; an empty one still takes or confirms the lease."""
    with ledger.transaction():
        remote = ledger.look(session_id)
        same = fits(mine, remote, outbox.code_at, lambda seq: ledger.code_at(session_id, seq))
        verdict = decide(mine, remote, fits=same)
        if not isinstance(verdict, Write):
            return verdict
        # Our log holds all that is there. Events that are missing from both were done by another machine, and would be
        # repeated.
        end = outbox.signed_end(remote.signed) if remote is not None else None
        if remote is not None and end is not None and outbox.code_at(end.seq) != bytes.fromhex(end.head):
            return Cut(seq=remote.seq, signed=end.seq)
        batch = outbox.batch(verdict.after)
        seq, head = (remote.seq, remote.head) if remote else (0, b"")
        if batch.events:
            seq, head = batch.events[-1][0], batch.events[-1][3]
        lease = Remote(
            generation=verdict.generation,
            owner=None if verdict.refill else mine.node,
            last=mine.node,
            seq=seq,
            head=head,
            holder=holder,
            signed=outbox.sign(seq, head),
        )
        # The session's row first: its events refer to it.
        ledger.put(session_id, lease, new=remote is None, renewed=not verdict.refill)
        if batch.events and ledger.append(session_id, batch) != len(batch.events):
            raise Contradiction(f"events past {verdict.after} of session {session_id} are there already")
        if verdict.refill:
            return Doubtful(seq=seq, pushed=mine.pushed, lost=True, sent=len(batch.events))
        lost = lost_by_server(mine, remote)
        return Pushed(generation=verdict.generation, seq=seq, sent=len(batch.events), lost=lost)


def release(
    ledger: Ledger, session_id: str, mine: Mine, *, head: bytes | None, note: Callable[[], object] = lambda: None
) -> bool:
    """Give the lease back, where everything is there up to our end, `head`; whether it was ours to give.

    `note` is called right before the commit: from then on others may have the session, whether we hear of it or not.
    """
    with ledger.transaction():
        remote = ledger.look(session_id)
        if remote is None or not may_release(mine, remote, head=head):
            return False
        ledger.put(session_id, msgspec.structs.replace(remote, owner=None, last=mine.node), new=False)
        note()
        return True
