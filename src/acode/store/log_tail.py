"""Read a log from any of its events on, verified from the checkpoint before it and not from the first event.

A checkpoint is sealed and knows the code of the event that it was made for; from there the chain proves every row.
"""

from __future__ import annotations

from collections.abc import Iterator

from acode.errors import ChainBroken
from acode.events import Envelope
from acode.store import checkpoints as ck
from acode.store import database
from acode.store.schema import SEQ_SPAN
from acode.store.store import Store

_BEFORE = """
SELECT seq, CAST(body AS BLOB), mac FROM checkpoints WHERE id > ? AND id <= ? ORDER BY id DESC LIMIT 1"""


def events_after(store: Store, session_id: str, after: int) -> Iterator[tuple[Envelope, bytes]]:
    """The events behind number `after`, with their codes."""
    checkpoint = _checkpoint_before(store, session_id, after) if after > 0 else None
    if checkpoint is None:
        found = store.events(session_id)
    else:
        found = store.events(session_id, checkpoint.seq, _proven_head(store, checkpoint))
    for envelope, mac, _ in found:
        if envelope.seq > after:
            yield envelope, mac


def _checkpoint_before(store: Store, session_id: str, seq: int) -> ck.Checkpoint | None:
    with database.translated(store.path):
        base = store.base(session_id)
        row = store.db.execute(_BEFORE, (base, base + min(seq, SEQ_SPAN - 1))).fetchone()
    return None if row is None else ck.open_checkpoint(session_id, row[0], row[1], row[2], store.keyring)


def _proven_head(store: Store, checkpoint: ck.Checkpoint) -> bytes:
    """The code of the event that the checkpoint was made for, which is still there and still the same."""
    for seq, _, mac in store.rows(checkpoint.session_id, checkpoint.seq - 1, 1):
        if seq == checkpoint.seq and mac.hex() == checkpoint.head:
            return mac
    raise ChainBroken(
        f"event {checkpoint.seq} of session {checkpoint.session_id[-8:]} is not the one of its checkpoint",
        seq=checkpoint.seq,
    )
