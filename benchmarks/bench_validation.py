"""How long validation takes: 10,000 files that nobody changed, and the hash of one file.

Prints JSON; `measure()` returns the same figures. Medians of several rounds, in milliseconds, beside their limits.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acode.events.types import FileState
from acode.workspace import Root, changed, hash_file

FILES = 10_000
FILES_PER_DIRECTORY = 50
UNCHANGED_MS_MAX = 150.0
HASH_FILE_BYTES = 1_048_576
HASH_MS_MAX = 10.0
ROUNDS = 9


def median_ms(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1000)
    return round(statistics.median(taken), 2)


def make_files(place: Path) -> list[str]:
    paths = []
    for number in range(FILES):
        rel = f"src/package{number // FILES_PER_DIRECTORY}/module{number}.py"
        path = place / rel
        if number % FILES_PER_DIRECTORY == 0:
            path.parent.mkdir(parents=True)
        path.write_text(f"value = {number}\n")
        paths.append(rel)
    return paths


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place, Root(place) as root:
        paths = make_files(Path(place))
        (Path(place) / "one.bin").write_bytes(bytes(HASH_FILE_BYTES))
        time.sleep(0.05)  # a file that is younger than the clock's tick is hashed, not trusted
        manifest: dict[str, FileState] = {path: hash_file(root, path) for path in paths}
        assert all(state.ctime_ns for state in manifest.values()), "recorded too early to be proved by stat"
        assert changed(root, manifest) == ()
        unchanged_ms = median_ms(lambda: changed(root, manifest))
        untrusted = {path: FileState(path=path, sha256=state.sha256) for path, state in manifest.items()}
        return {
            "files": FILES,
            "unchanged_ms": unchanged_ms,
            "unchanged_ms_max": UNCHANGED_MS_MAX,
            "all_hashed_ms": median_ms(lambda: changed(root, untrusted)),
            "hash_file_bytes": HASH_FILE_BYTES,
            "hash_ms": median_ms(lambda: hash_file(root, "one.bin")),
            "hash_ms_max": HASH_MS_MAX,
        }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
