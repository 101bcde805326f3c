"""The prompt of a driver: one action of a run, with everything that the driver needs and nothing that it has to guess.

Pure. The texts of the run are quoted as what they are, material of the run; control characters are taken out, and the
whole has a limit.
"""

from __future__ import annotations

import json

from acode.formats.agent_memory.diagnosis import Findings, NextAction
from acode.formats.agent_memory.values import PHASE_NAMES, Run
from acode.formats.messages import shown, shown_block

PROMPT_BYTES_MAX = 256 * 1024
QUOTED_CHARS_MAX = 24_000

_STEPS = {
    "write_prd": "Write `prd.md`: intake and validation of what was asked for.",
    "write_plan": "Write `plan.md` from `prd.md`. Execute nothing: the plan is put before a person first.",
    "break_down_tasks": "Write `task-graph.json` (and `tasks/<task-id>.md`) from `plan.md`. Execute nothing.",
    "write_constitution": "Write `constitution.md` from the approved `plan.md`.",
    "clean_up": "Clean up what the tasks left behind and prepare the pull request (`pr-checklist.md`).",
    "consolidate": "Consolidate what was learned in this run into the long-term memory.",
}
_SOURCES: dict[str, tuple[str, ...]] = {
    "write_prd": (),
    "write_plan": ("prd.md",),
    "break_down_tasks": ("prd.md", "plan.md"),
    "write_constitution": ("plan.md", "prd.md"),
    "run_task": ("constitution.md", "plan.md"),
    "clean_up": ("constitution.md", "plan.md"),
    "consolidate": ("constitution.md", "plan.md"),
}


def prompt(run: Run, findings: Findings, action: NextAction, *, task_contract: str | None = None) -> str:
    """The text for a driver that is to take this action; `task_contract` is the text of tasks/<id>.md, if any."""
    parts = [_heading(run, findings, action)]
    parts.append(_task_part(run, findings, action.task) if action.task is not None else _STEPS.get(action.do, ""))
    if findings.cautious:
        parts.append(
            "Parts of this run's log could not be read: something that looks undone may have been done."
            " Look at the files before you repeat any work."
        )
    parts.append(_rules(run))
    if task_contract:
        parts.append(_quoted(f"tasks/{action.task}.md", task_contract))
    for name in _SOURCES.get(action.do, ()):
        artifact = run.artifacts.get(name)
        if artifact is not None:
            parts.append(_quoted(name, artifact.text, cut=artifact.truncated))
    text = "\n\n".join(part for part in parts if part) + "\n"
    return text.encode()[:PROMPT_BYTES_MAX].decode("utf-8", "ignore")


def _heading(run: Run, findings: Findings, action: NextAction) -> str:
    return "\n".join(
        (
            f"# Run {shown(run.run_id)}: {action.summary}",
            "",
            f"Phase {findings.phase} ({PHASE_NAMES[action.phase]}); {findings.done}/{findings.total} tasks are done.",
            f"The run's folder: {shown(run.path, chars_max=1000)}",
        )
    )


def _task_part(run: Run, findings: Findings, task_id: str) -> str:
    task = next((task for task in (run.graph.tasks if run.graph else ()) if task.id == task_id), None)
    record = next((record for record in run.run_events.tasks if record.id == task_id), None)
    lines = [f"Carry out task {task_id}" + (f": {shown(task.title)}" if task and task.title else "") + "."]
    state = findings.tasks.get(task_id)
    if state == "in_progress":
        lines.append("It was in progress when the run stopped. See what is there, keep what is right, finish the rest.")
    if state == "failed":
        lines.append("An earlier attempt failed. Find out why before you try again.")
        if record is not None and record.failure:
            lines.append(f"What was recorded about it: {shown(record.failure, chars_max=1_000)}")
    if task is not None and task.contract:
        lines += ["", _quoted("task-graph.json, this task", task.contract)]
    return "\n".join(lines)


def _rules(run: Run) -> str:
    there = ", ".join(f"`{name}`" for name in run.artifacts) or "none yet"
    return "\n".join(
        (
            f"Artifacts of the run: {there}.",
            "Where they disagree: the constitution, then the task's contract, then the plan, then the PRD.",
            "Events are append-only, one folder per actor under `events/`: never change an event file that is there.",
        )
    )


def _quoted(name: str, text: str, *, cut: bool = False) -> str:
    """Between marks that the text cannot contain by chance, so that its end is not a matter of opinion."""
    text = shown_block(text)
    cut = cut or len(text) > QUOTED_CHARS_MAX
    text = text[:QUOTED_CHARS_MAX].rstrip("\n")
    fence = "~" * max(4, _longest_run(text, "~") + 1)
    more = "\n(cut; read the file for the rest)" if cut else ""
    return f"{json.dumps(shown(name), ensure_ascii=False)}:\n{fence}\n{text}\n{fence}{more}"


def _longest_run(text: str, char: str) -> int:
    longest = current = 0
    for item in text:
        current = current + 1 if item == char else 0
        longest = max(longest, current)
    return longest
