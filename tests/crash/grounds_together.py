"""Many steps in flight at once, an answer on the page, a command that is stopped by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import acode
from acode.engine.preview import preview
from acode.engine.resume import Options
from acode.ui.answers import asked_now, give
from tests.crash import grounds
from tests.crash.place import VICTIM, Place

AT_ONCE = 32
TURNS_MAX = AT_ONCE + 8
EFFECTS = tuple(f"w-{n}" for n in range(AT_ONCE))
# acode is asked to end as soon as its command has begun; the next time nothing asks.
STOPPED = f"""
title: Stopped
tasks:
  - title: work
    steps:
      - run: >-
          echo half > out.txt; test -e ../stopped || {{ touch ../stopped; kill -TERM "${VICTIM}"; sleep 3; }};
          {grounds.NOTE}; wc -l < kept.txt > out.txt
        id: outputs
        outputs: [out.txt]
      - write: {{path: end.txt, content: "end\\n"}}
"""


def note(place: Place, step: str) -> str:
    fd = os.open(place.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"k:{step}:\n".encode())
    with contextlib.suppress(OSError):  # it has happened, also where the disk is sick
        os.fsync(fd)
    os.close(fd)
    return step


def in_threads(place: Place) -> None:
    """32 steps in flight, each in a thread; what is unknown the ledger tells."""

    def program() -> None:
        with _session(place) as session, ThreadPoolExecutor(AT_ONCE) as pool:
            asked = [pool.submit(session.step, step, note, place, step) for step in EFFECTS]
            for one in asked:
                one.result()

    _until_it_ends(place, program)


def in_tasks(place: Place) -> None:
    """32 steps in flight, each in a task of one event loop."""

    async def note_later(place: Place, step: str) -> str:
        await asyncio.sleep(0)
        return note(place, step)

    async def program() -> None:
        async with _session(place) as session:
            asked = (session.step(step, note_later, place, step) for step in EFFECTS)
            for one in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(one, BaseException):
                    raise one

    _until_it_ends(place, lambda: asyncio.run(program()))


def _session(place: Place) -> Any:
    return acode.session("together", workspace=place.workspace, force="it was cut off")


def _until_it_ends(place: Place, program: Callable[[], None]) -> None:
    with grounds.environment(place):
        for _ in range(TURNS_MAX):
            try:
                return program()
            except acode.OutcomeUnknown as unknown:
                step = unknown.details["step"]
                answer = "applied" if place.effects()[step] else "not_applied"
                acode.resolve("together", step, answer, workspace=place.workspace)  # type: ignore[arg-type]
    raise AssertionError(f"not finished after {TURNS_MAX} runs")


def answer_on_the_page(place: Place) -> None:
    """A person says yes on the page, where that is still asked, and the session is resumed."""
    session = place.names["id"]
    with grounds.environment(place):
        world = place.world()
        for asked in asked_now(preview(world, session, Options())):
            if asked.kind == "gate":
                give(world, session, asked, {"act": "approve", "note": "seen"})
    ended = place.acode("resume", session, "--force", "--reason", "it was cut off", "--json", "--no-input")
    if ended.exit_code not in (0, 15):
        if '"error"' not in ended.stdout:
            raise AssertionError(ended)
        raise acode.AcodeError(ended.stdout.splitlines()[-1])  # refused by name


def to_be_stopped(place: Place) -> None:
    grounds.plain(place)
    place.more_env[VICTIM] = ""
    (place.root / "stopped.yml").write_text(STOPPED)
