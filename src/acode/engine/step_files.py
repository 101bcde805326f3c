"""The files of a step: which it changed, how its events hold them, and how an earlier attempt's outputs are restored.

The step itself is performed in `step`; nothing here begins or ends one.
"""

from __future__ import annotations

import stat

import msgspec

from acode.engine import notices
from acode.engine.held_session import Held
from acode.engine.shared_paths import Attributed, attribute
from acode.engine.survey import begun_elsewhere, leftovers_elsewhere
from acode.errors import AcodeError
from acode.events import types as ev
from acode.events.definition import Step, declared_outputs
from acode.steps import kind_of
from acode.steps.interface import Done, RolledBack
from acode.workspace import restat

FILES_IN_EVENT_MAX = 500  # with paths of a thousand characters still below the limit of an event
NAMES_IN_EVENT_MAX = 500
NO_CHANGES = Attributed(files=(), touched=())


def own_changes(run: Held, started: ev.StepStarted, done: Done, *, settled: bool) -> Attributed:
    """The files that this step changed, told from those that another session changed meanwhile."""
    records = run.journal.session.records
    if not (done.files or done.touched or (records is not None and records.manifest)):
        return NO_CHANGES
    if started.kind != "call" or settled:
        return attribute(run, started.step, seen(run, done.files), done.touched)
    meanwhile = seen(run, changed_meanwhile(run))
    files, touched = (*seen(run, done.files), *meanwhile), (*done.touched, *content_changed(run, meanwhile))
    return attribute(run, started.step, files, touched)


def seen(run: Held, files: tuple[ev.FileState, ...]) -> tuple[ev.FileState, ...]:
    """Without regular files that the session knows and that could not be read just now: a sick disk must not make a
    step the author of a change. A file that really changed is found by the next resume."""
    records = run.session.records
    known = records.manifest if records is not None else {}

    def is_unread(one: ev.FileState) -> bool:
        return one.sha256 == "" and stat.S_ISREG(one.mode or 0) and one.path in known and bool(known[one.path].sha256)

    return tuple(one for one in files if not is_unread(one))


def changed_meanwhile(run: Held) -> tuple[ev.FileState, ...]:
    """Files that the session knows and that changed while a function ran: the change belongs to the step.

    The function has run, and that is recorded also where nobody can look: the next resume finds what differs.
    """
    records = run.session.records
    if records is None or not records.manifest:
        return ()
    try:
        return restat(run.root, records.manifest)
    except (AcodeError, OSError) as error:
        run.warn(f"whether the step changed files that the session knows could not be seen: {error}")
        return ()


def content_changed(run: Held, files: tuple[ev.FileState, ...]) -> tuple[str, ...]:
    assert run.session.records is not None
    known = run.session.records.manifest
    return tuple(one.path for one in files if (known[one.path].sha256, known[one.path].mode) != (one.sha256, one.mode))


def in_pieces(
    step: str, attempt: int, files: tuple[ev.FileState, ...]
) -> tuple[list[ev.FilesSeen], tuple[ev.FileState, ...]]:
    """A command may leave more files than an event can hold: the first ones precede it in events of their own."""
    if len(files) <= FILES_IN_EVENT_MAX:
        return [], files
    pieces = [files[at : at + FILES_IN_EVENT_MAX] for at in range(0, len(files), FILES_IN_EVENT_MAX)]
    seen = [ev.FilesSeen(step=step, attempt=attempt, files=piece) for piece in pieces[:-1]]
    return seen, pieces[-1]


# Leftovers of an earlier attempt.


def restore_leftovers(run: Held, step: Step) -> None:
    """An attempt that failed, or that a person settled, left its outputs to look at; now they are rolled back."""
    records = run.journal.session.records
    record = records.steps.get(step.id) if records is not None else None
    if record is None:
        return
    left = record.left_behind
    if left is None or not (left.before or declared_outputs(step)):
        return
    if begun_elsewhere(run.site(), record.left_seq or record.seq, left):
        run.warn(leftovers_elsewhere(step.id))
        return
    rolled = kind_of(step.kind).roll_back(step, run.site(), left)
    evidence = "the outputs of the attempt before were restored"
    settled = ev.StepSettled(step=step.id, attempt=record.attempt, outcome=ev.Settled.ROLLED_BACK, evidence=evidence)
    run.append(*with_restored(settled, rolled))
    emit_restored(run, step.id, rolled)


def with_restored(settled: ev.StepSettled, rolled: RolledBack) -> tuple[ev.Known, ...]:
    """The settlement, and before it the files for which it has no room."""
    seen, files = in_pieces(settled.step, settled.attempt, rolled.files)
    named = msgspec.structs.replace(settled, restored=rolled.restored[:NAMES_IN_EVENT_MAX], files=files)
    return (*seen, named)


def emit_restored(run: Held, step: str, rolled: RolledBack) -> None:
    if rolled.restored:
        secret = sum(image.secret for image in rolled.saved)
        restored = list(rolled.restored)
        run.emit(notices.StepRolledBack(restored=restored, saved=len(rolled.saved), saved_until_end=secret), step=step)
