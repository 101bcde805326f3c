"""More bugs that could have been written, for the release sweep: some need a case or a sweep of their own.

Each replaces a function of acode from outside, as in `planted`, and differs in kind from all that stand there. Most
are faults that the sweeps have really found, or their nearest relatives.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import acode
from acode.disk.open_beneath import Directory
from acode.engine import break_lock, environment, make_world, resume, settle, survey, undo_command
from acode.engine import rollback as engine_rollback
from acode.engine.held_session import ENDINGS, Held
from acode.errors import WriteFailed
from acode.events import types as ev
from acode.formats import drive_run
from acode.library import session as program
from acode.library.step_identity import COUNTER
from acode.lock import Lock
from acode.plan import Finding, Outcome
from acode.steps import git_locks, keeper_notes, sql_sqlite, write
from acode.steps import run as commands
from acode.steps.interface import Done
from acode.store import checkpoints as ck
from acode.store import database
from acode.store.journal import Journal
from acode.store.step_index import Finished
from acode.workspace import files, rollback
from tests.crash import grounds
from tests.crash.case import Case
from tests.crash.place import Place
from tests.crash.planted import Patch, Planted, nothing

# What was meant to be one transaction.


def checkpoint_behind_its_event(patch: Patch) -> None:
    right = Journal._write_checkpoint

    def wrong(self: Journal, last: Any) -> None:
        self._rows += [("COMMIT", ()), ("BEGIN IMMEDIATE", ())]
        right(self, last)

    patch.setattr(Journal, "_write_checkpoint", wrong)


def blobs_behind_their_event(patch: Patch) -> None:
    right = Journal._insert_blobs

    def wrong(self: Journal, blobs: Any) -> None:
        self._rows += [("COMMIT", ()), ("BEGIN IMMEDIATE", ())]
        right(self, blobs)

    patch.setattr(Journal, "_insert_blobs", wrong)


def task_closed_behind_its_last_step(patch: Patch) -> None:
    right = Held.append

    def wrong(self: Held, *events: Any, **named: Any) -> Any:
        at = next((at for at, event in enumerate(events) if isinstance(event, ev.TaskCompleted)), 0)
        if not at:
            return right(self, *events, **named)
        said = right(self, *events[:at], **{**named, "wait": True})
        return [*said, *right(self, *events[at:], **{**named, "blobs": None})]

    patch.setattr(Held, "append", wrong)


def creation_in_two_words(patch: Patch) -> None:
    right = Journal.append

    def wrong(self: Journal, *events: Any, **named: Any) -> Any:
        if not isinstance(events[0], ev.SessionCreated):
            return right(self, *events, **named)
        said = right(self, events[0], **named)
        return [*said, *right(self, *events[1:], **{**named, "blobs": None})]

    patch.setattr(Journal, "append", wrong)


def generation_raised_before_it_was_said(patch: Patch) -> None:
    right = break_lock.fencing_journal

    def wrong(store: Any, loaded: Any, generation: int) -> Any:
        store.raise_generation(loaded.session.session_id, generation)
        return right(store, loaded, generation)

    patch.setattr(break_lock, "fencing_journal", wrong)


def sql_key_behind_the_commit(patch: Patch) -> None:
    right = sql_sqlite.Sqlite.record

    def wrong(self: sql_sqlite.Sqlite, order: Any) -> None:
        self._db.execute("COMMIT")
        right(self, order)

    patch.setattr(sql_sqlite.Sqlite, "record", nothing)
    patch.setattr(sql_sqlite.Sqlite, "commit", wrong)


def sql_key_ahead_of_its_statements(patch: Patch) -> None:
    right = sql_sqlite.Sqlite.record

    def wrong(self: sql_sqlite.Sqlite, order: Any) -> None:
        right(self, order)
        self._db.execute("COMMIT")
        self._db.execute("BEGIN IMMEDIATE")

    patch.setattr(sql_sqlite.Sqlite, "record", wrong)


# The order of things.


def mode_set_behind_the_rename(patch: Patch) -> None:
    right = files._rename_over
    wanted: dict[str, int] = {}

    def later(directory: Directory, name: str, descriptor: int, mode: int) -> None:
        wanted[name] = mode

    def wrong(directory: Directory, temp: str, name: str, rel: str) -> None:
        right(directory, temp, name, rel)
        if temp in wanted:
            directory.set_mode(name, wanted.pop(temp))

    patch.setattr(files, "_set_mode_of_open", later)
    patch.setattr(files, "_rename_over", wrong)


def preimages_forgotten_before_the_end(patch: Patch) -> None:
    right = Held.append

    def wrong(self: Held, *events: Any, **named: Any) -> Any:
        if not ENDINGS.isdisjoint(map(type, events)):
            self._forget()
        return right(self, *events, **named)

    patch.setattr(Held, "append", wrong)


def completed_before_the_function_ran(patch: Patch) -> None:
    def wrong(self: Any, name: str, function: Any, args: Any, *declared: Any) -> Any:
        begun = self._ask_call(name, function, args, *declared)
        if begun.found:
            return begun.result
        self.complete(begun, name)
        return self._called(begun, function, args, declared[0])

    patch.setattr(program.Session, "do", wrong)


def settlement_left_out(patch: Patch) -> None:
    """What is repeated is simply begun again."""
    right = settle.settle_one

    def wrong(run: Held, settlement: Any, **named: Any) -> None:
        if settlement.outcome is Outcome.APPLIED:
            right(run, settlement, **named)
            return
        started = run.session.in_flight.pop(settlement.step).started
        settle.kind_of(started.kind).roll_back(settle.step_named(run.session, settlement.step), run.site(), started)

    patch.setattr(settle, "settle_one", wrong)


def taken_back_oldest_first(patch: Patch) -> None:
    right = engine_rollback.steps_to_undo
    patch.setattr(engine_rollback, "steps_to_undo", lambda store, session, to: right(store, session, to)[::-1])


def settled_before_it_was_cleared(patch: Patch) -> None:
    right = write.roll_back

    def wrong(step: Any, site: Any, started: ev.StepStarted) -> Any:
        outcome = ev.Settled.NOT_APPLIED
        site.keeping(ev.StepSettled(step=step.id, attempt=started.attempt, outcome=outcome, evidence="not yet there"))
        return right(step, site, started)

    patch.setattr(Held, "keep_saved", lambda self, event: self.append(event))
    patch.setattr(write, "roll_back", wrong)


def outcome_told_to_the_run_only_once(patch: Patch) -> None:
    """Whoever is killed between its own record and the run's takes it that the run has heard of it."""
    patch.setattr(drive_run, "record_last", nothing)


# What a resume makes of it.


def adopted_file_not_remembered(patch: Patch) -> None:
    patch.setattr(write, "adopt", lambda step, site, started: Done())


def restored_files_not_remembered(patch: Patch) -> None:
    right = Held.append

    def wrong(self: Held, *events: Any, **named: Any) -> Any:
        lessened = [
            msgspec.structs.replace(event, files=()) if isinstance(event, ev.StepsRolledBack) else event
            for event in events
        ]
        return right(self, *lessened, **named)

    patch.setattr(Held, "append", wrong)


def undo_repeated(patch: Patch) -> None:
    patch.setattr(undo_command, "settle_undo", lambda run, undo, event: False)


def outputs_there_taken_for_done(patch: Patch) -> None:
    right = commands.look

    def wrong(step: Any, site: Any, started: Any) -> Finding:
        found = right(step, site, started)
        if found.outcome is Outcome.PARTIAL and commands._present(step.action, site).paths:
            return Finding(outcome=Outcome.APPLIED, evidence="its outputs are there")
        return found

    patch.setattr(commands, "look", wrong)


def living_command_begun_again(patch: Patch) -> None:
    patch.setattr(commands, "still_running", nothing)


def outputs_not_given_again(patch: Patch) -> None:
    patch.setattr(resume, "restore_outputs", nothing)


def notes_of_all_attempts_in_one_place(patch: Patch) -> None:
    right = keeper_notes.run_directory

    def wrong(agent_dir: Path, key: str) -> Path:
        return right(agent_dir, key.rpartition(":")[0])

    for module in (commands, settle, environment, survey):
        patch.setattr(module, "run_directory", wrong)


def crash_moved_by_a_refused_attempt(patch: Patch) -> None:
    right = Lock.release

    def wrong(self: Lock) -> None:
        self._found_ns = time.time_ns()
        right(self)

    patch.setattr(Lock, "release", wrong)


def result_of_the_first_of_its_name(patch: Patch) -> None:
    right = Finished.find
    patch.setattr(Finished, "find", lambda self, step: right(self, step.partition(COUNTER)[0]))


def counters_of_the_moment_before(patch: Patch) -> None:
    right = ck.encode_snapshot

    def wrong(session: Any) -> bytes:
        return right(msgspec.structs.replace(session, tasks_done=session.tasks_done - 1))

    patch.setattr(ck, "encode_snapshot", wrong)


def dead_gits_locks_left(patch: Patch) -> None:
    patch.setattr(git_locks, "remove_dead", lambda repository, branch, key, agent_dir: [])


def half_an_index_left(patch: Patch) -> None:
    patch.setattr(git_locks, "clear_up", nothing)


def permissions_forgotten_by_a_rollback(patch: Patch) -> None:
    right = rollback.replace_file

    def wrong(directory: Directory, name: str, chunks: Any, mode: int | None, temp: str, **named: Any) -> Any:
        return right(directory, name, chunks, None, temp, **named)

    patch.setattr(rollback, "replace_file", wrong)


def directories_left_by_a_rollback(patch: Patch) -> None:
    right = engine_rollback.images

    def wrong(step: Any, past: Any) -> Any:
        return tuple(image for image in right(step, past) if image.kind != "absent" or image.path.endswith(".txt"))

    patch.setattr(engine_rollback, "images", wrong)


# The database's own files.


def leftover_wal_removed(patch: Patch) -> None:
    """Whoever comes after a kill clears away what the killed one left beside the database."""
    right = database.connect

    def wrong(path: Path, at: str) -> Any:
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return right(path, at)

    patch.setattr(database, "connect", wrong)


def looked_at_without_its_wal(patch: Patch) -> None:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    patch.setattr(
        database, "_open_to_look", lambda path: apsw.Connection(f"{path.resolve().as_uri()}?immutable=1", flags=flags)
    )


def flush_that_syncs_nothing(patch: Patch) -> None:
    """It commits what waits, and takes that for the disk."""

    def wrong(self: Journal) -> None:
        self.settle(self.session.seq, durable=False)
        self._note_durable(self.committed)

    patch.setattr(Journal, "flush", wrong)


def targets_journal_left_to_chance(patch: Patch) -> None:
    """FULL instead of EXTRA: the removal of a rollback journal is not synced."""
    patch.setattr(sql_sqlite, "EXTRA", 2)


def anchored_at_the_beginning_only(patch: Patch) -> None:
    right = Held.anchor

    def wrong(self: Held, **named: Any) -> None:
        if self.session.seq < 5:
            right(self, **named)

    patch.setattr(Held, "anchor", wrong)


# A disk that fails.


def failed_append_swallowed(patch: Patch) -> None:
    right = Held.append

    def wrong(self: Held, *events: Any, **named: Any) -> Any:
        try:
            return right(self, *events, **named)
        except WriteFailed:
            self.warn("it could not be noted")
            return []

    patch.setattr(Held, "append", wrong)


# Cases of their own.

DEEP = """
title: Deep
tasks:
  - title: first
    steps:
      - write: {path: old.txt, content: "after\\n"}
      - write: {path: new/deep/file.txt, content: "made\\n"}
      - write: {path: old.txt, content: "after that\\n"}
  - title: second
    steps:
      - approve: Go on?
      - write: {path: end.txt, content: "end\\n"}
"""


TOLD = """
title: Told
tasks:
  - title: work
    steps:
      - run: cat kept.txt
        id: say
        idempotent: true
      - run: cp "$ACODE_OUTPUTS/work.say" copy.txt
        outputs: [copy.txt]
"""
# Its start is not synced, and there is time for a flush: only the first attempt takes long.
WAITING = """
title: Waiting
tasks:
  - title: work
    steps:
      - write: {path: old.txt, content: "after\\n"}
      - run: test "$ACODE_ATTEMPT" -gt 1 || sleep 1.2
        idempotent: true
"""
SLOW = f"""
title: Slow
tasks:
  - title: work
    steps:
      - run: sleep 0.5; {grounds.NOTE}
        id: slow
"""
MUCH_BYTES = 9_000
AGO_S = 40  # of the sixty seconds for which nobody resumes by itself


def with_plans(place: Place) -> None:
    grounds.plain(place)
    for name, text in (("told", TOLD), ("waiting", WAITING), ("slow", SLOW)):
        (place.root / f"{name}.yml").write_text(text)


def program_with_much(place: Place) -> None:
    """Its results are so long that the state is kept whole on the way."""
    with grounds.environment(place), acode.session("much", workspace=place.workspace) as session:
        for number in range(10):
            session.step("tell", lambda count: str(count) * MUCH_BYTES, number, idempotent=True)


def killed_a_while_ago(place: Place) -> None:
    """By the clock of whoever was killed, and by its lock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_world, "now", lambda: datetime.now(UTC) - timedelta(seconds=AGO_S))
        grounds.killed_while_writing(place)
    for lock in (place.workspace / ".agent/locks").iterdir():
        os.utime(lock, (time.time() - AGO_S, time.time() - AGO_S))


def deep_at_gate(place: Place) -> None:
    """One file is written twice and is not for everybody, another one lies in directories that are made for it."""
    grounds.plain(place)
    (place.workspace / "old.txt").chmod(0o640)
    (place.root / "deep.yml").write_text(DEEP)
    assert place.acode("run", "../deep.yml", "--json", "--no-input").exit_code == 10


OWN_CASES = {
    case.name: case
    for case in (
        Case(
            name="rollback in depth",
            ground=deep_at_gate,
            words=("session", "rollback", "{id}", "--yes", "--json", "--no-input"),
            repeated=(0,),
            ends_sessions=True,
        ),
        Case(
            name="resume after a while",
            ground=killed_a_while_ago,
            words=("resume", "{id}", "--force", "--json", "--no-input"),
        ),
        Case(name="run told", ground=with_plans, words=grounds.plan("told"), lively=True),
        Case(name="run waiting", ground=with_plans, words=grounds.plan("waiting"), lively=True),
        Case(name="run slowly", ground=with_plans, words=grounds.plan("slow"), once=("work.slow",), lively=True),
        Case(name="program with much to keep", ground=grounds.plain, program=program_with_much),
    )
}

CATALOGUE = tuple(
    Planted(bug=plant.__name__.replace("_", " "), plant=plant, case=case, sweep=sweep)
    for plant, case, sweep in (
        (checkpoint_behind_its_event, "run to gate", "snapshots"),
        (blobs_behind_their_event, "run to gate", "snapshots"),
        (task_closed_behind_its_last_step, "run to gate", "snapshots"),
        (creation_in_two_words, "run to gate", "snapshots"),
        (generation_raised_before_it_was_said, "unlock while held", "kills at what is written"),
        (sql_key_behind_the_commit, "run databases", "snapshots"),
        (sql_key_ahead_of_its_statements, "run databases", "snapshots"),
        (mode_set_behind_the_rename, "run files", "snapshots"),
        (preimages_forgotten_before_the_end, "run files", "snapshots"),
        (completed_before_the_function_ran, "program", "snapshots"),
        (settlement_left_out, "run files", "snapshots"),
        (taken_back_oldest_first, "rollback in depth", "snapshots"),
        (permissions_forgotten_by_a_rollback, "rollback in depth", "snapshots"),
        (directories_left_by_a_rollback, "rollback in depth", "snapshots"),
        (adopted_file_not_remembered, "run files", "snapshots"),
        (restored_files_not_remembered, "rollback and on", "snapshots"),
        (undo_repeated, "resolve undo", "snapshots"),
        (outputs_there_taken_for_done, "run commands", "half an output"),
        (living_command_begun_again, "run slowly", "killed beside its command"),
        (result_of_the_first_of_its_name, "program at length", "snapshots"),
        (counters_of_the_moment_before, "program with much to keep", "snapshots"),
        (dead_gits_locks_left, "run commits", "locks of git's"),
        (half_an_index_left, "run commits", "an index in the making"),
        (leftover_wal_removed, "run files", "snapshots"),
        (looked_at_without_its_wal, "run files", "snapshots"),
        (targets_journal_left_to_chance, "run databases", "power, ordered names"),
        (anchored_at_the_beginning_only, "approve", "an older database"),
        (failed_append_swallowed, "approve", "failing writes"),
        (settled_before_it_was_cleared, "resume", "snapshots"),
        (outputs_not_given_again, "run told", "snapshots"),
        (flush_that_syncs_nothing, "run waiting", "power while it waits"),
        (notes_of_all_attempts_in_one_place, "resolve not-applied", "snapshots"),
        (outcome_told_to_the_run_only_once, "carry on arc", "behind a completion"),
        (crash_moved_by_a_refused_attempt, "resume after a while", "a cool-down"),
    )
)
