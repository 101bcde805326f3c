"""DBOS on PostgreSQL, with an id for each executor, a version for the code and the workflow's id as its key.

A process that is started again recovers the pending workflows of its executor; that of another one is recovered when
it is asked to, as DBOS's recovery endpoint does. A workflow that has failed is continued by a fork from the failure.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, DBOSClient, SetWorkflowID
from dbos._error import DBOSAwaitedWorkflowCancelledError
from sqlalchemy.exc import DBAPIError

from benchmarks.peers.faults.program import Program, Work
from benchmarks.peers.program import Place

WORKFLOW = "job"
ANSWER_S_MAX = 600
AWAY_S = 0.5
STEP_S_MAX = 30


def url_of(place: Place) -> str:
    return place.dsn.replace("postgresql://", "postgresql+psycopg://")


def run(place: Place, program: Program, work: Work) -> str:
    DBOS(
        config={
            "name": "scenario",
            "system_database_url": url_of(place),
            "run_admin_server": False,
            "log_level": "ERROR",
            "application_version": program.version,
            "executor_id": program.executor,
        }
    )
    several = any(isinstance(item, list) for item in program.items)
    steps = steps_at_once(program, work) if several else one_by_one(program, work)
    DBOS.launch()
    if program.take_over:
        DBOS._recover_pending_workflows([program.take_over])
    found = DBOS.get_workflow_status(WORKFLOW)
    if found is None:
        with SetWorkflowID(WORKFLOW):
            DBOS.start_workflow(steps)
    elif found.status == "PENDING" and found.app_version != program.version:
        return f"{found.status} for a process of version {found.app_version}"
    elif found.status == "ERROR" and program.again:
        forked: Any = DBOS.fork_workflow(WORKFLOW, first_failed())
        forked.get_result()
        return "completed"
    elif found.status == "CANCELLED" and program.again:
        DBOS.resume_workflow(WORKFLOW)
    return wait_for_the_result()


def wait_for_the_result() -> str:
    """Waiting fails when the database is away; the workflow itself continues and must not be ended by that."""
    while True:
        try:
            DBOS.retrieve_workflow(WORKFLOW).get_result()
            return "completed"
        except DBOSAwaitedWorkflowCancelledError:
            DBOS.destroy(workflow_completion_timeout_sec=STEP_S_MAX)  # the step under way may end, as in a service
            raise
        except DBAPIError:
            time.sleep(AWAY_S)
            if status() in ("ERROR", "CANCELLED"):
                raise


def status() -> str:
    try:
        found = DBOS.get_workflow_status(WORKFLOW)
    except DBAPIError:
        return "unknown"
    return "" if found is None else found.status


def first_failed() -> int:
    """The first step with an error, or the one behind those that are recorded: its result could not be."""
    steps = DBOS.list_workflow_steps(WORKFLOW)
    failed = [step["function_id"] for step in steps if step["error"] is not None]
    return min(failed, default=len(steps) + 1)


def one_by_one(program: Program, work: Work) -> Any:
    @DBOS.step(name="work")
    def step(n: int) -> Any:
        return work(n)

    @DBOS.workflow(name="steps", max_recovery_attempts=program.attempts_max)
    def steps() -> None:
        for item in program.items:
            if item == "ask":
                DBOS.recv("answer", timeout_seconds=ANSWER_S_MAX)
            elif isinstance(item, int):
                step(item)

    return steps


def steps_at_once(program: Program, work: Work) -> Any:
    pool = ThreadPoolExecutor(8)

    @DBOS.step(name="work")
    async def step(n: int) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, work, n)

    @DBOS.workflow(name="steps", max_recovery_attempts=program.attempts_max)
    async def steps() -> None:
        for item in program.items:
            if isinstance(item, list):
                # All of them are awaited, so that one that fails does not end the others.
                for ended in await asyncio.gather(*(step(n) for n in item), return_exceptions=True):
                    if isinstance(ended, BaseException):
                        raise ended
            elif isinstance(item, int):
                await step(item)

    return steps


def answer(place: Place, program: Program, work: Work) -> str:
    DBOSClient(system_database_url=url_of(place)).send(WORKFLOW, "yes", "answer")
    return "completed"


def stop(place: Place, program: Program, work: Work) -> str:
    DBOSClient(system_database_url=url_of(place)).cancel_workflow(WORKFLOW)
    return "completed"
