"""Begin a session: store the plan with it, and execute.

From its creation on, a session lives by its log alone: the plan file may change or vanish.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from acode import __version__
from acode import lock as locks
from acode.engine import notices
from acode.engine.disk_full import paused_if_disk_fails
from acode.engine.endings import complete
from acode.engine.environment import git_position
from acode.engine.held_session import Held, created
from acode.engine.start_lock import start_lock
from acode.engine.step import PLANNING
from acode.engine.walk import perform_all
from acode.engine.workspace_store import share_store
from acode.engine.world import Result, World, short
from acode.errors import BadPlan
from acode.events import types as ev
from acode.events.definition import Plan, Run, digest_of_plan
from acode.redact import looks_secret
from acode.state.source import OBSERVED_AGENT, SOURCES
from acode.steps.declared_secrets import declared_values
from acode.store.journal import Blob

if TYPE_CHECKING:  # a program's session has no plan file, and does not load what reads one
    from acode.planfile import PlanFile

PLAN_IN_LOG_BYTES_MAX = 524_288  # an event holds 1 MiB at the most; a larger plan goes to a blob
TITLE_CHARACTERS_MAX = 200
PLANS = "plans"  # the lock of a process that looks for an unfinished session of a plan, and begins one
BEGIN_WAIT_S = 10.0
WAIT_HINT = "Wait a moment, or end the process that is named, and try again."
SECRET_CHARACTERS_MIN = 4  # shorter values look like ordinary text


def run_plan(world: World, planfile: PlanFile, *, refuse: Callable[[World], None] | None = None) -> Result:
    """A new session from a plan file, from creation to its end.

    `refuse` raises where this plan must not be begun, because it was begun already; nobody else begins one meanwhile.
    """
    event, blobs = creation(world, planfile)
    plan = planfile.plan
    steps = sum(len(task.steps) for task in plan.tasks)
    planned = ev.SessionPlanned(tasks=len(plan.tasks), steps=steps, plan_digest=event.plan_digest)
    executing = ev.SessionExecuting(reason="run")
    with share_store(world, look_only=False) as shared, contextlib.ExitStack() as stack:
        busy = "another process is just beginning a session here, and does not come to an end with it"
        with (
            start_lock(shared, PLANS, wait_s=BEGIN_WAIT_S, busy=busy, hint=WAIT_HINT)
            if refuse is not None
            else contextlib.nullcontext()
        ):
            if refuse is not None:
                refuse(shared)
            run = stack.enter_context(created(shared, event, planned, executing, blobs=blobs))
        run.journal.session.plan = plan
        run.emit(
            notices.SessionStart(
                title=run.session.title,
                short_id=short(run.session.session_id),
                tasks=len(plan.tasks),
                steps=steps,
                workspace=str(world.workspace),
            )
        )
        return paused_if_disk_fails(run, lambda: perform_all(run, 0, complete))


def creation(world: World, planfile: PlanFile) -> tuple[ev.SessionCreated, dict[str, Blob]]:
    """The first event, and the plan as a blob where it is too large, or too secret, to stand in the log."""
    plan = planfile.plan
    encoded = msgspec.json.encode(plan)
    world.redactor.learn(declared_values((step for task in plan.tasks for step in task.steps), world.env))
    refuse_secret_names(world, plan)
    sensitive = holds_secret(world, plan, encoded)
    blobs: dict[str, Blob] = {}
    plan_blob = None
    if sensitive or len(encoded) > PLAN_IN_LOG_BYTES_MAX:
        plan_blob, blob = keep_plan(encoded, sensitive=sensitive)
        blobs[plan_blob] = blob
    event = session_created(
        world,
        title=world.redactor.text(plan.title),
        task=world.redactor.text(plan.title),
        plan=None if plan_blob else plan,
        plan_blob=plan_blob,
        plan_sensitive=sensitive,
        plan_digest=digest_of_plan(plan),
        plan_path=planfile.path,
        plan_sha256=planfile.sha256,
    )
    return event, blobs


def session_created(world: World, *, title: str, task: str, **fields: Any) -> ev.SessionCreated:
    """The first event of a session, whatever its source: where it began, under which settings, and who owns it."""
    head, branch = git_position(world.workspace)
    return ev.SessionCreated(
        title=title[:TITLE_CHARACTERS_MAX],
        task=task,
        config_digest=world.config.digest,
        git_head=head,
        git_branch=branch,
        owner=locks.owner(),
        acode_version=__version__,
        **fields,
    )


def create_observed(
    world: World, agent: str, agent_session: str, title: str
) -> contextlib.AbstractContextManager[Held]:
    """A new session for an agent of others, known by the agent's own name for it."""
    event = session_created(world, title=title, task=agent_session, kind=OBSERVED_AGENT.kind, source=agent)
    return created(world, event, PLANNING, ev.SessionExecuting(reason="run"), blobs={})


def create_program(
    world: World,
    key: str,
    *,
    entry: str | None,
    arguments: dict[str, Any],
    kind: Literal["library", "agent"] = "library",
    model: dict[str, Any] | None = None,
) -> contextlib.AbstractContextManager[Held]:
    """A new session for a program, under the key that the program gave it; an agent's begins with planning."""
    event = session_created(
        world,
        title=key,
        task=key,
        kind=kind,
        model=model,
        entry=entry,
        entry_arguments=arguments,
        arguments_version=2,
    )
    begun: tuple[ev.Known, ...] = () if SOURCES[kind].follows_model else (ev.SessionExecuting(reason="run"),)
    return created(world, event, PLANNING, *begun, blobs={})


def holds_secret(world: World, plan: Plan, encoded: bytes) -> bool:
    """Whether a rule finds a secret in the plan, or the plan itself says that something in it is one."""
    if world.redactor.matches(encoded.decode()):
        return True
    actions = [step.action for task in plan.tasks for step in task.steps if isinstance(step.action, Run)]
    if any(looks_secret(name) for action in actions for name in action.env):
        return True
    declared = (world.env.get(name, "") for action in actions for name in action.secret_env)
    return any(len(value) >= SECRET_CHARACTERS_MIN and value.encode() in encoded for value in declared)


def refuse_secret_names(world: World, plan: Plan) -> None:
    """Ids stand in every event and in file names: they cannot be masked, so they must not be secret."""
    for name in [*(task.id for task in plan.tasks), *(step.id for task in plan.tasks for step in task.steps)]:
        if world.redactor.matches(name):
            raise BadPlan(
                f"the id {world.redactor.text(name)} holds what looks like a secret; ids are shown everywhere",
                hint="Give the task or step an id of its own: the one it has comes from its title.",
            )


def keep_plan(encoded: bytes, *, sensitive: bool) -> tuple[str, Blob]:
    """A secret plan becomes a private file of its own, never a row: rows are synced, and linger in the database."""
    import hashlib

    return hashlib.sha256(encoded).hexdigest(), ("sensitive" if sensitive else "plan", encoded)


def same_plan(session: ev.SessionCreated, planfile: PlanFile) -> bool:
    """Whether a session was made from this file or from the same plan."""
    same_file = planfile.path is not None and session.plan_path == planfile.path
    return same_file or session.plan_digest == digest_of_plan(planfile.plan)
