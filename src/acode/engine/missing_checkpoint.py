"""Checkpoint rows that the log says exist are gone: the refusal to resume is recorded in that log, then raised.

Only a log that verifies from its first event is written to, and no checkpoint is made with it: a new one would hide
that the others are gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from acode.engine import notices
from acode.engine.held_session import Held, check_anchor
from acode.engine.lease_state import ensure_ours
from acode.engine.session_place import refuse_copy
from acode.engine.workspace_store import opened
from acode.engine.world import Options, World, short
from acode.errors import AcodeError, CheckpointMissing
from acode.hints import Command, Hint
from acode.policy import Facts, decide
from acode.resume_point import classify
from acode.seal import anchor_directory, read_anchor
from acode.store.store import Loaded, Store
from acode.workspace import Root, ensure_agent_dir


@contextlib.contextmanager
def missing_checkpoint_on_record(world: World, options: Options) -> Iterator[None]:
    """Around every attempt to resume, from the first look at the session on."""
    try:
        yield
    except CheckpointMissing as error:
        session_id = error.details.get("session_id")
        if session_id is None or "reason_code" in error.details:
            raise
        raise refuse_on_record(world, str(session_id), options, error) from error


def refuse_on_record(world: World, session_id: str, options: Options, missing: CheckpointMissing) -> AcodeError:
    """The decision as an event of the session, and the error that names it."""
    from acode.engine.repair import locked

    with opened(world, look_only=False) as store, Root(world.workspace) as root:
        ensure_agent_dir(root)
        with locked(world, store, session_id) as generation:
            refuse_copy(world, session_id)
            ensure_ours(world, store, session_id)
            loaded = verified_log(world, store, session_id)
            if loaded is None or loaded.session.terminal:
                return missing
            run = Held(world, store, store.journal(loaded, generation, keeps_checkpoints=False), root, None)
            return refuse(run, options, missing)


def verified_log(world: World, store: Store, session_id: str) -> Loaded | None:
    """The session from its events alone; None where they cannot be trusted either, so that nothing is appended."""
    anchor = read_anchor(anchor_directory(world.state_dir, world.workspace), session_id)
    try:
        loaded = store.load_log(session_id)
        check_anchor(store, loaded, anchor)
    except AcodeError:
        return None
    return loaded


def refuse(run: Held, options: Options, missing: CheckpointMissing) -> CheckpointMissing:
    session, name = run.session, short(run.session.session_id)
    run.emit(notices.reopened(session))
    interruption = classify(session)
    decision = decide(
        session,
        interruption,
        run.world.limits,
        now=run.world.clock(),
        actor=options.actor,
        facts=Facts(checkpoint_missing=missing.message),
        forced=options.force,
    )
    from acode.engine.settle import record_decision  # what is needed so rarely costs no start its time

    record_decision(run, interruption, decision)
    return CheckpointMissing(
        f"session {name} has no valid checkpoint: {missing.message}",
        hint=Hint("Rebuild the checkpoints from the verified log: {}", Command("session repair SESSION"), of=name),
        reason_code=str(decision.reason),
        session_id=session.session_id,
    )
