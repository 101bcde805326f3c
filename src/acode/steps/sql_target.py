"""The interface of a sql step's database: one transaction that holds the statements and the key.

The order of things is the same for all of them and stands in `sql`; a target only knows its database's statements for
them. The key is written first: a later attempt of the same step waits for this transaction and then finds it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TABLE = "acode_applied"
CONNECT_TIMEOUT_S = 10
WAIT_FOR_OTHERS_S = 2  # for a transaction of the same step that is still open, when looking
COLUMNS = "key, session_id, step, file, sha256, applied_at"


class Refused(Exception):
    """The database said no; the transaction was rolled back and nothing of it remains."""


class Unreachable(Exception):
    """The database cannot be asked, or does not answer any more; before its commit this means rolled back."""


class StillOpen(Unreachable):
    """A transaction of the same step is open on the server: its outcome is not decided yet."""


class Unsure(Exception):
    """The answer to the commit was lost: only the key shows its outcome."""


class Order(NamedTuple):
    """The statements to apply, once."""

    key: str
    session_id: str
    step: str
    file: str
    sha256: str
    text: str


class Applied(NamedTuple):
    """A row of the table: an attempt at a step that took effect."""

    key: str
    sha256: str


class Target(Protocol):
    """An open connection. Each method but `interrupt` belongs to the thread that made it."""

    def make_table(self) -> None: ...
    def begin(self, order: Order, timeout_s: float) -> None: ...  # and wait for other transactions of the same step
    def applied(self, session_id: str, step: str) -> list[Applied]: ...
    def record(self, order: Order) -> None: ...
    def run(self, text: str) -> None: ...
    def commit(self, order: Order) -> None: ...
    def interrupt(self, *, patience_over: bool) -> None: ...  # from another thread; may come at any time, repeatedly
    def close(self) -> None: ...  # rolls back what is open
