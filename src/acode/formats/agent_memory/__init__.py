"""The `.agent-memory` run format: find a run, explain it, continue it in its own terms.

`locate` finds runs, `read` makes a value of one, `diagnose` (pure) says where it stands and what comes next, `prompt`
writes that for a driver, and `record` writes acode's outcomes into the run. Nothing of a run is executed or trusted,
and no file of it is changed but acode's own event file.
"""

from __future__ import annotations

from acode.formats.agent_memory.diagnosis import Findings, NextAction, as_json, diagnose, repair, report
from acode.formats.agent_memory.discover import Ask, Found, FreshStart, Located, choose, locate
from acode.formats.agent_memory.fold_cache import FoldCache
from acode.formats.agent_memory.own_events import (
    Stamp,
    already_recorded,
    append,
    driver_outcome,
    events_on_failure,
    events_on_start,
    events_on_success,
    phase_transition,
    plan_approved,
    session_resumed,
    task_completed,
    task_failed,
    task_started,
)
from acode.formats.agent_memory.prompts import prompt
from acode.formats.agent_memory.read_run import read, read_task_contract
from acode.formats.agent_memory.values import Run
from acode.formats.messages import resume_report, shown

__all__ = [
    "Ask",
    "Findings",
    "FoldCache",
    "Found",
    "FreshStart",
    "Located",
    "NextAction",
    "Run",
    "Stamp",
    "already_recorded",
    "append",
    "as_json",
    "choose",
    "diagnose",
    "driver_outcome",
    "events_on_failure",
    "events_on_start",
    "events_on_success",
    "locate",
    "phase_transition",
    "plan_approved",
    "prompt",
    "read",
    "read_task_contract",
    "repair",
    "report",
    "resume_report",
    "session_resumed",
    "shown",
    "task_completed",
    "task_failed",
    "task_started",
]
