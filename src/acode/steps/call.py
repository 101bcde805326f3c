"""call: a function of the user's program, or a tool of an observed agent.

Nothing here runs it: the caller does, and records what came of it. Found in flight, a tool that has named its files is
settled by their hashes; of everything else only its declaration can say whether it may be repeated.
"""

from __future__ import annotations

from acode.errors import AcodeError, CannotContinue
from acode.events import types as ev
from acode.events.definition import Call, NamedFile, Step
from acode.plan import Finding, Outcome
from acode.steps.interface import Done, Failed, Prediction, Prepared, RolledBack, Site, kept_before
from acode.workspace import capture_paths, hash_file

MACHINE_WENT_DOWN = "the machine went down while it ran"
LISTED_MAX = 10


def predict(step: Step) -> Prediction:
    finding = _by_declaration(step, MACHINE_WENT_DOWN)
    if step.idempotent:
        return Prediction(finding=finding, reason="idempotent", because="it is declared idempotent")
    return Prediction(finding=finding, reason="none", because="it is not declared idempotent")


def prepare(step: Step, site: Site) -> Prepared:
    """Keep the present bytes of the files that it names, so that the call can be rolled back later."""
    paths = [one.path for one in _files(step)]
    if not paths:
        return Prepared()
    # A file too large to be looked through is treated as if it held a secret.
    found = capture_paths(
        site.root, paths, blobs=site.store.blobs, budget_bytes=site.preimage_budget_bytes, sensitive=True
    )
    kept = {one.blob: found.inline.get(one.blob) for one in found.images if one.kind == "file" and one.blob is not None}
    return Prepared(before=found.images, before_complete=found.complete, blobs=kept_before(site, kept))


def _files(step: Step) -> tuple[NamedFile, ...]:
    return step.action.files if isinstance(step.action, Call) else ()


def execute(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    raise CannotContinue(
        f"step {step.id} is a function of a program: only that program can run it",
        hint="Run the program again.",
    )


def look(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    """A function leaves no trace that acode could read; a probe of the program itself is asked before this."""
    if _files(step):
        return _by_files(step, site, started)
    lost = "its process ended while it ran" if started.boot_id == site.boot_id else MACHINE_WENT_DOWN
    return _by_declaration(step, lost)


def _by_declaration(step: Step, lost: str) -> Finding:
    if step.idempotent:
        return Finding(outcome=Outcome.UNKNOWN, evidence=f"{lost}; it is declared idempotent", repeatable=True)
    return Finding(outcome=Outcome.UNKNOWN, evidence=f"{lost}; nothing shows whether it took effect")


def _by_files(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    """All as it was to leave them: applied. All as before: not begun. Else a person decides, who is told which."""
    assert isinstance(step.action, Call)
    before = {image.path: image for image in started.before}
    try:
        now = {one.path: hash_file(site.root, one.path).sha256 for one in step.action.files}
    except AcodeError as error:
        return Finding(outcome=Outcome.UNKNOWN, evidence=f"its files cannot be looked at: {error.message}")
    after = [one.path for one in step.action.files if one.foreseen and now[one.path] == one.after_sha256]
    same = [path for path, found in now.items() if _is_known(before.get(path)) and found == before[path].sha256]
    if not step.action.more and len(after) == len(now):
        return Finding(outcome=Outcome.APPLIED, evidence=f"as it was to leave them: {_listed(after)}")
    if not step.action.more and len(same) == len(now):
        return Finding(outcome=Outcome.NOT_APPLIED, evidence=f"as before: {_listed(same)}", repeatable=True)
    why = "it may change more than its files" if step.action.more else "it was cut off, or others changed its files"
    other = [path for path in now if path not in after and path not in same]
    return Finding(outcome=Outcome.UNKNOWN, evidence=f"{why}; {_in_words(after, same, other)}")


def _is_known(image: ev.PreImage | None) -> bool:
    """Not where the file was over the budget: then even its hash is unknown."""
    return image is not None and (image.kind == "absent" or image.sha256 is not None)


def _in_words(after: list[str], same: list[str], other: list[str]) -> str:
    parts = (("as it was to leave them", after), ("as before", same), ("neither", other))
    return "; ".join(f"{words}: {_listed(paths)}" for words, paths in parts if paths)


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - LISTED_MAX} more" if len(paths) > LISTED_MAX else ""
    return f"{', '.join(paths[:LISTED_MAX])}{more}"


def adopt(step: Step, site: Site, started: ev.StepStarted) -> Done:
    """It happened; what it returned nobody knows, so that is null."""
    return Done(files=tuple(hash_file(site.root, one.path) for one in _files(step)))


def roll_back(step: Step, site: Site, started: ev.StepStarted) -> RolledBack:
    return RolledBack()
