"""The values that commands declare as secret. They are secret in the whole session, not only in the step that names
them: another step that prints one must not show or store it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from acode.events.definition import Run, Step
from acode.redact import looks_secret


def declared_values(steps: Iterable[Step], env: Mapping[str, str], names: Iterable[str] = ()) -> list[str]:
    """The values of all `secret_env` names, and of settings whose name says that they are secret."""
    actions = [step.action for step in steps if isinstance(step.action, Run)]
    named = [*names, *(name for action in actions for name in action.secret_env)]
    settings = [value for action in actions for name, value in action.env.items() if looks_secret(name)]
    return [env[name] for name in named if name in env] + settings


def secret_values(step: Step, env: Mapping[str, str], learned: Iterable[str]) -> list[str]:
    """All that the output of one command must not show."""
    others = [value for name, value in env.items() if looks_secret(name)]
    return [*declared_values((step,), env), *others, *learned]
