"""Many steps at once on one engine: `python -m benchmarks.peers.crowd JSON`; one line of JSON with what it took.

Every engine runs the same work: a step that returns 1 KiB at once, or after 5 ms, as if it waited for a server. So many
of them are under way at a time; each has its result on disk before its worker asks for the next one. Only the steps
are timed, neither the start of the engine nor its first steps, in which files grow and code is loaded.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

PAYLOAD = "x" * 1024
FIRST_STEPS = 1_100  # of everyone, untimed; after as many commits SQLite begins at the front of its WAL file again
TOGETHER_S_MAX = 300.0


class Crowd:
    """What is asked for: how many steps, how many at a time, and how long each one waits."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.path = Path(asked["path"])
        self.dsn: str = asked["dsn"]
        self.steps: int = asked["steps"]
        self.at_once: int = asked["at_once"]
        self.wait_s: float = asked["wait_ms"] / 1000
        self.payload: str = PAYLOAD if asked["kib"] else "ok"
        self.seconds = self.cpu_s = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        cpu, began = cpu_s(), time.perf_counter()
        yield
        self.seconds, self.cpu_s = time.perf_counter() - began, cpu_s() - cpu

    async def work(self, n: int) -> str:
        if self.wait_s:
            await asyncio.sleep(self.wait_s)
        return self.payload

    def work_in_thread(self, n: int) -> str:
        if self.wait_s:
            time.sleep(self.wait_s)
        return self.payload

    async def by_tasks(self, step: Callable[[int], Awaitable[object]]) -> None:
        """The first steps, then those that count."""
        for numbers in (range(FIRST_STEPS), self.later()):
            with self.timed():
                await self._share_by_tasks(step, iter(numbers))

    async def _share_by_tasks(self, step: Callable[[int], Awaitable[object]], numbers: Iterator[int]) -> None:
        async def worker() -> None:
            for n in numbers:
                await step(n)

        await asyncio.gather(*(worker() for _ in range(self.at_once)))

    def later(self) -> range:
        return range(FIRST_STEPS, FIRST_STEPS + self.steps)

    def by_threads(self, worker: Callable[[Iterator[int]], None]) -> None:
        """Each thread takes the next number until there is none. What it does before and after that is not timed."""
        lock, timed, first, later = threading.Lock(), self.timed(), iter(range(FIRST_STEPS)), iter(self.later())
        begin = threading.Barrier(self.at_once, timed.__enter__, TOGETHER_S_MAX)
        end = threading.Barrier(self.at_once, lambda: timed.__exit__(None, None, None), TOGETHER_S_MAX)

        def taken() -> Iterator[int]:
            for numbers, together in ((first, begin), (later, end)):
                while (n := locked_next(numbers)) is not None:
                    yield n
                together.wait()

        def locked_next(numbers: Iterator[int]) -> int | None:
            with lock:
                return next(numbers, None)

        threads = [threading.Thread(target=worker, args=(taken(),)) for _ in range(self.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def bare(crowd: Crowd) -> None:
    """Commits one after the other, as many as the steps of the others."""
    import apsw

    db = apsw.Connection(os.fspath(crowd.path / "bare.db"))
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE log(seq INTEGER PRIMARY KEY, body TEXT)")

    def commit(count: int) -> None:
        for _ in range(count):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO log(body) VALUES (?)", (crowd.payload,))
            db.execute("COMMIT")

    commit(FIRST_STEPS)
    with crowd.timed():
        commit(crowd.steps)


@contextmanager
def session_of(crowd: Crowd) -> Iterator[Any]:
    import acode

    os.environ["ACODE_HOME"] = os.fspath(crowd.path / "state")
    (crowd.path / "workspace").mkdir()
    with acode.session("bench", workspace=crowd.path / "workspace") as s:
        yield s


def acode_tasks(crowd: Crowd) -> None:
    with session_of(crowd) as s:
        asyncio.run(crowd.by_tasks(lambda n: s.step(f"work-{n}", crowd.work, n)))


def acode_threads(crowd: Crowd) -> None:
    with session_of(crowd) as s:

        def worker(numbers: Iterator[int]) -> None:
            for n in numbers:
                s.step(f"work-{n}", crowd.work_in_thread, n)

        crowd.by_threads(worker)


def acode_in_order(crowd: Crowd) -> None:
    with session_of(crowd) as s:
        for n in range(FIRST_STEPS):
            s.step("work", crowd.work_in_thread, n)
        with crowd.timed():
            for n in crowd.later():
                s.step("work", crowd.work_in_thread, n)


def latest(old: str, new: str) -> str:
    return new


class State(TypedDict):
    """Of the graph: how many steps are done, and the last result."""

    n: Annotated[int, operator.add]
    result: Annotated[str, latest]


def langgraph_tasks(crowd: Crowd) -> None:
    """As many nodes in a superstep as steps at once; the writes of each are kept when it ends (`durability="sync"`)."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"n": 1, "result": await crowd.work(0)}

    def fan_out(state: dict[str, Any]) -> Any:
        left = -state["n"]
        return [Send("work", {}) for _ in range(min(left, crowd.at_once))] if left > 0 else END

    async def main() -> None:
        builder: Any = StateGraph(State)
        builder.add_node("work", node)
        builder.add_node("next", lambda state: {"n": 0})
        builder.add_conditional_edges(START, fan_out)
        builder.add_edge("work", "next")
        builder.add_conditional_edges("next", fan_out)
        async with AsyncSqliteSaver.from_conn_string(str(crowd.path / "graph.sqlite")) as saver:
            await saver.setup()
            await saver.conn.execute("PRAGMA synchronous=FULL")
            graph = builder.compile(checkpointer=saver)

            async def perform(thread: str, steps: int) -> None:
                config = {"configurable": {"thread_id": thread}, "recursion_limit": 4 * steps + 10}
                await graph.ainvoke({"n": -steps, "result": ""}, config, durability="sync")

            await perform("first", FIRST_STEPS)
            with crowd.timed():
                await perform("bench", crowd.steps)

    asyncio.run(main())


def dbos_tasks(crowd: Crowd) -> None:
    import sqlite3

    from dbos import DBOS

    file = crowd.path / "dbos.sqlite"
    if not crowd.dsn:
        sqlite3.connect(file).execute("PRAGMA journal_mode=WAL")
    url = crowd.dsn.replace("postgresql://", "postgresql+psycopg://") if crowd.dsn else f"sqlite:///{file}"
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})

    @DBOS.step(name="work")
    async def step(n: int) -> str:
        return await crowd.work(n)

    @DBOS.workflow(name="steps")
    async def steps() -> None:
        await crowd.by_tasks(step)

    DBOS.launch()

    async def main() -> None:
        handle = await DBOS.start_workflow_async(steps)
        await handle.get_result()

    asyncio.run(main())


def absurd_threads(crowd: Crowd) -> None:
    """Each thread has a connection and a task of its own: Absurd has no steps at once inside a task."""
    import psycopg
    from absurd_sdk import Absurd
    from absurdctl import BUNDLED_SCHEMA_SQL

    with psycopg.connect(crowd.dsn, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
        Absurd(connection, queue_name="bench").create_queue("bench")

    def worker(numbers: Iterator[int]) -> None:
        with psycopg.connect(crowd.dsn, autocommit=True) as own:
            app = Absurd(own, queue_name="bench")

            @app.register_task(name="steps")
            def steps(params: Any, ctx: Any) -> None:
                for n in numbers:
                    ctx.step(f"work-{n}", lambda n=n: crowd.work_in_thread(n))

            app.spawn("steps", {})
            app.work_batch(worker_id=str(threading.get_ident()), claim_timeout=600)

    crowd.by_threads(worker)


ENGINES: dict[str, Callable[[Crowd], None]] = {
    one.__name__: one
    for one in (bare, acode_tasks, acode_threads, acode_in_order, langgraph_tasks, dbos_tasks, absurd_threads)
}


def main(argv: list[str]) -> None:
    asked = json.loads(argv[0])
    crowd = Crowd(asked)
    out = os.dup(1)
    os.dup2(2, 1)
    ENGINES[asked["engine"]](crowd)
    told = {"seconds": crowd.seconds, "cpu_s": crowd.cpu_s}
    os.write(out, (json.dumps(told) + "\n").encode())
    os._exit(0)  # threads of an engine that will not end must not keep a finished measurement waiting


if __name__ == "__main__":
    main(sys.argv[1:])
