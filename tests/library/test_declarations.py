"""What a step's function may be and return: one that had an effect is not called again because of its result."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import acode
from acode.errors import NotStorable, Usage
from acode.library.declarations import PLAIN
from tests.library.programs import Place


def test_a_function_that_makes_a_generator_is_refused_before_anything_is_recorded(place: Place) -> None:
    ran: list[int] = []

    def rows(n: int) -> Iterator[int]:
        ran.append(n)
        yield n

    async def pages() -> AsyncIterator[int]:
        ran.append(0)
        yield 1

    class Rows:
        def __call__(self) -> Iterator[int]:
            yield from rows(1)

    with acode.session("k") as s:
        for function in (lambda: (yield 1), functools.partial(rows, 1), pages, Rows()):
            with pytest.raises(Usage, match="step rows makes a generator"):
                s.step("rows", function)
        assert s.step("rows", lambda: list(rows(1))) == [1]
    assert ran == [1]
    assert {event["step"] for event in place.json("session", "history", s.id) if "step" in event} <= {"rows", None}


async def wait() -> int:
    return 7


def unfinished_results() -> dict[str, Callable[[], Any]]:
    return {
        "generator": lambda: (n for n in range(3)),
        "begun generator": lambda: begun(n for n in range(3)),
        "coroutine": wait,
        "async generator": lambda: (n async for n in aiter_of()),
        "map": lambda: map(str, range(3)),
        "lock": threading.Lock,
        "huge integer": lambda: 10**5000,
        "raises when asked": Rude,
    }


def begun(generator: Iterator[int]) -> Iterator[int]:
    next(generator)
    return generator


async def aiter_of() -> AsyncIterator[int]:
    yield 1


@dataclasses.dataclass
class Rude:
    x: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "x":
            raise RuntimeError("not now")
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("mode", ["sync", "async", "thread"])
@pytest.mark.parametrize("what", unfinished_results())
def test_a_function_that_had_an_effect_is_not_called_again_because_of_what_it_returned(
    place: Place, what: str, mode: str
) -> None:
    made, calls = unfinished_results()[what], list[str]()

    def act() -> Any:
        calls.append("effect")
        return made()

    async def act_async() -> Any:
        return act()

    def program() -> Any:
        with acode.session("k") as s:
            match mode:
                case "sync":
                    return s.step("act", act)
                case "async":
                    return asyncio.run(s.do("act", act_async, (), {}, PLAIN))
                case _:
                    with ThreadPoolExecutor(1) as pool:
                        return pool.submit(s.step, "act", act).result()

    for _ in range(2):
        with pytest.raises((NotStorable, acode.OutcomeUnknown)) as asked:
            program()
        assert "resolve" in str(asked.value.hint)
    acode.resolve("k", "act", "applied", result=7)
    assert program() == 7
    assert calls == ["effect"]


def test_work_that_was_not_begun_is_done_once_a_person_says_that_nothing_happened(place: Place) -> None:
    ran: list[int] = []

    async def charge(n: int) -> int:
        ran.append(n)
        return n

    async def program(*, mended: bool) -> Any:
        async with acode.session("k") as s:
            return await s.step("charge", charge, 3) if mended else s.step("charge", lambda: charge(3))

    with pytest.raises(NotStorable, match="step charge has run, but its result is lost"):
        asyncio.run(program(mended=False))
    acode.resolve("k", "charge", "not_applied")
    assert asyncio.run(program(mended=True)) == 3
    assert ran == [3]
