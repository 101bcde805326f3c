"""Recovery: finding the resume point, reading and folding the log, deciding, planning, and the memory it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from acode.engine.held_session import opened
from acode.engine.preview import preview
from acode.engine.world import Options
from acode.plan import Strategy, continue_plan
from acode.policy import Facts, decide
from acode.resume_point import classify, detect_scenario, find_resume_point
from acode.state import fold
from benchmarks.places import figure, make_session, place, timed, world

# By the number of events, how many events and how many steps.
SIZES = {
    "100": (100, 20),
    "1_000": (1_000, 200),
    "10_000": (10_000, 1_000),
    "100_000": (100_000, 1_000),
    "1_000_000": (1_000_000, 1_000),
}


def measure(sizes: tuple[str, ...] = tuple(SIZES)) -> dict[str, Any]:
    return {size: of_size(*SIZES[size]) for size in sizes}


def of_size(events: int, steps: int) -> dict[str, Any]:
    with place() as path:
        (path / "workspace" / "a.txt").write_text("hello\n")
        session_id = make_session(path, events, steps)
        figures = looked_at(path, session_id, events)
        figures["resume_peak_memory_mb"] = memory_of_a_look(path, session_id)
        return figures


def looked_at(path: Path, session_id: str, events: int) -> dict[str, Any]:
    the_world = world(path)
    with opened(the_world, look_only=True) as store:
        figures: dict[str, Any] = {
            "find_resume_point": figure(timed(lambda: find_resume_point(store.peek(session_id)[0]), 50)),
            "load_session": figure(timed(lambda: store.load(session_id), 10)),
        }
        if events <= 100_000:
            whole = figure(timed(lambda: fold(envelope for envelope, _, _ in store.events(session_id)), 5))
            figures["read_verify_fold_all"] = whole
        session = store.load(session_id).session
    interruption = classify(session)
    limits, now = the_world.limits, the_world.clock()
    findings = preview(the_world, session_id, Options()).survey
    assert findings is not None
    figures["detect_scenario"] = figure(timed(lambda: detect_scenario(session), 200))
    figures["decide"] = figure(
        timed(lambda: decide(session, interruption, limits, now=now, actor="system", facts=Facts()), 200)
    )
    figures["plan_continuation"] = figure(
        timed(lambda: continue_plan(session, findings.findings, strategy=Strategy.ROLLBACK, retry_unknown=False), 20)
    )
    figures["whole_preview"] = figure(timed(lambda: preview(the_world, session_id, Options()), 5))
    return figures


def memory_of_a_look(path: Path, session_id: str) -> float:
    """The peak memory of a process of its own that makes the whole survey of a resume."""
    script = (
        "import resource, sys; from pathlib import Path; from benchmarks.places import world;"
        "from acode.engine.world import Options; from acode.engine.preview import preview;"
        "preview(world(Path(sys.argv[1])), sys.argv[2], Options());"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, str(path), session_id],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return round(float(answer.stdout), 1)
