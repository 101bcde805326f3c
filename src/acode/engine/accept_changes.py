"""Accept files that somebody else has changed: they are shown, and a session continues only by a decision on record."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from acode.engine import notices
from acode.engine.environment import Report
from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.engine.refused_changes import note_refusal
from acode.engine.shared_paths import author
from acode.engine.step_files import FILES_IN_EVENT_MAX
from acode.engine.world import Options, begin_again
from acode.errors import AcodeError, ChangedFiles, FileModified
from acode.events import types as ev
from acode.hints import Resume
from acode.workspace import ChangedFile, diff, restat


def accept_changes(run: Held, report: Report, options: Options) -> None:
    """Files were changed by somebody else: continue only by a recorded decision."""
    choice = options.changed_files or run.world.config.settings.resume.changed_files_action
    if options.force:
        choice = "continue"
    answer = (
        choice
        if choice != "prompt"
        else run.world.answers.changed_files(report.changed_files, diff_against_record(run))
    )
    names = ", ".join(one.path for one in report.changed_files[:5])
    if answer != "continue":
        note_refusal(run.world.agent_dir, run.session)
        raise ChangedFiles(
            f"{files_that_are(report.changed_files, 'that the session works on', 'was', 'were')} changed by"
            f" {changed_by(report.changed_files)}: {names}",
            hint=session_hint(run.session, "{}: {}", ChangedFiles.default_hint, begin_again(run.session)),
            mismatches=[msgspec.to_builtins(one) for one in report.changed_files],
            recommendation=report.recommendation,
        )
    states = seen_again(run, report.changed_files)
    pieces = [states[at : at + FILES_IN_EVENT_MAX] for at in range(0, len(states), FILES_IN_EVENT_MAX)]
    reason = options.reason or choice
    run.append(*(ev.ChangesAccepted(files=piece, reason=reason) for piece in pieces), actor=options.actor)
    run.emit(notices.ChangesAccepted(paths=[one.path for one in report.changed_files]))


def changed_by(changes: tuple[ChangedFile, ...]) -> str:
    """The steps of other sessions that changed the files, and somebody else where no session did."""
    return " and ".join(dict.fromkeys(author(one) for one in changes))


def files_that_are(found: tuple[ChangedFile, ...], which: str, one: str, several: str) -> str:
    """“1 file is”, “3 files are”."""
    words = (f"{len(found):,}", "file" if len(found) == 1 else "files", which, one if len(found) == 1 else several)
    return " ".join(filter(None, words))


def seen_again(run: Held, changes: tuple[ChangedFile, ...]) -> tuple[ev.FileState, ...]:
    """Only the files that were shown are accepted: one that somebody swapped meanwhile is refused."""
    assert run.session.records is not None
    manifest = run.session.records.manifest
    states = restat(run.root, {one.path: manifest.get(one.path, ev.FileState(path=one.path)) for one in changes})
    found = {state.path: state.sha256 or None for state in states}
    for one in changes:
        if found.get(one.path, one.expected_hash) != one.found_hash:
            raise FileModified(
                f"{one.path} was changed again while its change was being looked at",
                hint=session_hint(run.session, "Look at it again: {}", Resume()),
                path=one.path,
                expected=one.found_hash,
                found=found.get(one.path),
            )
    return states


def diff_against_record(run: Held) -> Callable[[str], str]:
    """A real diff of a changed file against the content the session knows, where it holds that content."""

    def view(path: str) -> str:
        known = run.session.records.manifest.get(path) if run.session.records else None
        old = known_content(run, path, known.sha256) if known and known.sha256 else None
        if old is None:
            held = "the hash of the earlier content" if known is not None else "that its command had ended before"
            return f"{path}: the session knows {held}, not the content itself"
        return diff(run.root, path, old)

    return view


def known_content(run: Held, path: str, sha256: str) -> bytes | None:
    """Content the session can show: what its plan wrote, or a pre-image."""
    import hashlib

    from acode.events.definition import Write

    for step in run.session.steps():
        if isinstance(step.action, Write) and step.action.path == path:
            data = step.action.content.encode()
            if hashlib.sha256(data).hexdigest() == sha256:
                return data
    try:
        return run.store.blob(run.session.session_id, sha256)
    except (AcodeError, OSError):
        return None
