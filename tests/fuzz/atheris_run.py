"""One target under atheris: python tests/fuzz/atheris_run.py NAME [-max_total_time=60]; its corpus stays here."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "src")]

with atheris.instrument_imports(include=["acode"]):
    from tests.fuzz import targets


def main() -> None:
    name, options = sys.argv[1], sys.argv[2:]
    corpus = Path(tempfile.mkdtemp(prefix=f"{name}-", dir="."))
    for number, seed in enumerate(targets.TARGETS[name][1]):
        (corpus / str(number)).write_bytes(seed)
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: targets.attempt(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
