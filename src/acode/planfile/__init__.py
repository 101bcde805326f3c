"""Plan files: what a person, a program or a model wrote becomes a `Plan`, or a sentence that says what is wrong where.

Everything is checked before anything runs. Nothing here looks at the workspace: the same text gives the same plan
everywhere. The plan is stored with its session; a resume never reads the file again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acode.errors import AcodeError, BadPlan
from acode.events.definition import Plan
from acode.planfile.steps import STEPS_MAX, Defaults
from acode.planfile.tasks import TASKS_MAX, PlacedStep, Reading, read_plan
from acode.yamlfile import Source, decode_text, from_data, parse, read_bytes, too_large

__all__ = [
    "STEPS_MAX",
    "TASKS_MAX",
    "PlacedStep",
    "PlanFile",
    "Reading",
    "examine_plan",
    "load_plan",
    "parse_plan",
    "parse_text_plan",
    "place_of",
    "plan_from_data",
    "read_text",
    "whole_plan",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan and the file it came from, so that a file edited since can be reported. `path` has no links in it."""

    plan: Plan
    path: str | None  # None: it came from a pipe
    sha256: str


def load_plan(path: Path, *, plan_bytes_max: int, timeout_s_default: float) -> PlanFile:
    text, sha256 = read_text(path, plan_bytes_max=plan_bytes_max)
    plan = _plan_of(text, _source(str(path)), timeout_s_default)
    return PlanFile(plan=plan, path=os.path.realpath(path), sha256=sha256)


def read_text(path: Path, *, plan_bytes_max: int) -> tuple[str, str]:
    """The text of a plan file, and the hash of its bytes."""
    source = _source(str(path))
    raw = read_bytes(path, source, bytes_max=plan_bytes_max, setting="limits.plan_bytes")
    return decode_text(raw, source), hashlib.sha256(raw).hexdigest()


def parse_plan(text: str, name: str, *, plan_bytes_max: int, timeout_s_default: float) -> Plan:
    """A plan from text that is in no file; `name` stands in messages, and for a missing title."""
    source = _source(name)
    if len(text) > plan_bytes_max or len(text.encode(errors="surrogatepass")) > plan_bytes_max:
        raise too_large(source, bytes_max=plan_bytes_max, setting="limits.plan_bytes")
    return _plan_of(text, source, timeout_s_default)


def plan_from_data(data: object, name: str, *, timeout_s_default: float, words: bool = False) -> Plan:
    """A plan from decoded data, such as a model's answer, under the rules of a file. `words`: its steps are texts."""
    source = _source(name)
    defaults = Defaults(timeout_s=timeout_s_default, words=words)
    return whole_plan(_reading_of(source, lambda: read_plan(from_data(data, source), defaults)))


def parse_text_plan(text: str, name: str, *, plan_bytes_max: int) -> Plan:
    """A plan for a model, as a person has edited it: under the rules of a file, with lines in the errors."""
    source = _source(name)
    if len(text.encode(errors="surrogatepass")) > plan_bytes_max:
        raise too_large(source, bytes_max=plan_bytes_max, setting="limits.plan_bytes")
    return whole_plan(_reading_of(source, lambda: read_plan(parse(text, source), Defaults(timeout_s=0, words=True))))


def examine_plan(text: str, name: str, *, timeout_s_default: float) -> Reading:
    """Everything that a text says, with every error in it; never raises."""
    source = _source(name)
    return _reading_of(source, lambda: read_plan(parse(text, source), Defaults(timeout_s=timeout_s_default)))


def whole_plan(reading: Reading) -> Plan:
    """The plan, or its first error, which carries the others."""
    if reading.plan is None:
        first, *others = reading.errors
        first.others = tuple(sorted(others, key=place_of))
        raise first
    return reading.plan


def place_of(error: AcodeError) -> tuple[int, int]:
    """Where an error stands in its file."""
    return error.details.get("line", 0), error.details.get("column", 0)


def _source(name: str) -> Source:
    return Source(name, BadPlan, gathered=[])


def _plan_of(text: str, source: Source, timeout_s_default: float) -> Plan:
    return whole_plan(
        _reading_of(source, lambda: read_plan(parse(text, source), Defaults(timeout_s=timeout_s_default)))
    )


def _reading_of(source: Source, read: Callable[[], Reading]) -> Reading:
    """The reading, or the errors gathered until nothing more could be read."""
    assert source.gathered is not None
    try:
        return read()
    except BadPlan as error:
        return Reading(plan=None, errors=(*source.gathered, error), steps=())
