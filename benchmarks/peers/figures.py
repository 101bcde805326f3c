"""Medians, quartiles and ratios of what was measured, and the table they stand in."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any


def quartiles(values: Sequence[float]) -> list[float]:
    """The middle half of them."""
    if len(values) < 2:
        return [round(values[0], 3)] * 2
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return [round(first, 3), round(third, 3)]


def summary(costs_s: Sequence[float]) -> dict[str, Any]:
    """Costs of a step, in seconds, as what people ask for."""
    return {
        "steps_per_second": round(1 / statistics.median(costs_s), 1),
        "steps_per_second_quartiles": quartiles([1 / cost for cost in costs_s]),
        "ms_per_step": round(statistics.median(costs_s) * 1000, 4),
        "ms_per_step_quartiles": quartiles([cost * 1000 for cost in costs_s]),
        "turns": len(costs_s),
    }


def ratios(costs: Sequence[float], beside: Sequence[float]) -> dict[str, Any]:
    """How many times the other's cost, turn by turn: a slow moment of the machine is in both."""
    if len(costs) != len(beside):
        return {"median": round(statistics.median(costs) / statistics.median(beside), 2), "quartiles": None}
    found = [one / other for one, other in zip(costs, beside, strict=True)]
    return {"median": round(statistics.median(found), 2), "quartiles": quartiles(found)}


def nearest(figures: dict[str, Any], peers: Sequence[str]) -> dict[str, Any] | None:
    """Who of the peers comes nearest to acode, how many times as fast acode is, and its cost beside that peer's."""
    found = [(figures[name]["acode_is_faster"]["median"], name) for name in peers if name in figures]
    if not found:
        return None
    faster, name = min(found)
    return {"peer": name, "acode_is_faster": faster, "cost_of_acode": round(1 / faster, 3)}


def table(figures: dict[str, Any], durability: dict[str, Any]) -> Iterator[str]:
    """One line for each contender, the fastest first, as Markdown."""
    yield (
        "| contender | steps/s (quartiles) | ms per step | processor ms per step | × bare commit | acode is × as fast "
        "| syncs per step | bytes kept per step |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for name, found in sorted(figures.items(), key=lambda item: -item[1]["steps_per_second"]):
        low, high = found["steps_per_second_quartiles"]
        faster = found.get("acode_is_faster")
        syncs = durability.get(name, {}).get("syncs_per_step")
        cells = [
            name,
            f"{found['steps_per_second']:,.0f} ({low:,.0f}–{high:,.0f})",
            f"{found['ms_per_step']:.2f}",
            f"{found['cpu_ms_per_step']:.2f}",
            f"{found['times_the_bare_commit']['median']:.2f}",
            "" if faster is None else f"{faster['median']:.2f}",
            "not counted" if syncs is None else f"{syncs:.2f}",
            f"{found['bytes_per_step']:,.0f}",
        ]
        yield "| " + " | ".join(cells) + " |"
