"""acode's own word in a foreign run: events of the actor `acode`, appended to its own file and to no other.

The builders are pure; `append` is the only function of this format that writes. It only ever adds to a file below
`events/acode/`, so that no event that anybody else wrote can be changed or lost.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from acode.disk.fsync import sync_file, write_all
from acode.errors import DiskFull, EventTooLarge, NotWritable, UnsafePath, WriteFailed
from acode.formats.agent_memory.diagnosis import Findings, NextAction, rfc3339, task_states
from acode.formats.agent_memory.dialect import folded
from acode.formats.agent_memory.disk import Folder, lines
from acode.formats.agent_memory.event_files import EVENTS_FOLDER
from acode.formats.agent_memory.phase_numbers import Numbering, number_of
from acode.formats.agent_memory.values import EVENT_LINE_BYTES_MAX, LAST_PHASE, OUR_ACTOR, STAGE_SLUGS, Run

OwnEvent = dict[str, Any]
Digests = Mapping[str, str]
DriverOutcome = Literal["completed", "failed", "blocked", "not_made"]
REASON_CHARS_MAX = 2_000


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """Which run, which event, when. The same stamp gives the same event: appending it twice adds a duplicate only."""

    run_id: str
    event_id: str
    now: datetime


def own_event(
    stamp: Stamp, kind: str, *, task: str | None = None, details: Mapping[str, Any] | None = None, **top: Any
) -> OwnEvent:
    """Spelled for readers of every dialect: `type` with underscores, `event_type` with hyphens."""
    event: OwnEvent = {
        "type": kind,
        "event_type": folded(kind),
        "event_id": stamp.event_id,
        "timestamp": rfc3339(stamp.now),
        "run_id": stamp.run_id,
        "actor": OUR_ACTOR,
    }
    if task is not None:
        event["task_id"] = task
    return {**event, **top, "details": dict(details or {})}


def session_resumed(stamp: Stamp, findings: Findings, *, approved: Digests | None = None) -> OwnEvent:
    """The run was taken up. `approved`: what another actor had approved, as acode found it; later changes count."""
    restored = {"phase": findings.phase, "tasks_done": findings.done, "tasks_total": findings.total}
    details: OwnEvent = {"state_restored": restored, "continuation_point": findings.next_action.summary}
    return own_event(stamp, "session_resumed", details={**details, **_approved(approved)})


def _approved(digests: Digests | None) -> OwnEvent:
    return {"approved": dict(digests)} if digests is not None else {}


def task_started(stamp: Stamp, task: str, *, attempt: int = 1) -> OwnEvent:
    return own_event(stamp, "task_started", task=task, details={"attempt": attempt})


def task_completed(stamp: Stamp, task: str, *, details: Mapping[str, Any] | None = None) -> OwnEvent:
    return own_event(stamp, "task_completed", task=task, details=details)


def task_failed(stamp: Stamp, task: str, *, reason: str) -> OwnEvent:
    return own_event(stamp, "task_failed", task=task, details={"reason": reason[:REASON_CHARS_MAX]})


def phase_transition(
    stamp: Stamp,
    from_phase: int,
    to_phase: int,
    *,
    trigger: str,
    notes: str = "",
    approved: Digests | None = None,
    numbering: Numbering = "seed",
) -> OwnEvent:
    """From stage to stage, in the numbers of the run. Where the run counts otherwise, the name says what is meant."""
    moved: OwnEvent = {"from_phase": number_of(numbering, from_phase), "to_phase": number_of(numbering, to_phase)}
    named = {"phase_name": STAGE_SLUGS[to_phase]} if numbering != "seed" else {}
    details = {**named, **_approved(approved)}
    return own_event(stamp, "phase_transition", details=details, **moved, trigger=trigger, notes=notes)


def plan_approved(
    stamp: Stamp, *, approved: Digests | None = None, notes: str = "", numbering: Numbering = "seed"
) -> OwnEvent:
    """A person said yes to these bytes at the gate of the planning: execution may begin, with them."""
    yes: OwnEvent = {"trigger": "user_approval", "notes": notes, "approved": approved, "numbering": numbering}
    return phase_transition(stamp, 1, 2, **yes)


def events_on_start(stamp: Stamp, action: NextAction, *, attempt: int = 1) -> tuple[OwnEvent, ...]:
    """The events to append before a driver is started for this action."""
    if action.do == "run_task" and action.task is not None:
        return (task_started(stamp, action.task, attempt=attempt),)
    return ()


def events_on_success(stamp: Stamp, action: NextAction) -> tuple[OwnEvent, ...]:
    """The events to append once this action is done, in the run's own terms."""
    if action.do == "run_task" and action.task is not None:
        return (task_completed(stamp, action.task),)
    if action.do == "enter_phase" and action.to_phase is not None:
        return (_moved(stamp, action, action.to_phase),)
    if action.do == "clean_up":
        return (_moved(stamp, action, LAST_PHASE),)
    if action.do == "consolidate":
        return (own_event(stamp, "run_completed"),)
    if action.artifact is not None:
        made = own_event(stamp, "artifact_created", details={"artifact_path": action.artifact})
        if not action.approve_after:
            return (made,)
        back = msgspec.structs.replace(stamp, event_id=f"{stamp.event_id}-gate")
        return (made, _moved(back, action, 1, trigger="artifact_remade", notes=action.artifact))
    return ()


def _moved(stamp: Stamp, action: NextAction, stage: int, *, trigger: str = "phase_done", notes: str = "") -> OwnEvent:
    return phase_transition(stamp, action.phase, stage, trigger=trigger, notes=notes, numbering=action.numbering)


def events_on_failure(stamp: Stamp, action: NextAction, *, reason: str) -> tuple[OwnEvent, ...]:
    if action.do == "run_task" and action.task is not None:
        return (task_failed(stamp, action.task, reason=reason),)
    details = {"error_type": "driver", "error": reason[:REASON_CHARS_MAX], "context": action.summary}
    return (own_event(stamp, "execution_error", details=details),)


def driver_outcome(run: Run, action: NextAction) -> DriverOutcome | None:
    """The outcome that the run, read again, records for an action whose driver ended with success; None: the exit
    status counts.

    A driver may write events of its own: one that says `task-blocked` and exits with 0 has not completed the task.
    And a step that should have made an artifact has not succeeded while the artifact is not there.
    """
    if action.artifact is not None:
        return None if action.artifact in run.artifacts else "not_made"
    if action.task is None:
        return None
    words: dict[str, DriverOutcome] = {"done": "completed", "failed": "failed", "blocked": "blocked"}
    return words.get(task_states(run).get(action.task, "pending"))


def file_name(began: datetime) -> str:
    """The name of the event file of a session that began at this time."""
    return began.astimezone(UTC).strftime("%Y%m%d-%H%M") + ".jsonl"


def append(run_path: str | os.PathLike[str], events: Iterable[OwnEvent], *, began: datetime) -> str:
    """Append to events/acode/<time the session began>.jsonl and fsync; the file's path below the run is returned."""
    data = b"".join(_line(event) for event in events)
    name = file_name(began)
    try:
        _append(os.fspath(run_path), name, data)
    except OSError as error:
        raise _write_error(error, f"{EVENTS_FOLDER}/{OUR_ACTOR}/{name}") from error
    return f"{EVENTS_FOLDER}/{OUR_ACTOR}/{name}"


def already_recorded(run_path: str | os.PathLike[str], event_id: str, *, began: datetime) -> bool:
    """Whether an event of this id stands in the file that `append` writes to; a torn line says nothing."""
    wanted = msgspec.json.encode(event_id)
    try:
        with (
            Folder.at(os.fspath(run_path)) as run,
            run.below(EVENTS_FOLDER) as events,
            events.below(OUR_ACTOR) as own,
            own.open_file(file_name(began)) as file,
        ):
            return any(
                ended and line is not None and b'"event_id":' + wanted in line
                for line, ended in lines(file, line_bytes_max=EVENT_LINE_BYTES_MAX)
            )
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _write_error(error, f"{EVENTS_FOLDER}/{OUR_ACTOR}/{file_name(began)}") from error


def _line(event: OwnEvent) -> bytes:
    line = msgspec.json.encode(event)
    if len(line) > EVENT_LINE_BYTES_MAX:
        raise EventTooLarge(f"an event for the run is {len(line)} bytes long, over {EVENT_LINE_BYTES_MAX}")
    return line + b"\n"


def _append(run_path: str, name: str, data: bytes) -> None:
    with ExitStack() as opened:
        folders = [opened.enter_context(Folder.at(run_path))]
        for part in (EVENTS_FOLDER, OUR_ACTOR):
            folders.append(opened.enter_context(folders[-1].make_below(part)))
        descriptor = folders[-1].open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        opened.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            # A hard link to somebody else's log would let acode change a file that is not its own.
            raise UnsafePath(f"{EVENTS_FOLDER}/{OUR_ACTOR}/{name} is no file of acode's own; nothing is written there")
        size = status.st_size
        if not size:
            # Otherwise a power cut removes the new names together with the events. The process that made them may have
            # failed here.
            for folder in folders:
                folder.sync()
        # A crash of ours may have torn the last line: without a break the new event would be lost with it.
        if size and not _ends_with_newline(descriptor, size):
            data = b"\n" + data
        write_all(descriptor, data)
        sync_file(descriptor)


def _ends_with_newline(descriptor: int, size: int) -> bool:
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) == b"\n"


def _write_error(error: OSError, where: str) -> DiskFull | NotWritable | UnsafePath | WriteFailed:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull(f"no room to append to {where}")
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        return UnsafePath(f"{where} goes through a link or a file; nothing is written there")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT}:
        return NotWritable(f"{where} cannot be written: {(error.strerror or '').lower()}")
    return WriteFailed(f"{where} could not be written: {error.strerror or error}", errno=error.errno)
