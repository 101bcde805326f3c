"""The performance requirements of the seeds, each measured by the act that it names, and recorded.

`python3 dev.py bench requirements` measures all of them in about half a minute and writes `benchmarks/records/`. A
record holds the figures, the date, and a digest of the source files on the measured path: a test fails where a record
is missing, over its maximum, or older than that source.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "benchmarks" / "records"
COMMAND = "python3 dev.py bench requirements"
EVENTS, STEPS = 10_000, 1_000
STEPS_PER_HALF = 300
FILES = 1_000
FOLD = ("events", "state", "seal.py", "store/store.py", "store/checkpoints.py")


class Group(NamedTuple):
    """Acts with one path through the source: the figure's name, the requirements with their maxima, what is read."""

    limits: dict[str, dict[str, float]]
    source: tuple[str, ...]


GROUPS = {
    "recovery": Group(
        {
            "find_resume_point_ms": {"NFR-040b-01": 100},
            "resume_query_ms": {"NFR-040b-08": 50, "FR-040b-10": 50},
            "log_scan_10000_events_ms": {"NFR-040b-06": 500},
            "load_session_ms": {"NFR-040b-03": 500, "NFR-011c-001": 500, "BENCH-011c-01": 500},
            "detect_scenario_ms": {"NFR-040b-09": 10},
            "plan_continuation_ms": {"NFR-011c-003": 100, "BENCH-011c-03": 100},
            "peak_memory_mb": {"NFR-040b-07": 100},
        },
        (*FOLD, "resume_point.py", "plan.py"),
    ),
    "writing": Group(
        {"counter_update_ms": {"NFR-040b-10": 5}, "checkpoint_creation_ms": {"BENCH-011c-04": 100}},
        ("events", "state", "seal.py", "store/journal.py", "store/checkpoints.py"),
    ),
    "validation": Group(
        {
            "validation_1000_files_ms": {"NFR-040b-02": 1_000, "NFR-011c-002": 2_000, "BENCH-011c-02": 2_000},
            "hash_one_file_ms": {"NFR-040b-04": 10},
        },
        ("engine/environment.py", "workspace/manifest.py", "workspace/files.py", "disk/open_beneath.py"),
    ),
    "cycle": Group(
        {
            "whole_resume_ms": {"NFR-040b-05": 5_000, "ASM-040b-07": 1_000},
            "step_after_resume_to_fresh": {"NFR-011c-004": 1.1},
        },
        (
            "engine/resume.py",
            "engine/held_session.py",
            "engine/survey.py",
            "engine/settle.py",
            "resume_point.py",
            "policy.py",
        ),
    ),
}


def digest_of(source: tuple[str, ...]) -> str:
    """Of the Python files themselves, so that it changes with the measured path and with nothing else."""
    found = hashlib.sha256()
    for name in source:
        path = ROOT / "src" / "acode" / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def recovery() -> dict[str, float]:
    from benchmarks.bench_recovery import looked_at, memory_of_a_look
    from benchmarks.places import figure, make_session, place, timed, world

    with place() as path:
        (path / "workspace" / "a.txt").write_text("hello\n")
        session_id = make_session(path, EVENTS, STEPS)
        found = {name: value["median_ms"] for name, value in looked_at(path, session_id, EVENTS).items()}
        from acode.engine.held_session import opened

        with opened(world(path), look_only=True) as store:
            query = figure(timed(lambda: store.last_checkpoint(session_id), 50))["median_ms"]
        return {
            "find_resume_point_ms": found["find_resume_point"],
            "resume_query_ms": query,
            "log_scan_10000_events_ms": found["read_verify_fold_all"],
            "load_session_ms": found["load_session"],
            "detect_scenario_ms": found["detect_scenario"],
            "plan_continuation_ms": found["plan_continuation"],
            "peak_memory_mb": memory_of_a_look(path, session_id),
        }


def writing() -> dict[str, float]:
    """A counter is updated by the append of the event that it counts, with its sync; so is a checkpoint made."""
    from acode.events import types as ev
    from acode.lock import owner
    from acode.seal import load_keyring
    from acode.store.store import Store
    from benchmarks.places import figure, make_session, place, timed, world

    with place() as path:
        session_id = make_session(path, 1_000, 200)
        at = world(path)
        with Store(at.agent_dir, load_keyring(at.state_dir, {}), clock=at.clock, new_id=at.new_id) as store:
            journal = store.journal(store.load(session_id), store.generation(session_id))
            counted = ev.ResumeStarted(scenario="mid_operation", counted=True, owner=owner())
            return {
                "counter_update_ms": figure(timed(lambda: journal.append(counted), 50))["median_ms"],
                "checkpoint_creation_ms": figure(timed(lambda: journal.append(ev.CheckpointCreated()), 50))[
                    "median_ms"
                ],
            }


def validation() -> dict[str, float]:
    """The whole look at the environment that a resume makes, in a session that knows a thousand files.

    In the worst case: no stat proves anything, because every file was touched, so each is read and hashed.
    """
    from acode.engine.create import run_plan
    from acode.engine.environment import validate
    from acode.engine.held_session import make_site
    from acode.engine.workspace_store import opened
    from acode.events.definition import Approve, Plan, Read, Step, Task
    from acode.planfile import PlanFile
    from acode.workspace import Root
    from benchmarks.bench_validation import measure
    from benchmarks.places import figure, place, timed, world

    with place() as path, Root(path / "workspace") as root:
        files = [path / "workspace" / f"{number}.txt" for number in range(FILES)]
        for file in files:
            file.write_text(f"{file.name}\n")
        reads = [Step(id=f"t.{file.stem}", action=Read(path=file.name)) for file in files]
        steps = (*reads, Step(id="t.gate", action=Approve(question="on?")))
        plan = Plan(title="T", tasks=(Task(id="t", title="t", steps=steps),))
        at = world(path)
        begun = run_plan(at, PlanFile(plan=plan, path="plan.yml", sha256="0" * 64))
        with opened(at, look_only=True) as store:
            session = store.load(begun.session_id).session
            site = make_site(at, store, root, session, probes=True)

            def look() -> None:
                for file in files:
                    file.touch()
                found = validate(at, session, site, pending=(), lenient=False)
                assert (found.valid, found.total_files) == (True, FILES)

            took = figure(timed(look, 5))["median_ms"]
    return {"validation_1000_files_ms": took, "hash_one_file_ms": measure()["hash_ms"]}


def cycle() -> dict[str, float]:
    """`acode resume` as a process of its own: start, load, decide, validate, one step, end."""
    from benchmarks.places import place

    taken = []
    for _ in range(5):
        with place() as path:
            workspace = path / "workspace"
            steps = "{write: {path: a.txt, content: a}}, {run: 'test -e go', idempotent: true}"
            (workspace / "plan.yml").write_text(f"title: T\ntasks: [{{id: t, steps: [{steps}]}}]\n")
            line = [sys.executable, "-m", "acode", "-C", str(workspace)]
            env = {"ACODE_HOME": str(path / "state"), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src")}
            subprocess.run([*line, "run", "plan.yml"], env=env, capture_output=True, check=False)
            (workspace / "go").touch()
            before = time.perf_counter()
            subprocess.run([*line, "resume", "--last"], env=env, capture_output=True, check=True)
            taken.append((time.perf_counter() - before) * 1_000)
    return {"whole_resume_ms": round(sorted(taken)[2], 1), "step_after_resume_to_fresh": step_ratio()}


def step_ratio() -> float:
    """What a step takes in a resumed run, by what it takes in a fresh one: the two halves of one plan with a gate."""
    from acode.engine.create import run_plan
    from acode.engine.resume import resume
    from acode.engine.session_commands import answer_gate
    from acode.engine.world import Options
    from acode.planfile import PlanFile, parse_plan
    from benchmarks.places import Silence, place, world

    ratios = []
    for _ in range(5):
        with place() as path:
            (path / "workspace" / "a.txt").write_text("hello\n")
            half = ", ".join(["{read: a.txt}"] * STEPS_PER_HALF)
            text = f"title: T\ntasks: [{{id: t, steps: [{half}, {{approve: on?}}, {half}]}}]\n"
            plan = parse_plan(text, "plan.yml", plan_bytes_max=262_144, timeout_s_default=60.0)
            fresh, resumed = Silence(), Silence()
            begun = run_plan(world(path, fresh), PlanFile(plan=plan, path="plan.yml", sha256="0" * 64))
            answer_gate(world(path), begun.session_id, None, granted=True, note="")
            assert resume(world(path, resumed), begun.session_id, Options()).exit_code == 0
            ratios.append(per_step(resumed.completed_at) / per_step(fresh.completed_at))
    return round(statistics.median(ratios), 3)


def per_step(completed_at: list[float]) -> float:
    return statistics.median(after - before for before, after in itertools.pairwise(completed_at))


MEASURES: dict[str, Callable[[], dict[str, float]]] = {
    "recovery": recovery,
    "writing": writing,
    "validation": validation,
    "cycle": cycle,
}


def record(names: list[str]) -> int:
    RECORDS.mkdir(exist_ok=True)
    for name in names or list(GROUPS):
        digest = digest_of(GROUPS[name].source)
        kept: dict[str, Any] = {
            "measured_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "source_sha256": digest,
            "figures": MEASURES[name](),
        }
        (RECORDS / f"{name}.json").write_text(json.dumps(kept, indent=2) + "\n")
        print(name, json.dumps(kept["figures"]))
    return 0


def mismatches(name: str) -> list[str]:
    """What is wrong with the record of a group; empty where it proves its requirements."""
    group, path = GROUPS[name], RECORDS / f"{name}.json"
    again = f"measure again: {COMMAND} {name}"
    if not path.exists():
        return [f"no record of {name}; {again}"]
    kept = json.loads(path.read_text())
    wrong = [] if kept["source_sha256"] == digest_of(group.source) else [f"{name} is older than its source; {again}"]
    for figure, limits in group.limits.items():
        value = kept["figures"].get(figure)
        if value is None:
            wrong.append(f"{figure} was not measured; {again}")
        wrong += [f"{id_}: {figure} is {value}, over {most}" for id_, most in limits.items() if value and value > most]
    return wrong
