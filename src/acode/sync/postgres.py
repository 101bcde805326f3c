"""The shared copy in PostgreSQL: one connection, its statements, and what its errors mean.

psycopg is imported here and only when a connection is wanted. No wait is endless: every one has a limit, and a wish to
end cuts it short. Errors may quote the connection string, so none is passed on raw.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

import msgspec

from acode.errors import AcodeError, BlobDamaged, ChainBroken, SourceUnavailable, SyncFailed, SyncUnsupported
from acode.hints import Command, Hint
from acode.steps.interface import SHARE_BYTES_MAX
from acode.steps.sql_postgres import secrets_of
from acode.sync import schema
from acode.sync.backoff import Kind
from acode.sync.exchange import Batch, Contradiction
from acode.sync.far_store import FarStore
from acode.sync.protocol import Remote

if TYPE_CHECKING:
    import psycopg

ANSWER_S_MAX = 30.0  # a server that takes longer for one answer is as good as gone
GLANCE_S = 0.05
PART_BYTES = 1_048_576
REASON_CHARACTERS_MAX = 200
# A dead connection must not hold the thread forever, nor a dead acode the server's transaction. The URL's settings win.
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "application_name": "acode sync",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
SETTINGS = """
SELECT set_config('idle_in_transaction_session_timeout', '10000', false), set_config('lock_timeout', '15000', false),
       set_config('statement_timeout', '30000', false), set_config('client_min_messages', 'warning', false)"""
ARRIVALS = """
CREATE TEMPORARY TABLE IF NOT EXISTS acode_arrivals(seq bigint, body bytea, mac bytea) ON COMMIT DELETE ROWS"""
# Permanent errors: a wrong password or database, missing rights, tables that are not ours.
_PERMANENT_STATES = ("28", "3D", "3F", "42", "0A", "22", "23")
_PERMANENT_WORDS = (
    *("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist", "permission denied"),
    *("certificate", "invalid connection option", "invalid sslmode"),
)
# Values that cannot be read as what they should be, columns that are gone, of another type, or wanted beside ours.
_OTHER_SHAPE_STATES = ("22", "23502", "42703", "42804", "42846", "42883")


class ServerFailure(Exception):
    """The server could not be used just now: why, in a few words, and whether it may pass by itself.

    other_shape: it refused because its tables are not those that acode made.
    """

    def __init__(self, reason: str, kind: Kind, *, other_shape: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.other_shape = other_shape


CODE_BYTES = 32
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
NAMED_MAX = 6  # more than one is ambiguous already; a few are shown
_ID_PART = re.compile(r"[0-9a-z-]{4,64}")


class SharedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a list of all that the server knows. It is for people; no decision rests on it."""

    session_id: str
    title: str
    state: str
    source: str
    steps_done: int
    steps_total: int
    created_at: str | None
    updated_at: str | None
    owner: str | None
    holder: str
    generation: int
    seq: int
    renewed_at: str | None


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The list's fields of a session."""

    title: str
    state: str
    source: str
    steps_done: int
    steps_total: int
    created_at: str
    updated_at: str


_DESCRIBE = """
UPDATE acode_sessions SET title = %s, state = %s, source = %s, steps_done = %s, steps_total = %s, created_at = %s,
updated_at = %s"""


def _as_row(about: About) -> tuple[Any, ...]:
    return msgspec.structs.astuple(about)


def connect(url: str, give_up: Callable[[], bool]) -> PostgresLedger:
    """A line to the server with its tables ready; `give_up` is asked while waiting for answers."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise SyncUnsupported('PostgreSQL support is not installed: pip install "acode-cli[postgres]"') from error
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:  # its message quotes what it could not read, which may be the password
        raise ServerFailure(
            "the URL of the server cannot be read: check its escapes (%40 for @)", "permanent"
        ) from error
    settings = {**DEFAULTS, **given, "client_encoding": "utf8"}
    with translated(url):
        connection = _bounded().connect(**settings, autocommit=True, prepare_threshold=None)
        connection.give_up = give_up
    ledger = PostgresLedger(connection, url)
    try:
        with translated(url):
            connection.execute(SETTINGS)
            schema.prepare(connection)
            connection.execute(ARRIVALS)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _bounded() -> Any:
    """psycopg's connection with an end to every wait; made on demand, because psycopg is."""
    import logging
    import time

    import psycopg

    # The server's own notices are dropped: acode informs a person once.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())

    class Bounded(psycopg.Connection[Any]):
        give_up: Callable[[], bool] = staticmethod(lambda: False)

        def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
            return super().wait(self._watched(gen), GLANCE_S)

        def _watched(self, work: Any) -> Generator[Any, Any, Any]:
            """The same work, asked at every glance whether it is still wanted."""
            until = time.monotonic() + ANSWER_S_MAX
            try:
                wanted = next(work)
                while True:
                    ready = yield wanted
                    if self.give_up():
                        raise psycopg.OperationalError("stopped")
                    if time.monotonic() > until:
                        raise psycopg.OperationalError(f"no answer for {ANSWER_S_MAX:g} s")
                    wanted = work.send(ready)
            except StopIteration as end:
                return end.value

    return Bounded


class PostgresLedger:
    """One connection; its transactions are the exchanges."""

    def __init__(self, connection: psycopg.Connection[Any], url: str) -> None:
        self._connection = connection
        self.url = url
        self._known_blobs: dict[str, set[tuple[str, str]]] = {}
        self.far: FarStore | None = None  # for files that are too large for the database

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """For statements of others that belong into one transaction with those here."""
        return self._connection

    def close(self) -> None:
        with contextlib.suppress(Exception):  # closing rolls back, on the server, whether or not it is heard
            self._connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with translated(self.url), self._connection.transaction():
            yield

    def ping(self) -> None:
        with translated(self.url):
            self._connection.execute("SELECT 1")

    # One session.

    def look(self, session_id: str) -> Remote | None:
        row = self._connection.execute(
            # A client that does not know of last_node leaves an older one there, and a generation that does not match.
            "SELECT generation, owner, seq, head, holder, renewed_at, extract(epoch FROM renewed_at)::float8,"
            " CASE WHEN last_generation = generation THEN last_node END, signed,"
            " CASE WHEN lease_generation = generation THEN lease_seconds END,"
            " extract(epoch FROM clock_timestamp() - renewed_at)::float8,"
            " extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8"
            " FROM acode_sessions WHERE session_id = %s FOR UPDATE",
            (session_id,),
        ).fetchone()
        if row is None:
            return None
        generation, owner, seq, head, holder, renewed_at, renewed_s, last, signed, lease_s, age_s, up_s = row
        with well_formed("acode_sessions"):
            heard_at = renewed_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            return Remote(
                generation=msgspec.convert(generation, int),
                owner=msgspec.convert(owner, str | None),
                last=msgspec.convert(last, str | None),
                seq=msgspec.convert(seq, int),
                head=_bytes(head),
                holder=msgspec.convert(holder, str),
                heard_at=heard_at,
                renewed_s=msgspec.convert(renewed_s, float),
                signed=_bytes(signed) if signed is not None else None,
                lease_s=msgspec.convert(lease_s, float | None),
                age_s=msgspec.convert(age_s, float),
                up_s=msgspec.convert(up_s, float),
            )

    def clock_s(self) -> float:
        """The server's own time, to compare with the times in its rows."""
        row = self._connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        assert row is not None
        return float(row[0])

    def code_at(self, session_id: str, seq: int) -> bytes | None:
        query = "SELECT mac FROM acode_events WHERE session_id = %s AND seq = %s"
        row = self._connection.execute(query, (session_id, seq)).fetchone()
        with well_formed("acode_events"):
            return _bytes(row[0]) if row else None

    def events_held(self, session_id: str, through: int) -> int:
        query = "SELECT count(*) FROM acode_events WHERE session_id = %s AND seq <= %s"
        row = self._connection.execute(query, (session_id, through)).fetchone()
        return int(row[0]) if row else 0

    def put(self, session_id: str, remote: Remote, *, new: bool, renewed: bool = True) -> None:
        values = msgspec.structs.asdict(remote) | {"session_id": session_id, "renewed": renewed}
        if new:
            query = """
INSERT INTO acode_sessions(session_id, generation, owner, last_node, last_generation, holder, seq, head, signed,
  renewed_at)
VALUES (%(session_id)s, %(generation)s, %(owner)s, %(last)s, %(generation)s, %(holder)s, %(seq)s, %(head)s, %(signed)s,
  CASE WHEN %(renewed)s THEN now() ELSE to_timestamp(0) END)
ON CONFLICT DO NOTHING"""
        else:
            query = """
UPDATE acode_sessions SET generation = %(generation)s, owner = %(owner)s, last_node = %(last)s,
last_generation = %(generation)s, holder = %(holder)s, seq = %(seq)s, head = %(head)s, signed = %(signed)s,
renewed_at = CASE WHEN %(renewed)s THEN clock_timestamp() ELSE renewed_at END,
lease_seconds = coalesce(%(lease_s)s, lease_seconds),
lease_generation = CASE WHEN %(lease_s)s::float8 IS NULL THEN lease_generation ELSE %(generation)s END
WHERE session_id = %(session_id)s"""
        if self._connection.execute(query, values).rowcount != 1:
            raise Contradiction(f"session {session_id} was made or removed by somebody else at the same time")

    def describe(self, session_id: str, about: About, *, node: str, generation: int) -> None:
        """For lists only; a machine that lost the lease meanwhile describes nothing."""
        with translated(self.url):
            self._connection.execute(
                _DESCRIBE.encode() + b" WHERE session_id = %s AND owner = %s AND generation = %s",
                (*_as_row(about), session_id, node, generation),
            )

    def describe_new(self, session_id: str, about: About) -> None:
        """The same for a session that has no owner yet, in the caller's transaction."""
        self._connection.execute(_DESCRIBE.encode() + b" WHERE session_id = %s", (*_as_row(about), session_id))

    def describe_refill(self, session_id: str, about: About, *, seq: int) -> None:
        """The same for a session that nobody owns, where the server has the log up to `seq`, and no more."""
        with translated(self.url):
            self._connection.execute(
                _DESCRIBE.encode() + b" WHERE session_id = %s AND owner IS NULL AND seq = %s",
                (*_as_row(about), session_id, seq),
            )

    def append(self, session_id: str, batch: Batch) -> int:
        """COPY beside, then in: an event that is there already, because an answer was lost, is not written again."""
        for table, rows in (("acode_checkpoints", batch.checkpoints), ("acode_snapshots", batch.snapshots)):
            self._append_sealed(table, session_id, rows)
        self._copy((seq, body, mac) for seq, _, body, mac in batch.events)
        arrived = self._connection.execute(
            """
INSERT INTO acode_events(session_id, seq, generation, body, mac)
SELECT %(id)s, seq, (SELECT generation FROM acode_sessions WHERE session_id = %(id)s), body, mac FROM acode_arrivals
ORDER BY seq ON CONFLICT DO NOTHING""",
            {"id": session_id},
        )
        return arrived.rowcount

    def _append_sealed(self, table: str, session_id: str, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        if not rows:
            return
        first = rows[0]
        if table == "acode_checkpoints" and begins_again(first[1]):
            # A repair has made new checkpoints of an older log: those that stood there before are not believed.
            for old in ("acode_checkpoints", "acode_snapshots"):
                self._connection.execute(
                    f"DELETE FROM {old} WHERE session_id = %s AND seq < %s", (session_id, first[0])
                )
        self._copy(rows)
        names = "seq, body, mac" if table == "acode_checkpoints" else "seq, body"
        self._connection.execute(
            f"INSERT INTO {table}(session_id, {names}) SELECT %s, {names} FROM acode_arrivals ON CONFLICT DO NOTHING",
            (session_id,),
        )
        self._connection.execute("DELETE FROM acode_arrivals")

    def _copy(self, rows: Iterator[tuple[int, bytes, bytes]] | Sequence[tuple[int, bytes, bytes]]) -> None:
        query = "COPY acode_arrivals(seq, body, mac) FROM STDIN (FORMAT BINARY)"
        with self._connection.cursor() as cursor, cursor.copy(query) as copy:
            copy.set_types(["int8", "bytea", "bytea"])
            for row in rows:
                copy.write_row(row)

    def set_aside(self, session_id: str, after: int, by: str) -> int:
        """A person chose the other history: what follows `after` here is kept beside, and is no part of the log."""
        moved = self._connection.execute(
            """
WITH gone AS (DELETE FROM acode_events WHERE session_id = %s AND seq > %s RETURNING *)
INSERT INTO acode_set_aside(session_id, seq, generation, body, mac, by_holder)
SELECT session_id, seq, generation, body, mac, %s FROM gone""",
            (session_id, after, by),
        )
        for table in ("acode_checkpoints", "acode_snapshots"):
            self._connection.execute(f"DELETE FROM {table} WHERE session_id = %s AND seq > %s", (session_id, after))
        return moved.rowcount

    # Coming down.

    def named_by(self, text: str) -> list[str]:
        """Ids that begin or end with the text, or whose short form begins with it; each way has its index, so that it
        costs the same however many sessions there are."""
        part = text.strip().lower()
        if not _ID_PART.fullmatch(part):
            return []
        query = """
SELECT session_id FROM acode_sessions WHERE session_id LIKE %s
UNION SELECT session_id FROM acode_sessions WHERE reverse(session_id) LIKE %s
UNION SELECT session_id FROM acode_sessions WHERE right(session_id, 8) LIKE %s LIMIT %s"""
        values = (f"{part}%", f"{part[::-1]}%", f"{part}%", NAMED_MAX)
        with translated(self.url):
            rows = self._connection.execute(query, values).fetchall()
        with well_formed("acode_sessions"):
            return sorted(msgspec.convert([one for (one,) in rows], list[str]))

    def latest_ids(self, count: int) -> list[str]:
        """Ids grow with the time at which they were made."""
        with translated(self.url):
            rows = self._connection.execute(
                "SELECT session_id FROM acode_sessions ORDER BY session_id DESC LIMIT %s", (count,)
            ).fetchall()
        with well_formed("acode_sessions"):
            return msgspec.convert([one for (one,) in rows], list[str])

    def sessions(self, only: Sequence[str] | None = None) -> list[SharedSession]:
        """All of them, for a list; or those with these ids."""
        names = SharedSession.__struct_fields__
        wanted, values = ("", ()) if only is None else (" WHERE session_id = ANY(%s)", (list(only),))
        order = "ORDER BY coalesce(updated_at, renewed_at) DESC"
        with translated(self.url):
            rows = self._connection.execute(
                f"SELECT {', '.join(names)} FROM acode_sessions{wanted} {order}", values
            ).fetchall()
        with well_formed("acode_sessions"):
            plain = [dict(zip(names, row, strict=True)) for row in rows]
            for one in plain:
                for name in ("created_at", "updated_at", "renewed_at"):
                    at = one[name]
                    one[name] = at.astimezone(UTC).isoformat().replace("+00:00", "Z") if at is not None else None
            return msgspec.convert(plain, list[SharedSession])

    def events(self, session_id: str, after: int, through: int) -> Iterator[tuple[int, bytes, bytes]]:
        yield from self._stream("acode_events", "seq, body, mac", session_id, after, through)

    def checkpoints(self, session_id: str, after: int, through: int) -> Iterator[tuple[int, bytes, bytes]]:
        yield from self._stream("acode_checkpoints", "seq, body, mac", session_id, after, through)

    def snapshots(self, session_id: str, after: int, through: int) -> Iterator[tuple[int, bytes, bytes]]:
        yield from self._stream("acode_snapshots", "seq, body, ''::bytea", session_id, after, through)

    def _stream(
        self, table: str, columns: str, session_id: str, after: int, through: int
    ) -> Iterator[tuple[int, bytes, bytes]]:
        query = (
            f"SELECT {columns} FROM {table} WHERE session_id = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT 1000"
        )
        while True:
            with translated(self.url):
                rows = self._connection.execute(query, (session_id, after, through), binary=True).fetchall()
            with well_formed(table):
                rows = [(msgspec.convert(seq, int), _bytes(body), _code(mac)) for seq, body, mac in rows]
            yield from rows
            if len(rows) < 1000:
                return
            after = rows[-1][0]

    # Blobs.

    def lacks(self, session_id: str, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those that the server does not have for this session; asked once, and remembered for this connection."""
        if wanted and session_id not in self._known_blobs:
            self._known_blobs[session_id] = set(self.blobs(session_id))
        return [one for one in wanted if one not in self._known_blobs[session_id]]

    def put_blob(self, session_id: str, sha256: str, purpose: str, data: bytes) -> None:
        """Whole or not at all; one that another session has brought is only named. A large one goes to
        the far store, where there is one."""
        is_far = self.far is not None and len(data) > SHARE_BYTES_MAX
        if is_far and self.far is not None:
            self.far.put(sha256, data)
        with self.transaction():
            made = self._connection.execute(
                "INSERT INTO acode_blobs VALUES (%s, %s) ON CONFLICT DO NOTHING", (sha256, len(data))
            )
            if made.rowcount and not is_far:
                for part, start in enumerate(range(0, len(data), PART_BYTES)):
                    self._connection.execute(
                        "INSERT INTO acode_blob_parts VALUES (%s, %s, %s)",
                        (sha256, part, data[start : start + PART_BYTES]),
                        binary=True,
                    )
            self._connection.execute(
                "INSERT INTO acode_session_blobs VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                (session_id, sha256, purpose),
            )
        self._known_blobs.setdefault(session_id, set()).add((sha256, purpose))

    def blobs(self, session_id: str) -> list[tuple[str, str]]:
        with translated(self.url):
            rows = self._connection.execute(
                "SELECT sha256, purpose FROM acode_session_blobs WHERE session_id = %s ORDER BY 1, 2", (session_id,)
            ).fetchall()
        with well_formed("acode_session_blobs"):
            return msgspec.convert(rows, list[tuple[str, str]])

    def blob(self, sha256: str) -> bytes:
        query = "SELECT data FROM acode_blob_parts WHERE sha256 = %s ORDER BY part"
        with translated(self.url), well_formed("acode_blob_parts"):
            data = b"".join(_bytes(row[0]) for row in self._connection.execute(query, (sha256,), binary=True))
        if not data and sha256 != EMPTY_SHA256:
            if self.far is None:
                raise SourceUnavailable(
                    f"file {sha256[:12]} is kept in a store that is not configured here",
                    hint="Set fleet.store as on the machine that wrote it.",
                )
            return self.far.get(sha256)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BlobDamaged(f"blob {sha256[:12]} of the shared copy does not have the content its name says")
        return data


class _Numbered(msgspec.Struct):
    id: int
    seq: int
    row: int | None = None  # its number among the rows; up to version 3 that is its id


_numbered = msgspec.json.Decoder(_Numbered)


def begins_again(checkpoint: bytes) -> bool:
    """The first of its line, and not of the first event."""
    try:
        found = _numbered.decode(checkpoint)
    except msgspec.DecodeError:
        return False
    return (found.id if found.row is None else found.row) == 0 and found.seq > 1


# Errors.


def _bytes(value: object) -> bytes:
    """`bytes` of a number would make that many zeros, as many as a hostile server likes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{type(value).__name__} in place of bytes")
    return bytes(value)


def _code(value: object) -> bytes:
    code = _bytes(value)
    if len(code) not in (0, CODE_BYTES):  # snapshots have none
        raise ValueError(f"a code of {len(code)} bytes")
    return code


CHANGED_BY_OTHERS = "Nothing of it was kept. Find out who changed the server's copy, or restore it from a backup."


REFUSED_BY_SERVER = Hint(
    "The server refuses, and waiting does not help: correct it there, or the settings here ({})."
    " Pending events are kept here.",
    Command("config show --origin"),
)


@contextlib.contextmanager
def well_formed(table: str) -> Iterator[None]:
    """Check that the server's values have the types that acode wrote. Others may change a server, and it has no key."""
    try:
        yield
    except (TypeError, ValueError, AttributeError, OverflowError) as error:  # msgspec's own are ValueErrors too
        raise ChainBroken(
            f"the server's table {table} holds a row that acode did not write: {error}",
            hint=CHANGED_BY_OTHERS,
        ) from error


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        other_shape = (error.sqlstate or "").startswith(_OTHER_SHAPE_STATES)
        raise ServerFailure(reason_of(error, url), kind_of(error), other_shape=other_shape) from error


def kind_of(error: psycopg.Error) -> Kind:
    if error.sqlstate is not None:
        return "permanent" if error.sqlstate.startswith(_PERMANENT_STATES) else "transient"
    text = str(error).lower()
    return "permanent" if any(word in text for word in _PERMANENT_WORDS) else "transient"


def reason_of(error: psycopg.Error, url: str) -> str:
    """A few words: of a failed connection only why, of anything else its first sentence; never a password."""
    said = error.diag.message_primary or (str(error).strip().splitlines() or ["no reason given"])[0]
    said = said.rpartition("failed: ")[2] if "failed: " in said else said
    said = said.removeprefix("FATAL:").strip()
    for secret in secrets_of(url):
        said = said.replace(secret, "***")
    return said[:REASON_CHARACTERS_MAX]


def as_error(failure: ServerFailure) -> AcodeError:
    if failure.other_shape:
        return ChainBroken(f"the server's tables are not as acode made them: {failure.reason}", hint=CHANGED_BY_OTHERS)
    hint = REFUSED_BY_SERVER if failure.kind == "permanent" else None
    return SyncFailed(f"the server of the shared copy cannot be used: {failure.reason}", hint=hint, kind=failure.kind)
