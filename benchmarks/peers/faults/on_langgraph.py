"""LangGraph with its PostgresSaver: a node for each step, checkpoints before the next one begins (`durability="sync"`).

A process that is started again invokes the graph without input. The answer to an interrupt is given by the process that
continues the graph.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from benchmarks.peers.faults.program import Program, Work
from benchmarks.peers.program import Place


class State(TypedDict):
    results: Annotated[list[Any], operator.add]


def run(place: Place, program: Program, work: Work, given: Any = None) -> str:
    connection = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    # A pool that looks whether a connection is alive before it hands it out waits for a server that is away.
    with ConnectionPool(place.dsn, kwargs=connection, check=ConnectionPool.check_connection) as pool:
        saver = PostgresSaver(pool)
        saver.setup()
        graph = graph_of(program, work).compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "job"}}
        begun = graph.get_state(config).created_at is not None
        graph.invoke(given if begun else {"results": []}, config, durability="sync")
        after = graph.get_state(config)
        if any(task.interrupts for task in after.tasks):
            return "an answer"
        return "completed" if not after.next else f"next: {after.next}"


def answer(place: Place, program: Program, work: Work) -> str:
    return run(place, program, work, Command(resume="yes"))


def stop(place: Place, program: Program, work: Work) -> str:
    return "a way to stop it from another process"  # its server product has one


def graph_of(program: Program, work: Work) -> Any:
    def node(n: int) -> Any:
        return lambda state: {"results": [work(n)]}

    builder: Any = StateGraph(State)
    before: list[str] = [START]
    for item in program.items:
        names = [f"step-{n}" for n in item] if isinstance(item, list) else ["ask" if item == "ask" else f"step-{item}"]
        for name in names:
            if name == "ask":
                builder.add_node(name, lambda state: {"results": [interrupt("Continue?")]})
            else:
                builder.add_node(name, node(int(name.removeprefix("step-"))))
            builder.add_edge(before if len(before) > 1 else before[0], name)
        before = names
    builder.add_edge(before if len(before) > 1 else before[0], END)
    return builder
