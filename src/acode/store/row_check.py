"""Judge a log row by row: which rows can be believed, which cannot, and which are missing.

A load stops at the first bad row. This continues, for callers that want to see everything: verification, repair, a
bundle. It believes nothing itself; an unverified row's content is handed on only as what the row claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from acode import seal
from acode.errors import AcodeError, ChainBroken, KeyMissing, NewerSchema, UnreadableEvent
from acode.events import Envelope, covered, decode
from acode.seal import GENESIS, Keyring
from acode.state import AcceptedPast, Session

Stored = tuple[int, str, bytes, bytes]  # seq, the session it is filed under, body, code


class Keys(Protocol):
    def key(self, key_id: str) -> bytes: ...


class SessionKeys:
    """The keys of one session's rows: one that names none is signed with the key of the first."""

    def __init__(self, keyring: Keyring, session_id: str, first_row: Callable[[], bytes | None]) -> None:
        self._keyring = keyring
        self.session_id = session_id
        self._first_row = first_row
        self._first_id: str | None = None

    def key(self, key_id: str) -> bytes:
        return self._keyring.key(key_id or self.first_id)

    @property
    def first_id(self) -> str:
        """Claimed by the first row, and proved with it. Where that cannot be read, the key of today finds out."""
        if self._first_id is None:
            body = self._first_row()
            if body is None:
                return self._keyring.current
            try:
                self._first_id = decode(body, self.session_id, 1).key_id
            except AcodeError:
                self._first_id = ""
        return self._first_id or self._keyring.current


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `envelope`: verified. `claimed`: what a row that could not be verified says of itself."""

    seq: int
    body: bytes
    mac: bytes
    envelope: Envelope | None = None
    claimed: Envelope | None = None
    error: AcodeError | None = None
    proved_by: bytes | None = None  # the code that it continues

    @property
    def key_is_missing(self) -> bool:
        return isinstance(self.error, KeyMissing)


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that no row has."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"event {self.first} is" if self.first == self.last else f"events {self.first} to {self.last} are"


def scan(
    session_id: str, rows: Iterable[Stored], keys: Keys, head_at: Callable[[int], bytes | None] = lambda _: None
) -> Iterator[Judged | Gap]:
    """Every row against the code stored before it, so that one bad row is one problem.

    `head_at`: the code that a sealed checkpoint knows for an event, if there is one; with it a row behind a missing or
    damaged one is still proved. Asked only where the stored code does not match.
    """
    before, expected = GENESIS, 1
    for seq, owner, body, mac in rows:
        if seq != expected:
            yield Gap(first=expected, last=seq - 1)
        found = judge(session_id, (seq, owner, body, mac), before, keys)
        if isinstance(found.error, ChainBroken) and (sealed := head_at(seq - 1)) is not None:
            found = judge(session_id, (seq, owner, body, mac), sealed, keys)
        yield found
        before, expected = mac, seq + 1


def judge(session_id: str, row: Stored, head: bytes, keys: Keys) -> Judged:
    seq, owner, body, mac = row
    short = session_id[-8:]
    try:
        claimed = decode(body, owner, seq)
    except (UnreadableEvent, NewerSchema) as error:
        named = type(error)(f"event {seq} of session {short}: {error.message}", seq=seq)
        return Judged(seq=seq, body=body, mac=mac, error=named)
    try:
        key = keys.key(claimed.key_id)
    except KeyMissing as error:
        return Judged(seq=seq, body=body, mac=mac, claimed=claimed, error=error)
    placed = (claimed.session_id, claimed.seq, owner) == (session_id, seq, session_id)
    if placed and seal.same(mac, seal.code(key, head, covered(claimed.v, session_id, seq, body))):
        return Judged(seq=seq, body=body, mac=mac, envelope=claimed, proved_by=head)
    error_found = ChainBroken(
        f"event {seq} of session {short} does not match its code: it, or the one before it, was changed outside acode",
        seq=seq,
    )
    return Judged(seq=seq, body=body, mac=mac, claimed=claimed, error=error_found)


class Noted:
    """Rows that a person has quarantined or accepted: the sealed checkpoint names them, and they are no problem."""

    def __init__(self, session: Session | None) -> None:
        self.seqs: frozenset[int] = frozenset(session.quarantined) if session else frozenset()
        self.gaps: frozenset[tuple[int, int]] = frozenset(session.gaps) if session else frozenset()
        self.accepted: AcceptedPast | None = session.accepted if session else None
        self.heads: dict[int, bytes] = (
            {seq: bytes.fromhex(head) for seq, head in session.heads.items()} if session else {}
        )

    def covers(self, item: Judged | Gap) -> bool:
        if isinstance(item, Gap):
            return (item.first, item.last) in self.gaps
        return item.seq in self.seqs or self.accepts(item)

    def accepts(self, item: Judged) -> bool:
        """Signed with the lost key, and among the accepted rows."""
        return self.accepted is not None and item.seq <= self.accepted.through and item.key_is_missing


class Past:
    """The hash over rows that a person accepts as they stand: afterwards they cannot be changed unseen."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.rows: int = 0

    def add(self, item: Judged) -> None:
        self._hash.update(hashlib.sha256(item.body).digest() + item.mac + item.seq.to_bytes(8, "big"))
        self.rows += 1

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()
