"""Foreign runs on the command line: listed beside sessions, shown, resumed and answered like them."""

from __future__ import annotations

from typing import Any

from acode.cli import report, sync_state
from acode.cli.foreign_rows import RunRow, cells, row_json
from acode.cli.jsonlines import redacted
from acode.cli.screen import Screen
from acode.engine.session_list import Row, rows, unfinished_glances
from acode.engine.world import Options, Result, World
from acode.errors import AcodeError, InputRequired, MachineRefused, NoResumableSession, TerminalState
from acode.formats import format_of, locate, present
from acode.formats.find_run import find_run, native_sessions
from acode.formats.interface import Run, Standing
from acode.text import one_line

CANDIDATES_SHOWN_MAX = 10


# Which one.


def meant(
    world: World, screen: Screen, text: str | None, source: str | None, *, sure: bool, verb: str = "resume"
) -> Run | None:
    """The run that a command is about; None: it is about a native session. `sure`: the most recent one will do."""
    if text is not None:
        return find_run(world, text, source)
    if source is not None:
        return to_resume(world, screen, source, sure=sure)
    runs = resumable(world, None)
    if not runs:
        return None
    native = [row.session for row in unfinished_glances(world) if row.session is not None]
    native = [session for session in native if not session.steps_from.carries_run]
    if not native:
        return to_resume(world, screen, None, sure=sure)
    if sure or screen.can_ask:
        return None
    first = native[0].session_id[-8:]
    named = [f'{session.session_id[-8:]} - {session.state} - "{one_line(session.title)}"' for session in native]
    raise InputRequired(
        f"{len(native)} sessions and {len(runs)} runs can be resumed, and nobody can be asked which is meant: "
        + "; ".join([*named, *(in_one_line(run) for run in runs)][:CANDIDATES_SHOWN_MAX]),
        hint=f"Name one: acode {verb} {first}; or take the most recent session: acode {verb} --last",
        candidates=[*(session.session_id for session in native), *(run.run_id for run in runs)],
    )


def resumable(world: World, source: str | None) -> list[Run]:
    """Those that a resume without an id may mean; where not all places can be looked through, nobody may guess."""
    located = locate(world.workspace, source)
    if located.unread:
        raise MachineRefused(
            f"the run that is meant may lie where nobody can look: {'; '.join(located.unread)}",
            hint="Repair that, or name the run or session: acode resume ID",
        )
    return [run for run in located.runs if run.resumable]


def to_resume(world: World, screen: Screen, source: str | None, *, sure: bool) -> Run:
    """The run that a resume without an id means: the only incomplete one. With several, acode does not guess."""
    runs = resumable(world, source)
    kind = f"{source} run" if source else "foreign run"
    if not runs:
        raise NoResumableSession(f"there is no incomplete {kind} in this workspace: a fresh start", hint="")
    if len(runs) == 1 and (sure or source is not None):
        screen.line(f"Taking the only incomplete run: {in_one_line(runs[0])}")
        return runs[0]
    if screen.can_ask:
        return picked(screen, runs)
    raise InputRequired(
        f"{len(runs)} runs can be resumed, and nobody can be asked which is meant: "
        + "; ".join(in_one_line(run) for run in runs[:CANDIDATES_SHOWN_MAX]),
        hint=f"Name one: acode resume {runs[0].run_id}",
        candidates=[run.run_id for run in runs],
    )


def picked(screen: Screen, runs: list[Run]) -> Run:
    from acode.cli.prompts import ask
    from acode.errors import Interrupted

    screen.insist(f"Found {len(runs)} incomplete runs:")
    shown = runs[:CANDIDATES_SHOWN_MAX]
    for number, run in enumerate(shown, 1):
        screen.insist(f"  {number}. {in_one_line(run)}")
    while True:
        answer = ask(screen, f"Which one? A number from 1 to {len(shown)}, Enter for none:")
        if not answer or answer in ("n", "no", "q"):
            raise Interrupted("nothing was resumed")
        if answer.isdecimal() and 1 <= int(answer) <= len(shown):
            return shown[int(answer) - 1]


def in_one_line(run: Run) -> str:
    done = f", {run.tasks_done}/{run.tasks_total}" if run.tasks_done is not None else ""
    return f'{one_line(run.run_id)} - {run.source}{done} - "{one_line(run.title)}"'


# Looking.


def refuse_unrecorded(world: World, text: str) -> None:
    """Refuse a run that has no native session yet: acode has no log of it."""
    run = find_run(world, text) if present(world.workspace) else None
    if run is None:
        return
    from acode.formats.resume_run import native_session

    if native_session(world, run) is None and not any(
        row.error for row in rows(world)
    ):  # a damaged one may be its carrier
        raise NoResumableSession(
            f"acode has recorded nothing of the {run.source} run {run.run_id}: no session has resumed it yet",
            hint=f"See its state: acode status {run.run_id}; resume it: acode resume {run.run_id}",
        )


def show(world: World, screen: Screen, run: Run, options: Options, *, full: bool, resuming: bool) -> int:
    """`resume --dry-run` and `explain`: where it stands and what a resume would do. Changes nothing."""
    standing = format_of(run.source).stand(world, run)
    if resuming and standing.ended and not has_native_session(world, run):
        raise ended(run)
    if screen.flags.json:
        screen.document(redacted(as_json(world, standing, options, full=full), world.redactor))
    else:
        from acode.formats.resume_run import driver_of

        waits = None if driver_of(world, run) else no_driver(world, run)
        screen.data(world.redactor.text(report.of_run(standing, waits_for=waits)))
        for line in findings(standing):
            screen.data(world.redactor.text(line))
        screen.data(f"Nothing was changed. Next: {next_command(standing)}")
    return next((error.exit_code for error in standing.refusals if error.exit_code == 20), 0)


def findings(standing: Standing) -> list[str]:
    extra = standing.extra
    lines = [f"would be refused: {one_line(error.message)} ({error.hint})" for error in standing.refusals]
    lines += [f"{phase['phase']} goes back to pending: its artifact changed" for phase in extra.get("demoted", [])]
    lines += [f"orphaned team to be removed: {team}" for team in extra.get("orphans_cleaned", [])]
    lines += [f"stale state file: {path}" for path in extra.get("stale_state_files", [])]
    lines += [f"missing artifact: {name}" for name in extra.get("missing_artifacts", [])]
    return [*lines, *(f"warning: {one_line(text)}" for text in standing.warnings)]


def next_command(standing: Standing) -> str:
    run_id = standing.run.run_id
    if standing.ended:
        return "nothing is left to resume"
    if standing.waits_for is not None and "approve" in standing.waits_for:
        return f"acode session approve {run_id}"
    if any(error.exit_code == 17 and "--changed-files" in error.hint for error in standing.refusals):
        return f"acode resume {run_id} --changed-files continue"
    return f"acode resume {run_id}"


def as_json(world: World, standing: Standing, options: Options, *, full: bool) -> dict[str, Any]:
    """The object of the contract: the carrier's where there is one, and what the run itself says over it."""
    run, session = standing.run, session_json(world, standing.run, options, full=full)
    return {
        **session,
        "session_id": run.run_id,
        "short_id": run.run_id[-8:],
        "source": run.source,
        "title": run.title,
        "state": run.state if session["state"] is None or standing.ended else session["state"],
        "carrier": session["session_id"],
        "decision": decision(world, standing, session["decision"], options),
        "skipped_tasks": list(standing.done),
        "skipped_tasks_total": len(standing.done),
        "remaining_tasks": list(standing.remaining),
        "needs_human": session["needs_human"] or standing.needs_person,
        "next_action": next_command(standing),
        "next_step": standing.next_action,
        "refusals": [
            {"code": one.code, "message": one.message, "exit_code": one.exit_code} for one in standing.refusals
        ],
        **standing.extra,
    }


def session_json(world: World, run: Run, options: Options, *, full: bool) -> dict[str, Any]:
    from acode.engine import preview as looking
    from acode.formats.resume_run import native_session

    session = native_session(world, run)
    if session is not None and not session.terminal:
        return looking.as_json(looking.preview(world, session.session_id, options), full=full)
    return {
        "session_id": None,
        "state": None,
        "escalated": False,
        "scenario": "mid_operation",
        "interruption_class": None,
        "decision": None,
        "resume_point": None,
        "checkpoint": None,
        "skipped_steps": [],
        "remaining_steps": [],
        "in_flight": [],
        "in_progress": None,
        "environment": None,
        "sync": {"status": "disabled", "pending_events": 0},
        "needs_human": False,
    }


def decision(world: World, standing: Standing, known: dict[str, Any] | None, options: Options) -> dict[str, Any]:
    """The decision for the caller. A refusal of the format precedes the policy."""
    refusal = standing.refusals[0] if standing.refusals else None
    base = known or {
        "eligible": not standing.ended,
        "reason_code": "resume_allowed",
        "attempt": 1,
        "max_attempts": world.config.settings.resume.max_resume_attempts,
        "cooldown_seconds_remaining": 0,
        "actor": options.actor,
        "run_state": "completed" if standing.ended else "in_progress",
    }
    return {**base, "eligible": False, "reason_code": refusal.code} if refusal is not None else base


def status(world: World, screen: Screen, run: Run) -> int:
    standing = format_of(run.source).stand(world, run)
    one = RunRow(run=run, row=native_sessions(rows(world)).get((run.source, run.run_id)))
    if screen.flags.json:
        screen.document(redacted(status_json(world, standing, one), world.redactor))
        return 0
    done, total = len(standing.done), len(standing.done) + len(standing.remaining)
    for line in (
        f"Run: {one_line(run.run_id)}",
        f"Source: {run.source}",
        f"Title: {one_line(run.title)}",
        f"State: {cells(one, world.clock())[2]}",
        f"Progress: {done}/{total} tasks, phase {standing.phase}",
        f"Last activity: {standing.last_activity or 'none recorded'}",
        f"Next step: {one_line(standing.next_action)}",
        f"Next: {next_command(standing)}",
    ):
        screen.data(world.redactor.text(line))
    return 0


def status_json(world: World, standing: Standing, one: RunRow) -> dict[str, Any]:
    from acode.cli.status import lock_json
    from acode.engine.preview import decision_json

    row = one.row
    known = decision_json(row.decision) if row is not None and row.decision is not None else None
    free = {"held": False, "owner": None}
    return {
        **row_json(one),
        "tasks_done": len(standing.done),
        "tasks_total": len(standing.done) + len(standing.remaining),
        "decision": decision(world, standing, known, Options(actor="system")),
        "lock": lock_json(row.lock) if row is not None and row.lock is not None else free,
        "sync": native_sync(world, row),
        **standing.extra,
    }


def native_sync(world: World, row: Row | None) -> dict[str, Any]:
    """The sync state of the run's native session; a run without one is not shared."""
    if row is None or world.config.settings.sync.url is None:
        return sync_state.DISABLED
    from acode.sync.push_now import standings

    return standings(world, row.session_id)[0].sync.as_json()


def has_native_session(world: World, run: Run) -> bool:
    from acode.formats.resume_run import native_session

    session = native_session(world, run)
    return session is not None and not session.terminal


def ended(run: Run) -> AcodeError:
    return TerminalState(
        f"Cannot resume {run.state} run {run.run_id}: it has ended", state=run.state, run_id=run.run_id
    )


def answer(world: World, screen: Screen, run: Run, *, granted: bool, note: str) -> int:
    """Yes or no at the gate of a run."""
    from acode.formats.resume_run import approve_run

    said = approve_run(world, run, granted=granted, note=note)
    if screen.flags.json:
        document = {"session_id": run.run_id, "source": run.source, "granted": granted, "message": said}
        screen.document({**document, "short_id": run.run_id[-8:], "gate": "plan-approval"})
    else:
        screen.data(one_line(f"{'Approved' if granted else 'Denied'}: {said}."))
    screen.line(f"To resume: acode resume {run.run_id}")
    return 0


# Resuming.


def resume(world: World, screen: Screen, run: Run, options: Options, *, execute: Any) -> int:
    """With a driver: on with it. Without one: repaired by its own rules, reported, and the next action named."""
    from acode.formats.resume_run import driver_of, repair_run, resume_run

    driver = driver_of(world, run)
    if driver is None:
        repaired = repair_run(world, run, options)
        standing = format_of(run.source).stand(world, run)
        why = no_driver(world, run)
        if screen.flags.json:
            document = {**as_json(world, standing, options, full=False), "repaired": list(repaired), "driver": None}
            screen.document(redacted(document, world.redactor))
            return 0
        screen.data(world.redactor.text(report.of_run(standing, waits_for=why)))
        for line in (*(f"repaired: {one_line(text)}" for text in repaired), *findings(standing)):
            screen.data(world.redactor.text(line))
        screen.data(f"Nothing was executed; the run waits for {why}.")
        return 0
    if run.problem is None and not screen.flags.json:
        screen.line(world.redactor.text(report.of_run(format_of(run.source).stand(world, run))))

    def work(ready: World) -> Result:
        return resume_run(ready, run, driver, options)

    code: int = execute(work)
    return code


def no_driver(world: World, run: Run) -> str:
    if f"drivers.{run.source}" in world.config.executes and not world.config.trusted:
        return "a driver: the one in .agent/config.yml is not trusted (read it, then: acode config trust)"
    return f"a driver: none is configured (under drivers: {run.source}: in .agent/config.yml)"
