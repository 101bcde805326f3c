"""Agent-memory runs made in memory: a few events, a graph, the artifacts that are there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from acode.formats.agent_memory import Findings, Run, diagnose
from acode.formats.agent_memory.event_fold import EventFold
from acode.formats.agent_memory.graph import parse_graph
from acode.formats.agent_memory.values import Artifact, Graph

NOW = datetime(2026, 1, 15, 18, 0, tzinfo=UTC)
ALL_ARTIFACTS = ("constitution.md", "prd.md", "plan.md")
Event = dict[str, Any]


def said(kind: str, minute: int, task: str | None = None, **more: Any) -> Event:
    event: Event = {"type": kind, "timestamp": f"2026-01-15T{10 + minute // 60:02d}:{minute % 60:02d}:00Z", **more}
    return event if task is None else {**event, "task_id": task}


def to_phase(phase: int, minute: int = 0) -> Event:
    return said("phase_transition", minute, from_phase=max(0, phase - 1), to_phase=phase, trigger="user_approval")


def graph_of(*tasks: tuple[str, list[str]] | dict[str, Any]) -> Graph:
    entries = [
        t if isinstance(t, dict) else {"id": t[0], "title": f"Title of {t[0]}", "dependencies": t[1]} for t in tasks
    ]
    graph = parse_graph(json.dumps({"tasks": entries}).encode())
    assert isinstance(graph, Graph)
    return graph


def run_of(
    *events: Event,
    graph: Graph | None = None,
    artifacts: Sequence[str] = ALL_ARTIFACTS,
    actor: str = "executor",
    files: dict[str, list[Event]] | None = None,
) -> Run:
    fold = EventFold()
    for name, content in {actor: list(events), **(files or {})}.items():
        lines = [(json.dumps(event).encode(), True) for event in content]
        fold.fold_file(f"events/{name}/a.jsonl", name, lines)
    here = {name: Artifact(name=name, size_bytes=1, text=f"text of {name}") for name in artifacts}
    if graph is not None:
        here["task-graph.json"] = Artifact(name="task-graph.json", size_bytes=1, text="")
    return Run(run_id="20260115-1000-x-a1b2", path="/r", artifacts=here, graph=graph, run_events=fold.run_events())


def found_in(*events: Event, **more: Any) -> Findings:
    return diagnose(run_of(*events, **more), NOW)


TWO = graph_of(("T001", []), ("T002", ["T001"]))
