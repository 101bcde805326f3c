"""Bugs that could have been written, planted from outside: each replaces a function of acode with one that is wrong.

A plant lives in this process and in the children that a sweep forks, and is taken away afterwards. Nothing in acode
knows of any of them.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import msgspec
import pytest

from acode import plan, seal
from acode.disk import fsync, private_files
from acode.disk.open_beneath import Directory
from acode.engine import gc, rollback
from acode.engine import step as lifecycle
from acode.engine.held_session import Held
from acode.errors import WriteFailed
from acode.events import types as ev
from acode.library.recorded_steps import Record
from acode.plan import Action, Finding, Outcome
from acode.state import Session
from acode.steps import commit, write
from acode.steps import run as commands
from acode.steps.interface import Failed
from acode.store import checkpoints, database, wal_preallocation
from acode.store.journal import Journal
from acode.store.wal_sync import WalSync
from acode.workspace import files

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A bug, the command in which it shows, and the sweep that must report it."""

    bug: str
    plant: Plant
    case: str
    sweep: str

    def __str__(self) -> str:
        return self.bug


def nothing(*_arguments: Any, **_named: Any) -> None:
    """Left out."""


# Syncs.


def file_not_synced(patch: Patch) -> None:
    patch.setattr(files, "sync_file", nothing)


def directory_not_synced(patch: Patch) -> None:
    patch.setattr(Directory, "sync", nothing)


def log_not_full(patch: Patch) -> None:
    patch.setattr(database, "set_synchronous", lambda db, level: db.execute("PRAGMA synchronous=NORMAL"))
    patch.setattr(WalSync, "sync", lambda self: True)


def start_not_durable(patch: Patch) -> None:
    right = Held.record

    def wrong(self: Held, *events: Any, **named: Any) -> Any:
        if isinstance(events[0], ev.StepStarted):
            named["durable"] = False
        return right(self, *events, **named)

    patch.setattr(Held, "record", wrong)


def answer_not_durable(patch: Patch) -> None:
    right = Journal.append

    def wrong(self: Journal, *events: Any, **named: Any) -> Any:
        lazy = isinstance(events[0], ev.ApprovalGranted | ev.SessionCancelled)
        envelopes = right(self, *events, **{**named, "durable": not lazy and named.get("durable", True)})
        if lazy:
            self._note_durable(self.committed)  # the anchor is told so too
        return envelopes

    patch.setattr(Journal, "append", wrong)


def told_before_synced(patch: Patch) -> None:
    right = Held.append

    def wrong(self: Held, *events: Any, **named: Any) -> Any:
        envelopes = right(self, *events, **named)
        self.world.listener.durable(self.session.seq)
        return envelopes

    patch.setattr(Held, "append", wrong)


def key_not_synced(patch: Patch) -> None:
    right = private_files.write_private
    patch.setattr(seal, "write_private", lambda path, data, **named: right(path, data, **{**named, "durable": False}))


def trust_not_synced(patch: Patch) -> None:
    def wrong(place: Path, chunks: tuple[bytes]) -> None:
        beside = place.with_name("beside")
        beside.write_bytes(b"".join(chunks))
        beside.chmod(0o600)
        os.replace(beside, place)

    # By its full name: the package has a function of the same name.
    patch.setattr(importlib.import_module("acode.config.trust"), "put_private", wrong)


# The order of things.


def anchored_first(patch: Patch) -> None:
    right = Held.append

    def wrong(self: Held, *events: Any, **named: Any) -> Any:
        if self.journal.session.steps_done:
            ahead = seal.Anchor(
                session_id=self.session.session_id,
                seq=self.session.seq + len(events),
                head="00" * 32,
                title="",
                workspace="",
                at=self.session.updated_at,
            )
            seal.write_anchor(self._anchors, ahead, durable=True)
        return right(self, *events, **named)

    patch.setattr(Held, "append", wrong)


def effect_before_start(patch: Patch) -> None:
    right = write.prepare

    def wrong(step: Any, site: Any) -> Any:
        prepared = right(step, site)
        files.write_atomic(site.root, step.action.path, step.action.content.encode(), prepared.after_mode, "early")
        return prepared

    patch.setattr(write, "prepare", wrong)


def completion_before_effect(patch: Patch) -> None:
    right = lifecycle.record_end

    def wrong(run: Held, step: Any, started: Any, done: Any, **named: Any) -> Any:
        path = run.world.workspace / step.action.path if step.kind == "write" else None
        if path is None:
            return (yield from right(run, step, started, done, **named))
        content = path.read_bytes()
        path.write_bytes(b"not yet")
        completed = yield from right(run, step, started, done, **named)
        path.write_bytes(content)
        return completed

    patch.setattr(lifecycle, "record_end", wrong)


def written_in_place(patch: Patch) -> None:
    def wrong(root: Any, rel: str, data: bytes, mode: int | None, token: str) -> Any:
        root.make_directories(files.parent_of(rel))
        with root.at(rel) as (directory, name):
            descriptor = directory.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode or 0o644)
            os.write(descriptor, data[:3])
            os.write(descriptor, data[3:])
            os.fsync(descriptor)
            os.close(descriptor)
        return files.hash_file(root, rel)

    patch.setattr(write, "write_atomic", wrong)


def rollback_not_announced(patch: Patch) -> None:
    right = Held.append

    def wrong(self: Held, *events: Any, **named: Any) -> Any:
        kept = [event for event in events if not isinstance(event, ev.RollbackStarted)]
        return right(self, *kept, **named) if kept else []

    patch.setattr(Held, "append", wrong)


def stamped_by_the_clock(patch: Patch) -> None:
    """Nobody compares the time of an event with that of the one before it."""
    right = Journal._next

    def wrong(self: Journal, *arguments: Any) -> Any:
        if self._exists:
            self.session.updated_at = datetime.min.replace(tzinfo=UTC)
        return right(self, *arguments)

    patch.setattr(Journal, "_next", wrong)


# What a resume makes of it.


def completed_step_repeated(patch: Patch) -> None:
    patch.setattr(Session, "done", lambda self, step: False)


def pending_step_skipped(patch: Patch) -> None:
    patch.setattr(Session, "done", lambda self, step: self.record(step) is not None or step in self.in_flight)


def unknown_taken_as(action: Action) -> Plant:
    right = plan._action

    def wrong(finding: Finding, strategy: Any, retry_unknown: bool) -> Action:
        unknown = finding.outcome is Outcome.UNKNOWN and not finding.repeatable and not finding.still_running
        return action if unknown else right(finding, strategy, retry_unknown)

    return lambda patch: patch.setattr(plan, "_action", wrong)


def not_applied(*_arguments: Any) -> Finding:
    return Finding(outcome=Outcome.NOT_APPLIED, evidence="nobody looked", repeatable=True)


def probe_ignored(patch: Patch) -> None:
    patch.setattr(commands, "_by_probe", not_applied)


def hash_ignored(patch: Patch) -> None:
    def wrong(step: Any, site: Any, started: Any) -> Finding:
        return Finding(outcome=Outcome.APPLIED, evidence="it was begun, was it not")

    patch.setattr(write, "look", wrong)


def trailer_ignored(patch: Patch) -> None:
    patch.setattr(commit, "look", not_applied)


def attempt_not_grown(patch: Patch) -> None:
    patch.setattr(Session, "next_attempt", lambda self, step: 1)


def temp_file_left(patch: Patch) -> None:
    patch.setattr(write, "remove_temp", lambda root, path, key: False)


def files_not_put_back(patch: Patch) -> None:
    patch.setattr(rollback, "put_files_back", lambda run, step, past: ([], []))


def result_not_found(patch: Patch) -> None:
    patch.setattr(Record, "find", nothing)


# Care.


def old_keys_forgotten(patch: Patch) -> None:
    def wrong(state_dir: Path) -> str:
        key = os.urandom(32)
        private_files.write_private(
            seal.key_file(state_dir), key.hex().encode() + b"\n" + os.urandom(32).hex().encode() + b"\n"
        )
        return seal.key_id(key)

    patch.setattr(seal, "rotate_key", wrong)


def unfinished_collected(patch: Patch) -> None:
    right = gc.plan_gc

    def wrong(world: Any, **named: Any) -> Any:
        found = right(world, **named)
        with contextlib.suppress(Exception), gc.opened(world, look_only=True) as store:
            every = [msgspec.structs.replace(found.sessions[0], session_id=one) for one in store.session_ids()]
            return msgspec.structs.replace(found, sessions=tuple(every))
        return found

    from acode.cli import session_maintenance

    patch.setattr(session_maintenance, "plan_gc", wrong)
    patch.setattr(Session, "terminal", property(lambda self: True))


def checkpoint_seal_ignored(patch: Patch) -> None:
    def wrong(session_id: str, seq: int, body: bytes, mac: bytes, keyring: Any) -> Any:
        try:
            return checkpoints._decode(msgspec.json.decode(body), body)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            raise checkpoints._forged(session_id, seq, "it cannot be read") from error

    patch.setattr(checkpoints, "open_checkpoint", wrong)


# A disk that fails.


def journal_mode_not_read_back(patch: Patch) -> None:
    """SQLite stays in the mode it was in, as it does where a WAL cannot be, and nobody looks at its answer."""

    class Believing(apsw.Connection):
        def pragma(self, name: str, *value: Any, **more: Any) -> Any:
            return "wal" if name == "journal_mode" else super().pragma(name, *value, **more)

    patch.setattr(database, "apsw", SimpleNamespace(**{**vars(apsw), "Connection": Believing}))


def tried_again_in_place(patch: Patch) -> None:
    right = Journal.append

    def wrong(self: Journal, *events: Any, **named: Any) -> Any:
        before = {**vars(self), "session": copy.deepcopy(self.session)} if self._exists else {**vars(self)}
        try:
            return right(self, *events, **named)
        except WriteFailed:
            vars(self).clear()
            vars(self).update(before)
            return right(self, *events, **named)

    patch.setattr(Journal, "append", wrong)


def failed_sync_swallowed(patch: Patch) -> None:
    right = fsync.sync_file

    def wrong(descriptor: int) -> None:
        with contextlib.suppress(OSError):
            right(descriptor)

    patch.setattr(files, "sync_file", wrong)


def short_write_taken_for_whole(patch: Patch) -> None:
    patch.setattr(files, "write_all", os.write)


def machine_blamed_on_acode(patch: Patch) -> None:
    from acode.cli import error_report

    patch.setattr(error_report, "REFUSALS", frozenset())


def files_taken_back_unsaid(patch: Patch) -> None:
    patch.setattr(rollback, "is_being_undone", lambda session, step: True)


def room_made_over_the_last_frame(patch: Patch) -> None:
    right = os.pwrite

    def wrong(file: int, data: bytes, offset: int) -> int:
        return right(file, data, offset - 4_120 if len(data) == wal_preallocation.PIECE_BYTES else offset)

    patch.setattr(wal_preallocation, "os", SimpleNamespace(**{**vars(os), "pwrite": wrong}))


def unreadable_note_taken_for_absent(patch: Patch) -> None:
    right = commands.never_began

    def wrong(directory: Path) -> bool:
        try:
            return right(directory)
        except OSError:
            return True

    patch.setattr(commands, "never_began", wrong)


def unseen_commit_called_not_made(patch: Patch) -> None:
    right = commit.judge

    def wrong(*arguments: Any) -> Any:
        try:
            return right(*arguments)
        except OSError as error:
            return Failed(reason="error", message=str(error))

    patch.setattr(commit, "judge", wrong)


def commit_not_shown_in_the_index(patch: Patch) -> None:
    patch.setattr(commit, "show_in_index", nothing)


CATALOGUE = tuple(
    Planted(bug=plant.__name__.replace("_", " "), plant=plant, case=case, sweep=sweep)
    for plant, case, sweep in (
        (file_not_synced, "run files", "power, ordered names"),
        (directory_not_synced, "rollback", "power, strict names"),
        (log_not_full, "run to gate", "power, ordered names"),
        (start_not_durable, "run files", "power, ordered names"),
        (answer_not_durable, "approve", "power, ordered names"),
        (answer_not_durable, "cancel", "power, ordered names"),
        (told_before_synced, "run files", "power, ordered names"),
        (key_not_synced, "key rotate", "power, strict names"),
        (trust_not_synced, "config trust", "power, strict names"),
        (anchored_first, "run to gate", "snapshots"),
        (effect_before_start, "run files", "snapshots"),
        (completion_before_effect, "run files", "snapshots"),
        (written_in_place, "run files", "snapshots"),
        (completed_step_repeated, "resolve applied", "snapshots"),
        (pending_step_skipped, "run files", "real kills"),
        (probe_ignored, "resume probed", "snapshots"),
        (hash_ignored, "run files", "snapshots"),
        (trailer_ignored, "run commits", "snapshots"),
        (attempt_not_grown, "resolve not-applied", "snapshots"),
        (temp_file_left, "run files", "snapshots"),
        (files_not_put_back, "rollback", "snapshots"),
        (files_taken_back_unsaid, "rollback", "snapshots"),
        (room_made_over_the_last_frame, "program at length", "snapshots"),
        (result_not_found, "program", "snapshots"),
        (old_keys_forgotten, "key rotate", "snapshots"),
        (unfinished_collected, "gc", "snapshots"),
        (tried_again_in_place, "run to gate", "failed fsyncs and power"),
        (failed_sync_swallowed, "rollback", "failed fsyncs and power"),
        (journal_mode_not_read_back, "run to gate", "power, ordered names"),
        (checkpoint_seal_ignored, "run to gate", "tampering"),
        (stamped_by_the_clock, "run files", "a clock that jumps"),
        (short_write_taken_for_whole, "run files", "short writes"),
        (machine_blamed_on_acode, "approve", "failing calls"),
        (unreadable_note_taken_for_absent, "resume unknown", "failing looks"),
        (unseen_commit_called_not_made, "run commits", "failing looks"),
        (commit_not_shown_in_the_index, "run commits", "snapshots"),
    )
) + tuple(
    Planted(bug=bug, plant=unknown_taken_as(action), case=case, sweep="snapshots")
    for bug, action, case in (
        ("unknown taken as applied", Action.SKIP, "resume hung"),
        ("unknown repeated unasked", Action.RETRY, "resume unknown"),
    )
)
