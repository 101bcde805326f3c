"""Continue an arc run: claim it, repair it once, then drive one phase after the other.

The hashes of finished phases are checked when a run is resumed, not between its phases: a later phase may rewrite what
an earlier one made, and the run's own rules check at a resume only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acode.errors import AcodeError, MachineRefused, StepFailed
from acode.formats import arc
from acode.formats.arc import phases as p
from acode.formats.arc.artifacts import is_rejected
from acode.formats.arc.checkpoint import Raw, moment, object_at, shown
from acode.formats.arc.claim import let_go_by, owner_of
from acode.formats.arc.facts import Facts
from acode.formats.arc.findings import ERRORS
from acode.formats.arc.migrations import OWN_FIELD, migrate
from acode.formats.arc.permission import unread_refusal
from acode.formats.arc.repair import with_phase
from acode.formats.arc.surroundings import artifact as look_at_artifact
from acode.formats.arc.surroundings import state_files
from acode.formats.interface import Finished, Located, Next, Outcome, Run, Standing, Work
from acode.formats.unreadable import reason

if TYPE_CHECKING:
    from acode.engine.held_session import Held
    from acode.engine.world import Options, World

SOURCE = "arc"
Note = Callable[[Raw], None]


# Looking.


def locate(root: Path) -> Located:
    found = arc.locate(root)
    return Located(
        runs=tuple(_as_run(one) for one in found),
        warnings=tuple(text for one in found for text in one.warnings),
        unread=tuple(f"{one.run_id}: {one.problem}" for one in found if one.is_place),
    )


def _as_run(found: arc.Found) -> Run:
    finished = found.next_phase is None
    return Run(
        source=SOURCE,
        run_id=found.run_id,
        path=os.fspath(found.path),
        title=found.title or found.run_id,
        state="DAMAGED" if found.problem else "COMPLETED" if finished else "PAUSED",
        created_at=found.created_at,
        updated_at=found.updated_at or (datetime.fromtimestamp(found.mtime, UTC) if found.mtime else None),
        tasks_done=None if found.problem else found.phases_done,
        tasks_total=None if found.problem else found.phases_total,
        problem=found.problem,
        warnings=found.warnings,
    )


def stand(world: World, run: Run) -> Standing:
    checkpoint, _, diagnosis = _diagnosed(world, run)
    phases = {name: diagnosis.phases[name] for name in p.phases_of(migrate(checkpoint.raw).value)}
    done = tuple(name for name, status in phases.items() if status in p.DONE_STATUSES)
    refusals = tuple(ERRORS[one.kind](one.message, hint=one.hint) for one in diagnosis.refusals)
    upcoming = diagnosis.next_phase
    return Standing(
        run=run,
        phase=upcoming or "none: all are done",
        done=done,
        remaining=tuple(name for name in phases if name not in done),
        last_activity=shown(checkpoint.raw.get("updated_at") or "", 60) or None,
        last_completed=_last_completed(checkpoint.raw),
        next_action=f"Run the phase {upcoming}" if upcoming else "Nothing: every phase is done",
        waits_for=refusals[0].message if refusals else "nothing: the run has ended" if diagnosis.finished else None,
        needs_person=bool(refusals),
        ended=diagnosis.finished,
        refusals=refusals,
        warnings=(*run.warnings, *diagnosis.warnings),
        extra={**diagnosis.as_json(), "warnings": [*run.warnings, *diagnosis.warnings]},
    )


def _last_completed(raw: Raw) -> tuple[str, str] | None:
    ended = [
        (at, name)
        for name, entry in p.entries(object_at(raw, "phases"))
        if p.status_of(entry) == "completed" and (at := moment(entry.get("completed_at"))) is not None
    ]
    untimed = [name for name in p.NEWER_ORDER if p.status_of(object_at(raw, "phases").get(name)) == "completed"]
    if not ended and not untimed:
        return None
    name = max(ended)[1] if ended else untimed[-1]  # without times, the last in order
    artifact = object_at(object_at(raw, "phases"), name).get("artifact")
    return shown(name, 60), shown(artifact) if isinstance(artifact, str) else ""


def _diagnosed(world: World, run: Run) -> tuple[arc.Checkpoint, Facts, arc.Diagnosis]:
    checkpoint = arc.read(Path(run.path))
    facts = arc.look(checkpoint, config_dir=arc.resolve_config_dir(world.env), own_pid=os.getpid())
    try:
        facts = replace(facts, owner=owner_of(checkpoint.raw, let_go_by(checkpoint.path)))
    except OSError as problem:  # a user who may only read the run still sees it
        facts = replace(facts, lock_refused=reason(problem))
    return checkpoint, facts, arc.diagnose(checkpoint, world.clock(), facts)


# Continuing the run.


@contextmanager
def activate(world: World, run: Run, options: Options) -> Iterator[ArcRun]:
    """The run, claimed; what is refused is refused before anything is written."""
    one = ArcRun(world, run, accept_stale=accepts_stale(world, options))
    one.refuse(_diagnosed(world, run)[2])
    with arc.claim(one.path, own_pid=os.getpid(), config_dir=one.config_dir, now=world.clock()):
        yield one


def accepts_stale(world: World, options: Options) -> bool:
    said = options.changed_files or world.config.settings.resume.changed_files_action
    return said == "continue" or options.force


def repair_by_rules(world: World, run: Run, options: Options) -> tuple[str, ...]:
    """Claim, clean up and repair. Suspended tasks stay as they are: their contexts belong to the next dispatch."""
    told: list[str] = []
    with activate(world, run, options) as one:
        before = arc.read(one.path).raw
        notes: list[Raw] = []
        diagnosis, problems = one.repair(notes.append, dispatch=False)
        if diagnosis.schema_from != diagnosis.schema_to:
            told.append(f"migrated from schema {diagnosis.schema_from} to {diagnosis.schema_to}")
        died = [*(one.phase for one in diagnosis.orphans if one.resets), *diagnosis.reset_phases]
        reasons = dict.fromkeys(died, "a session died in it")
        reasons |= dict.fromkeys((one.phase for one in diagnosis.demoted), "its artifact is not the recorded one")
        told += [f"{phase} goes back to pending: {why}" for phase, why in reasons.items()]
        told += [f"{note['path']} is marked as recovered" for note in notes if note.get("path")]
        if before.get("owner_pid") != os.getpid():
            told.append(f"claimed: owner_pid was {shown(before.get('owner_pid'), 20)}")
        told += problems
    return tuple(told)


def approve(world: World, run: Run, *, note: str, asked: Raw | None) -> str:
    raise StepFailed(f"the arc run {run.run_id} waits for no approval", hint="Phases of an arc run have no gate.")


class ArcRun:
    """One claimed run. The checkpoint on disk is the truth: it is read again for every phase."""

    def __init__(self, world: World, run: Run, *, accept_stale: bool) -> None:
        self.world = world
        self.run_id = run.run_id
        self.path = Path(run.path)
        self.config_dir = arc.resolve_config_dir(world.env)
        self.accept_stale = accept_stale
        self._run = run
        self._repaired = False

    def refuse(self, diagnosis: arc.Diagnosis) -> None:
        for refusal in diagnosis.refusals:
            if refusal.kind != "stale_plan" or not self.accept_stale:
                arc.raise_refusal(refusal)

    def repair(self, note: Note, *, dispatch: bool = True) -> tuple[arc.Diagnosis, list[str]]:
        """Steps 2 to 6 of the format's own resume, written back; what it warns about, clean-up included."""
        checkpoint, _, diagnosis = _diagnosed(self.world, self._run)
        self.refuse(diagnosis)
        if not dispatch:
            diagnosis = replace(diagnosis, verdicts=())
        now = self.world.clock()
        problems = arc.clean_up(
            checkpoint.root, self.config_dir, diagnosis, now=now, sleep=self.world.sleep, record=note
        )
        value = arc.repair(
            checkpoint.raw,
            diagnosis,
            now=now,
            own_pid=os.getpid(),
            config_dir=self.config_dir,
            accept_stale=self.accept_stale,
        )
        arc.write(self.path, value, now=now)
        note({"action": "checkpoint_repaired", **_in_short(diagnosis, accept_stale=self.accept_stale)})
        return diagnosis, problems

    def next(self, held: Held) -> Next:
        note = noted(held)
        if not self._repaired:
            diagnosis, problems = self.repair(note)
            for warning in (*diagnosis.warnings, *problems):
                held.warn(warning)
            self._repaired = True
        checkpoint = arc.read(self.path)
        value = checkpoint.raw
        phase = arc.next_phase(value)
        if phase is None:
            return Finished(ending="completed")
        facts = Facts(
            own_pid=os.getpid(), own_config_dir=self.config_dir, state_files=tuple(state_files(checkpoint.root))
        )
        if refusal := unread_refusal(facts):
            arc.raise_refusal(refusal)  # it may name the team of a live session, which is not ours to remove
        problems = arc.clean_before_phase(
            value,
            self.config_dir,
            held_teams=arc.teams_of_live_owners(facts),
            sleep=self.world.sleep,
            record=note,
        )
        injections: dict[str, str] = {}
        if phase == "work":
            injections, cold = arc.settle_contexts(checkpoint.root, value, run_id=self.run_id)
            problems += cold
        for problem in problems:
            held.warn(problem)
        prompt = arc.prompt_for_phase(
            value, phase, run_id=self.run_id, checkpoint_path=checkpoint.relative, injections=injections
        )
        return Work(name=phase, title=f"Phase {phase}", prompt=prompt, origin={"phase": phase})

    def begin(self, held: Held, work: Work, *, key: str, attempt: int) -> None:
        now = self.world.clock()
        arc.write(self.path, arc.begin_phase(arc.read(self.path).raw, work.name, started=now), now=now)

    def record(self, held: Held, origin: dict[str, Any], outcome: Outcome) -> AcodeError | None:
        """The outcome, its artifact and the key of the attempt in one write; a key that stands there was recorded."""
        phase = str(origin["phase"])
        checkpoint = arc.read(self.path)
        value = checkpoint.raw
        entry = object_at(object_at(value, "phases"), phase)
        if object_at(value, OWN_FIELD).get("recorded") == outcome.key or not entry or is_newer(entry, outcome):
            return None
        told = p.status_of(entry)
        status: Any = outcome.status
        if status == "completed" and told in ("skipped", "failed"):
            status = told  # the driver's own word in the checkpoint is more exact than its exit status
        artifact, sha256 = self._artifact(checkpoint, phase, entry) if status == "completed" else (None, None)
        failure = driver_failed(phase) if outcome.status == "completed" and status == "failed" else None
        if status == "completed" and artifact is None:
            place = arc.expected_artifact(value, phase, run_id=self.run_id)
            status, failure = "failed", not_made(phase, place)
        value = arc.record_phase(
            value,
            phase,
            status,
            artifact=artifact,
            sha256=sha256,
            started=outcome.started,
            finished=outcome.finished,
        )
        if artifact is not None:
            value = with_shared_artifact(value, phase, artifact, sha256)
        value = {**value, OWN_FIELD: {**object_at(value, OWN_FIELD), "recorded": outcome.key}}
        arc.write(self.path, value, now=self.world.clock())
        return failure

    def _artifact(self, checkpoint: arc.Checkpoint, phase: str, entry: Raw) -> tuple[str | None, str | None]:
        """The artifact that the driver named in the checkpoint, else the one at the path in its prompt.

        Bytes that the phase was demoted for are no artifact: recorded again, a change would pass for the original.
        """
        named = entry.get("artifact")
        expected = arc.expected_artifact(checkpoint.raw, phase, run_id=self.run_id)
        for path in (named, expected):
            if isinstance(path, str) and path:
                found = look_at_artifact(checkpoint.root, path)
                if found.refused:
                    raise MachineRefused(f"the artifact {shown(path)} cannot be read: {found.refused}")
                if found.kind in ("file", "directory", "too_large") and not is_rejected(checkpoint.raw, phase, found):
                    return path, found.sha256
        return None, None


def driver_failed(phase: str) -> StepFailed:
    return StepFailed(f"the driver ended with success, but it recorded the phase {phase} as failed", phase=phase)


def not_made(phase: str, place: str) -> StepFailed:
    return StepFailed(
        f"the driver ended with success, but it wrote no artifact of the phase {phase} to {place}",
        hint="Fix the driver: it has to write that file again. Then resume the run.",
        phase=phase,
    )


def is_newer(entry: Raw, outcome: Outcome) -> bool:
    """Whether somebody else began or ended the phase after our attempt was over: then theirs is the truth."""
    times = [moment(entry.get(name)) for name in ("started_at", "completed_at")]
    return any(time is not None and time > outcome.finished for time in times)


def with_shared_artifact(value: Raw, phase: str, artifact: str, sha256: str | None) -> Raw:
    """Two phases may share one artifact; the later one rewrites it, and that is no tampering with the earlier one."""
    for name, entry in p.entries(value["phases"]):
        if name != phase and p.status_of(entry) == "completed" and entry.get("artifact") == artifact:
            value = with_phase(value, name, artifact_hash=sha256)
    return value


def noted(held: Held) -> Note:
    from acode.events import types as ev

    def note(data: Raw) -> None:
        held.append(ev.Noted(what="arc", data=data), durable=False)

    return note


def _in_short(diagnosis: arc.Diagnosis, *, accept_stale: bool) -> Raw:
    stale = any(refusal.kind == "stale_plan" for refusal in diagnosis.refusals)
    return {
        "schema_from": diagnosis.schema_from,
        "schema_to": diagnosis.schema_to,
        "demoted": [one.phase for one in diagnosis.demoted],
        "reset": [*(one.phase for one in diagnosis.orphans if one.resets), *diagnosis.reset_phases],
        "stale_plan_accepted": stale and accept_stale,
    }
