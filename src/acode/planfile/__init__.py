"""Plan files: what a person, a program or a model wrote becomes a `Plan`, or a sentence that says what is wrong where.

Everything is checked before anything runs. Nothing here looks at the workspace: the same text gives the same plan
everywhere. The plan is stored with its session; a resume never reads the file again.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from acode.errors import BadPlan
from acode.events.definition import Plan
from acode.planfile.steps import STEPS_MAX, Defaults
from acode.planfile.tasks import TASKS_MAX, read_plan
from acode.yamlfile import Source, decode_text, from_data, parse, read_bytes, too_large

__all__ = ["STEPS_MAX", "TASKS_MAX", "PlanFile", "load_plan", "parse_plan", "parse_words", "plan_from_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan and the file it came from, so that a file edited since can be reported. `path` has no links in it."""

    plan: Plan
    path: str
    sha256: str


def load_plan(path: Path, *, plan_bytes_max: int, timeout_s_default: float) -> PlanFile:
    source = Source(str(path), BadPlan)
    raw = read_bytes(path, source, bytes_max=plan_bytes_max, setting="limits.plan_bytes")
    plan = _plan_of(decode_text(raw, source), source, timeout_s_default)
    return PlanFile(plan=plan, path=os.path.realpath(path), sha256=hashlib.sha256(raw).hexdigest())


def parse_plan(text: str, name: str, *, plan_bytes_max: int, timeout_s_default: float) -> Plan:
    """A plan from text that is in no file; `name` stands in messages, and for a missing title."""
    source = Source(name, BadPlan)
    if len(text) > plan_bytes_max or len(text.encode(errors="surrogatepass")) > plan_bytes_max:
        raise too_large(source, bytes_max=plan_bytes_max, setting="limits.plan_bytes")
    return _plan_of(text, source, timeout_s_default)


def plan_from_data(data: object, name: str, *, timeout_s_default: float, words: bool = False) -> Plan:
    """A plan from decoded data, such as a model's answer, under the rules of a file. `words`: its steps are texts."""
    return read_plan(from_data(data, Source(name, BadPlan)), Defaults(timeout_s=timeout_s_default, words=words))


def parse_words(text: str, name: str, *, plan_bytes_max: int) -> Plan:
    """A plan for a model, as a person has edited it: under the rules of a file, with lines in the errors."""
    source = Source(name, BadPlan)
    if len(text.encode(errors="surrogatepass")) > plan_bytes_max:
        raise too_large(source, bytes_max=plan_bytes_max, setting="limits.plan_bytes")
    return read_plan(parse(text, source), Defaults(timeout_s=0, words=True))


def _plan_of(text: str, source: Source, timeout_s_default: float) -> Plan:
    return read_plan(parse(text, source), Defaults(timeout_s=timeout_s_default))
