"""Temporal: a workflow of activities, worked on beside a development server of its own.

Recovery is the server's: an activity whose worker is gone is given to the next one when its time is up. A history may
not grow without end, so the workflow continues as a new one every so many steps, which is how Temporal wants it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from benchmarks.peers.program import Place, Work

STEPS_PER_HISTORY_MAX = 2_000
QUEUE = "bench"
STEP_S_MAX = 2.0
STEP_WHEN_WAITING_S_MAX = 600.0


@workflow.defn(name="Steps")
class Steps:
    @workflow.run
    async def run(self, first: int, count: int, step_s_max: float) -> None:
        last = min(count, first + STEPS_PER_HISTORY_MAX)
        retry = RetryPolicy(initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.0)
        for n in range(first, last):
            await workflow.execute_activity(
                "work", n, result_type=str, start_to_close_timeout=timedelta(seconds=step_s_max), retry_policy=retry
            )
        if last < count:
            workflow.continue_as_new(args=[last, count, step_s_max])


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    assert place.servers is not None
    asyncio.run(work_until_ended(place.servers["frontend"], count, work))
    return {}  # the server's; asked where it was started


async def work_until_ended(port: int, count: int, work: Work) -> None:
    @activity.defn(name="work")
    def one(n: int) -> str:
        return work(n)

    client = await Client.connect(f"127.0.0.1:{port}")
    step_s_max = STEP_WHEN_WAITING_S_MAX if work.waits else STEP_S_MAX
    with ThreadPoolExecutor(4) as pool:
        worker = Worker(
            client,
            task_queue=QUEUE,
            workflows=[Steps],
            activities=[one],
            activity_executor=pool,
            workflow_runner=UnsandboxedWorkflowRunner(),
            # A killed worker's own queue is given up soon, instead of after ten seconds.
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        )
        async with worker:
            try:
                handle = await client.start_workflow(
                    "Steps",
                    args=[0, count, step_s_max],
                    id="bench",
                    task_queue=QUEUE,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                )
            except WorkflowAlreadyStartedError:
                handle = client.get_workflow_handle("bench")
            await handle.result()
