"""One side of a queue: `python queues.py KIND submit|work PLACE URL`. A session writes one line into PLACE/ledger.

acode           a plan with one command, submitted to the fleet; its worker is `acode worker`, started elsewhere
engine_and_run  Procrastinate with its own worker, whose task is `acode run` of the same plan in a new workspace
procrastinate   Procrastinate alone: its task writes the line itself
dbos            a queue of DBOS: a workflow with one step, which writes the line

A submitter has everything loaded, and submits as many sessions as a line of its input says. It answers with the time
before the first of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

AT_ONCE = 2
Submit = Callable[[], Any]


def write_line(place: str) -> None:
    with open(Path(place, "ledger"), "a", encoding="ascii") as ledger:
        ledger.write(f"{time.time():.6f}\n")


def run_plan(place: str) -> None:
    with tempfile.TemporaryDirectory(dir=place) as workspace:
        command = [sys.executable, "-m", "acode", "run", str(Path(place, "plan.yml")), "--json", "--no-input"]
        subprocess.run(command, cwd=workspace, check=True, stdout=subprocess.DEVNULL)


def acode_submitter(place: str, _url: str) -> Submit:
    import contextlib
    import io

    from acode.cli import main

    os.chdir(Path(place, "workspace"))

    def submit() -> None:
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
            status = main(["submit", str(Path(place, "plan.yml")), "--json"])
        if status:
            raise RuntimeError(f"submit ended with {status}")

    return submit


def procrastinate_app(url: str, *, waits: bool) -> Any:
    import procrastinate

    connector = procrastinate.PsycopgConnector if waits else procrastinate.SyncPsycopgConnector
    app = procrastinate.App(connector=connector(conninfo=url))
    app.task(name="engine_and_run")(run_plan)
    app.task(name="procrastinate")(write_line)
    return app


def procrastinate_submitter(kind: str, place: str, url: str) -> Submit:
    app = procrastinate_app(url, waits=False)
    app.open()
    app.schema_manager.apply_schema()
    task = app.tasks[kind]
    return lambda: task.defer(place=place)


def procrastinate_worker(url: str) -> None:
    procrastinate_app(url, waits=True).run_worker(concurrency=AT_ONCE, delete_jobs="successful")


def dbos_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def dbos_submitter(place: str, url: str) -> Submit:
    from dbos import DBOSClient

    client = DBOSClient(system_database_url=dbos_url(url))
    return lambda: client.enqueue({"queue_name": "bench", "workflow_name": "session", "app_version": "1"}, place)


def dbos_worker(url: str) -> None:
    import threading

    from dbos import DBOS

    config: Any = {"name": "bench", "system_database_url": dbos_url(url), "run_admin_server": False}
    DBOS(config={**config, "log_level": "ERROR", "application_version": "1"})

    @DBOS.step(name="work")
    def step(place: str) -> None:
        write_line(place)

    @DBOS.workflow(name="session")
    def session(place: str) -> None:
        step(place)

    DBOS.launch()
    DBOS.register_queue("bench", worker_concurrency=AT_ONCE)
    print("ready", flush=True)
    threading.Event().wait()


def submitter(kind: str, place: str, url: str) -> Submit:
    if kind == "acode":
        return acode_submitter(place, url)
    return dbos_submitter(place, url) if kind == "dbos" else procrastinate_submitter(kind, place, url)


def main(kind: str, role: str, place: str, url: str) -> None:
    if role == "work":
        return dbos_worker(url) if kind == "dbos" else procrastinate_worker(url)
    submit = submitter(kind, place, url)
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.time()
        for _ in range(int(line)):
            submit()
        print(f"{began:.6f}", flush=True)
    return None


if __name__ == "__main__":
    sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]
    main(*sys.argv[1:5])
