"""How much of the code that unit tests are meant for is executed by them, in lines and branches, and recorded.

`python3 dev.py coverage` runs `tests/unit` and fails below 90 %. Measured are whole packages where everything is for
unit tests: the pure modules (events, state, redact, resume_point, policy, plan) and those that only read text or
files (config, planfile, yamlfile, seal, errors). Of packages that also act, only the modules that decide are
measured: rules of the two formats, SQL and shapes of steps, rules of the sync. The rest of those packages, the
engine, the store, the steps and the commands work with processes, databases and servers: their tests start real ones,
many in processes of their own that no meter sees, and a figure for them would say nothing.

The record holds the figure, the date and a digest of the measured source, as those of the performance requirements
do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.requirements import RECORDS, ROOT, digest_of

COMMAND = "python3 dev.py coverage"
PERCENT_MIN = 90.0
AGENT_MEMORY = ("diagnosis", "dialect", "graph", "prompts", "values", "event_fold", "ordinary_lines")
ARC = (
    *("artifacts", "phase_record", "diagnose", "facts", "findings", "freshness", "frontmatter", "migrations"),
    *("orphans", "permission", "phases", "repair", "suspended", "checkpoint"),
)
MEASURED = (
    *("config", "errors", "events", "planfile", "redact", "state", "yamlfile"),
    *("plan.py", "policy.py", "resume_point.py", "seal.py", "workspacepath.py"),
    *("steps/interface.py", "steps/sql_target.py", "steps/sql_scanner.py", "sync/backoff.py", "sync/protocol.py"),
    *(f"formats/agent_memory/{name}.py" for name in AGENT_MEMORY),
    "formats/messages.py",
    *(f"formats/arc/{name}.py" for name in ARC),
)


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        status = run_tests(Path(place), report)
        if status:
            return status
        percent = percent_of(json.loads(report.read_text()))
    print(f"unit coverage: {percent} % of lines and branches, at least {PERCENT_MIN} % is asked for")
    kept = {
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "source_sha256": digest_of(MEASURED),
        "figures": {"unit_coverage_percent": percent},
    }
    if percent < PERCENT_MIN:
        return 1
    if mismatches():  # a record that still holds is left alone: nothing to commit
        (RECORDS / "coverage.json").write_text(json.dumps(kept, indent=2) + "\n")
    return 0


def run_tests(place: Path, report: Path) -> int:
    """Through a pipe: a test lets no file grow. The profile has no deadlines, because the meter slows tests down."""
    include = [f"src/acode/{name}" if name.endswith(".py") else f"src/acode/{name}/*" for name in MEASURED]
    settings = place / "coverage.ini"
    lines = ["[run]", "branch = true", "source = acode", f"data_file = {place / 'data'}", "[report]", "include ="]
    settings.write_text("\n".join([*lines, *(f"    {name}" for name in include)]) + "\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not release", "--hypothesis-profile=ci"]
    meter = ["--cov", f"--cov-config={settings}", f"--cov-report=json:{report}", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, *meter, "tests/unit"], cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if ended.returncode:
        print(ended.stdout.decode(errors="replace"))
    return ended.returncode


def percent_of(report: dict[str, Any]) -> float:
    for name, one in sorted(report["files"].items(), key=lambda pair: pair[1]["summary"]["percent_covered"])[:5]:
        print(f"{one['summary']['percent_covered']:5.1f} %  {name}")
    return round(float(report["totals"]["percent_covered"]), 1)


def mismatches() -> list[str]:
    """What is wrong with the record; empty where it proves the requirement."""
    path = RECORDS / "coverage.json"
    if not path.exists():
        return [f"no record of the coverage; measure again: {COMMAND}"]
    kept = json.loads(path.read_text())
    wrong = []
    if kept["source_sha256"] != digest_of(MEASURED):
        wrong.append(f"the record of the coverage is older than its source; measure again: {COMMAND}")
    percent = kept["figures"]["unit_coverage_percent"]
    if percent < PERCENT_MIN:
        wrong.append(f"QUAL-011c-01: {percent} % is below {PERCENT_MIN} %")
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
