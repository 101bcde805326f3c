"""The server's tables, as numbered migrations; applied under an advisory lock, one transaction each.

A client that knows fewer migrations than the server has still works: later ones only add, and the tables of an older
client stay. Only a change that old clients must not survive raises MIN_CLIENT, and then they are refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acode.errors import NewerSchema

if TYPE_CHECKING:
    import psycopg

ADVISORY_LOCK = 7_227_046_511_402_201  # any number, the same for all clients
CLIENT = 4  # what this acode understands
MIGRATIONS: tuple[tuple[int, str], ...] = (  # the oldest client that may continue, and the additions
    (
        1,
        """
CREATE TABLE acode_sessions(
  session_id text PRIMARY KEY,
  generation bigint NOT NULL, -- of the lease; it only grows
  owner text, -- the node that may write; NULL: the lease was given back
  holder text NOT NULL DEFAULT '', -- the owner in words
  renewed_at timestamptz NOT NULL DEFAULT now(),
  seq bigint NOT NULL, -- the anchor: how far the log has come, and its code there
  head bytea NOT NULL,
  title text NOT NULL DEFAULT '',
  state text NOT NULL DEFAULT '',
  source text NOT NULL DEFAULT '',
  steps_done bigint NOT NULL DEFAULT 0,
  steps_total bigint NOT NULL DEFAULT 0,
  created_at timestamptz,
  updated_at timestamptz
);
CREATE TABLE acode_events(
  session_id text NOT NULL REFERENCES acode_sessions,
  seq bigint NOT NULL CHECK (seq >= 1),
  generation bigint NOT NULL,
  body bytea NOT NULL,
  mac bytea NOT NULL CHECK (length(mac) = 32),
  PRIMARY KEY (session_id, seq)
);
CREATE TABLE acode_checkpoints(
  session_id text NOT NULL REFERENCES acode_sessions,
  seq bigint NOT NULL,
  body bytea NOT NULL,
  mac bytea NOT NULL,
  PRIMARY KEY (session_id, seq)
);
CREATE TABLE acode_snapshots(
  session_id text NOT NULL REFERENCES acode_sessions,
  seq bigint NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (session_id, seq)
);
CREATE TABLE acode_blobs(
  sha256 text PRIMARY KEY CHECK (length(sha256) = 64),
  bytes bigint NOT NULL
);
CREATE TABLE acode_blob_parts(
  sha256 text NOT NULL,
  part int NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (sha256, part)
);
CREATE TABLE acode_session_blobs( -- a blob comes before the events that name it, so before its session
  session_id text NOT NULL,
  sha256 text NOT NULL REFERENCES acode_blobs,
  purpose text NOT NULL,
  PRIMARY KEY (session_id, sha256, purpose)
);
CREATE TABLE acode_set_aside( -- a history that a person did not choose
  session_id text NOT NULL,
  seq bigint NOT NULL,
  generation bigint NOT NULL,
  body bytea NOT NULL,
  mac bytea NOT NULL,
  set_aside_at timestamptz NOT NULL DEFAULT now(),
  by_holder text NOT NULL
);
""",
    ),
    (
        1,
        """
ALTER TABLE acode_sessions
  ADD COLUMN last_node text, -- the node that held last_generation; a lease that was given back has no owner any more
  ADD COLUMN last_generation bigint;
""",
    ),
    (
        1,
        """
ALTER TABLE acode_sessions
  ADD COLUMN signed bytea; -- an end that the log had once, signed by its holder; NULL: by a client that signs none
""",
    ),
    (
        1,
        """
ALTER TABLE acode_sessions
  ADD COLUMN lease_seconds double precision, -- in a fleet: the lease ends so long after it was renewed; NULL: never
  ADD COLUMN lease_generation bigint; -- the lease of which that is true: one that an older client takes never ends
CREATE INDEX acode_sessions_by_beginning ON acode_sessions (session_id text_pattern_ops);
CREATE INDEX acode_sessions_by_end ON acode_sessions (reverse(session_id) text_pattern_ops);
CREATE INDEX acode_sessions_by_short_id ON acode_sessions (right(session_id, 8) text_pattern_ops);
CREATE TABLE acode_fleet_sessions(
  session_id text PRIMARY KEY REFERENCES acode_sessions,
  state text NOT NULL, -- queued, running, waiting (for its key), parked, done, failed, cancelled
  queue text NOT NULL,
  priority int NOT NULL,
  labels text[] NOT NULL,
  key text,
  source jsonb NOT NULL,
  job bigint, -- of the queue engine; NULL: there is none
  worker bigint, -- that has it, or had it last
  attempts int NOT NULL DEFAULT 0,
  deaths int NOT NULL DEFAULT 0, -- of workers and their children, since the session last came further
  progress bigint NOT NULL DEFAULT 0, -- steps that were done then
  cancel_reason text, -- a person has asked for its end
  ended_with int, -- exit status of the last attempt
  reason text NOT NULL DEFAULT '', -- what a parked session needs, or why it ended
  next_action text NOT NULL DEFAULT '',
  due_at timestamptz, -- of a queued one, where it waits
  submitted_at timestamptz NOT NULL DEFAULT now(),
  changed_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX acode_fleet_sessions_by_state ON acode_fleet_sessions (state, changed_at DESC)
  WHERE state IN ('queued', 'running', 'waiting', 'parked');
CREATE INDEX acode_fleet_sessions_by_key ON acode_fleet_sessions (key, submitted_at) WHERE state = 'waiting';
CREATE TABLE acode_fleet_keys( -- mutual exclusion: who has the key now
  key text PRIMARY KEY,
  session_id text NOT NULL REFERENCES acode_fleet_sessions
);
CREATE INDEX acode_fleet_keys_by_session ON acode_fleet_keys (session_id);
CREATE TABLE acode_fleet_workers(
  worker bigint PRIMARY KEY, -- its number in the queue engine
  name text NOT NULL,
  host text NOT NULL,
  queues text[] NOT NULL,
  labels text[] NOT NULL,
  slots int NOT NULL,
  lease_seconds double precision NOT NULL,
  version text NOT NULL,
  drain boolean NOT NULL DEFAULT false, -- a person has asked it to end
  started_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE acode_fleet_schedules( -- plans that are submitted again and again
  schedule_id text PRIMARY KEY,
  title text NOT NULL,
  cron text NOT NULL,
  next_at timestamptz NOT NULL,
  last_session text,
  queue text NOT NULL,
  plan bytea NOT NULL,
  plan_path text,
  plan_sha256 text,
  wanted bytea NOT NULL -- queue, priority, labels, key, source
);
CREATE INDEX acode_fleet_schedules_by_time ON acode_fleet_schedules (next_at);
CREATE TABLE acode_fleet_paused(
  queue text PRIMARY KEY,
  paused_at timestamptz NOT NULL DEFAULT now()
);
""",
    ),
)
_MAKE = """
CREATE TABLE IF NOT EXISTS acode_migrations(
  version int PRIMARY KEY,
  min_client int NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
)"""


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Migrate the server's tables to this client's version; several first clients do it once."""
    version, min_client = _standing(connection)
    if version < len(MIGRATIONS):
        _migrate(connection)
        version, min_client = _standing(connection)
    if min_client > CLIENT:
        raise NewerSchema(f"the shared copy was made by a newer acode (its version {version} needs {min_client})")


def _standing(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    made = connection.execute("SELECT to_regclass('acode_migrations') IS NOT NULL").fetchone()
    if not (made and made[0]):
        return 0, 0
    row = connection.execute("SELECT coalesce(max(version), 0), coalesce(max(min_client), 0) FROM acode_migrations")
    found = row.fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


def _migrate(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (ADVISORY_LOCK,))
        connection.execute(_MAKE)
        version, _ = _standing(connection)  # read again under the lock: another client may have been faster
        for number, (min_client, sql) in enumerate(MIGRATIONS, 1):
            if number > version:
                connection.execute(sql.encode())
                connection.execute(
                    "INSERT INTO acode_migrations(version, min_client) VALUES (%s, %s)", (number, min_client)
                )
