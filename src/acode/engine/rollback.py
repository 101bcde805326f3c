"""Roll finished steps back: `session rollback --to STEP`, in reverse order, one step at a time. Three-way, file by
file: a file as the step left it is restored; one that is already as before stays; one that somebody else changed since
is not touched. Each step is recorded as soon as it is rolled back, so the same command finishes a rollback that crashed
in the middle. The old content of another machine's files stays there: where it would be needed, nothing at all is
rolled back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from acode import lock as locks
from acode.engine import notices
from acode.engine.held_session import Held, held
from acode.engine.next_action import session_hint
from acode.engine.program_answers import settle_call
from acode.engine.survey import step_named, whole_definition
from acode.engine.undo_command import UNDO, is_being_undone, run_undo, unknown_undo
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import World, short
from acode.errors import BlobDamaged, CannotContinue, MissingArtifacts, Usage
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Call, Commit, Run, Sql, Step, Write, command_line, describe, execution_order
from acode.hints import Command, Hint, Resolve, Resume, Rollback
from acode.resume_point import half_undone
from acode.state import NESTED, Session, State
from acode.store.store import Store
from acode.store.sync_cursor import cursor_of
from acode.workspace import Root, hash_file, is_back, needs_of, restore
from acode.workspace.declared_outputs import Patterns

Way = Literal["files", "undo", "nothing", "stays"]


class Undoing(msgspec.Struct, frozen=True, kw_only=True):
    """One finished step to roll back, and the way to do it."""

    step: str
    title: str
    way: Way
    paths: tuple[str, ...] = ()
    detail: str = ""
    missing: tuple[str, ...] = ()  # paths of which this machine does not have what stood there before
    damaged: dict[str, str] = {}  # paths of which it had it, and why it cannot be used


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """The log's record of a finished step: the files before it, and the files it left."""

    started: ev.StepStarted
    completed: ev.StepCompleted
    left: tuple[ev.FileState, ...]
    started_seq: int = 0


UndoCall = Callable[[Held, Step, Past], None]


class RollbackResult(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[str, ...]
    restored: tuple[str, ...]
    kept: tuple[str, ...]


def plan_rollback(world: World, text: str, to: str | None) -> tuple[Session, tuple[Undoing, ...]]:
    """Plan a rollback; nothing is changed."""
    with opened(world, look_only=True) as store, Root(world.workspace) as root:
        session_id = resolve_id(world, store, text)
        session = store.load(session_id).session
        undoing = steps_to_undo(store, session, to)
        if session.terminal:  # nothing of it is rolled back any more, and the pre-images are removed on purpose
            return session, undoing
        return session, with_missing_preimages(store, root, session, undoing)


def files_that_stay(world: World, session: Session, undoing: tuple[Undoing, ...]) -> dict[str, tuple[str, ...]]:
    """The files that a rollback would leave as they are, by step: somebody changed them since. It only reads.

    The latest step that touched a path is compared with it; a path that is not its own stays for all steps before it.
    """
    with opened(world, look_only=True) as store, Root(world.workspace) as root:
        past = finished_steps(store, session)
        stays: dict[str, bool] = {}
        found: dict[str, tuple[str, ...]] = {}
        for one in undoing:
            known = past.get(one.step)
            left = {state.path: state for state in known.left} if known else {}
            own = images(step_to_roll_back(session, one.step, past), known)
            for image in own:
                if image.path not in stays:
                    post = left.get(image.path, ev.FileState(path=image.path))
                    stays[image.path] = needs_of(root, image, post) == "kept"
            found[one.step] = tuple(image.path for image in own if stays[image.path])
        return found


def roll_back(world: World, text: str, to: str | None, call: UndoCall | None = None) -> RollbackResult:
    """Do it: every later step, the latest first. `call` runs the undo functions of a program's steps."""
    with held(world, text, doing="roll back") as run:
        refuse_unsettled(run.session)
        undoing = steps_to_undo(run.store, run.session, to)
        refuse_incomplete(run.session, with_missing_preimages(run.store, run.root, run.session, undoing))
        past = finished_steps(run.store, run.session)
        defined = {one.step: step_to_execute(run, one.step, past) for one in undoing}
        for task in list(run.session.in_flight):
            settle_call(run, task, "retry", evidence="steps of it, or before it, are rolled back", actor="user")
        restored: list[str] = []
        kept: list[str] = []
        for one in undoing:
            some, others = roll_back_step(run, defined[one.step], past.get(one.step), to, call)
            restored.extend(some)
            kept.extend(others)
        return RollbackResult(steps=tuple(one.step for one in undoing), restored=tuple(restored), kept=tuple(kept))


def refuse_unsettled(session: Session) -> None:
    """The outcome of the step in flight must be known before an earlier step is rolled back."""
    step = next((one for one in session.in_flight if not session.is_open_task(one)), None)
    if step is not None:
        raise CannotContinue(
            f"step {step} is in flight; it is settled before finished steps are rolled back",
            hint=session_hint(session, "Settle it: {}; or state its outcome: {}", Resume(), Resolve(step)),
        )


def steps_to_undo(store: Store, session: Session, to: str | None) -> tuple[Undoing, ...]:
    """Finished steps after `to`, the latest first; refused as a whole where one cannot be rolled back."""
    if session.steps_from.asked:
        return program_steps_to_undo(store, session, to)
    assert session.plan is not None
    order = [step for task in execution_order(session.plan) for step in task.steps]
    if to is not None and to not in {step.id for step in order}:
        raise Usage(f"the plan has no step {to}", hint=Hint("See the steps: {}", Command("session show")))
    if to is not None and not session.done(to):
        raise Usage(f"step {to} is not done, so nothing can be rolled back to it")
    after = order if to is None else order[[step.id for step in order].index(to) + 1 :]
    finished = [step for step in after if session.done(step.id)]
    past = finished_steps(store, session)
    if session.plan.parallel > 1:  # the latest first: tasks did not end in the order of the plan
        ended = {step: number for number, step in enumerate(past)}
        finished.sort(key=lambda step: ended.get(step.id, -1))
    refuse_stuck(finished, past)
    return tuple(how_to_undo(session, step, past.get(step.id)) for step in reversed(finished))


def program_steps_to_undo(store: Store, session: Session, to: str | None) -> tuple[Undoing, ...]:
    """The finished steps of a program, in the order in which they ended: there is no plan that would know another."""
    past = finished_steps(store, session)
    done = [step for step in past if (known := session.record(step)) is None or known.status == "completed"]
    if to is not None and to not in done:
        raise Usage(f"step {to} is not done, so nothing can be rolled back to it")
    after = [step_to_roll_back(session, step, past) for step in (done if to is None else done[done.index(to) + 1 :])]
    refuse_stuck(after, past)
    return tuple(how_to_undo(session, step, past[step.id]) for step in reversed(after))


def refuse_stuck(steps: list[Step], past: dict[str, Past]) -> None:
    """A rollback that left a commit or a statement behind would have it done twice by the resume after it."""
    stuck = [step.id for step in steps if changed_for_good(step, past.get(step.id))]
    if stuck:
        raise CannotContinue(
            f"{', '.join(stuck)} cannot be rolled back: a database or repository was changed and no `undo` is declared",
            hint="Roll back to a later step, or undo it by hand in a new session.",
            steps=stuck,
        )


def changed_for_good(step: Step, past: Past | None) -> bool:
    """A commit that was not made, because there was nothing to commit or git refused it, has changed nothing."""
    if step.undo is not None or not isinstance(step.action, Sql | Commit):
        return False
    result = past.completed.result if past is not None else None
    no_commit = isinstance(result, dict) and ("v" in result or result.get("commit", "") is None)
    return isinstance(step.action, Sql) or not no_commit


def step_to_roll_back(session: Session, step: str, past: dict[str, Past]) -> Step:
    defined = past[step].started.definition if session.steps_from.asked and step in past else None
    return defined if defined is not None else step_named(session, step)


def step_to_execute(run: Held, step: str, past: dict[str, Past]) -> Step:
    """The step with the undo that is executed; asked for every step before the first one is rolled back."""
    shown = step_to_roll_back(run.session, step, past)
    if step not in past or shown.undo is None:
        return shown
    whole = whole_definition(run.store, run.session, shown, past[step].started)
    if whole is None:
        raise MissingArtifacts(
            f"the undo of step {step} holds a secret, and stays on the machine where the step ran; nothing was changed",
            hint="Roll back there, or to a later step (--to); or undo it by hand, and begin a new session.",
            step=step,
        )
    return whole


def how_to_undo(session: Session, step: Step, past: Past | None) -> Undoing:
    title = title_of(session, step, past)
    paths = tuple(image.path for image in images(step, past))
    if step.undo is not None:
        return Undoing(step=step.id, title=title, way="undo", paths=paths, detail=command_line(step.undo))
    match step.action:
        case Write():
            return Undoing(step=step.id, title=title, way="files", paths=paths)
        case Run(outputs=outputs) if outputs:
            return Undoing(step=step.id, title=title, way="files", paths=paths)
        case Call(undo=str(function)):
            return Undoing(step=step.id, title=title, way="undo", detail=function)
        case Call(files=files, more=more) if files:
            detail = "what else it changed is not known and stays" if more else ""
            return Undoing(step=step.id, title=title, way="files", paths=paths, detail=detail)
        case Run() | Call() if not only_looked(session, step):
            return Undoing(step=step.id, title=title, way="stays", detail="its effects are not declared and stay")
        case _:
            return Undoing(step=step.id, title=title, way="nothing")


def only_looked(session: Session, step: Step) -> bool:
    """An agent changes things by writes, commands and commits; a command that may be repeated changes nothing.

    The others are calls that read, listed or searched, and tasks: the steps of a task are rolled back one by one.
    A call without a name was opened by a repair, and nobody knows what it was.
    """
    looked = isinstance(step.action, Call) and step.action.function != ""
    return session.steps_from.follows_model and (looked or step.idempotent)


def title_of(session: Session, step: Step, past: Past | None) -> str:
    """The step's title, as it was shown when it was done."""
    if not session.steps_from.follows_model or not isinstance(step.action, Call):
        return describe(step)
    if NESTED not in step.id:
        return f"Task: {step.action.function}"
    return past.started.shown.removesuffix("?") if past is not None and past.started.shown else describe(step)


def finished_steps(store: Store, session: Session) -> dict[str, Past]:
    """Start and completion of every finished step, from the verified log."""
    starts: dict[str, tuple[ev.StepStarted, int]] = {}
    seen: dict[str, tuple[ev.FileState, ...]] = {}
    past: dict[str, Past] = {}
    for envelope, _, _ in store.events(session.session_id):
        match envelope.event:
            case ev.StepStarted() as started:
                starts[started.step] = started, envelope.seq
                seen.pop(started.step, None)
            case ev.Quarantined(opened=opened):  # a repair has opened what a damaged event may have been about
                starts.update({started.step: (started, envelope.seq) for started in opened})
            case ev.FilesSeen(step=step, files=files):
                seen[step] = (*seen.get(step, ()), *files)
            case ev.StepCompleted() as completed if completed.step in starts:
                files = (*seen.pop(completed.step, ()), *completed.files)
                past.pop(completed.step, None)  # a step that was done again has its place where it ended last
                started, seq = starts[completed.step]
                past[completed.step] = Past(started=started, completed=completed, left=files, started_seq=seq)
    return past


def images(step: Step, past: Past | None) -> tuple[ev.PreImage, ...]:
    """The pre-images of the step's declared paths; a path it made was absent."""
    if past is None or not declares_files(step):
        return ()
    known = {image.path: image for image in past.started.before}
    if not past.started.before_complete:  # a file without a pre-image may have stood there: it is not ours to remove
        return tuple(known.values())
    if not isinstance(step.action, Run):
        return tuple(known.values())
    # A completion also records known files whose stat alone changed: only declared paths can be the step's own.
    declared = Patterns(step.action.outputs)
    made = [
        ev.PreImage(path=state.path, kind="absent")
        for state in past.left
        if state.path not in known and declared(state.path, is_directory=state.sha256 == "")
    ]
    return (*known.values(), *made)


def declares_files(step: Step) -> bool:
    match step.action:
        case Run(outputs=outputs):
            return bool(outputs)
        case Call(files=files):
            return bool(files)
        case action:
            return isinstance(action, Write)


def with_missing_preimages(
    store: Store, root: Root, session: Session, undoing: tuple[Undoing, ...]
) -> tuple[Undoing, ...]:
    """Find the pre-images that the steps need and this machine lacks, before anything is changed. Only where a path
    still is as the step left it: one that is as before needs nothing, one that others changed stays. Existing bytes are
    read to their end: a rollback that meets damaged bytes in the middle could not be finished.
    """
    taken_seq = cursor_of(store, session.session_id).taken_seq
    past, found = finished_steps(store, session), list[Undoing]()
    going_to_be: dict[str, str | None] = {}  # the content a path will have by then; None: others changed it, it stays
    for one in undoing:
        missing, damaged = list[str](), dict[str, str]()
        known = past.get(one.step)
        left = {state.path: state for state in known.left} if known else {}
        for image in images(step_to_roll_back(session, one.step, past), known):
            if image.path not in going_to_be:
                needs = needs_of(root, image, left.get(image.path, ev.FileState(path=image.path)))
                needed = needs == "content"
                going_to_be[image.path] = None if needs == "kept" else image.sha256
            else:
                needed = image.kind == "file" and going_to_be[image.path] not in (None, image.sha256)
                if going_to_be[image.path] is not None:
                    going_to_be[image.path] = image.sha256
            trouble = unusable(store, session, image) if needed else None
            if trouble is not None and known is not None and known.started_seq <= taken_seq:
                missing.append(image.path)
            elif trouble is not None:
                damaged[image.path] = trouble
        found.append(msgspec.structs.replace(one, missing=tuple(missing), damaged=damaged))
    return tuple(found)


def unusable(store: Store, session: Session, image: ev.PreImage) -> str | None:
    """Why the old bytes cannot be restored; None: they are complete."""
    if image.blob is None:
        return "its bytes were not kept"
    try:
        for _ in store.blob_in_pieces(session.session_id, image.blob):
            pass
    except BlobDamaged as error:
        return error.message
    return None


RESTORE_YOURSELF = "Or restore those files yourself as they were, or as you want them: then {} leaves them alone."


def refuse_incomplete(session: Session, undoing: tuple[Undoing, ...]) -> None:
    """All of it or nothing: a rollback that stops in the middle would leave what no run has ever left."""
    missing = {one.step: one.missing for one in undoing if one.missing}
    if missing:
        paths = ", ".join(dict.fromkeys(path for some in missing.values() for path in some))
        raise CannotContinue(
            f"what stood in {paths} before {', '.join(missing)} is not on this machine, because those steps ran on"
            " another one; nothing was changed",
            hint=session_hint(session, f"Roll back there, or to a later step (--to). {RESTORE_YOURSELF}", Rollback()),
            missing={step: list(some) for step, some in missing.items()},
        )
    damaged = {path: why for one in undoing for path, why in one.damaged.items()}
    if damaged:
        steps = [one.step for one in undoing if one.damaged]
        raise BlobDamaged(
            f"the content of {', '.join(damaged)} before {', '.join(steps)} cannot"
            f" be restored: {next(iter(damaged.values()))}; nothing was changed",
            hint=session_hint(
                session,
                "Restore that blob from a backup of .agent/blobs, or roll back to a later step (--to). "
                f"{RESTORE_YOURSELF}{{}}",
                Rollback(),
                leave_it_done(session),
            ),
            damaged=damaged,
        )


def leave_it_done(session: Session) -> Hint | str:
    """The alternative to a rollback that was begun, as long as it has not restored anything."""
    undo = session.undoing
    if undo is None or undo.key:
        return ""
    text = " Or let step {} be done, if nothing of it was restored yet: {}"
    return session_hint(session, text, undo.step, Resolve(undo.step, "--not-applied"))


def let_be_done(run: Held, *, note: str) -> None:
    """A person cancels a rollback that has recorded its start and restored nothing: its step stays done."""
    undo = run.session.undoing
    assert undo is not None
    past = finished_steps(run.store, run.session)
    step, known = step_to_roll_back(run.session, undo.step, past), past.get(undo.step)
    left = {state.path: state for state in known.left} if known else {}
    back = [
        image.path
        for image in images(step, known)
        if changed_by_step(image, left.get(image.path)) and is_back(run.root, image)
    ]
    if back:
        raise Usage(
            f"the rollback has put {', '.join(back)} back already, so step {undo.step} is not done any more",
            hint=session_hint(run.session, "Finish it: {}", Rollback(undo.to)),
        )
    outcome = ev.Settled.NOT_APPLIED
    run.append(ev.UndoSettled(step=undo.step, attempt=undo.attempt, outcome=outcome, note=note), actor="user")


def changed_by_step(image: ev.PreImage, left: ev.FileState | None) -> bool:
    if image.kind == "directory":
        return False
    return image.kind == "absent" or left is None or (image.sha256, image.mode) != (left.sha256, left.mode)


def roll_back_step(
    run: Held, step: Step, past: Past | None, to: str | None, call: UndoCall | None
) -> tuple[list[str], list[str]]:
    """One step: its undo command first, then its files, then the record that it is pending again.

    The log records it before its files change: a resume does not take an interrupted rollback for edits by others.
    """
    run.emit(notices.FinishedStepRolledBack(title=title_of(run.session, step, past)), step=step.id)
    if step.undo is not None:
        run_undo(run, step, to)
    elif isinstance(step.action, Call) and step.action.undo is not None:
        call_undo(run, step, past, to, call)
    elif past is not None and images(step, past) and not is_being_undone(run.session, step.id):
        run.append(ev.UndoStarted(step=step.id, attempt=past.started.attempt, key="", to=to), actor="user")
    restored, kept = put_files_back(run, step, past)
    known = {state.path for state in past.left} if past else set()
    # Also the files that an earlier attempt has restored: else they would look like changes by others. Directories that
    # went are not remembered as absent: made again by the next attempt, they would look changed.
    back = (image.path for image in images(step, past) if image.path not in kept)
    files = tuple(hash_file(run.root, path) for path in back if path in known)
    run.append(
        ev.StepsRolledBack(
            to=to, steps=(step.id,), tasks=tasks_opened(run.session, step), files=files, kept=tuple(kept)
        ),
        *asleep(run),
        actor="user",
    )
    return restored, kept


def asleep(run: Held) -> tuple[ev.Known, ...]:
    """A session that was executing, or waited at a gate that lies ahead of it again, is paused by its rollback."""
    return () if run.session.state is State.PAUSED else (ev.SessionPaused(reason="rolled_back"),)


def tasks_opened(session: Session, step: Step) -> tuple[str, ...]:
    """The task that was complete and is no longer; in a program's session every step of its own is one."""
    if session.steps_from.asked:
        return () if NESTED in step.id else (step.id,)
    assert session.plan is not None
    task = next(one for one in session.plan.tasks if one.id == step.task)
    return (task.id,) if all(session.done(one.id) for one in task.steps) else ()


def call_undo(run: Held, step: Step, past: Past | None, to: str | None, call: UndoCall | None) -> None:
    """The undo function of a program's step. Only a person knows the outcome of one that was killed."""
    if past is None or call is None:
        raise CannotContinue(f"the undo of step {step.id} is a function, and nobody is here who could call it")
    if run.session.undoing is not None and run.session.undoing.step == step.id:
        if run.session.undo_answer is None:
            raise unknown_undo(run.session)
        if run.session.undo_answer is ev.Settled.APPLIED:
            return
    attempt = past.started.attempt
    key = make_key(run.session.session_id, f"{step.id}{UNDO}", attempt)
    run.append(ev.UndoStarted(step=step.id, attempt=attempt, key=key, to=to, boot_id=locks.boot_id()), actor="user")
    call(run, step, past)


def put_files_back(run: Held, step: Step, past: Past | None) -> tuple[list[str], list[str]]:
    restored, kept = list[str](), list[str]()
    left = {state.path: state for state in past.left} if past else {}
    # The deepest paths first: a directory can only go when it is empty.
    for image in sorted(images(step, past), key=lambda one: one.path, reverse=True):
        post = left.get(image.path, ev.FileState(path=image.path))
        outcome = restore(
            run.root, image, post, read_blob=lambda sha256: run.store.blob_in_pieces(run.session.session_id, sha256)
        )
        if outcome == "restored":
            restored.append(image.path)
        elif outcome == "kept":
            kept.append(image.path)
            run.warn(f"{image.path} was changed since step {step.id}: it is yours and stays as it is")
    if past is not None and past.completed.unrecorded:
        run.warn(f"{past.completed.unrecorded:,} outputs of step {step.id} are not recorded and stay where they are")
    return restored, kept


def refuse_half_undone(session: Session) -> None:
    """Nothing is executed while an undo is open: the step is neither done nor undone."""
    if session.undoing is not None:
        raise CannotContinue(
            f"session {short(session.session_id)}: {half_undone(session.undoing)}",
            hint=session_hint(session, "Finish it first: {}", Rollback(session.undoing.to)),
        )
