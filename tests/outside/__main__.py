"""Random stories and the outside oracle: python -m tests.outside SEED [SEED or FIRST-LAST ...] [--json] [--plant BUG]

Exit status 1 if the oracle found anything. A violation names its seed; the same command with that seed alone shows it
again, and --keep leaves what it lived in.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.memory import memory
from tests.outside.life import Life, Server, Stuck
from tests.outside.oracle import judge
from tests.outside.story import Story, story


def lived(made: Story, root: Path, server: Server, calls: int | None) -> tuple[dict[str, Any], int]:
    """calls: None for the undisturbed life, in which they are counted."""
    quiet = dataclasses.replace(made, moved=False, older=False) if calls is None else made
    life = Life(quiet, root, server, [] if calls is None else list(made.kills), calls or 0, count=calls is None)
    life.begin()
    try:
        life.live()
    except Stuck as stuck:
        life.wrong.append(f"stuck: {stuck}")
    life.end_everything()
    document = life.document()
    document["effects"] = {name: dataclasses.asdict(effect) for name, effect in made.effects.items()}
    return document, life.calls


def trial(seed: int, server: Server, keep: Path | None = None) -> dict[str, Any]:
    """One seed: lived undisturbed, lived with its kills, judged."""
    made = story(seed)
    root = keep or Path(tempfile.mkdtemp(prefix="acode-outside-", dir=memory()))
    began = time.monotonic()
    try:
        undisturbed, calls = lived(made, root / "undisturbed", server, None)
        found = undisturbed  # where already that one is wrong, there is nothing to compare
        if not undisturbed["wrong"]:
            found, _ = lived(made, root / "found", server, calls)
        if keep is not None:
            for name, document in (("undisturbed", undisturbed), ("found", found)):
                (root / f"{name}.json").write_text(json.dumps(document, indent=1))
        wrong = [f"undisturbed: {one}" for one in undisturbed["wrong"]] or judge(undisturbed, found)
    finally:
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)
    return {
        "seed": seed,
        "source": made.source,
        "kills": found["kills"],
        "answers": found["answers"],
        "effects": len(found["ledger"]),
        "seconds": round(time.monotonic() - began, 2),
        "violations": wrong,
        "acts": found["acts"],
    }


def seeds_of(words: list[str]) -> list[int]:
    found: list[int] = []
    for word in words:
        first, _, last = word.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.outside")
    parser.add_argument("seeds", nargs="+")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plant", default="")
    parser.add_argument("--first", action="store_true", help="stop at the first violation")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args(argv)
    server, totals, violations = Server(asked.plant), Counter[str](), 0
    for seed in seeds_of(asked.seeds):
        told = trial(seed, server, asked.keep)
        totals.update({name: told[name] for name in ("kills", "answers", "effects")}, iterations=1)
        violations += len(told["violations"])
        if asked.json:
            print(json.dumps(told), flush=True)
        elif told["violations"]:
            print(f"seed {seed}, {told['source']}:", *told["violations"], *told["acts"], sep="\n  ", flush=True)
        if asked.first and violations:
            break
    server.close()
    print(json.dumps({**totals, "violations": violations}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
