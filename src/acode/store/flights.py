"""Steps in flight that a checkpoint or a snapshot names by position: their events are fetched and verified.

A row that is used is a row verified, so a position that leads to anything but the start of its step is damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from acode.errors import AcodeError, ChainBroken, SequenceGap
from acode.state import InFlight, Session
from acode.store import checkpoints as ck
from acode.store.row_check import Noted, judge

if TYPE_CHECKING:
    from acode.store.store import Store


def with_flights(store: Store, stored: Session) -> Session:
    """The session with all its steps in flight, in the order in which they began."""
    if not stored.in_flight_at:
        return stored
    session, lost = salvage_flights(store, stored)
    for error in lost.values():
        raise error
    return session


def salvage_flights(store: Store, stored: Session) -> tuple[Session, dict[str, AcodeError]]:
    """The same as far as the events can be believed; and the steps whose events cannot, with the reason."""
    found, lost = dict(stored.in_flight), dict[str, AcodeError]()
    for step, seq in stored.in_flight_at.items():
        try:
            found[step] = _flight(store, stored, step, seq)
        except AcodeError as error:
            lost[step] = error
    in_order = dict(sorted(found.items(), key=lambda item: item[1].seq))
    return msgspec.structs.replace(stored, in_flight=in_order, in_flight_at={}), lost


def _flight(store: Store, stored: Session, step: str, seq: int) -> InFlight:
    session_id = stored.session_id
    rows = list(store.stored(session_id, seq - 2, 2))
    if len(rows) < 2 or rows[1][0] != seq:
        raise SequenceGap(f"session {session_id[-8:]}: event {seq} is missing, with which step {step} began", seq=seq)
    found = judge(session_id, rows[1], Noted(stored).heads.get(seq - 1, rows[0][3]), store.keys_of(session_id))
    if found.error is not None:
        raise found.error
    assert found.envelope is not None
    flight = ck.begun_in(found.envelope, step, stored.boot_id)
    if flight is None:
        raise ChainBroken(f"event {seq} of session {session_id[-8:]} is not the start of step {step}", seq=seq)
    return flight
