"""What a session, or one of its steps, changed in files: contents before and after, as far as they are known.

Nothing is changed here. Contents come from pre-images, from the plan, and from a file that is still what the step left.
Pre-images are kept until the session ends; after that only the paths are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec

from acode.engine.rollback import Past, finished_steps, images, step_to_roll_back
from acode.engine.world import short
from acode.errors import AcodeError, Usage
from acode.events import types as ev
from acode.events.definition import Step, Write
from acode.hints import Command, Hint
from acode.state import Session
from acode.store.store import Store
from acode.workspace import Root, hash_file, read_file
from acode.workspace.report import DIFF_FILE_BYTES_MAX, difference


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A path at one moment. `sha256` None: nothing stood there; "": something without contents to compare."""

    sha256: str | None
    size: int = 0


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed file. `text` is a unified diff, or why there is none."""

    path: str
    change: Literal["created", "modified", "deleted"]
    steps: tuple[str, ...]
    compared: bool
    text: str


class _Changed(msgspec.Struct, kw_only=True):
    before: Seen
    after: Seen
    steps: list[str]


def file_changes(store: Store, root: Root, session: Session, step: str | None) -> list[FileChange]:
    """In the order in which the files were first changed; of one step, or of all that are done or in progress."""
    past = finished_steps(store, session)
    if step is not None:
        refuse_unknown(session, past, step)
    found: dict[str, _Changed] = {}
    for name, path, before, after in _all_changes(root, session, past):
        if step not in (None, name):
            continue
        known = found.get(path)
        if known is None:
            found[path] = _Changed(before=before, after=after, steps=[name])
        else:
            known.after = after
            known.steps.append(name)
    contents = _Contents(store, root, session)
    return [contents.change(path, one) for path, one in found.items() if one.before.sha256 != one.after.sha256]


def refuse_unknown(session: Session, past: dict[str, Past], step: str) -> None:
    known = {*past, *session.in_flight, *(one.id for one in planned(session))}
    if step not in known:
        raise Usage(
            f"session {short(session.session_id)} has no step {step}", hint=Hint("See: {}", Command("session show"))
        )


def planned(session: Session) -> list[Step]:
    """The steps of its plan; a plan with a secret in it is gone when the session has ended."""
    return list(session.steps()) if session.plan is not None else []


def _all_changes(root: Root, session: Session, past: dict[str, Past]) -> Iterator[tuple[str, str, Seen, Seen]]:
    """Step, path, and what stood there before and after it."""
    known: dict[str, ev.FileState] = {}
    for name, one in past.items():
        left = {state.path: state for state in one.left}
        record = session.record(name)
        if record is None or record.status == "completed":  # a step that was rolled back has changed nothing
            yield from _of_finished(session, name, past, left, known)
        known |= left
    for name, flight in session.in_flight.items():
        for image in flight.started.before:
            if image.kind in ("file", "absent"):
                yield name, image.path, _before(image), _now(root, image.path)


def _of_finished(
    session: Session,
    name: str,
    past: dict[str, Past],
    left: dict[str, ev.FileState],
    known: dict[str, ev.FileState],
) -> Iterator[tuple[str, str, Seen, Seen]]:
    is_defined = session.plan is not None or session.steps_from.asked
    kept = images(step_to_roll_back(session, name, past), past[name]) if is_defined else past[name].started.before
    befores = {image.path: image for image in kept}
    for path, image in befores.items():
        if image.kind in ("file", "absent"):
            yield name, path, _before(image), _after(left.get(path))
    for path in past[name].completed.touched:
        if path not in befores and path in known and path in left:
            yield name, path, _after(known[path]), _after(left[path])


def _before(image: ev.PreImage) -> Seen:
    return Seen(sha256=None) if image.kind == "absent" else Seen(sha256=image.sha256 or "", size=image.size)


def _after(state: ev.FileState | None) -> Seen:
    return Seen(sha256=None) if state is None else Seen(sha256=state.sha256, size=state.size)


def _now(root: Root, path: str) -> Seen:
    try:
        return _after(hash_file(root, path))
    except FileNotFoundError:
        return Seen(sha256=None)
    except (AcodeError, OSError):
        return Seen(sha256="")


class _Contents:
    """Bytes by their hash, wherever the session has them."""

    def __init__(self, store: Store, root: Root, session: Session) -> None:
        self._store = store
        self._root = root
        self._session = session
        actions = [step.action for step in planned(session)]
        texts = [action.content.encode() for action in actions if isinstance(action, Write)]
        self._written = {hashlib.sha256(text).hexdigest(): text for text in texts}

    def change(self, path: str, one: _Changed) -> FileChange:
        change: Literal["created", "modified", "deleted"] = "modified"
        if one.before.sha256 is None:
            change = "created"
        elif one.after.sha256 is None:
            change = "deleted"
        text, compared = self._text(path, one)
        return FileChange(path=path, change=change, steps=tuple(dict.fromkeys(one.steps)), compared=compared, text=text)

    def _text(self, path: str, one: _Changed) -> tuple[str, bool]:
        if max(one.before.size, one.after.size) > DIFF_FILE_BYTES_MAX:
            return f"too large to compare, {one.before.size:,} bytes before, {one.after.size:,} after", False
        old, new = self._bytes(path, one.before), self._bytes(path, one.after)
        if old is None or new is None:
            which = "before" if old is None else "after"
            ended = " (pre-images are kept until a session ends)" if old is None and self._session.terminal else ""
            return f"the contents {which} the change are not known any more{ended}", False
        if b"\0" in old or b"\0" in new:
            return f"binary, {len(old):,} bytes before, {len(new):,} after", False
        return difference(path, old, new, before="before", after="after"), True

    def _bytes(self, path: str, seen: Seen) -> bytes | None:
        if seen.sha256 is None:
            return b""
        if seen.sha256 in self._written:
            return self._written[seen.sha256]
        session_id = self._session.session_id
        try:
            if self._store.has_blob(session_id, seen.sha256):
                return self._store.blob(session_id, seen.sha256)
            return read_file(self._root, path, DIFF_FILE_BYTES_MAX, expected_sha256=seen.sha256)[0]
        except (AcodeError, OSError):
            return None
