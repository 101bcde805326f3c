"""The tables, as numbered migrations with checksums, and the check that a database has exactly these.

A migration that was shipped is never edited: its checksum is in every database it made. The expected schema is what
the migrations make in memory, so it cannot drift from them. Rows have one integer key made of session and seq: SQLite
appends to such a table by touching one page, where a table keyed by text and number rewrites several.
"""

from __future__ import annotations

import hashlib
from functools import cache

import apsw

from acode.errors import SchemaMismatch

MIGRATIONS: tuple[tuple[str, str], ...] = (
    (
        "log",
        """
CREATE TABLE migrations(
  version INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  applied_at TEXT NOT NULL
) STRICT;
CREATE TABLE sessions(
  number INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE CHECK (length(session_id) = 36),
  created_at TEXT NOT NULL
) STRICT;
CREATE TABLE events(
  id INTEGER PRIMARY KEY, -- the session's number times 2^40, plus seq
  session_id TEXT NOT NULL,
  seq INTEGER NOT NULL CHECK (seq >= 1 AND seq = id % 1099511627776),
  body TEXT NOT NULL CHECK (length(body) <= 1048576),
  mac BLOB NOT NULL CHECK (length(mac) = 32)
) STRICT;
CREATE TABLE checkpoints(
  id INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL,
  seq INTEGER NOT NULL CHECK (seq >= 1 AND seq = id % 1099511627776),
  body TEXT NOT NULL,
  mac BLOB NOT NULL CHECK (length(mac) = 32)
) STRICT;
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
""",
    ),
    (
        "fencing, snapshots and blobs",
        """
ALTER TABLE sessions ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;
CREATE TABLE snapshots(
  id INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL,
  seq INTEGER NOT NULL CHECK (seq >= 1 AND seq = id % 1099511627776),
  body BLOB NOT NULL
) STRICT;
CREATE TABLE blobs(
  session_id TEXT NOT NULL,
  sha256 TEXT NOT NULL CHECK (length(sha256) = 64),
  purpose TEXT NOT NULL CHECK (purpose IN ('preimage', 'output', 'plan', 'sensitive')),
  data BLOB, -- NULL: the bytes are a file under .agent/blobs
  PRIMARY KEY (session_id, sha256, purpose)
) STRICT, WITHOUT ROWID;
""",
    ),
    (
        "the shared copy",
        """
CREATE TABLE sync_cursor(
  session_id TEXT NOT NULL PRIMARY KEY,
  server TEXT NOT NULL DEFAULT '', -- of which all this was heard
  pushed_seq INTEGER NOT NULL DEFAULT 0, -- a hint for people: what the server holds, the server says
  taken_seq INTEGER NOT NULL DEFAULT 0, -- events up to here were written on another machine
  generation INTEGER NOT NULL DEFAULT 0, -- of the lease that this workspace held last
  standing TEXT NOT NULL DEFAULT 'owner' CHECK (standing IN ('owner', 'released', 'copy', 'fenced', 'diverged')),
  holder TEXT NOT NULL DEFAULT '', -- who else has it, in words
  attempted_at TEXT,
  retry_at TEXT,
  reason TEXT -- why the last attempt failed; NULL: it did not
) STRICT, WITHOUT ROWID;
""",
    ),
    (
        "finished steps by name",
        """
CREATE TABLE finished(
  session INTEGER NOT NULL, -- the session's number
  step TEXT NOT NULL,
  seq INTEGER NOT NULL CHECK (seq >= 1), -- of its latest completion: a hint, what stands there is verified
  PRIMARY KEY (session, step)
) STRICT, WITHOUT ROWID;
""",
    ),
    (
        "graphs that other frameworks checkpoint here",
        """
CREATE TABLE graph_checkpoints(
  thread TEXT NOT NULL,
  space TEXT NOT NULL,
  checkpoint TEXT NOT NULL,
  parent TEXT,
  run TEXT,
  body BLOB NOT NULL, -- names its values by their hashes
  key_id TEXT NOT NULL,
  mac BLOB NOT NULL CHECK (length(mac) = 32),
  PRIMARY KEY (thread, space, checkpoint)
) STRICT, WITHOUT ROWID;
CREATE TABLE graph_values(
  id INTEGER PRIMARY KEY,
  thread TEXT NOT NULL,
  sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
  data BLOB NOT NULL,
  UNIQUE (thread, sha256)
) STRICT;
CREATE TABLE graph_writes(
  id INTEGER PRIMARY KEY,
  thread TEXT NOT NULL,
  space TEXT NOT NULL,
  checkpoint TEXT NOT NULL,
  task TEXT NOT NULL,
  place INTEGER NOT NULL, -- negative: one of a kind, the latest counts
  body BLOB NOT NULL,
  key_id TEXT NOT NULL,
  mac BLOB NOT NULL CHECK (length(mac) = 32),
  UNIQUE (thread, space, checkpoint, task, place)
) STRICT;
""",
    ),
    (
        "decisions about the shared copy that the log does not say yet",
        "ALTER TABLE sync_cursor ADD COLUMN unsaid TEXT;",
    ),
    (
        "what rollbacks set aside outlives its session's end",
        """
CREATE TABLE blobs_with_what_is_saved(
  session_id TEXT NOT NULL,
  sha256 TEXT NOT NULL CHECK (length(sha256) = 64),
  purpose TEXT NOT NULL CHECK (purpose IN ('preimage', 'output', 'plan', 'sensitive', 'saved')),
  data BLOB, -- NULL: the bytes are a file under .agent/blobs
  PRIMARY KEY (session_id, sha256, purpose)
) STRICT, WITHOUT ROWID;
INSERT INTO blobs_with_what_is_saved SELECT session_id, sha256, purpose, data FROM blobs;
DROP TABLE blobs;
ALTER TABLE blobs_with_what_is_saved RENAME TO blobs;
""",
    ),
    (
        "sessions by standing, activity, key and short id",
        """
ALTER TABLE sessions ADD COLUMN standing TEXT NOT NULL DEFAULT 'running'
  CHECK (standing IN ('running', 'stopped', 'ended')); -- a hint, as all that follows: a session is verified when used
ALTER TABLE sessions ADD COLUMN active_us INTEGER NOT NULL DEFAULT 0; -- of its last event; of a running one: an earlier
ALTER TABLE sessions ADD COLUMN key TEXT; -- of a program's session; of a foreign run's: the run
WITH last AS (
  SELECT s.number, (SELECT body FROM events e WHERE e.id > s.number * 1099511627776
    AND e.id < (s.number + 1) * 1099511627776 ORDER BY e.id DESC LIMIT 1) AS body FROM sessions s
)
UPDATE sessions SET standing = 'ended',
  active_us = coalesce(CAST(unixepoch(json_extract(last.body, '$.at'), 'subsec') * 1000 AS INTEGER) * 1000, 0)
FROM last WHERE last.number = sessions.number AND json_valid(last.body)
  AND coalesce(json_extract(last.body, '$.event.type'), json_extract(last.body, '$.type'))
  IN ('session_completed', 'session_failed', 'session_cancelled');
UPDATE sessions SET key = json_extract(e.body, '$.event.task') FROM events e
WHERE e.id = sessions.number * 1099511627776 + 1 AND json_valid(e.body)
  AND json_extract(e.body, '$.event.kind') IN ('library', 'foreign'); -- rows of version 1 know neither
CREATE INDEX sessions_unfinished ON sessions(active_us) WHERE standing <> 'ended';
CREATE INDEX sessions_ended ON sessions(active_us) WHERE standing = 'ended';
CREATE INDEX sessions_by_key ON sessions(key) WHERE key IS NOT NULL;
CREATE INDEX sessions_by_short_id ON sessions(substr(session_id, -8));
""",
    ),
)
VERSION = len(MIGRATIONS)
NOT_USED = "Nothing in it is used. Look at it with another tool, or restore a backup."
SEQ_SPAN = 2**40  # ids of one session lie between its number times this and the next one's


def checksum(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


def migrate(db: apsw.Connection, at: str) -> None:
    """Bring the database to this version, one transaction each; a crash in between is finished by the next start."""
    while _version(db) < VERSION:
        db.execute("BEGIN IMMEDIATE")
        try:
            version = _version(db)  # read again under the lock: another process may have been faster
            if version < VERSION:
                check(db)  # before anything is executed on it: a planted trigger would run with the migration
                name, sql = MIGRATIONS[version]
                db.execute(sql)
                db.execute("INSERT INTO migrations VALUES (?, ?, ?, ?)", (version + 1, name, checksum(sql), at))
                db.pragma("user_version", version + 1)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def _version(db: apsw.Connection) -> int:
    return int(db.pragma("user_version"))


def check(db: apsw.Connection) -> None:
    """Refuse a database with other tables, triggers or migrations than ours: nothing of it could be trusted."""
    with db:  # one view, because another process may be migrating
        version = _version(db)
        found = dict(db.execute("SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema"))
        expected = expected_schema(version)
        if found != expected:
            odd = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
            raise SchemaMismatch(
                f"the database's schema was changed outside acode: {', '.join(odd[:5])}", hint=NOT_USED, objects=odd
            )
        sums = [row[0] for row in db.execute("SELECT sha256 FROM migrations ORDER BY version")] if version else []
    if sums != [checksum(sql) for _, sql in MIGRATIONS[:version]]:
        raise SchemaMismatch("the database was made by migrations that are not acode's", hint=NOT_USED)


@cache
def expected_schema(version: int) -> dict[str, str]:
    db = apsw.Connection(":memory:")
    for _, sql in MIGRATIONS[:version]:
        db.execute(sql)
    return dict(db.execute("SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema"))
