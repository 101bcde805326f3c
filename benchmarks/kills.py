"""The kill table: `python3 dev.py kills [NAME ...] [--kills N]`, where NAME is `engines`, `at-once` (those
engines that are killed with 16 steps under way), one of them, or an agent.

One row for each engine and, without acode and with it, for each agent. An engine takes part by a module
`benchmarks/peers/on_NAME.py`, an agent by `tests/agents/on_NAME.py`, about thirty lines each. How they are killed and
what is counted is written down in docs/reference/kills.md. A row is printed as soon as it is complete.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.peers import kills as engine_kills
from benchmarks.peers.speed import say
from tests.agents.client import NAMES as AGENTS
from tests.agents.client import client_of, pinned_version, program
from tests.agents.outcome import Outcome, run_trial
from tests.agents.trial import drawn

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "kill-table.json"
HEAD = ("| who | kills | effects twice | missing | repeated without a recorded decision |", "|---|---|---|---|---|")


def main(argv: Sequence[str]) -> int:
    engines = {slug(one.name): one for one in engine_kills.ENTERED}
    parser = argparse.ArgumentParser(prog="python3 dev.py kills", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"engines, at-once, {', '.join([*engines, *AGENTS])}")
    parser.add_argument("--kills", type=int, default=20, help="of each agent; an engine is killed 20 times")
    args = parser.parse_args(argv)
    unknown = set(args.names) - {"engines", "at-once", *engines, *AGENTS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    groups = {name: {name, "engines", *(["at-once"] if one.at_once > 1 else [])} for name, one in engines.items()}
    chosen = [one for name, one in engines.items() if not args.names or groups[name] & set(args.names)]
    figures: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds")}
    print("\n".join(HEAD), flush=True)
    for contender in chosen:
        found = engine_kills.measure([contender])
        figures[contender.name] = found.get(contender.name, found["left_out"].get(contender.name))
        print("\n".join(list(engine_kills.shown(found))[2:]), flush=True)
    for name in AGENTS:
        if not args.names or name in args.names:
            for row, outcomes in agent_rows(name, args.kills):
                figures[row] = [msgspec.to_builtins(one) for one in outcomes]
                print(counted(row, outcomes), flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(figures, indent=1) + "\n")
    say(f"every kill stands in {RESULT.relative_to(ROOT)}")
    return 0


def slug(name: str) -> str:
    return name.lower().replace(",", "").replace(" ", "-")


def agent_rows(name: str, kills: int) -> Iterator[tuple[str, list[Outcome]]]:
    if not program(name, client_of(name)).exists():
        say(f"{name} is left out: it is not installed")
        return
    for acode in (False, True):
        say(f"{name}, {'with' if acode else 'without'} acode: {kills} kills ...")
        outcomes = [one_kill(name, number, acode=acode) for number in range(1, kills + 1)]
        yield f"{name} {pinned_version(name)}, {'with' if acode else 'without'} acode", outcomes


def one_kill(name: str, number: int, *, acode: bool) -> Outcome:
    directory = Path(tempfile.mkdtemp(prefix=f"acode-kills-{name}-"))
    try:
        return run_trial(name, directory / "trial", drawn("command", number), number, acode=acode)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def counted(row: str, outcomes: Sequence[Outcome]) -> str:
    """A kill counts where the agent lived to be killed. Only acode has a record in which a decision could stand."""
    found = Counter(one.verdict for one in outcomes)
    killed = sum(one.was_alive for one in outcomes)
    undecided = str(found["repeated"] + found["silent"]) if outcomes[0].acode else "–"
    return f"| {row} | {killed} | {sum(one.effects > 1 for one in outcomes)} | {found['lost']} | {undecided} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
