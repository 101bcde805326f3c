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

from benchmarks.peers.program import Place, Work


class Last(TypedDict):
    n: int
    result: str


class All(TypedDict):
    n: int
    result: Annotated[list[str], operator.add]


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    keeps_all = place.variant.endswith("-all")

    def node(state: dict[str, Any]) -> dict[str, Any]:
        result = work(state["n"])
        return {"n": state["n"] + 1, "result": [result] if keeps_all else result}

    builder: Any = StateGraph(All if keeps_all else Last)
    builder.add_node("work", node)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: END if state["n"] >= count else "work")
    with saver_of(place) as saver:
        graph = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "bench"}, "recursion_limit": count + 10}
        begun = graph.get_state(config).created_at is not None
        first = None if begun else {"n": 0, "result": [] if keeps_all else ""}
        graph.invoke(first, config, durability="sync")
        return in_force(saver)


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
