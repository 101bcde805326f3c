"""LangGraph: a graph whose one node is a step and follows itself. Variants: `sqlite`, `postgres`, and with `-all` at
the end a state that keeps the results of all steps, as the others do, and not only the last.

Checkpoints are written before the next step begins (`durability="sync"`); by default they would be written behind it.
Recovery is invoking the graph without input.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks.peers.program import Place, Work


class Last(TypedDict):
    n: int
    result: str


class All(TypedDict):
    n: int
    result: Annotated[list[str], operator.add]


class Counted(TypedDict):
    n: Annotated[int, operator.add]


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    builder = many_at_once(place, count, work) if place.at_once > 1 else one_by_one(place, count, work)
    first = {"n": 0} if place.at_once > 1 else {"n": 0, "result": [] if place.variant.endswith("-all") else ""}
    with saver_of(place) as saver:
        graph = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "bench"}, "recursion_limit": 2 * count + 10}
        config["max_concurrency"] = place.at_once
        begun = graph.get_state(config).created_at is not None
        graph.invoke(None if begun else first, config, durability="sync")
        return in_force(saver)


def many_at_once(place: Place, count: int, work: Work) -> Any:
    """As many nodes in a superstep as steps at once; the writes of each are kept when it ends."""

    def node(state: dict[str, Any]) -> dict[str, Any]:
        work(state["n"])
        return {"n": 1}

    def fan_out(state: dict[str, Any]) -> Any:
        done = state["n"]
        return [Send("work", {"n": n}) for n in range(done, min(done + place.at_once, count))] or END

    builder: Any = StateGraph(Counted)
    builder.add_node("work", node)
    builder.add_node("next", lambda state: {"n": 0})
    builder.add_conditional_edges(START, fan_out)
    builder.add_edge("work", "next")
    builder.add_conditional_edges("next", fan_out)
    return builder


def one_by_one(place: Place, count: int, work: Work) -> Any:
    keeps_all = place.variant.endswith("-all")

    def node(state: dict[str, Any]) -> dict[str, Any]:
        result = work(state["n"])
        return {"n": state["n"] + 1, "result": [result] if keeps_all else result}

    builder: Any = StateGraph(All if keeps_all else Last)
    builder.add_node("work", node)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: END if state["n"] >= count else "work")
    return builder


@contextmanager
def saver_of(place: Place) -> Iterator[Any]:
    if place.dsn:
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(place.dsn) as saver:
            saver.setup()
            yield saver
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(str(place.path / "langgraph.sqlite")) as saver:
            yield saver


def in_force(saver: Any) -> dict[str, str]:
    if "Postgres" in type(saver).__name__:
        names = ("fsync", "synchronous_commit", "wal_sync_method")
        return {name: str(next(iter(saver.conn.execute(f"SHOW {name}").fetchone().values()))) for name in names}
    return {name: str(saver.conn.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("journal_mode", "synchronous")}
