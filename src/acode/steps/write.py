"""write: replace a file, whole or not at all. Found in flight, the hashes before and after decide.

An atomic write of ours cannot be partial: a third content at the path is somebody else's, and a person decides.
"""

from __future__ import annotations

import sys

from acode.errors import AcodeError, DiskFull, WriteFailed
from acode.events import types as ev
from acode.events.definition import Step, Write
from acode.plan import Finding, Outcome
from acode.steps.interface import Done, Failed, Prediction, Prepared, RolledBack, Site, kept_before
from acode.workspace import capture, hash_file, missing_parents, remove_temp, write_atomic


def _bytes(action: Write) -> bytes:
    return action.content.encode("utf-8")


def _as_before(evidence: str) -> Finding:
    return Finding(outcome=Outcome.NOT_APPLIED, evidence=evidence, repeatable=True)


def predict(step: Step) -> Prediction:
    return Prediction(
        finding=_as_before("the file is as it was before"),
        reason="evidence",
        because="unless the file has the new content; asked if somebody else changed it",
    )


def prepare(step: Step, site: Site) -> Prepared:
    """Keep the present bytes, so that the write can be rolled back later."""
    import hashlib

    assert isinstance(step.action, Write)
    # A file too large to be looked through is treated as if it held a secret.
    image, inline = capture(site.root, step.action.path, blobs=site.store.blobs, sensitive=True)
    named = image.kind == "file" and image.blob is not None
    blobs = kept_before(site, {image.blob or "": inline}) if named else {}
    return Prepared(
        before=(image, *missing_parents(site.root, step.action.path)),
        after_sha256=hashlib.sha256(_bytes(step.action)).hexdigest(),
        after_mode=int(step.action.mode, 8) if step.action.mode else None,
        blobs=blobs,
    )


def execute(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    assert isinstance(step.action, Write)
    try:
        state = write_atomic(site.root, step.action.path, _bytes(step.action), started.after_mode, started.key)
    except (DiskFull, WriteFailed):
        raise  # the disk, not the step: the run stops and the step is settled by its hashes
    except AcodeError as error:
        return Failed(reason="error", message=error.message)
    return Done(files=(state,))


def look(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    assert isinstance(step.action, Write)
    path, before = step.action.path, started.before[0].sha256 if started.before else None
    try:
        state = hash_file(site.root, path)
    except AcodeError as error:
        return Finding(outcome=Outcome.UNKNOWN, evidence=f"{path} cannot be looked at: {error.message}")
    found = state.sha256
    if found == started.after_sha256 and not _has_mode(state, started.after_mode):
        # The same content stood there before, or somebody changed the mode since: the write is what sets it.
        return Finding(
            outcome=Outcome.NOT_APPLIED,
            evidence=f"{path} has the content that was to be written, but the mode {state.mode:04o}"
            f" instead of {started.after_mode or 0:04o}",
            repeatable=True,
        )
    if found == started.after_sha256:
        return Finding(outcome=Outcome.APPLIED, evidence=f"{path} has the content that was to be written")
    if found == before:
        what = "does not exist, as before" if found is None else "has the content it had before"
        return _as_before(f"{path} {what}")
    return Finding(
        outcome=Outcome.UNKNOWN,
        evidence=f"{path} was changed by somebody else: it has neither the content before"
        f" ({(before or 'none')[:12]}) nor the one to be written ({(started.after_sha256 or '')[:12]}),"
        f" but {(found or 'none')[:12]}",
    )


def _has_mode(state: ev.FileState, wanted: int | None) -> bool:
    """Whether the file has the mode that the write was to give it; Windows keeps only the read-only bit."""
    if wanted is None:
        return True
    different = wanted ^ state.mode
    return not different & 0o200 if sys.platform == "win32" else not different


def adopt(step: Step, site: Site, started: ev.StepStarted) -> Done:
    assert isinstance(step.action, Write)
    remove_temp(site.root, step.action.path, started.key)
    return Done(files=(hash_file(site.root, step.action.path),))


def roll_back(step: Step, site: Site, started: ev.StepStarted) -> RolledBack:
    """Only a temporary file of ours can be left; its name comes from the key, so it is found."""
    assert isinstance(step.action, Write)
    removed = remove_temp(site.root, step.action.path, started.key)
    return RolledBack(restored=(step.action.path,) if removed else ())
