"""What the processes of the schedules do: the engine's own functions, and the one word that says how it went."""

from __future__ import annotations

from collections.abc import Callable

from acode import lock as locks
from acode.engine import disk_full, held_session, session_commands
from acode.engine.preview import verify
from acode.engine.world import Result
from acode.errors import DiskFull, LockForeignProcess, LockLost, SessionLocked
from acode.events import types as ev
from tests.concurrency.conductor import Process
from tests.concurrency.stage import LockStage

REFUSED = (SessionLocked, LockForeignProcess)
OWNER = ev.Owner(pid=1, host="here", user="somebody", boot_id="b")
NEW = "01980000-0000-7000-8000-00000000d00d"
Life = Callable[[LockStage, Process], str]


def works(stage: LockStage, process: Process) -> str:
    """Holds the session, notes something and then something that is anchored at once."""
    try:
        with held_session.held(stage.for_process(process), stage.id) as run:
            run.append(ev.CheckpointCreated(label=f"by {process.number}"))
            run.append(ev.ResumeStarted(scenario="mid_operation", owner=OWNER))
        return "worked"
    except REFUSED:
        return "refused"
    except LockLost:
        return "fenced"


def notes(stage: LockStage, process: Process) -> str:
    """The shortest stay: one event."""
    try:
        with held_session.held(stage.for_process(process), stage.id) as run:
            run.append(ev.ResumeStarted(scenario="mid_operation", owner=OWNER))
        return "worked"
    except REFUSED:
        return "refused"
    except LockLost:
        return "fenced"


def notes_twice(stage: LockStage, process: Process) -> str:
    """Gives it back and takes it again."""
    return f"{notes(stage, process)} {notes(stage, process)}"


def breaks_and_notes(stage: LockStage, process: Process) -> str:
    return f"{breaks(stage, process)} {notes(stage, process)}"


def waits(stage: LockStage, process: Process) -> str:
    """As `resume --wait` does: comes back a few times before it gives up."""
    try:
        with held_session.held(stage.for_process(process), stage.id, wait=True) as run:
            run.append(ev.CheckpointCreated(label=f"by {process.number}"))
        return "worked"
    except REFUSED:
        return "refused"
    except LockLost:
        return "fenced"


def breaks(stage: LockStage, process: Process) -> str:
    """`session unlock --force`."""
    return unlocks(stage, process, force=True)


def breaks_unsaid(stage: LockStage, process: Process) -> str:
    """As where the log cannot be read and nothing can be said in it: the generation alone fences the owner off."""
    world, store = stage.for_process(process), stage.store()
    generation = store.generation(stage.id)
    if not locks.look(stage.locks, stage.id, generation).held:
        return "found it free"
    store.raise_generation(stage.id, generation)
    try:
        with held_session.held(world, stage.id) as run:
            run.append(ev.CheckpointCreated(label=f"by {process.number}"))
        return "broke"
    except REFUSED:
        return "refused"


def asks_to_break(stage: LockStage, process: Process) -> str:
    """`session unlock`, which spares a living owner."""
    return unlocks(stage, process, force=False)


def unlocks(stage: LockStage, process: Process, *, force: bool) -> str:
    try:
        _, _, broken = session_commands.unlock(stage.for_process(process), stage.id, force=force, reason="")
        return "broke" if broken else "found it free"
    except REFUSED:
        return "refused"
    except LockLost:
        return "fenced"


def begins(stage: LockStage, process: Process) -> str:
    """A new session. Nobody takes it by force here, so whoever begins it has it first, in any order."""
    born = ev.SessionCreated(title="New", task="New", owner=OWNER, acode_version="0")
    try:
        with held_session.created(stage.for_process(process, NEW), born, blobs={}) as run:
            run.append(ev.CheckpointCreated(label="by who began it"))
        return "began"
    except (*REFUSED, LockLost) as error:
        return f"UNEXPECTED {type(error).__name__} for the one who began it"


def takes_the_newest(stage: LockStage, process: Process) -> str:
    """Carries on with the newest session, as a resume that names none does."""
    found = stage.newest()
    try:
        with held_session.held(stage.for_process(process, found), found) as run:
            run.append(ev.CheckpointCreated(label=f"by {process.number}"))
        return "took the new one" if found == NEW else "took the old one"
    except REFUSED:
        return "refused"


def looks_on(stage: LockStage, process: Process) -> str:
    """`session verify` beside whoever writes: never an alarm where nothing was touched."""
    _, verified = verify(stage.for_process(process), stage.id)
    return "; ".join(f"UNEXPECTED {one.code}" for one in verified.problems) or "looked"


def runs_out_of_disk(stage: LockStage, process: Process) -> str:
    """The disk fills up: the log is opened anew, and the pause is noted, if the session is still its own."""

    def work() -> Result:
        raise DiskFull("no room")

    try:
        with held_session.held(stage.for_process(process), stage.id) as run:
            disk_full.paused_if_disk_fails(run, work)
        return "paused"
    except REFUSED:
        return "refused"
    except LockLost:
        return "fenced"
    except DiskFull:
        return "stopped"
