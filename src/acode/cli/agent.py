"""acode run "task": a session that a model plans and works in, from the words to its end."""

from __future__ import annotations

import msgspec

from acode.cli.early_flags import Flags
from acode.engine import session_list
from acode.engine.workspace_store import has_database, refuse_lost
from acode.engine.world import Options, Result, World
from acode.errors import ModelRefused, ModelUnavailable, ModelUnknown
from acode.events.types import SessionCreated
from acode.state import Session
from acode.state.source import SOURCES


def run_task(flags: Flags, world: World, text: str, *, new: bool, approve_plan: bool) -> int:
    """Begin the session, or resume the unfinished one of the same task."""
    from acode.agent.session_loop import checked_goal
    from acode.cli.follow_run import Execution
    from acode.cli.run import resumes
    from acode.cli.screen import Screen

    refuse_unsupported()
    goal = checked_goal(world, text)
    if not has_database(world):
        refuse_lost(world)
    unfinished = None if new else unfinished_of(world, goal)
    if unfinished is not None and resumes(world, Screen(flags, world.env), unfinished, text, "task"):
        from acode.cli.resume import by_its_kind

        session_id = unfinished.session_id
        return Execution(flags, world, name=session_id).execute(lambda ready: by_its_kind(ready, session_id, Options()))
    refuse_without_model(world)
    return Execution(flags, world).execute(lambda ready: begin(ready, goal, approve_plan=approve_plan))


def begin(world: World, goal: str, *, approve_plan: bool) -> Result:
    from acode.agent.session_loop import work
    from acode.library.decorators import lend

    return lend(world, "", Options(), lambda: work(goal, approve_plan), "the agent")


def refuse_unsupported() -> None:
    """Before anything is begun; the library itself is loaded with the first request, because it takes a second."""
    from importlib.util import find_spec

    if find_spec("pydantic_ai") is None:
        from acode.errors import ModelUnsupported

        raise ModelUnsupported("a task in words needs a model, and the support for models is not installed")


def refuse_without_model(world: World) -> None:
    """Before a session is made: one that could not ask its model would only be in the way of the next try.

    An endpoint that answers without a list of models, or is busy, is asked by the session itself.
    """
    from acode.agent.availability import available
    from acode.agent.model_check import ANSWER_WITHIN_S
    from acode.agent.session_loop import setup_of

    setup = setup_of(world)
    trouble = available(setup, world.env.get(setup.api_key_env), ANSWER_WITHIN_S)
    silent = isinstance(trouble, ModelUnavailable) and "said" in trouble.details
    if trouble is not None and (silent or isinstance(trouble, ModelUnknown | ModelRefused)):
        way = trouble.hint.removesuffix(", then resume.").removesuffix("; then resume.")
        trouble.give_hint(f"{way}. Nothing was begun.")
        raise trouble


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
    """The world of a command that may resume an agent's session: it can check that the model is available."""

    def look(session: Session) -> tuple[tuple[str, str], ...]:
        from acode.agent.model_check import mismatches

        return mismatches(world, session)

    return msgspec.structs.replace(world, look_at_model=look)
