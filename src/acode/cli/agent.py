"""acode run "task": a session that a model plans and works in, from the words to its end."""

from __future__ import annotations

import importlib.util

import msgspec

from acode.cli.early_flags import Flags
from acode.cli.follow_run import Execution
from acode.cli.screen import Screen
from acode.engine import session_list
from acode.engine.workspace_store import has_database, refuse_lost
from acode.engine.world import Options, Result, World
from acode.errors import ModelUnsupported
from acode.events.types import SessionCreated
from acode.state import Session
from acode.state.source import SOURCES


def run_task(flags: Flags, world: World, text: str, *, new: bool, approve_plan: bool) -> int:
    """Begin the session, or carry on the unfinished one of the same task."""
    from acode.agent.session_loop import checked_goal
    from acode.cli.run import resumes

    refuse_unsupported()
    goal = checked_goal(world, text)
    if not has_database(world):
        refuse_lost(world)
    unfinished = None if new else unfinished_of(world, goal)
    if unfinished is not None and resumes(world, Screen(flags, world.env), unfinished, text, "task"):
        from acode.cli.resume import by_its_kind

        session_id = unfinished.session_id
        return Execution(flags, world, name=session_id).carry_out(
            lambda ready: by_its_kind(ready, session_id, Options())
        )
    return Execution(flags, world).carry_out(lambda ready: begin(ready, goal, approve_plan=approve_plan))


def begin(world: World, goal: str, *, approve_plan: bool) -> Result:
    from acode.agent.session_loop import work
    from acode.library.decorators import lend

    return lend(world, "", Options(), lambda: work(goal, approve_plan), "the agent")


def refuse_unsupported() -> None:
    """Before anything is begun; the library itself is loaded with the first request, because it takes a second."""
    if importlib.util.find_spec("pydantic_ai") is None:
        raise ModelUnsupported("a task in words needs a model, and the support for models is not installed")


def unfinished_of(world: World, goal: str) -> Session | None:
    """The most recent unfinished session of exactly this task."""
    if not has_database(world):
        return None
    return session_list.unfinished_of(
        world, session_list.unfinished(world), lambda created: same_task(created, goal), "task"
    )


def same_task(created: SessionCreated, goal: str) -> bool:
    return SOURCES[created.kind].follows_model and created.entry_arguments.get("args", [])[:1] == [goal]


def with_model(world: World) -> World:
    """The world of a command that may carry an agent's session on: it can look whether the model is there."""

    def look(session: Session) -> tuple[tuple[str, str], ...]:
        from acode.agent.model_check import troubles

        return troubles(world, session)

    return msgspec.structs.replace(world, look_at_model=look)
