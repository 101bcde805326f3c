"""Ctrl+C reaches a program at any moment: it pauses the session, stops nobody else, and is no failure of the disk."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

import acode
from acode.engine.async_commits import _end_waits
from acode.engine.held_session import Recorded
from acode.engine.workspace_store import opened
from acode.errors import WriteFailed
from acode.events import types as ev
from acode.store.journal import Journal
from tests.interrupts import Moments
from tests.library.programs import Place
from tests.worlds import world

KEY = "job"
MOMENTS_MAX = 200
WRITES = (Journal._sync_through, Journal._append_plain, Journal.append, Journal._insert_together, Journal.settle)


def work() -> str:
    return "done"


def last_event(place: Place) -> Any:
    with opened(world(place.path), look_only=True) as store:
        *_, (envelope, _, _) = store.events(store.session_ids()[-1])
        return envelope.event


def pressed_in(function: Callable[..., Any], s: acode.Session, wanted: int) -> bool:
    """A step, with Ctrl+C at that moment of the function; whether it has so many."""
    found = 0

    def press(_: int, code: CodeType) -> None:
        nonlocal found
        found += code is function.__code__
        if code is function.__code__ and found == wanted:
            signal.raise_signal(signal.SIGINT)

    Moments(lambda: s.step("a", work), press)
    return False


def interrupted(function: Callable[..., Any], wanted: int) -> bool:
    """A session whose program is interrupted there, and leaves its block; whether it was."""
    try:
        with acode.session(f"{KEY}-{function.__name__}-{wanted}", on_completed="new") as s:
            try:
                return pressed_in(function, s, wanted)
            finally:
                assert not s._run.journal._syncing, "this thread, and all others, would wait forever for its sync"
    except KeyboardInterrupt:
        return True


@pytest.mark.parametrize("function", WRITES, ids=lambda one: one.__name__)
def test_ctrl_c_at_any_moment_of_a_write_pauses_the_session(place: Place, function: Callable[..., Any]) -> None:
    moment = 1
    while interrupted(function, moment):
        last = last_event(place)
        assert isinstance(last, ev.SessionPaused) and (last.reason, last.interruption) == ("user", None), moment
        moment += 1
        assert moment < MOMENTS_MAX
    assert moment > 1


@pytest.mark.parametrize("tasks", [1, 3])
def test_ctrl_c_in_an_event_loop_pauses_the_session(place: Place, tasks: int) -> None:
    """asyncio.run cancels its tasks, and raises KeyboardInterrupt when they have ended: behind the session's block."""

    async def wait(number: int) -> None:
        if number == tasks - 1:
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)

    async def main() -> None:
        async with acode.session(KEY) as s:
            await asyncio.gather(*(s.step(f"wait-{number}", wait, number) for number in range(tasks)))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    last = last_event(place)
    assert isinstance(last, ev.SessionPaused) and (last.reason, last.interruption) == ("user", None)


def test_a_task_that_its_program_cancels_is_no_interrupt(place: Place) -> None:
    async def main() -> None:
        async with asyncio.timeout(0.01), acode.session(KEY) as s:
            await s.step("wait", asyncio.sleep, 60)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    last = last_event(place)
    assert isinstance(last, ev.SessionPaused) and last.reason == "error"


def test_a_program_that_catches_ctrl_c_in_a_write_is_told_what_stopped_it(place: Place) -> None:
    with pytest.raises(WriteFailed, match="cut off"), acode.session(KEY) as s:
        with pytest.raises(KeyboardInterrupt):
            pressed_in(Journal._append_plain, s, 1)
        s.step("b", work)


class CancelledMeanwhile(asyncio.Future[None]):
    def set_result(self, result: None) -> None:
        self.cancel()
        super().set_result(result)


def test_a_task_that_a_signal_cancels_keeps_no_other_waiting() -> None:
    async def program() -> bool:
        loop = asyncio.get_running_loop()
        first, second = CancelledMeanwhile(loop=loop), loop.create_future()
        _end_waits([(Recorded(1), first), (Recorded(1), second)], None)
        return second.done()

    assert asyncio.run(program())
