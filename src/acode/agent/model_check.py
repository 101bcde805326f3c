"""Check an agent's model before its session resumes: it must be available, and the one that the session began with."""

from __future__ import annotations

from acode.agent.availability import available
from acode.agent.messages import Setup
from acode.agent.session_loop import configured, recorded_setup
from acode.engine.world import World
from acode.errors import ModelChanged
from acode.state import Session

ANSWER_WITHIN_S = 5.0


def mismatches(world: World, session: Session) -> tuple[tuple[str, str], ...]:
    """The mismatches, as codes and sentences; a session resumes with the model that it began with, or not at all."""
    if session.created is None or session.created.model is None:
        return ()
    recorded = recorded_setup(session.created.model)
    found = list[tuple[str, str]]()
    now = configured(world)
    new = {key: value for key, value in now.items() if value not in (then(session, key), in_use(recorded, key))}
    if new:
        settings = ", ".join(f"{key} {value}" for key, value in new.items())
        message = (
            f"the session was begun with {recorded.name} at {recorded.base_url}, and the settings now say {settings};"
            " restore them, or resume with the recorded model in spite of them: --lenient"
        )
        found.append((ModelChanged.code, message))
    timeout_s = min(world.config.settings.resume.validation_timeout_seconds, ANSWER_WITHIN_S)
    trouble = available(recorded, world.env.get(recorded.api_key_env), timeout_s)
    if trouble is not None:
        found.append((trouble.code, trouble.message))
    return tuple(found)


def then(session: Session, key: str) -> object:
    """The settings of the session's beginning."""
    assert session.created is not None and session.created.model is not None
    return session.created.model.get("configured", {}).get(key)


def in_use(setup: Setup, key: str) -> object:
    return getattr(setup, key.removeprefix("model."))
