"""A PostgreSQL database as the target of a sql step.

Two things are different from a file. The server lives on when acode dies: a transaction that is still open there may
yet commit, so everybody who asks about a step first takes an advisory lock that its transaction holds. And the answer
to a COMMIT can be lost: then only the key is evidence. Errors may quote the connection string, so none is passed on
raw.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from acode.steps.sql_scanner import line_of
from acode.steps.sql_target import (
    COLUMNS,
    CONNECT_TIMEOUT_S,
    TABLE,
    WAIT_FOR_OTHERS_S,
    Applied,
    Order,
    Refused,
    StillOpen,
    Unreachable,
    Unsure,
)

if TYPE_CHECKING:
    import psycopg

# A dead network must not hold a run forever, nor a dead acode the server's transaction. The URL's settings take
# precedence.
DEFAULTS = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "application_name": "acode",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
CHECK_CLIENT_MS = 1_000
IDLE_IN_TRANSACTION_MS = 60_000
CANCEL_TIMEOUT_S = 5.0
SLACK_S = 2.0
LOCK_NOT_AVAILABLE = "55P03"

_MAKE_TABLE = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    key text NOT NULL PRIMARY KEY,
    session_id text NOT NULL,
    step text NOT NULL,
    file text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL
)"""
_VISIBLE = f"""
SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass('{TABLE}') AND c.relpersistence = 'p'"""
# Of every schema: a migration may change the search path, and the key must still be found.
_EVERYWHERE = f"""
SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = '{TABLE}' AND c.relkind = 'r' AND c.relpersistence = 'p'
AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
ORDER BY 1"""


# The backends that hold the advisory lock of a step: its number is shown in two halves.
_END_HOLDERS = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid::bigint = %s AND objid::bigint = %s
AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
AND pid <> pg_catalog.pg_backend_pid()"""


def describe(url: str) -> str:
    """The server and the database, without user, password or options."""
    unreadable = "a postgres URL that cannot be read"
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
    except ValueError:
        return unreadable
    if "@" in parts.path + parts.query + parts.fragment:  # a password with / ? or # in it, so that its rest is here
        return unreadable
    place = parts.netloc.rpartition("@")[2] or options.get("host", "")
    name = unquote(parts.path.lstrip("/")) or options.get("dbname", "")
    return f"postgres://{place}/{name}"


def secrets_of(url: str) -> tuple[str, ...]:
    """The secret parts of the URL: the password as written and as decoded, and the URL as a whole."""
    found = [url]
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        values = [parts.password or "", *(value for name, value in parse_qsl(parts.query) if "password" in name)]
        found += [spelling for value in values if value for spelling in (value, unquote(value))]
    return tuple(found)


def connect(url: str) -> Postgres:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise Unreachable('PostgreSQL support is not installed: pip install "acode-cli[postgres]"') from error
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:  # its message quotes what it could not read, which may be the password
        raise Unreachable("the postgres URL cannot be read: check its escapes (%40 for @ in a password)") from error
    settings: dict[str, Any] = {**DEFAULTS, **given, "client_encoding": "utf8"}
    try:
        connection = psycopg.connect(**settings, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise Unreachable(_said(error)) from error
    return Postgres(connection)


def lock_number(session_id: str, step: str) -> int:
    """The advisory lock of a step: the same for all of its attempts, on every machine."""
    return int.from_bytes(hashlib.sha256(f"acode sql\0{session_id}\0{step}".encode()).digest()[:8], signed=True)


_TABLE_LOCK = lock_number("", TABLE)


class Postgres:
    """One connection; statements outside `begin` … `commit` are transactions of their own."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection
        self._schema = ""
        self._transaction: object = None
        self._stopped = False

    def make_table(self) -> None:
        """Two that come first at once would both make it, and one would fail: they go one after the other."""
        with translated():
            found = self._connection.execute(_VISIBLE).fetchone()
            if found is None:
                with self._connection.transaction():
                    self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (_TABLE_LOCK,))
                    self._connection.execute(_MAKE_TABLE)
                found = self._connection.execute(_VISIBLE).fetchone()
        if found is None:
            raise Refused(f"the table {TABLE} was made and cannot be found: check the search path")
        self._schema = str(found[0])

    def begin(self, order: Order, timeout_s: float) -> None:
        """READ COMMITTED: after waiting for another transaction of this step, its key must be seen."""
        with translated():
            self._connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
            # A little later than acode's own: it is for the server whose acode has died.
            self._set("statement_timeout", int((timeout_s + SLACK_S) * 1000))
            self._set("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_MS)
            self._set("standard_conforming_strings", "on")
            self._notice_our_death()
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(order.session_id, order.step),))
            self._transaction = self._number()

    def _set(self, name: str, value: object) -> None:
        self._connection.execute("SELECT pg_catalog.set_config(%s, %s, true)", (name, str(value)))

    def _notice_our_death(self) -> None:
        """A server in the middle of a long statement looks for its client only on request; some cannot."""
        import psycopg

        with contextlib.suppress(psycopg.errors.DatabaseError), self._connection.transaction():
            self._set("client_connection_check_interval", CHECK_CLIENT_MS)

    def _number(self) -> object:
        row = self._connection.execute("SELECT pg_catalog.txid_current()").fetchone()
        return row[0] if row else None

    def applied(self, session_id: str, step: str) -> list[Applied]:
        """Outside a transaction of its own it waits for one of this step that is still open on the server."""
        with translated():
            if self._transaction is not None:
                return self._rows(session_id, step)
            with self._connection.transaction():
                self._set("lock_timeout", int(WAIT_FOR_OTHERS_S * 1000))
                self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(session_id, step),))
                return self._rows(session_id, step)

    def end_others(self, session_id: str, step: str) -> None:
        """End the backends of this step. Their client is dead, so none will commit any more; the key shows whether one
        did.

        Refused where the server allows it only to others.
        """
        number = lock_number(session_id, step) % 2**64
        with translated():
            self._connection.execute(_END_HOLDERS, (number >> 32, number % 2**32))

    def _rows(self, session_id: str, step: str) -> list[Applied]:
        from psycopg import sql

        found: list[Applied] = []
        for (schema,) in self._connection.execute(_EVERYWHERE).fetchall():
            query = sql.SQL("SELECT key, sha256 FROM {} WHERE session_id = %s AND step = %s")
            rows = self._connection.execute(query.format(sql.Identifier(schema, TABLE)), (session_id, step))
            found += [Applied(*row) for row in rows]
        return found

    def record(self, order: Order) -> None:
        from psycopg import sql

        query = sql.SQL(f"INSERT INTO {{}} ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, clock_timestamp())")
        values = (order.key, order.session_id, order.step, order.file, order.sha256)
        with translated():
            self._connection.execute(query.format(sql.Identifier(self._schema, TABLE)), values)

    def run(self, text: str) -> None:
        """All statements at once, as they stand: without parameters nothing in the text is interpreted here."""
        if self._stopped:
            raise Refused("it was stopped")
        with translated(text):
            self._connection.execute(text.encode())

    def commit(self, order: Order) -> None:
        import psycopg

        with translated():
            if self._number() != self._transaction:
                raise Refused("the file ended the transaction that acode had begun")
            if not self._still_recorded(order):
                raise Refused(
                    f"the file removed acode's record from {TABLE}, without which nothing shows later"
                    f" that it was applied. Let it leave {TABLE} alone, for example in a"
                    f" schema of its own (search_path in the"
                    " URL's options), or apply it by a run step with a probe"
                )
        if self._stopped:
            raise Refused("it was stopped")
        try:
            answer = self._connection.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            raise Unsure(_said(error)) from error
        if answer != "COMMIT":
            raise Refused(f"the server answered {answer} to COMMIT")

    def _still_recorded(self, order: Order) -> bool:
        """Looked for as a later look will: not as the role that the file may have taken, which need not see it."""
        with self._connection.transaction(force_rollback=True):
            self._connection.execute("RESET SESSION AUTHORIZATION")
            self._connection.execute("RESET ROLE")
            return Applied(order.key, order.sha256) in self._rows(order.session_id, order.step)

    def interrupt(self, *, patience_over: bool) -> None:
        """Ask the server to cancel; where that does not help, cut the line: without a COMMIT that rolls back."""
        self._stopped = True
        with contextlib.suppress(Exception):  # whatever is wrong with the line, the worker meets it too
            if not patience_over:
                self._connection.cancel_safe(timeout=CANCEL_TIMEOUT_S)
                return
            with socket.socket(fileno=os.dup(self._connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # closing rolls back, on the server, whether or not it is heard
            self._connection.close()


@contextlib.contextmanager
def translated(text: str = "") -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == LOCK_NOT_AVAILABLE and not text:
            raise StillOpen("a transaction of this step is still open on the server") from error
        if error.sqlstate is None or error.sqlstate.startswith(("08", "57P")):
            raise Unreachable(_said(error)) from error
        raise Refused(_said(error, text)) from error


def _said(error: psycopg.Error, text: str = "") -> str:
    """The first sentence: details and context may hold rows and statements."""
    said = error.diag.message_primary or (str(error).strip().splitlines() or ["no reason given"])[0]
    position = error.diag.statement_position
    return f"line {line_of(text, int(position) - 1)}: {said}" if text and position else said
