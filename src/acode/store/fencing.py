"""An append that fences off the holder of the lock: the generation rises in the transaction of the event.

Two transactions would leave a moment in which an owner is fenced off and nothing says by whom.
"""

from __future__ import annotations

from acode.store.journal import Journal
from acode.store.schema import SEQ_SPAN
from acode.store.store import Loaded, Store

RAISE = "UPDATE sessions SET generation = ? WHERE number = ? AND generation = ?"


class FencingJournal(Journal):
    """Its first append raises the generation to its own; where somebody else was faster, it is refused."""

    enters_by_fence = False

    def _enter(self) -> None:
        self._execute(RAISE, (self.generation, self._base // SEQ_SPAN, self.generation - 1))
        super()._enter()


def fencing_journal(store: Store, loaded: Loaded, generation: int) -> FencingJournal:
    """The journal of a process that breaks the lock of this generation."""
    return FencingJournal(
        store,
        generation=generation + 1,
        session=loaded.session,
        head=loaded.head,
        tail=loaded.tail,
        bytes_since_snapshot=loaded.bytes_since_snapshot,
    )
