"""Which phase a run is in: the pack that writes these runs has counted its phases in three ways.

Inside acode a phase is a stage, one of the five that the resume rules know. A number that could mean two stages is not
guessed: read as clean-up, the number of an approval or of the execution would end a run whose tasks nobody has done.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from acode.formats.agent_memory.dialect import BOM, time_us
from acode.formats.agent_memory.values import PhaseMark, Run, WorkflowState
from acode.formats.messages import shown

Numbering = Literal["seed", "newer", "long"]

PLANNING, EXECUTION = 1, 2
# The stage of each number. None: routing and bootstrapping, which only the tool that made the run can do.
STAGES: dict[Numbering, tuple[int | None, ...]] = {
    "seed": (0, 1, 2, 3, 4),
    "newer": (0, None, 1, 1, 2, 3, 4),
    "long": (0, 0, None, None, None, None, None, 1, 1, 2, 3, 4),
}
# In this order: a bootstrap has a planning and an approval of its own.
_STAGE_BY_WORD: tuple[tuple[str, int | None], ...] = (
    *(("bootstrap", None), ("routing", None), ("dependency", None), ("deps", None)),
    *(("intake", 0), ("prd", 0), ("plan", 1), ("approv", 1), ("execution", 2)),
    *(("clean", 3), ("consolidation", 4)),
)


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands: its own number for people, the stage for the rules."""

    phase: int
    stage: int | None
    numbering: Numbering
    unclear: str = ""
    """Why the number shows no stage."""


def number_of(numbering: Numbering, stage: int) -> int:
    return STAGES[numbering].index(stage)


def stage_of(numbering: Numbering, number: int) -> int | None:
    stages = STAGES[numbering]
    return stages[number] if number < len(stages) else None


def position(run: Run) -> Position:
    """By the latest event. workflow-state.json marks a newer run, and has to agree unless acode has moved the run
    since.
    """
    state, said = run.workflow, _latest(run)
    if state is None and not run.run_events.newer:
        number = min(said.phase, 4) if said is not None else 0
        return Position(phase=number, stage=number, numbering="seed")
    if state is not None and state.problem:
        return _unclear(said.phase if said else 0, f"workflow-state.json cannot be used: {state.problem}")
    if said is None:
        return _by_state(state)
    if said.stage is not None and (state is None or _is_later(said, state)):
        long = stage_of("newer", said.phase) != said.stage == stage_of("long", said.phase)
        return Position(phase=said.phase, stage=said.stage, numbering="long" if long else "newer")
    return _by_number(said.phase, state)


def _latest(run: Run) -> PhaseMark | None:
    """The latest transition. A dialect without transitions only says which phase it completed last."""
    run_events = run.run_events
    if run_events.phase is not None or run_events.phase_done is None:
        return run_events.phase
    done = run_events.phase_done
    return msgspec.structs.replace(done, phase=done.phase + 1, stage=None)


def _is_later(said: PhaseMark, state: WorkflowState) -> bool:
    return said.mark.at_us is not None and (state.updated_us is None or said.mark.at_us > state.updated_us)


def _by_state(state: WorkflowState | None) -> Position:
    if state is None:
        return _unclear(0, "its events are those of a newer version of this format, and none of them names a phase")
    if state.stage is None:
        return _unclear(state.phase, f"workflow-state.json says {state.shown_as}, which the tool that made it must do")
    long = stage_of("newer", state.phase) != state.stage
    return Position(phase=state.phase, stage=state.stage, numbering="long" if long else "newer")


def _by_number(number: int, state: WorkflowState | None) -> Position:
    if state is None:
        stage = stage_of("newer", number)
        if stage is None:
            return _unclear(number, f"phase {number} of a newer version of this format is not one that acode can do")
        return Position(phase=number, stage=stage, numbering="newer")
    if state.stage is None:
        return _by_state(msgspec.structs.replace(state, phase=number))
    names: tuple[Numbering, ...] = ("newer", "long")
    for name in names:
        if stage_of(name, number) == state.stage:
            return Position(phase=number, stage=state.stage, numbering=name)
    return _unclear(number, f"the events say phase {number}, and workflow-state.json says {state.shown_as}")


def _unclear(number: int, why: str) -> Position:
    return Position(phase=number, stage=None, numbering="newer", unclear=why)


# workflow-state.json


def parse_state(data: bytes, touched_us: int) -> WorkflowState:
    """The file's own word on the phase: the name decides, because its numbers and those of the events differ."""
    try:
        found = msgspec.json.decode(data.removeprefix(BOM))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return WorkflowState(problem="no JSON")
    workflow = found.get("workflow") if isinstance(found, dict) else None
    if not isinstance(workflow, dict):
        return WorkflowState(problem="no object with a `workflow`")
    number = workflow.get("current_phase")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(STAGES["long"]):
        return WorkflowState(problem="no phase from 0 to 11 in it")
    updated = found.get("updated_at")
    updated_us = time_us(updated) if isinstance(updated, str) else None
    state = WorkflowState(phase=number, updated_us=touched_us if updated_us is None else updated_us)
    return _named(state, found, workflow)


def _named(state: WorkflowState, found: dict[str, Any], workflow: dict[str, Any]) -> WorkflowState:
    status, kind = workflow.get("status"), workflow.get("type")
    if status in ("completed", "failed"):
        return WorkflowState(phase=state.phase, problem=f"it says that the run is {status}, and no event does")
    if kind == "bootstrap-only":
        return WorkflowState(phase=state.phase, problem="it is of a bootstrap, which acode does not know")
    entries = found.get("phases")
    keys = [key for key in entries if key.startswith(f"phase_{state.phase}_")] if isinstance(entries, dict) else []
    names = [name for name in (*keys, workflow.get("phase_name")) if isinstance(name, str) and name]
    stages = {_stage_by_name(name) for name in names}
    if len(stages) != 1 or stages == {"unknown"}:
        told = " and ".join(shown(name, chars_max=60) for name in names[:3]) or "no name"
        return WorkflowState(phase=state.phase, problem=f"it has {told} for its phase {state.phase}")
    stage = stages.pop()
    where = shown(f"phase {state.phase} ({names[0]})", chars_max=80)
    return msgspec.structs.replace(state, stage=stage if isinstance(stage, int) else None, shown_as=where)


def _stage_by_name(name: str) -> int | Literal["other", "unknown"]:
    plain = name.lower()
    for word, stage in _STAGE_BY_WORD:
        if word in plain:
            return "other" if stage is None else stage
    return "unknown"
