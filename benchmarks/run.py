"""All benchmarks in one command; JSON on stdout, a table with targets on stderr.

    python3 dev.py bench                 acode alone (some minutes: it builds a session of a million events)
    python3 dev.py bench steps           one of: cold_start, commands, concurrency, formats, hooks, library, long_log,
                                         page, recovery, redaction, sessions, steps, storage, sync,
                                         validation
    python3 dev.py bench against COMMIT  steps of this acode beside those of another commit, 0.1 where none is named
    python3 dev.py bench requirements    the seeds' performance requirements, recorded in benchmarks/records/
    python3 dev.py bench peers           beside other engines, which are installed for it: steps per second,
    python3 dev.py bench at_once         many steps at once,
    python3 dev.py bench kills           what is repeated after twenty kills,
    python3 dev.py bench curve           recovery against the length of the record,
    python3 dev.py bench scenarios       the faults that other engines publish or test, for them and for acode,
    python3 dev.py bench fleet           and a fleet beside its queue engine alone and DBOS's queue
    python3 dev.py bench pictures        draw docs/images/ from the last results

Figures are medians measured in one run. Ratios are what counts; absolute times are those of the machine. The last
result of each stands in benchmarks/results/. ACODE_BENCH_FIRST=1 is for a busy machine; see scheduling.py.
"""

from __future__ import annotations

import importlib
import json
import platform
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# These need other engines, in an environment that `dev.py` makes when they are asked for by name.
BESIDE_PEERS = {
    "peers": "benchmarks.peers.speed",
    "at_once": "benchmarks.peers.at_once",
    "kills": "benchmarks.peers.kills",
    "curve": "benchmarks.peers.recovery",
    "fleet": "benchmarks.peers.fleet",
    "scenarios": "benchmarks.peers.faults.scenarios",
}

# Requirement, what is measured, where the figure stands, its target and its maximum.
TARGETS: list[tuple[str, str, str, float, float]] = [
    (
        "NFR-040b-01",
        "find the resume point, 10,000 events (ms)",
        "recovery.10_000.find_resume_point.median_ms",
        10,
        100,
    ),
    (
        "NFR-040b-08",
        "find the resume point, 1,000,000 events (ms)",
        "recovery.1_000_000.find_resume_point.median_ms",
        15,
        50,
    ),
    (
        "NFR-040b-06",
        "read, verify and fold 10,000 events (ms)",
        "recovery.10_000.read_verify_fold_all.median_ms",
        250,
        500,
    ),
    (
        "NFR-040b-03",
        "restore the context, 1,000,000 events (ms)",
        "recovery.1_000_000.load_session.median_ms",
        250,
        500,
    ),
    ("BENCH-011c-01", "state recovery, 10,000 events (ms)", "recovery.10_000.load_session.median_ms", 250, 500),
    ("NFR-040b-07", "memory of a survey, 1,000,000 events (MB)", "recovery.1_000_000.resume_peak_memory_mb", 100, 100),
    ("NFR-040b-09", "detect the scenario (ms)", "recovery.10_000.detect_scenario.median_ms", 1, 10),
    ("POL-AUDIT-02", "decide (ms)", "recovery.10_000.decide.median_ms", 1, 10),
    (
        "BENCH-011c-03",
        "plan the continuation, 1,000 steps (ms)",
        "recovery.10_000.plan_continuation.median_ms",
        50,
        100,
    ),
    ("NFR-040b-02", "validate 10,000 unchanged files (ms)", "validation.unchanged_ms", 150, 1000),
    ("BENCH-011c-02", "validate 10,000 files, all hashed (ms)", "validation.all_hashed_ms", 1000, 2000),
    ("NFR-040b-04", "hash comparison of one file (ms)", "validation.hash_ms", 10, 10),
    (
        "NFR-040b-05",
        "the whole survey of a resume, 10,000 events (ms)",
        "recovery.10_000.whole_preview.median_ms",
        1000,
        5000,
    ),
    ("BENCH-011c-04", "a step with its checkpoint and fsync (ms)", "steps.step_ms_median", 50, 100),
    ("NFR-040b-10", "a counter, inside the step's transaction (ms)", "steps.step_ms_median", 5, 5),
    ("durability", "a read step beside a bare commit (ratio)", "steps.ratio_of_medians", 1.3, 3.0),
    ("library", "a step of a program beside a bare commit (ratio)", "library.idempotent.ratio_of_medians", 1.3, 3.0),
    (
        "library",
        "a step, not idempotent, beside a bare commit",
        "against.not_idempotent.now_beside_bare.wall",
        1.6,
        2.0,
    ),
    ("library", "a step, not idempotent, beside 0.1 (CPU)", "against.not_idempotent.now_beside_then.cpu", 0.5, 0.7),
    ("library", "a step, idempotent, beside 0.1 (CPU)", "against.idempotent.now_beside_then.cpu", 0.5, 0.7),
    ("library", "a step beside 0.1 (time)", "against.idempotent.now_beside_then.wall", 1.0, 1.08),
    ("library", "a read step of a plan beside 0.1 (time)", "against.reads_of_a_plan.now_beside_then.wall", 1.0, 1.08),
    ("library", "import acode (ms)", "library.import_ms", 40, 40),
    ("library", "first new step after 10,000 (ms)", "library.resume_10_000.first_new_step_ms", 300, 600),
    ("PROTO-06", "list 1,000 agent-memory runs (ms)", "formats.agent_memory_list.median_ms", 1000, 1000),
    ("PROTO-09", "diagnose a run of 1,000 events (ms)", "formats.agent_memory_diagnose.median_ms", 100, 100),
    ("ARC-01", "list 1,000 arc runs (ms)", "formats.arc_list.median_ms", 1000, 1000),
    ("PROTO-06", "session list of 1,000 agent-memory runs (ms)", "formats.command_ms", 1000, 2000),
    ("redaction", "ordinary output, each megabyte (ms)", "redaction.ordinary_ms_per_megabyte", 50, 100),
    ("redaction", "the most inconvenient text of 300 kB (s)", "redaction.hostile_s_worst", 1, 3),
    ("second tier", "push an event of 1,000,000 pending (µs)", "sync.1_000_000.us_per_event", 50, 100),
    ("second tier", "memory with 1,000,000 events pending (MB)", "sync.1_000_000.peak_memory_mb", 150, 300),
    ("FR-011c-050", "a step beside a server that takes 1 s (ratio)", "sync.slow_server.ratio_of_medians", 1.05, 1.2),
    ("cold start", "session list beside bare imports (ratio)", "cold_start.ratio", 3.0, 4.0),
    ("cold start", "status beside session list (CPU ratio)", "cold_start.beside_list.status", 1.5, 1.5),
    ("cold start", "explain beside session list (CPU ratio)", "cold_start.beside_list.explain", 1.5, 1.5),
    ("cold start", "resume --dry-run beside session list (CPU)", "cold_start.beside_list.dry_run", 1.5, 1.5),
    ("sessions", "list --limit 50, 100,000 sessions beside 100 (CPU)", "sessions.ratio.list_50", 2.0, 2.0),
    ("sessions", "status, 100,000 sessions beside 100 (CPU)", "sessions.ratio.status", 2.0, 2.0),
    ("sessions", "resume --dry-run, 100,000 sessions beside 100 (CPU)", "sessions.ratio.dry_run", 2.0, 2.0),
    ("sessions", "a new session, 100,000 sessions beside 100 (CPU)", "sessions.ratio.new_session", 2.0, 2.0),
    ("commands", "`true`, beside 0.1 (CPU ratio)", "commands.ratio", 0.167, 0.334),
    (
        "fleet",
        "a session beside engine and `acode run` (CPU)",
        "fleet.ratio.session_cpu_s_beside_engine_and_run",
        1.2,
        1.2,
    ),
    ("fleet", "take-over, lease of 6 s (s)", "fleet.sessions_on_the_server.take_over_s_most", 8, 8),
    ("fleet", "take-over, 100,000 sessions beside 100", "fleet.sessions_on_the_server.take_over_ratio", 2, 2),
    ("fleet", "fleet status, 100,000 beside 100 (CPU)", "fleet.sessions_on_the_server.fleet_status_ratio", 2, 2),
    ("peers", "a step beside the fastest peer's, 1,000 steps (ratio)", "peers.nearest_1000.cost_of_acode", 0.435, 1.0),
    ("peers", "a step beside the fastest peer's, 10,000 (ratio)", "peers.nearest_10000.cost_of_acode", 0.435, 1.0),
]


def main(argv: list[str]) -> int:
    if argv[:1] == ["requirements"]:
        from benchmarks.requirements import record

        return record(argv[1:])
    if argv[:1] == ["against"]:
        return measure({"against": "benchmarks.against"}, *argv[1:2])
    alone = sorted(path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py"))
    if argv == ["pictures"]:
        from benchmarks.plots import draw

        print(json.dumps(draw(), indent=2))
        return 0
    names = argv or alone
    unknown = [name for name in names if name not in (*alone, *BESIDE_PEERS)]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join([*alone, *BESIDE_PEERS])}", file=sys.stderr)
        return 2
    return measure({name: BESIDE_PEERS.get(name, f"benchmarks.bench_{name}") for name in names})


def measure(modules: dict[str, str], *arguments: str) -> int:
    results: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    for name, module_name in modules.items():
        print(f"measuring {name} ...", file=sys.stderr)
        module = importlib.import_module(module_name)
        results[name] = module.measure(*arguments)
        keep(name, results)
        for line in module.shown(results[name]) if hasattr(module, "shown") else ():
            print(line, file=sys.stderr)
    print(json.dumps(results, indent=2))
    for line in table(results):
        print(line, file=sys.stderr)
    return 0


def keep(name: str, results: dict[str, Any]) -> None:
    """For the pictures, and for a comparison with the last figures."""
    place = ROOT / "benchmarks" / "results"
    place.mkdir(exist_ok=True)
    kept = {"at": results["at"], "machine": results["machine"], name: results[name]}
    (place / f"{name}.json").write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    import os

    from acode.store.database import file_system
    from benchmarks.scheduling import come_first

    return {
        "cpus": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "file_system": file_system(ROOT / "benchmarks"),
        "scheduling": come_first(),
        "load_average": [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }


def table(results: dict[str, Any]) -> Iterator[str]:
    yield f"{'requirement':<14} {'figure':<52} {'found':>9} {'target':>8} {'maximum':>8}"
    for requirement, what, where, target, maximum in TARGETS:
        found: Any = results
        for name in where.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            continue
        mark = "" if found <= target else ("  over target" if found <= maximum else "  OVER MAXIMUM")
        yield f"{requirement:<14} {what:<52} {found:>9.3f} {target:>8g} {maximum:>8g}{mark}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
