"""The outside oracle: an undisturbed life, one that was killed, and what is wrong with the second.

It knows the ledger of effects, the files, and acode's public JSON. It imports nothing of acode, so that a fault in the
product's own reading cannot hide itself. A program too: python tests/outside/oracle.py UNDISTURBED.json FOUND.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Document = dict[str, Any]
EQUAL = ("files", "databases", "commits", "tree", "status")
COUNTS = ("state", "steps_done", "steps_total", "tasks_done", "tasks_total")
TOLD = ("step_started", "step_completed")  # lines that an event of the same name stands for


def judge(undisturbed: Document, found: Document) -> list[str]:
    """Everything that the second life shows and the first does not allow."""
    wrong = list(found["wrong"])
    wrong += [
        f"{name}: {found[name]} instead of {undisturbed[name]}" for name in EQUAL if found[name] != undisturbed[name]
    ]
    wrong += _states(undisturbed, found)
    events = [event for one in found["sessions"] for event in one["history"]]
    wrong += _sound(found)
    wrong += _acknowledged(found, events)
    wrong += _explained(found, events)
    wrong += _decided(found, events)
    wrong += _truly_settled(found, events)
    wrong += _as_often(undisturbed, found)
    return wrong


def _states(undisturbed: Document, found: Document) -> Iterator[str]:
    def rows(document: Document) -> list[list[Any]]:
        return sorted([one["row"][name] for name in COUNTS] for one in document["sessions"])

    if rows(undisturbed) != rows(found):
        yield f"sessions: {rows(found)} instead of {rows(undisturbed)}"


def _sound(found: Document) -> Iterator[str]:
    for one in found["sessions"]:
        if not one["verify"]["ok"]:
            yield f"verify: {one['verify']['problems']}"
        explained = one["explain"]
        if explained["state"] != one["row"]["state"] or explained["in_flight"]:
            yield f"explain contradicts the list: {explained['state']} {explained['in_flight']}"
        accepted = [event for event in one["history"] if event["type"] == "changes_accepted"]
        if accepted:
            yield f"changes of nobody were accepted: {accepted}"
        numbers = [event["seq"] for event in one["history"]]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"the history has gaps: {numbers}"


def _acknowledged(found: Document, events: list[dict[str, Any]]) -> Iterator[str]:
    """What was said on stdout before a kill is on record."""
    last = max((event["seq"] for event in events), default=0)
    yield from (f"acknowledged and lost: {said}" for said in found["heard"] if said["seq"] > last)
    # The position of a line is that of the transaction in which its event stands.
    said_of = Counter((said["event"], said["step"]) for said in found["heard"] if said["event"] in TOLD)
    recorded = Counter((event["type"], event["step"]) for event in events)
    for (kind, step), times in said_of.items():
        if times > recorded[kind, step]:
            yield f"{kind} of {step} was acknowledged {times} times and is on record {recorded[kind, step]} times"


def _explained(found: Document, events: list[dict[str, Any]]) -> Iterator[str]:
    """Each effect has a start on record, and an attempt has one effect."""
    keys = {
        (_name(event), str(event["data"]["attempt"]))
        for event in events
        if event["type"] in ("step_started", "undo_started")
    }
    starts = Counter(_name(event) for event in events if event["type"] in ("step_started", "undo_started"))
    times = Counter((step, attempt) for step, attempt in found["ledger"])
    for (step, attempt), count in times.items():
        if attempt == "0":  # a function of a program, which is not told the number of its attempt
            if count > starts[step]:
                yield f"{step} had {count} effects and {starts[step]} starts"
        elif (step, attempt) not in keys:
            yield f"{step} had an effect in attempt {attempt}, which is not on record"
        elif count > 1:
            yield f"{step} had {count} effects in attempt {attempt}"


def _name(event: dict[str, Any]) -> str:
    return event["step"] + ("~undo" if event["type"].startswith("undo") else "")


def _decided(found: Document, events: list[dict[str, Any]]) -> Iterator[str]:
    """Between two starts of a step stands a record that allows the second; a completed one is rolled back before."""
    for one in found["sessions"]:
        begun: set[str] = set()
        done: set[str] = set()
        for event in one["history"]:
            step = event["step"]
            match event["type"]:
                case "step_started":
                    if step in begun:
                        yield f"{step} was begun again and nothing on record says why"
                    if step in done:
                        yield f"{step} was completed and begun again"
                    begun.add(step)
                case "step_completed":
                    done.add(step)
                    begun.discard(step)
                case "step_failed":
                    begun.discard(step)
                case "step_settled" if event["data"]["outcome"] != "unknown":
                    begun.discard(step)
                case "steps_rolled_back":
                    done -= set(event["data"]["steps"])


def _truly_settled(found: Document, events: list[dict[str, Any]]) -> Iterator[str]:
    """What acode has settled by evidence is what the ledger says; a completed step has had its effect."""
    effects = set(map(tuple, found["ledger"]))
    of_step: dict[str, set[str]] = defaultdict(set)
    for step, attempt in effects:
        of_step[step].add(attempt)

    def is_once(step: str, attempt: str) -> bool:
        return attempt != "0" and bool(found["effects"][step]["once"])

    for event in events:
        step, data = event["step"], event["data"]
        if step not in found["effects"] or event["type"] not in ("step_settled", "step_completed"):
            continue
        attempt = "0" if "0" in of_step[step] else str(data["attempt"])
        happened = (step, attempt) in effects
        if event["type"] == "step_completed" and not happened:
            yield f"{step} is completed in attempt {attempt}, without an effect"
        elif event["type"] == "step_settled" and data["outcome"] == "applied" and not happened:
            yield f"{step} is settled as applied in attempt {attempt}, without an effect"
        elif (
            event["type"] == "step_settled" and data["outcome"] == "not_applied" and happened and is_once(step, attempt)
        ):
            yield f"{step} is settled as not applied in attempt {attempt}, and it was"


def _as_often(undisturbed: Document, found: Document) -> Iterator[str]:
    """A step that may happen once happens as often as undisturbed; no other one less often."""
    wanted, times = (Counter(step for step, _ in one["ledger"]) for one in (undisturbed, found))
    for step, effect in found["effects"].items():
        if times[step] < wanted[step]:
            yield f"{step} was skipped: {times[step]} effects instead of {wanted[step]}"
        elif effect["once"] and times[step] > wanted[step]:
            yield f"{step} was repeated: {times[step]} effects instead of {wanted[step]}"
    for step in times.keys() - found["effects"].keys():
        yield f"an effect of nobody: {step}"


if __name__ == "__main__":
    first, second = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:3])
    violations = judge(first, second)
    print("\n".join(violations) or "nothing is wrong")
    sys.exit(1 if violations else 0)
