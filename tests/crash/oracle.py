"""The one oracle of all sweeps. It knows nothing of how acode works: it looks at bytes, rows, commits and a ledger.

Right after a crash, before anything recovers: what was acknowledged is on record, and every change in the workspace is
explained by a durable record. At the end: everything is as an undisturbed run leaves it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import apsw

from acode.engine.preview import verify
from acode.engine.session_list import rows
from acode.engine.workspace_store import opened
from acode.errors import AcodeError, NoResumableSession
from acode.events import types as ev
from acode.events.definition import Plan, Run
from acode.state import Session
from tests.crash.case import Case, Prepared
from tests.crash.harness.snapshots import Entry, Snapshot
from tests.crash.place import Place

LOG = "workspace/.agent/workspace.db"
UNREAD = ("acode.jsonl", "ballast")  # acode writes them and never asks what is in them
OWN = (".agent", ".git", ".agent-memory", ".claude", "tmp")  # the last three are of runs that others began
TEMPORARY = ".acode-tmp-"
DATABASE_SUFFIXES = (".db", ".db-wal", ".db-shm", ".db-journal")


@dataclass(kw_only=True)
class OnRecord:
    """What the log says, read without changing anything."""

    last_seq: int = 0
    events: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)  # that something in the log says it is about to change
    outputs: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the patterns that a plan's commands declare
    patterns: set[str] = field(default_factory=set)  # of those that have begun
    kinds: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)  # the starts of steps that have ended
    trouble: str = ""
    lost: list[str] = field(default_factory=list)  # of which a start says that the bytes before it are kept
    explained_before: frozenset[str] = frozenset()
    starts: dict[str, ev.StepStarted] = field(default_factory=dict)
    ids_of_starts: dict[str, str] = field(default_factory=dict)

    def explain(self, step: str) -> None:
        """What a step that has begun, or is being taken back, may change."""
        self.paths.update(image.path for image in self.starts[step].before)
        self.patterns.update(self.outputs.get(step, ()))

    def explains(self, path: str) -> bool:
        return path in self.paths or any(fnmatch(path, pattern) for pattern in self.patterns)


def on_record(place: Place, explained_before: frozenset[str] = frozenset()) -> OnRecord:
    """explained_before: starts of steps that had ended when the command began; they explain nothing that it does."""
    found = OnRecord(explained_before=explained_before)
    try:
        with opened(place.reader(), look_only=True) as store:
            for session_id in store.session_ids():
                kept: dict[str, str] = {}
                for envelope, _, _ in store.events(session_id):
                    _note(found, envelope)
                    _keep(kept, envelope.event)
                names = set(store.blob_names(session_id))
                found.lost += [path for path, blob in kept.items() if blob not in names]
    except NoResumableSession:
        pass
    except AcodeError as error:
        found.trouble = f"the log cannot be read: {error}"
    return found


def _note(found: OnRecord, envelope: Any) -> None:
    event = envelope.event
    found.last_seq = max(found.last_seq, envelope.seq)
    found.ids.append(envelope.event_id)
    found.events[type(event).__name__] += 1
    match event:
        case ev.SessionCreated(plan=Plan() as plan):
            actions = [(step.id, step.action) for task in plan.tasks for step in task.steps]
            found.outputs |= {step: action.outputs for step, action in actions if isinstance(action, Run)}
        case ev.StepStarted(step=step):
            found.kinds.add(event.kind)
            found.starts[step], found.ids_of_starts[step] = event, envelope.event_id
            if envelope.event_id not in found.explained_before:
                found.explain(step)
        case ev.StepCompleted(step=step) if step in found.ids_of_starts:
            found.closed.add(found.ids_of_starts[step])
        case ev.UndoStarted(step=step) | ev.RollbackStarted(step=step) if step in found.starts:
            found.explain(step)


def _keep(kept: dict[str, str], event: Any) -> None:
    """The bytes that stood in a file before a step are there until the session has ended."""
    match event:
        case ev.StepStarted(before=images):
            kept.update({image.path: image.blob for image in images if image.kind == "file" and image.blob})
        case ev.SessionCompleted() | ev.SessionFailed() | ev.SessionCancelled():
            kept.clear()


def recorded_events(place: Place) -> Counter[str]:
    return on_record(place).events


def ended_steps(place: Place) -> frozenset[str]:
    return frozenset(on_record(place).closed)


def log_of(disk: Snapshot) -> dict[str, Entry]:
    """All that is needed to read the log: the database, keys and anchors."""
    return {
        path: entry
        for path, entry in disk.entries.items()
        if entry.kind == "directory" or path.startswith(("state/", LOG))
    }


def right_after(ready: Prepared, disk: Snapshot, heard: bytes) -> tuple[list[str], bytes]:
    """What is wrong before anything is recovered; and a key that is equal for states no later start can tell apart.

    Of the state, only what `log_of` names must lie in the place.
    """
    record = on_record(ready.place, ready.ended_before)
    wrong = [record.trouble] if record.trouble and "repair" not in ready.words else []
    acknowledged, finished = _understood(heard)
    if record.last_seq < acknowledged:
        wrong.append(f"acknowledged up to {acknowledged}, but the log ends at {record.last_seq}")
    if finished and not record.trouble and (missing := ready.recorded - record.events):
        wrong.append(f"it said that it was done, and these are not on record: {dict(missing)}")
    if ready.place.outside is None:  # of a session from elsewhere they stay there
        wrong += [f"what stood in {path} before a step is gone, and the session goes on" for path in record.lost]
    wrong += _unexplained(ready, disk, record)
    return wrong, _key(disk, record, finished=finished)


def shows_what_was_said(ready: Prepared, heard: bytes) -> list[str]:
    """For commands whose effect is not an event: if the last word was heard, the effect is there."""
    shows = ready.case.shows
    if shows is None or not _understood(heard)[1] or shows(ready.place) == ready.expected["shown"]:
        return []
    return ["it said that it was done, and it does not show"]


def _understood(heard: bytes) -> tuple[int, bool]:
    """Up to where acode has said that nothing can be lost, and whether it has said its last word of success."""
    acknowledged, finished = 0, False
    for line in heard.splitlines(keepends=True):
        if line.endswith(b"\n") and line.startswith(b"{"):
            said = json.loads(line)
            if said.get("event") is not None:
                acknowledged = max(acknowledged, said["seq"] or 0)
                finished = said["event"] == "session_end" and said["data"]["exit_code"] in (0, 10)
            else:
                finished = "error" not in said and not said.get("kept")
    return acknowledged, finished


def _unexplained(ready: Prepared, disk: Snapshot, record: OnRecord) -> Iterator[str]:
    before, now = _codes(ready.ground), _codes(disk)
    for path in sorted(before.keys() | now.keys()):
        if before.get(path) == now.get(path) or os.path.basename(path).startswith(TEMPORARY):
            continue
        about_database = path.endswith(DATABASE_SUFFIXES) and "sql" in record.kinds
        if not record.explains(path) and not about_database:
            yield f"{path} changed and no durable record explains it"


def _codes(disk: Snapshot) -> dict[str, bytes]:
    inside = ((path.removeprefix("workspace/"), entry) for path, entry in disk.entries.items() if "/" in path)
    return {
        path: entry.content
        for path, entry in inside
        if entry.kind == "file" and path.split("/")[0] not in OWN and not path.startswith(("state/", "home/"))
    }


def _key(disk: Snapshot, record: OnRecord, *, finished: bool) -> bytes:
    total = hashlib.blake2b("\0".join(record.ids).encode(), digest_size=16)
    total.update(record.trouble.encode() + bytes([finished]))
    for path in sorted(disk.entries):
        if not path.startswith(LOG) and os.path.basename(path) not in UNREAD:
            total.update(os.fsencode(path) + b"\0" + disk.entries[path].code)
    return total.digest()


def files_in(workspace: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of the workspace that is the user's."""
    for place, directories, names in os.walk(workspace):
        if place == os.fspath(workspace):
            directories[:] = [name for name in directories if name not in OWN]
        for name in names:
            path = os.path.join(place, name)
            yield os.path.relpath(path, workspace), Path(path).read_bytes()


def directories_in(workspace: Path) -> Iterator[str]:
    """Every directory of the workspace that is the user's, also an empty one."""
    for place, directories, _ in os.walk(workspace):
        if place == os.fspath(workspace):
            directories[:] = [name for name in directories if name not in OWN]
        yield from (os.path.relpath(os.path.join(place, name), workspace) for name in directories)


# The end.


def _progress(session: Session) -> tuple[int, ...]:
    return session.steps_done, session.steps_total, session.tasks_done, session.tasks_total


def undecided_in(events: Iterable[Any]) -> list[str]:
    """Steps of one session that were begun again and nothing on record says why."""
    undecided: list[str] = []
    begun: set[str] = set()
    for event in events:
        match event:
            case ev.StepStarted(step=step):
                undecided += [step] if step in begun else []
                begun.add(step)
            case ev.StepSettled(outcome=ev.Settled.UNKNOWN):
                pass
            case ev.StepCompleted(step=step) | ev.StepSettled(step=step):
                begun.discard(step)
            case ev.StepsRolledBack(steps=steps):
                begun.difference_update(steps)
            case ev.Quarantined():
                begun.clear()
    return undecided


def _strangers_in(events: Iterable[Any]) -> set[str]:
    """Files that acode took for somebody else's work.

    Nobody else writes here: a change that was put down to a stranger is acode's own, which it has forgotten.
    """
    strangers: set[str] = set()
    unread: set[str] = set()  # accepted as it is by a person, and once more when it can be read again
    for event in events:
        if isinstance(event, ev.ChangesAccepted):
            unread.update(file.path for file in event.files if file.sha256 == "")
            strangers.update(file.path for file in event.files if file.path not in unread)
    return strangers


def _decisions(place: Place) -> dict[str, list[str]]:
    undecided: list[str] = []
    strangers: set[str] = set()
    with contextlib.suppress(NoResumableSession), opened(place.reader(), look_only=True) as store:
        for session_id in store.session_ids():
            events = [envelope.event for envelope, _, _ in store.events(session_id)]
            undecided += undecided_in(events)
            strangers |= _strangers_in(events)
    return {"undecided": undecided, "strangers": sorted(strangers)}


def picture(place: Place, case: Case) -> dict[str, Any]:
    """Everything a person could find at the end."""
    found: list[Any] = rows(place.world())
    files = dict(files_in(place.workspace))
    databases = {path for path in files if path.endswith(DATABASE_SUFFIXES)}
    return {
        "files": {path: data for path, data in files.items() if path not in databases},
        "modes": {path: (place.workspace / path).stat().st_mode & 0o777 for path in files if path not in databases},
        "databases": {path: _rows_of(place.workspace / path) for path in files if path.endswith(".db")},
        "directories": sorted(directories_in(place.workspace)),
        "commits": _commits(place.workspace),
        "progress": sorted(_progress(row.session) for row in found if row.session is not None),
        **_decisions(place),
        "sessions": sorted(str(row.session.state) if row.session else str(row.error) for row in found),
        "once": {step: place.effects()[step] for step in case.once},
        "shown": case.shows(place) if case.shows is not None else None,
        "left": case.leaves(place) if case.leaves is not None else None,
        "problems": [str(one) for row in found for one in verify(place.world(), row.session_id)[1].problems],
    }


def differences(found: dict[str, Any], expected: dict[str, Any], *, refused: bool = False) -> list[str]:
    """`refused`: a model was told that it may not, and went another way: less is done then, and nothing twice."""
    if refused:
        at_most = {step: min(times, found["once"][step]) for step, times in expected["once"].items()}
        less = ("files", "modes", "directories", "progress")
        expected = {**expected, **{name: found[name] for name in less}, "once": at_most}
    return [
        f"{name}: {_short(found[name])} instead of {_short(wanted)}"
        for name, wanted in expected.items()
        if found[name] != wanted
    ]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 400 else f"{text[:400]}…"


def _rows_of(path: Path) -> dict[str, list[str]]:
    """Every table's rows; of acode's own the steps they stand for, since an attempt's number may differ."""
    database = apsw.Connection(os.fspath(path))
    try:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY 1")]
        found = {name: sorted(str(row) for row in database.execute(f'SELECT * FROM "{name}"')) for name in names}
        if "acode_applied" in found:
            keys = [key for (key,) in database.execute("SELECT key FROM acode_applied")]
            found["acode_applied"] = sorted(key.split(":")[1] for key in keys)
        return found
    finally:
        database.close()


def _commits(workspace: Path) -> list[str]:
    if not (workspace / ".git").exists():
        return []
    asked = [("log", "--format=%s %T"), ("status", "--porcelain", "-uno")]
    answers = [
        subprocess.run(["git", *words], cwd=workspace, capture_output=True, text=True, check=True).stdout
        for words in asked
    ]
    # The lock of git's upkeep is as empty as any; git goes on without its upkeep where it is found.
    left = [path.name for path in (workspace / ".git").rglob("*.lock") if path.name != "maintenance.lock"]
    return [*answers, *left]
