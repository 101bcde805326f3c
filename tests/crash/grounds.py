"""Plans with every kind of step, and the states of a workspace in which commands find it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from acode.config import is_trusted, load_config
from acode.engine.workspace_store import opened
from acode.events import types as ev
from tests.crash.harness.ptracer import Stop, killed, trace
from tests.crash.harness.snapshots import Snapshot
from tests.crash.place import GIT_IDENTITY, KEPT_VARIABLES, Place
from tests.lives import end_all_in
from tests.tampering import SPAN, Attack

NOTE = 'echo "$ACODE_IDEMPOTENCY_KEY" >> "$LEDGER"'

FILES = """
title: Files
tasks:
  - title: write
    steps:
      - write: {path: old.txt, content: "after\\n"}
      - read: kept.txt
      - write: {path: new/deep/file.txt, content: "made\\n", mode: "0600"}
      - read: new/deep/file.txt
      - write: {path: old.txt, content: "after that\\n"}
"""
COMMANDS = f"""
title: Commands
tasks:
  - title: work
    steps:
      - run: {NOTE}
        id: undeclared
      - run: echo half > out.txt; {NOTE}; wc -l < kept.txt > out.txt
        id: outputs
        outputs: [out.txt]
      - run: {NOTE}
        id: probed
        probe: grep -q ":work.probed:" "$LEDGER"
      - run: {NOTE}
        id: idempotent
        idempotent: true
      - read: out.txt
"""
# Its first attempt fails half way. It refuses to begin on what an attempt before it has left.
PATTERNS = """
title: Patterns
tasks:
  - title: first
    steps:
      - write: {path: old.txt, content: "after\\n"}
  - title: second
    steps:
      - run: >-
          test ! -e out/made.txt && test ! -e made.o || exit 9;
          mkdir -p out; echo half > out/made.txt; echo half > made.o; test "$ACODE_ATTEMPT" -gt 1 || exit 1;
          echo whole > out/made.txt; echo whole > made.o
        id: made
        outputs: ["out/**", "*.o"]
        retry: {attempts: 9}
      - approve: Go on?
      - write: {path: end.txt, content: "end\\n"}
"""
ONE_COMMAND = f"""
title: One command
tasks:
  - title: work
    steps:
      - run: {NOTE}
        id: undeclared
"""
# Its effect survives a power cut: whatever is lost then, acode has lost.
KEPT = f"""
title: Kept
tasks:
  - title: work
    steps:
      - run: {NOTE}; sync "$LEDGER"
        id: kept
      - write: {{path: end.txt, content: "end\\n"}}
"""
# Like most commands it syncs nothing: what acode says of its outputs must hold all the same.
BUILT = """
title: Built
tasks:
  - title: work
    steps:
      - run: mkdir -p out/deep; echo built > out/deep/built.txt; rm -f old.txt
        id: built
        outputs: [out/deep/built.txt, old.txt]
      - write: {path: end.txt, content: "end\\n"}
"""
DATABASES = """
title: Databases
tasks:
  - title: migrate
    steps:
      - sql: {database: app.db, file: change.sql}
      - write: {path: old.txt, content: "migrated\\n"}
      - sql: {database: wal.db, file: change.sql}
"""
SERVER = """
title: Server
tasks:
  - title: migrate
    steps:
      - sql: {database: {env: DATABASE_URL}, file: change.sql}
      - write: {path: old.txt, content: "migrated\\n"}
"""
COMMITS = """
title: Commits
tasks:
  - title: keep
    steps:
      - write: {path: old.txt, content: "after\\n"}
      - commit: {message: "Change", paths: [old.txt]}
"""
GATE = """
title: Gate
tasks:
  - title: first
    steps:
      - write: {path: old.txt, content: "after\\n"}
      - write: {path: new.txt, content: "made\\n"}
  - title: second
    steps:
      - approve: Go on?
      - write: {path: end.txt, content: "end\\n"}
"""
UNDO = f"""
title: Undo
tasks:
  - title: first
    steps:
      - write: {{path: old.txt, content: "after\\n"}}
      - run: {NOTE}
        undo: {NOTE}
  - title: second
    steps:
      - approve: Go on?
      - write: {{path: end.txt, content: "end\\n"}}
"""
UNDO_LOST = UNDO.replace(f"undo: {NOTE}", f"undo: {NOTE}; test -e ../quick || exec sleep 60")
# Three tasks at the same time, with every kind of evidence.
PARALLEL = f"""
title: Parallel
parallel: 3
tasks:
  - id: one
    steps:
      - run: {NOTE}
        id: undeclared
      - write: {{path: one.txt, content: "one\\n"}}
  - id: two
    needs: []
    steps:
      - run: {NOTE}
        id: probed
        probe: grep -q ":two.probed:" "$LEDGER"
      - read: kept.txt
  - id: three
    needs: []
    steps:
      - run: echo half > out.txt; wc -l < kept.txt > out.txt
        id: outputs
        outputs: [out.txt]
  - id: last
    needs: [one, two, three]
    steps:
      - write: {{path: old.txt, content: "after\\n"}}
"""
# Killed when all three have left their effect: one is repeated, one was done, one is rolled back and repeated.
PARALLEL_LOST = f"""
title: Parallel
parallel: 3
tasks:
  - id: one
    steps:
      - run: {NOTE}; test -e ../quick || exec sleep 60
        id: idempotent
        idempotent: true
  - id: two
    needs: []
    steps:
      - run: {NOTE}; test -e ../quick || exec sleep 60
        id: probed
        probe: grep -q ":two.probed:" "$LEDGER"
  - id: three
    needs: []
    steps:
      - run: echo half > out.txt; {NOTE}; test -e ../quick || exec sleep 60; wc -l < kept.txt > out.txt
        id: outputs
        outputs: [out.txt]
  - id: last
    needs: [one, two, three]
    steps:
      - write: {{path: old.txt, content: "after\\n"}}
"""
# The first time it hangs, and is killed with acode and its keeper: nothing on the machine knows what became of it.
LOST = f"""
title: Lost
tasks:
  - title: work
    steps:
      - run: {NOTE}; test -e ../quick || exec sleep 60
        id: lost
      - write: {{path: end.txt, content: "end\\n"}}
"""
LOST_WITH_PROBE = LOST.replace("id: lost\n", "id: lost\n        probe: grep -q ':work.lost:' \"$LEDGER\"\n")
# This one hangs before its effect.
HUNG = LOST.replace(
    f"{NOTE}; test -e ../quick || exec sleep 60", f"touch ../begun; test -e ../quick || sleep 60; {NOTE}"
)
HELD = f"""
title: Held
tasks:
  - title: work
    steps:
      - approve: Begin?
      - run: {NOTE}; while [ ! -e ../quick ]; do sleep 0.01; done
        id: slow
      - write: {{path: end.txt, content: "end\\n"}}
"""
# Its third step fails, after it has written over somebody's file; the corrected plan declares other outputs.
BROKEN = f"""
title: Broken
tasks:
  - title: work
    steps:
      - run: {NOTE}
        id: first
      - sql: {{database: app.db, file: change.sql}}
        id: migrate
      - run: echo half > out.txt; echo half > old.txt; exit 1
        id: made
        outputs: [out.txt, old.txt]
      - write: {{path: end.txt, content: "end\\n"}}
        id: end
"""
CORRECTED = BROKEN.replace(
    "echo half > out.txt; echo half > old.txt; exit 1", "test ! -e out.txt && cat old.txt > out.txt"
).replace(
    "outputs: [out.txt, old.txt]",
    "outputs: [out.txt]\n      - sql: {database: wal.db, file: change.sql}\n        id: later",
)
MIGRATION = "CREATE TABLE rows (n INTEGER); INSERT INTO rows VALUES (1), (2); CREATE INDEX by_n ON rows (n);\n"
PLANS = {
    "files": FILES, "commands": COMMANDS, "command": ONE_COMMAND, "databases": DATABASES, "server": SERVER,
    "commits": COMMITS, "gate": GATE, "undo": UNDO, "undo lost": UNDO_LOST, "lost": LOST,
    "probed": LOST_WITH_PROBE, "hung": HUNG, "held": HELD, "kept": KEPT, "built": BUILT,
    "patterns": PATTERNS, "parallel": PARALLEL, "parallel lost": PARALLEL_LOST,
    "broken": BROKEN, "corrected": CORRECTED,
}  # fmt: skip


@contextlib.contextmanager
def environment(place: Place) -> Iterator[None]:
    before = dict(os.environ)
    for name in set(os.environ) - set(KEPT_VARIABLES):
        del os.environ[name]
    os.environ.update(place.env())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def plain(place: Place) -> None:
    """Two files and the plans; acode was never here."""
    place.put("old.txt", "before\n")
    place.put("kept.txt", "1\n2\n3\n")
    for name, text in PLANS.items():
        (place.root / f"{name}.yml").write_text(text)


def plan(name: str) -> tuple[str, ...]:
    return ("run", f"../{name}.yml", "--json", "--no-input")


def with_databases(place: Place) -> None:
    plain(place)
    place.put("change.sql", MIGRATION)
    for name, mode in (("app.db", "DELETE"), ("wal.db", "WAL")):
        database = apsw.Connection(os.fspath(place.workspace / name))
        database.execute(f"PRAGMA journal_mode={mode}; CREATE TABLE theirs (n)")
        database.close()


def broken(place: Place) -> None:
    """A step has failed because the plan is wrong."""
    with_databases(place)
    assert place.acode(*plan("broken")).exit_code == 1


def with_ledger(place: Place) -> None:
    """The ledger is there, so that a command need not make its name safe."""
    plain(place)
    place.ledger.touch()


def with_script(place: Place) -> None:
    plain(place)
    place.put("change.sql", MIGRATION)


def repository(place: Place) -> None:
    plain(place)
    git(place.workspace, "init", "-q", "-b", "main", "--template=")
    git(place.workspace, "config", "gc.auto", "0")
    git(place.workspace, "add", "old.txt", "kept.txt")
    git(place.workspace, "commit", "-qm", "first")


def git(workspace: Path, *words: str) -> str:
    env = {**os.environ, **GIT_IDENTITY, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *words], cwd=workspace, env=env, check=True, capture_output=True, text=True).stdout


def at_gate(place: Place) -> None:
    plain(place)
    assert place.acode(*plan("gate")).exit_code == 10


def at_gate_with_undo(place: Place) -> None:
    plain(place)
    assert place.acode(*plan("undo")).exit_code == 10


def pattern_done(place: Place) -> None:
    """A command with patterns for outputs was done, beside files that stood there before."""
    plain(place)
    place.put("out/theirs.txt", "theirs\n")
    place.put("theirs.o", "theirs\n")
    assert place.acode(*plan("patterns")).exit_code == 10


def pattern_rolled_back(place: Place) -> None:
    """A person has rolled it back."""
    pattern_done(place)
    rollback = ("session", "rollback", place.session_ids()[0], "--to", "first.1", "--yes", "--json", "--no-input")
    assert place.acode(*rollback).exit_code == 0


def lost(place: Place, name: str, sign: Path) -> None:
    """acode, the command and its keeper are gone, after the command has given this sign."""
    plain(place)
    end_when(place, plan(name), lambda: bool(place.effects()) if sign == place.ledger else sign.exists())


def end_when(place: Place, words: tuple[str, ...], begun: Callable[[], bool]) -> None:
    """acode is killed, and everything that it has started, as soon as this has begun; the next time nothing waits."""
    running = os.fork()
    if running == 0:
        os._exit(place.traced(*words))
    while not begun():
        time.sleep(0.005)
    os.kill(running, signal.SIGKILL)
    os.waitpid(running, 0)
    end_all_in(place.root)
    (place.root / "quick").touch()


def unknown(place: Place) -> None:
    lost(place, "lost", place.ledger)


def lost_with_probe(place: Place) -> None:
    lost(place, "probed", place.ledger)


def three_lost(place: Place) -> None:
    """Three steps were in flight."""
    plain(place)
    end_when(place, plan("parallel lost"), lambda: len(place.effects()) == 3)


def hung(place: Place) -> None:
    lost(place, "hung", place.root / "begun")


def to_be_held(place: Place) -> None:
    """A session that somebody may carry on: its next step is a command that waits for a sign."""
    plain(place)
    assert place.acode(*plan("held")).exit_code == 10
    assert place.acode("session", "approve", place.session_ids()[0], "--json").exit_code == 0


def hold(place: Place) -> None:
    """Somebody carries it on, and is in the middle of its command."""
    holder = Place(place.root)
    holder.heard, holder.said = (place.root.parent / f"holder-{name}" for name in ("heard", "said"))
    holder.silence()
    place.holder = os.fork()
    if place.holder == 0:
        os._exit(holder.traced("resume", place.names["id"], "--json", "--no-input"))
    while not place.effects():
        time.sleep(0.005)


def let_go(place: Place) -> None:
    """The command ends, and its owner finds that the lock was broken: it must not write any more."""
    (place.root / "quick").touch()
    status = os.waitstatus_to_exitcode(os.waitpid(place.holder, 0)[1])
    place.holder = 0
    assert status == 16, f"whoever was fenced off ended with {status}"


def breakings(place: Place) -> list[tuple[int, bool]]:
    """Each breaking of the lock as it stands in the log: whose generation, and by force or not."""
    with opened(place.world(), look_only=True) as store:
        events = [envelope.event for id_ in store.session_ids() for envelope, _, _ in store.events(id_)]
    return [(event.generation, event.forced) for event in events if isinstance(event, ev.LockBroken)]


def killed_while_writing(place: Place) -> None:
    """acode was killed between the writing of a file and its new name."""
    plain(place)
    before, words = Snapshot.of(place.root), plan("files")
    renames: list[int] = []

    def note(stop: Stop) -> None:
        if stop.name.startswith("rename") and stop.phase == "entry" and stop.new_path().endswith("deep/file.txt"):
            renames.append(stop.number)

    trace(lambda: place.traced(*words), on_stop=note)
    before.put(place.root)
    killed(lambda: place.traced(*words), renames[0])
    place.silence()


def damaged(place: Place) -> None:
    """Somebody has changed the code of an event that says no more than that the session runs."""
    at_gate(place)
    attack = Attack(place.workspace)
    number = attack.seq_of("step_completed", "first.2")
    attack.sql("UPDATE events SET mac = zeroblob(32) WHERE id = ?", SPAN + number)


def ended(place: Place) -> None:
    """One session has ended, one waits at its gate."""
    plain(place)
    assert place.acode(*plan("files")).exit_code == 0
    place.put("old.txt", "before\n")
    assert place.acode(*plan("gate")).exit_code == 10


def untrusted(place: Place) -> None:
    at_gate(place)
    place.put(".agent/config.yml", "notify: {command: ['true']}\n")


def trusted(place: Place) -> bool:
    config = load_config(place.workspace, place.env(), {})
    assert config.workspace_file_sha256 is not None
    return is_trusted(place.root / "state", place.workspace, config.workspace_file_sha256)


def has_new_key(place: Place) -> bool:
    return len((place.root / "state" / "keys").read_text().split()) > 1


def ended_is_gone(place: Place) -> bool:
    return len(place.session_ids()) == 1
