"""The release sweep, as much of it as fits: python3 dev.py sweep --hours N [pytest's words], or --figures.

Each release test with its parameters is one portion. The sweep is a session of acode, and each portion a command in it:
killed and started again it continues where it stopped, and a portion that ended meanwhile is not repeated. A changed
source begins a new sweep, because figures belong to the code that they were made with.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path

import acode
from tests.sweep.figures import page, read_records
from tests.sweep.record import COLLECTED, ROOT, function_of

STILL_RUNNING = 16
WAIT_S = 1.0
PORTION_S_MAX = 24 * 3600.0


class OutOfTime(Exception):
    """The hours are over; the session stays open for the next time."""


def source_digest() -> str:
    """Of everything that a figure depends on."""
    total = hashlib.sha256()
    for path in sorted(path for place in ("src", "tests") for path in (ROOT / place).rglob("*.py")):
        total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def collected(words: list[str], digest: str) -> list[str]:
    """The release tests, one of each function after the other, and the parameters of each in an order of chance:
    whatever fits is a spread over all functions and over all commands. It is the same for the same source, so that a
    sweep is continued, and another one for the next source, so that short sweeps do not try the same few again."""
    options = ["--collect-only", "-q", "-m", "release", "-p", "no:randomly", "-p", "tests.sweep.record"]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "tests.json"
        line = [sys.executable, "-m", "pytest", *options, *words]
        env = {**os.environ, COLLECTED: os.fspath(file)}
        asked = subprocess.run(line, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
        tests = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    if asked.returncode or not tests:
        raise SystemExit(f"no release test was found:\n{asked.stdout[-3000:]}{asked.stderr[-3000:]}")
    by_function: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        by_function[function_of(test)].append(test)
    for function, of_function in by_function.items():
        random.Random(f"{function.partition('::')[2]} {digest}").shuffle(of_function)
    return [test for row in zip_longest(*by_function.values()) for test in row if test is not None]


def portions(session: acode.Session, tests: list[str], place: Path, until: float) -> Iterator[str]:
    for number, test in enumerate(tests):
        record = f"records/{number:05d}.json"
        if not (place / record).exists() and time.monotonic() > until:
            raise OutOfTime
        line = [sys.executable, "-m", "tests.sweep.record", test, str(place / record)]
        # The record is all that a portion leaves, so one that was cut off with the machine is repeated.
        path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        session.run(line, name=f"portion-{number:05d}", outputs=[record], env=path, timeout=PORTION_S_MAX)
        yield record


def sweep(tests: list[str], place: Path, until: float) -> bool:
    """False: the hours were over first."""
    place.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            with acode.session("sweep", place, force="the sweep is started again") as session:
                for record in portions(session, tests, place, until):
                    told = json.loads((place / record).read_text())
                    print(
                        f"{told['outcome']:7} {told['seconds']:8.1f} s  {told['test']}  {told['figures']}", flush=True
                    )
            return True
        except OutOfTime:
            return False
        except acode.AcodeError as error:
            if error.exit_code != STILL_RUNNING:
                raise
            time.sleep(WAIT_S)  # the portion of a sweep that was killed lives on


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 dev.py sweep", description=__doc__)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--figures", action="store_true", help="write the totals into docs/proof/<date>-sweep.md")
    parser.add_argument("--place", type=Path, default=ROOT / ".dev" / "sweep")
    parser.add_argument("--page", type=Path, help="another file for the totals")
    asked, words = parser.parse_known_args(argv)
    if asked.figures:
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        target = asked.page or ROOT / "docs" / "proof" / f"{date}-sweep.md"
        target.write_text(page(read_records(asked.place), date), encoding="utf-8")
        print(f"wrote {target}")
        return 0
    until = time.monotonic() + (asked.hours or 0) * 3600
    digest = source_digest()
    which = hashlib.sha256("\0".join(words).encode()).hexdigest()[:6]
    place = asked.place / f"{digest}-{which}"
    ended = sweep(collected(words, digest), place, until)
    records = [one for one in read_records(asked.place) if one["sweep"] == place.name]
    failed = [one["test"] for one in records if one["outcome"] != "passed"]
    print(f"{len(records)} portions done, {'all' if ended else 'not all'}; {len(failed)} with a violation")
    print(*failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
