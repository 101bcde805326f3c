"""Write the version-1 golden database: every format of the first version, by hand and by nothing of today's code.

    python3 tests/golden/make_v1.py tests/golden/sessions/v1.db

Version 1 had only the first schema migration, kept an event's fields beside the envelope's, called the actor `by`,
called a checkpoint's number `checkpoint_id` and knew no snapshots, and wrote keys as `session/step#attempt`. The file
is committed; this script says how it came to be and is never changed once the version was shipped.

Two sessions were killed in the middle of a step: one in a write, one in an idempotent command.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sqlite3
import sys
from typing import Any

SECRET = "the secret of the golden databases"
KEY = hashlib.sha256(b"acode checkpoint secret\0" + SECRET.encode()).digest()
KEY_ID = hashlib.sha256(b"acode key id\0" + KEY).hexdigest()[:12]
SPAN = 2**40

MIGRATION_1 = """
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
"""

WRITING = "01940000-0000-7000-8000-000000000001"
RUNNING = "01940000-0000-7000-8000-000000000002"
OWNER = {"pid": 4242, "host": "golden", "user": "you", "boot_id": "golden-boot"}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def write_step(name: str, path: str, content: str) -> dict[str, Any]:
    return {"id": name, "action": {"type": "write", "path": path, "content": content}}


PLANS = {
    WRITING: {
        "title": "Greet twice",
        "tasks": [
            {
                "id": "prepare",
                "title": "Prepare",
                "steps": [
                    write_step("prepare.1", "greeting.txt", "hello\n"),
                    write_step("prepare.2", "second.txt", "two\n"),
                ],
            },
            {
                "id": "finish",
                "title": "Finish",
                "needs": ["prepare"],
                "steps": [
                    {"id": "finish.1", "action": {"type": "read", "path": "greeting.txt"}},
                    {
                        "id": "finish.2",
                        "action": {
                            "type": "run",
                            "command": "cat greeting.txt second.txt > joined.txt",
                            "outputs": ["joined.txt"],
                        },
                    },
                ],
            },
        ],
    },
    RUNNING: {
        "title": "Count once more",
        "tasks": [
            {
                "id": "count",
                "title": "Count",
                "steps": [
                    write_step("count.1", "counted.txt", "1\n"),
                    {
                        "id": "count.2",
                        "action": {"type": "run", "command": 'echo "$ACODE_IDEMPOTENCY_KEY" > key.txt'},
                        "idempotent": True,
                    },
                ],
            }
        ],
    },
}
FIRST_FILE = {WRITING: ("greeting.txt", "hello\n"), RUNNING: ("counted.txt", "1\n")}


class Log:
    """One session's log as version 1 wrote it."""

    def __init__(self, db: sqlite3.Connection, number: int, session_id: str) -> None:
        self.db, self.number, self.session_id = db, number, session_id
        self.seq, self.head, self.checkpoints = 0, b"\0" * 32, 0
        self.marks: dict[str, Any] = {}
        db.execute("INSERT INTO sessions VALUES (?, ?, ?)", (number, session_id, self.at(1)))

    def at(self, seq: int) -> str:
        return f"2026-01-01T09:0{self.number}:{seq:02}.000000Z"

    def event_id(self, seq: int) -> str:
        return f"01940000-0000-7000-900{self.number}-{seq:012x}"

    def say(self, kind: str, by: str = "system", /, **fields: Any) -> dict[str, Any]:
        self.seq += 1
        outer = {"v": 1, "session_id": self.session_id, "seq": self.seq, "event_id": self.event_id(self.seq)}
        body = compact({**outer, "at": self.at(self.seq), "by": by, "key_id": KEY_ID, "type": kind, **fields})
        self.head = hmac.digest(KEY, self.head + body.encode(), "sha256")
        row = (self.number * SPAN + self.seq, self.session_id, self.seq, body, self.head)
        self.db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", row)
        mark = {"event_id": self.event_id(self.seq), "seq": self.seq, "at": self.at(self.seq), "type": kind}
        self.marks[kind] = {**mark, **{name: fields[name] for name in ("task", "step") if name in fields}}
        return self.marks[kind]

    def checkpoint(self, **session: Any) -> None:
        whole = {
            "session_id": self.session_id,
            "seq": self.seq,
            "state": "EXECUTING",
            "created_at": self.at(1),
            "updated_at": self.at(self.seq),
            "last_event_id": self.event_id(self.seq),
            "title": PLANS[self.session_id]["title"],
            **session,
        }
        body = compact(
            {
                "v": 1,
                "checkpoint_id": self.checkpoints,
                "session_id": self.session_id,
                "seq": self.seq,
                "head": self.head.hex(),
                "key_id": KEY_ID,
                "at": self.at(self.seq),
                "session": whole,
                "label": "",
            }
        )
        code = hmac.digest(KEY, b"checkpoint\0" + body.encode(), "sha256")
        row = (self.number * SPAN + self.seq, self.session_id, self.seq, body, code)
        self.db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)", row)
        self.checkpoints += 1

    def start(self, step: str, kind: str, **fields: Any) -> None:
        task, key = step.partition(".")[0], f"{self.session_id}/{step}#1"
        fields = {"action_digest": "", "boot_id": "golden-boot", **fields}
        self.say("step_started", step=step, task=task, kind=kind, attempt=1, key=key, **fields)


def absent(path: str) -> list[dict[str, Any]]:
    return [{"path": path, "kind": "absent"}]


def interrupted(db: sqlite3.Connection, number: int, session_id: str) -> None:
    """Created, one file written, and killed in the middle of the next step; one automatic attempt was refused since."""
    plan, log = PLANS[session_id], Log(db, number, session_id)
    tasks, steps = len(plan["tasks"]), sum(len(task["steps"]) for task in plan["tasks"])
    title = plan["title"]
    log.say("session_created", "user", title=title, task=title, plan=plan, owner=OWNER, acode_version="0.0.1")
    log.say("session_planned", "user", tasks=tasks, steps=steps, plan_digest="")
    begun = log.say("session_executing", "user", reason="run")
    log.checkpoint(last_lifecycle=begun, steps_total=steps, tasks_total=tasks)

    path, content = FIRST_FILE[session_id]
    first = plan["tasks"][0]["steps"][0]["id"]
    task = first.partition(".")[0]
    log.start(first, "write", before=absent(path), after_sha256=sha256(content))
    file = {"path": path, "sha256": sha256(content), "size": len(content), "mode": 0o644}
    key = f"{session_id}/{first}#1"
    done = log.say("step_completed", step=first, task=task, attempt=1, key=key, duration_ms=3, files=[file])
    log.checkpoint(
        last_lifecycle=done,
        last_completed=done,
        steps_done=1,
        steps_total=steps,
        tasks_total=tasks,
        furthest=1,
        started_any=True,
        last_attempted=first,
    )
    if session_id == WRITING:
        log.start("prepare.2", "write", before=absent("second.txt"), after_sha256=sha256("two\n"))
    else:
        log.start("count.2", "run", idempotent=True)
    log.say(
        "resume_decision",
        run_id=session_id,
        interruption_class="process_crash",
        eligible=False,
        reason_code="resume_blocked_cooldown",
        cooldown_seconds_remaining=59,
        attempt=1,
        max_attempts=3,
        actor="system",
    )


def main(target: str) -> None:
    if os.path.exists(target):
        os.unlink(target)
    db = sqlite3.connect(target, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(f"BEGIN;{MIGRATION_1}COMMIT;")
    applied = (1, "log", sha256(MIGRATION_1), "2026-01-01T09:00:00.000000Z")
    db.execute("INSERT INTO migrations VALUES (?, ?, ?, ?)", applied)
    db.execute("PRAGMA user_version=1")
    for number, session_id in enumerate((WRITING, RUNNING), 1):
        interrupted(db, number, session_id)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


if __name__ == "__main__":
    main(sys.argv[1])
