"""Restate: a workflow of `ctx.run` steps, served to a Restate server of its own.

Recovery is the server's: it calls the service again when it has lost it. The service listens where it did before.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from benchmarks.peers.program import Place, Work

WAIT_S_MAX = 3_600


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    assert place.servers is not None
    return asyncio.run(serve_until_ended(place.servers, count, work))


async def serve_until_ended(ports: dict[str, int], count: int, work: Work) -> dict[str, str]:
    flow = restate.Workflow("Bench")

    @flow.main()
    async def run(ctx: restate.WorkflowContext, total: int) -> int:
        for n in range(total):
            await ctx.run_typed("work", lambda n=n: work(n))
        return total

    config = Config()
    config.bind = [f"127.0.0.1:{ports['service']}"]
    config.loglevel = "ERROR"
    gone = asyncio.Event()
    served = asyncio.create_task(serve(restate.app([flow]), config, shutdown_trigger=gone.wait))
    await asyncio.to_thread(invoke, ports, count)
    gone.set()
    served.cancel()
    return {}  # the server's; asked where it was started


def invoke(ports: dict[str, int], count: int) -> None:
    """Make the service known, start the workflow unless it was started before, and wait for its end."""
    admin, ingress = f"http://127.0.0.1:{ports['admin']}", f"http://127.0.0.1:{ports['ingress']}"
    deployment = {"uri": f"http://127.0.0.1:{ports['service']}", "force": False}
    ask(f"{admin}/deployments", deployment, accept=(200, 201, 409))
    ask(f"{ingress}/Bench/bench/run/send", count, accept=(200, 202, 409))
    ask(f"{ingress}/restate/workflow/Bench/bench/attach", None, accept=(200,))


def ask(url: str, body: Any, accept: tuple[int, ...]) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"} if data else {})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        if error.code in accept:
            return error.read()
        raise RuntimeError(f"{url}: {error.code} {error.read()[:500]!r}") from error
