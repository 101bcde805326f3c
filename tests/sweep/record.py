"""One portion of the release sweep: a test with its parameters, and a JSON record of what it did.

python -m tests.sweep.record TEST FILE. The exit status is 0 also where the test fails: a violation is a result, and is
recorded. As a plugin of pytest it collects the figures that a test has told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUTCOME, COLLECTED = "ACODE_SWEEP_OUTCOME", "ACODE_SWEEP_COLLECTED"  # files that the plugin writes
FAILURE_BYTES_MAX = 20_000
# Read when the plugin is loaded: a test may have an environment of its own, and is still in it when it is reported.
TOLD_TO = os.environ.get(OUTCOME, "")


def pytest_collection_finish(session: Any) -> None:
    """The tests by their files: pytest's own ids leave out a file that lies elsewhere."""
    if COLLECTED in os.environ:
        tests = [f"{_named(item.path)}::{item.nodeid.partition('::')[2]}" for item in session.items]
        Path(os.environ[COLLECTED]).write_text(json.dumps(tests), encoding="utf-8")


def _named(path: Path) -> str:
    return os.fspath(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def pytest_runtest_logreport(report: Any) -> None:
    """Of the test itself, and of what is prepared for it where that fails."""
    if TOLD_TO and (report.when == "call" or report.outcome != "passed"):
        figures: Counter[str] = Counter()
        for name, value in report.user_properties:
            if name == "figures":
                figures.update(value)
        notes = [value for name, value in report.user_properties if name == "note"]
        failure = report.longreprtext[-FAILURE_BYTES_MAX:]
        told = {"outcome": report.outcome, "figures": figures, "notes": notes, "failure": failure}
        Path(TOLD_TO).write_text(json.dumps(told), encoding="utf-8")


def portion(test: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    outcome = file.with_suffix(".outcome")
    outcome.unlink(missing_ok=True)
    words = ["-q", "-n", "0", "-m", "release", "--timeout", "0", "-p", "tests.sweep.record", "-p", "no:randomly"]
    env = {**os.environ, OUTCOME: os.fspath(outcome)}
    began = time.monotonic()
    line = [sys.executable, "-m", "pytest", *words, "-c", str(ROOT / "pyproject.toml"), test]
    ended = subprocess.run(line, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    lost = {"outcome": "lost", "figures": {}, "failure": (ended.stdout + ended.stderr)[-FAILURE_BYTES_MAX:]}
    told = json.loads(outcome.read_text(encoding="utf-8")) if outcome.exists() else lost
    outcome.unlink(missing_ok=True)
    record = {"test": test, "function": function_of(test), "seconds": round(time.monotonic() - began, 1), **told}
    file.write_text(json.dumps(record, indent=1), encoding="utf-8")


def function_of(test: str) -> str:
    """The test without its parameters."""
    return test.partition("[")[0]


if __name__ == "__main__":
    portion(sys.argv[1], Path(sys.argv[2]))
