"""The plan that a command names: a file, or `-` for a plan from stdin."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from acode.cli.screen import Screen
from acode.engine.world import World
from acode.errors import BadPlan, Usage
from acode.planfile import PlanFile, parse_plan, read_text
from acode.text import one_line
from acode.yamlfile import closest

STDIN = "-"
STDIN_NAME = "<stdin>"
ENDINGS = (".yml", ".yaml")


class PlanText(NamedTuple):
    """A plan before it is read. No path: it came from stdin."""

    name: str
    text: str
    sha256: str
    path: str | None


def is_file(text: str) -> bool:
    """Whether the argument names a plan file, and is not the text of a task."""
    if text == STDIN:
        return True
    separators = [separator for separator in (os.sep, os.altsep) if separator]
    return text.lower().endswith(ENDINGS) or any(separator in text for separator in separators)


def plan_meant(screen: Screen, text: str) -> str:
    """`deploy` beside deploy.yml may be the plan or a task in one word: on a terminal a person says which.

    Elsewhere nobody can: a model that plans “deploy” in place of the plan would be the worst of both.
    """
    beside = next((text + ending for ending in ENDINGS if os.path.exists(text + ending)), None)
    if beside is None or is_file(text):
        return text
    if not screen.can_ask:
        raise Usage(f"{text} is no plan file, and {beside} is", hint=f"For the plan: acode run {shlex.quote(beside)}")
    from acode.cli.prompts import choose

    question = f"Run the [P]lan {one_line(beside)}, or a [T]ask for a model in the words “{one_line(text)}”? [P]"
    return beside if choose(screen, question, {"p": "plan", "t": "task"}, "plan") == "plan" else text


def read_plan(world: World, text: str) -> PlanFile:
    settings = world.config.settings
    given = plan_text(world, text)
    plan = parse_plan(
        given.text,
        given.name,
        plan_bytes_max=settings.limits.plan_bytes,
        timeout_s_default=settings.steps.timeout_seconds,
    )
    return PlanFile(plan=plan, path=given.path, sha256=given.sha256)


def plan_text(world: World, text: str) -> PlanText:
    bytes_max = world.config.settings.limits.plan_bytes
    if text == STDIN:
        return _from_stdin(bytes_max)
    path = find_plan(world, text)
    content, sha256 = read_text(path, plan_bytes_max=bytes_max)
    return PlanText(str(path), content, sha256, os.path.realpath(path))


def find_plan(world: World, text: str) -> Path:
    """From where the caller stands; with -C, a plan inside that directory may be named as seen from there."""
    path = Path(text)
    if not path.exists() and not path.is_absolute() and (world.workspace / path).exists():
        path = world.workspace / path
    if not path.exists():
        raise Usage(
            f"the plan file {text} does not exist{_plan_like(path)}",
            hint="To write a first plan: acode init. An argument that ends in .yml or .yaml or holds a path separator"
            " names a file; a task in words does not.",
        )
    return path


def _plan_like(path: Path) -> str:
    """A plan of nearly the same name in the same directory."""
    try:
        there = [one.name for one in path.parent.iterdir() if one.name.lower().endswith(ENDINGS)]
    except OSError:
        return ""
    close = closest(path.name, there, likeness=0.75)
    return f"; did you mean {one_line(str(path.parent / close))}?" if close else ""


def _from_stdin(bytes_max: int) -> PlanText:
    """At most one byte more than the limit is read: a pipe may never end."""
    if sys.stdin is None or sys.stdin.isatty():
        raise Usage("- reads the plan from stdin, and stdin is a terminal", hint="For example: acode run - < plan.yml")
    raw = sys.stdin.buffer.read(bytes_max + 1)
    if len(raw) > bytes_max:
        raise BadPlan(
            f"{STDIN_NAME}: is larger than {bytes_max:,} bytes", hint="Make it smaller, or raise limits.plan_bytes."
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadPlan(f"{STDIN_NAME}: is not UTF-8 text", hint="Save it as UTF-8.") from error
    return PlanText(STDIN_NAME, text, hashlib.sha256(raw).hexdigest(), None)
