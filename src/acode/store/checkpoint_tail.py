"""The events behind the newest row of checkpoints: when the next row is due, and whether one is gone.

The journal and every reader of a log go by the same rule, so that a row that was taken away is noticed.
"""

from __future__ import annotations

import msgspec

from acode.errors import CheckpointMissing
from acode.events import Envelope
from acode.events import types as ev
from acode.events.codec import NAMES_ITS_PLACE
from acode.state import Session
from acode.store import checkpoints as ck

WITH_A_ROW: frozenset[type] = frozenset(
    {
        ev.SessionCreated,
        ev.CheckpointCreated,
        ev.StepsRolledBack,
        ev.SessionPaused,
        ev.SessionAwaitingApproval,
        ev.SessionCompleted,
        ev.SessionFailed,
        ev.SessionCancelled,
        ev.Quarantined,
    }
)
WITH_A_ROW_IN_VERSION_2: frozenset[type] = frozenset(
    {
        ev.SessionCreated,
        ev.StepCompleted,
        ev.CheckpointCreated,
        ev.StepsRolledBack,
        ev.SessionCompleted,
        ev.Quarantined,
    }
)


class Tail(msgspec.Struct):
    """What the log holds behind a row, or from its beginning where there is none.

    unindexed: finished steps that the index is told of with the next row, by the events that ended them.
    completions: each of them is a checkpoint.
    """

    row: ck.Checkpoint | None
    unindexed: dict[str, int] = {}
    size: int = 0
    completions: int = 0
    is_one_more: bool = False
    last: ck.Checkpoint | None = None
    due_bytes: int = 0

    def __post_init__(self) -> None:
        self.due_bytes = ck.due_bytes(self.row)

    def add(self, event: ev.Known | ev.Unknown, seq: int, size: int, in_flight: int) -> bool:
        """One event more; whether a row must stand at it, or behind it in the same transaction. `in_flight`: steps."""
        self.size += size
        kind = type(event)
        if kind is ev.StepStarted:
            return False
        if isinstance(event, ev.StepCompleted):
            self.completions += 1
            self.unindexed[event.step] = seq
            return self.size >= self.due_bytes + ck.DUE_BYTES_PER_FLIGHT * in_flight
        self.is_one_more = self.is_one_more or kind in WITH_A_ROW_IN_VERSION_2
        return kind in WITH_A_ROW

    @property
    def is_due(self) -> bool:
        return self.size >= self.due_bytes

    @property
    def checkpoint_id(self) -> int:
        """Of the newest checkpoint, be it the row or a completion."""
        return (self.row.id if self.row is not None else 0) + self.completions

    def next_id(self) -> int:
        """Of a row that is written now. One where a session stops is for readers only, and counts for nothing."""
        return self.row.id + self.completions + self.is_one_more if self.row is not None else 0

    def read(self, envelope: Envelope, mac: bytes, size: int, session: Session) -> None:
        """Refuse a log in which the row for this event is gone. `session`: as it is with the event."""
        event = envelope.event
        if envelope.v <= NAMES_ITS_PLACE:
            missing = type(event) in WITH_A_ROW_IN_VERSION_2
        else:
            missing = self.add(event, envelope.seq, size, len(session.in_flight))
            if type(event) is ev.StepCompleted and self.row is not None:
                self.last = msgspec.structs.replace(
                    self.row,
                    id=self.checkpoint_id,
                    seq=envelope.seq,
                    head=mac.hex(),
                    at=envelope.at,
                    session=ck.small(session),
                    label="",
                )
        if missing:
            raise CheckpointMissing(
                f"a checkpoint was made with event {envelope.seq} {envelope.type}, and it is gone", seq=envelope.seq
            )

    @property
    def newest(self) -> ck.Checkpoint | None:
        """The newest checkpoint of a log that was read to its end: its last completion, or the row."""
        return self.last or self.row
