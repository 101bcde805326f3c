"""Validate the environment: is the workspace still the one the session left?

Only files that the session read or wrote are looked at, beneath the root and without following links. A finding is
reported, never repaired here; accepting changes is a person's decision and an event of its own.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from acode.engine.next_action import command_for
from acode.engine.shared_paths import with_sessions
from acode.engine.survey import begun_elsewhere, step_named
from acode.engine.world import World
from acode.errors import AcodeError
from acode.events import make_key
from acode.events.definition import Read, Run, Sql, Step, Write, declared_outputs
from acode.events.types import FileState, StepStarted
from acode.hints import ReplacePlan
from acode.state import InFlight, Session
from acode.steps.interface import Site
from acode.steps.keeper_notes import Status, end_on_disk, read_status, run_directory
from acode.workspace import ChangedFile, changed, git_state, integrity_report, look, matching_paths, way_of
from acode.workspace.declared_outputs import Patterns
from acode.workspace.files import open_regular

if TYPE_CHECKING:  # loaded for sessions with sql steps only: its words cost more than the rest of a start
    from acode.steps.sql import Doubt

CLOCK_SLACK_NS = 1_000_000_000  # file systems and clocks do not agree to the last tick


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line for the person at the terminal."""

    name: str
    ok: bool
    detail: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The environment as it was found."""

    valid: bool
    total_files: int
    errors: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    recommendation: str = ""
    changed_files: tuple[ChangedFile, ...] = ()
    checks: tuple[Check, ...] = ()


def validate(world: World, session: Session, site: Site, *, pending: tuple[str, ...], lenient: bool) -> Report:
    """All checks; a lenient validation turns missing files into warnings, never changed ones into silence."""
    errors, warnings, checks = list[Finding](), list[Finding](), list[Check]()
    until = world.monotonic() + world.config.settings.resume.validation_timeout_seconds
    changes = changed_files(session, site, pending, lambda: world.monotonic() > until)
    missing = _missing_files(session, site, pending, changes)
    checks.append(Check(name="Working directory exists", ok=True))
    checks.append(Check(name="Required files accessible", ok=not missing, detail=", ".join(missing[:5])))
    (warnings if lenient else errors).extend(
        Finding(code="ACODE-RESUME-004", message=f"{path} is needed by a step and cannot be read") for path in missing
    )
    doubts = _database_doubts(session, site, pending)
    for doubt in doubts:
        finding = Finding(code="ACODE-RESUME-004", message=doubt.message)
        (errors if doubt.certain and not lenient else warnings).append(finding)
    if doubts:
        checks.append(Check(name="Databases hold what was applied", ok=False, detail=doubts[0].message))
    if session.steps_from.follows_model and site.probes:
        mismatches = [Finding(code=code, message=message) for code, message in world.look_at_model(session)]
        (warnings if lenient else errors).extend(mismatches)
        model = session.created.model if session.created is not None else None
        what = "; ".join(one.message for one in mismatches) or str((model or {}).get("name", ""))
        checks.append(Check(name="Model available", ok=not mismatches, detail=what))
    reset = _config_drift(world, session)
    warnings.extend([*reset, *_plan_drift(world, session), *_git_drift(world, session)])
    checks.append(Check(name="Configuration valid", ok=True, detail="changed since the session began" if reset else ""))
    summary = integrity_report(len(session.records.manifest) if session.records else 0, changes)
    return Report(
        valid=not errors and not changes,
        total_files=summary.total_files,
        errors=tuple(errors),
        warnings=tuple(warnings),
        recommendation=summary.recommendation,
        changed_files=changes,
        checks=tuple(checks),
    )


def changed_files(
    session: Session, site: Site, pending: tuple[str, ...], out_of_time: Callable[[], bool] = lambda: False
) -> tuple[ChangedFile, ...]:
    """Changed by somebody else: files of a step in flight are settled with that step, not reported here.

    Unless it has ended, and they were changed since: what is adopted as its work must be its work.
    """
    flights = _begun_here(session, site)
    in_flight = {image.path for _, started in _being_settled(session, site) for image in started.before}
    for flight in flights:
        if flight.started.kind == "sql":
            from acode.steps.sql import BESIDE

            in_flight.update(str(flight.started.target.get("database")) + ending for ending in BESIDE)
    in_flight.update(_declared_paths(session, site))
    later = {path: site.manifest.get(path, FileState(path=path)) for path in _outputs_since_end(session, site, pending)}
    in_flight.update(later)
    manifest = {path: state for path, state in site.manifest.items() if path not in in_flight}
    found = changed(site.root, manifest, deadline=out_of_time)
    by_others = (change for change in found if not _by_command_in_flight(session, flights, site, change))
    changes = (*by_others, *changed(site.root, later, deadline=out_of_time))
    return with_sessions(site.store, session, site.root, changes)


def _begun_here(session: Session, site: Site) -> list[InFlight]:
    """Steps in flight that may have changed files of this workspace. One that was begun on another machine changed
    files there: after a take-over in an empty directory, what finished steps left would be missed by nobody."""
    return [flight for flight in session.in_flight.values() if not begun_elsewhere(site, flight.seq, flight.started)]


def _being_settled(session: Session, site: Site) -> Iterator[tuple[str, StepStarted]]:
    """Attempts whose files are open: in flight, or failed and cut off while their outputs were rolled back."""
    for flight in _begun_here(session, site):
        yield flight.started.step, flight.started
    for step_id, record in session.records.steps.items() if session.records else ():
        left = record.left_behind
        if record.rolling_back and left is not None and not begun_elsewhere(site, record.left_seq or record.seq, left):
            yield step_id, left


def _declared_paths(session: Session, site: Site) -> Iterator[str]:
    """Known paths at the outputs of such an attempt, in addition to its pre-images.

    A rollback of the attempt before it recorded the removed files as absent. The pre-images hold only existing files
    and do not name those, and the attempt makes them again.
    """
    for step_id, _ in _being_settled(session, site):
        if patterns := declared_outputs(step_named(session, step_id)):
            declared = Patterns(patterns)
            yield from (path for path, state in site.manifest.items() if _is_declared(declared, site, path, state))


def _is_declared(declared: Patterns, site: Site, path: str, state: FileState) -> bool:
    if declared(path):
        return True
    if state.sha256 not in (None, "") or not declared.may_lie_in(path):
        return False
    return state.sha256 == "" or _is_directory(site, path)  # one above an output, which the command makes with it


def _outputs_since_end(session: Session, site: Site, pending: tuple[str, ...]) -> Iterator[str]:
    """Outputs of commands that have ended, and are going to be adopted, which came to stand there after that end."""
    for step_id, flight in session.in_flight.items():
        if flight.started.kind != "run" or step_id in pending:
            continue
        step, directory = step_named(session, step_id), run_directory(site.agent_dir, flight.started.key)
        status = read_status(directory)
        end = end_on_disk(directory, status) if status is not None and status.alone else None
        if end is None or not isinstance(step.action, Run):
            continue
        for path in matching_paths(site.root, step.action.outputs).paths:
            found = look(site.root, path)
            if found is not None and not stat.S_ISDIR(found.st_mode) and end.is_before(found, CLOCK_SLACK_NS):
                yield path


def _by_command_in_flight(session: Session, flights: list[InFlight], site: Site, change: ChangedFile) -> bool:
    """Whether a command in flight without declared outputs may have changed the file: up to its end, any."""
    for flight in flights:
        if flight.started.kind not in ("run", "commit", "call") or flight.started.before:
            continue
        if declared_outputs(step_named(session, flight.started.step)):
            continue
        directory = run_directory(site.agent_dir, flight.started.key)
        status = read_status(directory)
        if status is None or not _later_than(site, change, directory, status):
            return True
    return False


def _later_than(site: Site, change: ChangedFile, directory: Path, status: Status) -> bool:
    found = look(site.root, change.path) if change.modified_at is not None else None
    if found is None or change.modified_at is None:
        return False  # a deletion has no time: it may well have been the command
    end = end_on_disk(directory, status)
    later = end.is_before(found, CLOCK_SLACK_NS) if end is not None else None
    if later is None:
        return datetime.fromisoformat(change.modified_at).timestamp() > status.ended + CLOCK_SLACK_NS / 1e9
    return later


def _database_doubts(session: Session, site: Site, pending: tuple[str, ...]) -> list[Doubt]:
    """Targets of finished sql steps that do not hold the step's key any more."""
    doubts: list[Doubt] = []
    if session.plan is None or not site.probes:
        return doubts
    steps = list(session.steps())
    for at, step in enumerate(steps):
        record = session.record(step.id)
        if isinstance(step.action, Sql) and record is not None and record.status == "completed":
            from acode.steps.sql import missing_record

            doubt = missing_record(step, site, make_key(session.session_id, step.id, record.attempt))
            if (
                doubt is not None
                and doubt.certain
                and _is_the_plans_own(doubt, step, steps[at + 1 :], session, pending)
            ):
                said = f"{doubt.message} (a command of the plan, which ran since, may have done that)"
                doubt = msgspec.structs.replace(doubt, message=said, certain=False)
            doubts.extend([doubt] if doubt is not None else [])
    return doubts


def _is_the_plans_own(doubt: Doubt, step: Step, after: list[Step], session: Session, pending: tuple[str, ...]) -> bool:
    """A command behind the step may have removed its database, or put another there; that is no reason to stop.

    Another one that is there is, where it is going to be changed: an older copy must not get the next change alone.
    """
    assert isinstance(step.action, Sql)
    begun = (one.id for one in after if isinstance(one.action, Run))
    if not any(session.record(one) is not None or one in session.in_flight for one in begun):
        return False
    place = (step.action.database, step.action.database_env)
    to_change = (one.action for one in after if one.id in pending and isinstance(one.action, Sql))
    return doubt.gone or all((action.database, action.database_env) != place for action in to_change)


def _missing_files(
    session: Session, site: Site, pending: tuple[str, ...], changes: tuple[ChangedFile, ...]
) -> list[str]:
    """The paths that pending steps will read or work in, and that no step before them makes."""
    wanted: list[str] = []
    if session.plan is None:
        return wanted
    made: set[str] = set()
    todo = set(pending)
    for step in session.steps():
        if step.id not in todo:
            continue
        match step.action:
            case Read(path=path) | Sql(file=path):
                follows = isinstance(step.action, Read)
                if not _can_be_made(made, path) and not _readable(site, path, follows=follows):
                    wanted.append(path)
            case Run(cwd=str(path)) if not _can_be_made(made, path) and not _is_directory(site, path):
                wanted.append(path)
            case _:
                made.update(_makes(step.action))
    return wanted


def _makes(action: object) -> set[str]:
    match action:
        case Write(path=path):
            return {path, *(str(parent) for parent in PurePosixPath(path).parents)}
        case Run():
            return {"*"}  # a command may make anything
        case _:
            return set()


def _can_be_made(made: set[str], path: str) -> bool:
    return "*" in made or path in made


def _readable(site: Site, path: str, *, follows: bool) -> bool:
    """Whether a file can be opened: its existence is not enough for a step that has to read it.

    `follows`: the step goes where a link in the workspace leads, as long as that is in the workspace too.
    """
    try:
        with (
            site.root.at(way_of(site.root, path)[-1] if follows else path) as (directory, name),
            open_regular(directory, name),
        ):
            return True
    except (AcodeError, OSError):
        return False


def _is_directory(site: Site, path: str) -> bool:
    try:
        found = look(site.root, path)
    except AcodeError:
        return False
    return found is not None and stat.S_ISDIR(found.st_mode)


def _config_drift(world: World, session: Session) -> list[Finding]:
    then = session.created.config_digest if session.created else ""
    if not then or then == world.config.digest:
        return []
    return [Finding(code="ACODE-CFG-001", message="the configuration has changed since the session began")]


def _plan_drift(world: World, session: Session) -> list[Finding]:
    """The file is only compared: what runs is the snapshot that was stored with the session."""
    import hashlib

    origin = session.plan_origin
    if origin is None or origin.path is None or origin.sha256 is None:
        return []
    try:
        now = hashlib.sha256((world.workspace / origin.path).read_bytes()).hexdigest()
    except OSError:
        return [Finding(code="ACODE-PLAN-001", message=f"the plan file {origin.path} is gone; its snapshot stands")]
    if now == origin.sha256:
        return []
    edited = command_for(session, ReplacePlan(origin.path))
    return [
        Finding(
            code="ACODE-PLAN-001",
            message=f"the plan file {origin.path} was edited since the session began; the session continues with the"
            f" plan it has (to continue with the edited one: {edited})",
        )
    ]


def _git_drift(world: World, session: Session) -> list[Finding]:
    created = session.created
    if created is None or created.git_branch is None:
        return []
    _, branch = git_position(world.workspace)
    if branch is None or branch == created.git_branch:
        return []
    return [Finding(code="ACODE-GIT-001", message=f"the branch is {branch}, it was {created.git_branch}")]


def git_position(workspace: Path) -> tuple[str | None, str | None]:
    """HEAD and branch, or Nones outside a repository.

    HEAD is asked for and not `git status`, which compares files and for this runs the programs of the repository.
    """
    if not (workspace / ".git").exists():
        return None, None
    try:
        born = git_state.look(workspace, "rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
        if born is not None and born[0] == 0:
            head, _, ref = born[1].decode("utf-8", "replace").strip().partition("\n")
            return head, ref.removeprefix("refs/heads/") if ref != "HEAD" else "(detached)"
        unborn = git_state.look(workspace, "symbolic-ref", "--quiet", "HEAD")
    except OSError:
        return None, None
    if unborn is None or unborn[0] != 0:
        return None, None
    return "(initial)", unborn[1].decode("utf-8", "replace").strip().removeprefix("refs/heads/")
