"""Bugs that could have been written where two machines share a server; for the release sweep.

A kill between what one side has done and what the other has noted is where they show.
"""

from __future__ import annotations

from typing import Any

from acode.engine import owed_decisions
from acode.engine.owed_decisions import OwedNote
from acode.steps import sql_postgres
from acode.store import sync_cursor
from acode.sync import exchange
from acode.sync.delivery import Delivery
from acode.sync.postgres import PostgresLedger
from tests.crash.planted import Patch, Planted, nothing


def noted_as_sent_before_it_was(patch: Patch) -> None:
    right = exchange.push

    def wrong(ledger: Any, session_id: str, mine: Any, box: Any, *, holder: str) -> Any:
        store = box._store
        sync_cursor.change_cursor(
            store, session_id, pushed_seq=sync_cursor.last_seq(store, session_id), standing="released"
        )
        return right(ledger, session_id, mine, box, holder=holder)

    patch.setattr(exchange, "push", wrong)


def lease_in_a_transaction_of_its_own(patch: Patch) -> None:
    right = PostgresLedger.put

    def wrong(self: PostgresLedger, session_id: str, remote: Any, *, new: bool) -> None:
        right(self, session_id, remote, new=new)
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")

    patch.setattr(PostgresLedger, "put", wrong)


def given_back_in_our_books_first(patch: Patch) -> None:
    right = Delivery.release

    def wrong(self: Delivery, session_id: str) -> bool:
        sync_cursor.change_cursor(self.store, session_id, standing="released")
        return right(self, session_id)

    patch.setattr(Delivery, "release", wrong)


def key_behind_its_statements(patch: Patch) -> None:
    """A migration's key is recorded when its statements are committed already."""
    record = sql_postgres.Postgres.record

    def wrong(self: sql_postgres.Postgres, order: Any) -> None:
        self._connection.execute("COMMIT")
        record(self, order)

    patch.setattr(sql_postgres.Postgres, "record", nothing)
    patch.setattr(sql_postgres.Postgres, "commit", wrong)


def take_over_that_nobody_noted_first(patch: Patch) -> None:
    """The decision is kept in memory until the lease is there, and said then."""
    meant: dict[str, Any] = {}

    def keep(store: Any, session_id: str, generation: int, decision: Any) -> None:
        meant[session_id] = decision

    def wrong(cursor: Any, generation: int, last_seq: int) -> Any:
        decision = meant.pop(cursor.session_id, None)
        return cursor if decision is None else owed_decisions._with(cursor, OwedNote(done=(decision,), after=last_seq))

    patch.setattr(owed_decisions, "intend", keep)
    patch.setattr(owed_decisions, "with_effect", wrong)


CATALOGUE = tuple(
    Planted(bug=plant.__name__.replace("_", " "), plant=plant, case=case, sweep=sweep)
    for plant, case, sweep in (
        (noted_as_sent_before_it_was, "sync now", "kills at what is said"),
        (lease_in_a_transaction_of_its_own, "sync now", "kills at what is said"),
        (given_back_in_our_books_first, "sync now", "kills at what is said"),
        (key_behind_its_statements, "run server", "kills at what is said"),
        (take_over_that_nobody_noted_first, "take over by force", "kills at what is said"),
    )
)
