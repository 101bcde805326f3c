"""A failure that the program caught is the step's outcome: a later run is given it again, and nothing is repeated."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import acode
from tests.library.counted import Counted, Stop
from tests.library.programs import Place

Caught = list[tuple[str, str]]  # the name of each step that failed, and its exception as a text
Way = Callable[[str, Counted], Caught]


def caught(found: Caught, name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        details = getattr(error, "details", {})
        found.append((name, f"{type(error).__name__}: {error} {details.get('exit_status', '')}".rstrip()))


def in_steps(key: str, work: Counted) -> Caught:
    found: Caught = []
    with acode.session(key) as s:
        caught(found, "a", lambda: s.step("a", work, 1))
        s.step("between", str)
        caught(found, "b", lambda: s.step("b", work, 2))
    return found


def in_tasks(key: str, work: Counted) -> Caught:
    async def ask(n: int) -> Any:
        return work(n)

    async def program() -> list[BaseException | Any]:
        async with acode.session(key) as s:
            return await asyncio.gather(*(s.step(f"t-{n}", ask, n) for n in range(3)), return_exceptions=True)

    return [(f"t-{n}", f"{type(error).__name__}: {error}") for n, error in enumerate(asyncio.run(program()))]


def in_threads(key: str, work: Counted) -> Caught:
    found: Caught = []
    with acode.session(key) as s, ThreadPoolExecutor(3) as pool:
        for n in range(3):
            pool.submit(caught, found, f"t-{n}", lambda n=n: s.step(f"t-{n}", work, n))
    return sorted(found)


def in_branches(key: str, work: Counted) -> Caught:
    found: Caught = []
    with acode.session(key) as s:
        for n in range(2):
            with s.branch(f"page-{n}"):
                caught(found, f"page-{n}", lambda n=n: s.step("fetch", work, n))
    return found


def decorated(key: str, work: Counted) -> Caught:
    found: Caught = []
    fetch = acode.step(name="fetch")(work)
    with acode.session(key):
        caught(found, "fetch", lambda: fetch(1))
        caught(found, "fetch#2", lambda: fetch(2))
    return found


def in_a_command(key: str, work: Counted) -> Caught:
    found: Caught = []
    with acode.session(key) as s:
        caught(found, "run", lambda: s.run("echo ran >> ran.txt; echo said; exit 3", name="run"))
    with open("ran.txt") as file:
        work.calls.extend((line,) for line in file.read().split()[len(work.calls) :])
    return found


def elsewhere(key: str, work: Counted) -> Caught:
    found: Caught = []
    with acode.session(key) as s:

        def hook() -> None:
            begun = s.begin("tool", 1)
            try:
                work(1)
            except KeyError as error:
                s.fail(begun, error)
                raise

        caught(found, "tool", hook)
    return found


WAYS = [in_steps, in_tasks, in_threads, in_branches, decorated, in_a_command, elsewhere]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_completed_program_that_caught_failures_runs_again_and_is_given_them(place: Place, way: Way) -> None:
    work = Counted(KeyError("gone"))
    first = way("k", work)
    calls = list(work.calls)
    assert first and calls
    for _ in range(2):
        assert way("k", work) == first
    assert work.calls == calls


def test_a_completed_program_is_given_its_failures_and_does_nothing_new(place: Place) -> None:
    work = Counted(ValueError("no"))
    with acode.session("k") as s:
        with contextlib.suppress(ValueError):
            s.step("a", work)
        s.step("after", Counted(7))
    with acode.session("k") as s:
        with pytest.raises(ValueError, match="no"):
            s.step("a", work)
        assert s.step("after", Counted(8)) == 7
        with pytest.raises(acode.errors.TerminalState):
            s.step("new", work)
    assert len(work.calls) == 1


@pytest.mark.parametrize("ended", [True, False])
def test_a_caught_failure_is_given_to_no_other_arguments(place: Place, ended: bool) -> None:
    work = Counted(ValueError("no"))

    def program(n: int, **wishes: Any) -> None:
        with acode.session("k", **wishes) as s:
            with contextlib.suppress(ValueError):
                s.step("a", work, n)
            s.step("after", Counted())
            if not ended:
                raise Stop

    with contextlib.nullcontext() if ended else pytest.raises(Stop):
        program(1)
    with pytest.raises(acode.NonDeterminism) as refused:
        program(2)
    assert (refused.value.details["recorded"], refused.value.details["asked"]) == ("(1)", "(2)")
    with contextlib.nullcontext() if ended else pytest.raises(Stop):
        program(2, on_change="keep")
    assert work.calls == [(1,)]
    if not ended:
        with pytest.raises(Stop):
            program(2, on_change="rerun")
        assert work.calls == [(1,), (2,)]


def test_a_failure_that_one_thread_has_not_caught_is_not_handled_by_the_work_of_another(place: Place) -> None:
    failing, other = Counted(ConnectionError("down"), "up"), Counted()
    failed = threading.Event()

    def first(s: acode.Session) -> None:
        try:
            s.step("first", failing)
        finally:
            failed.set()

    def second(s: acode.Session) -> None:
        failed.wait(10)
        s.step("second", other)

    def program() -> None:
        with acode.session("k") as s, ThreadPoolExecutor(2) as pool:
            for work in [pool.submit(first, s), pool.submit(second, s)]:
                work.result()

    with pytest.raises(ConnectionError):
        program()
    program()
    assert (len(failing.calls), len(other.calls)) == (2, 1)


def test_every_failure_that_was_caught_before_a_crash_is_given_again(place: Place) -> None:
    work = Counted(KeyError("gone"))

    async def ask(n: int) -> Any:
        return work(n)

    async def program() -> list[Any]:
        async with acode.session("k") as s:
            found = await asyncio.gather(*(s.step(f"t-{n}", ask, n) for n in range(3)), return_exceptions=True)
            with contextlib.suppress(KeyError), s.branch("b"):
                s.step("inside", work, 3)
            s.step("after", str)
            raise Stop(repr(found))

    for _ in range(3):
        with pytest.raises(Stop, match=r"KeyError.*KeyError.*KeyError"):
            asyncio.run(program())
    assert len(work.calls) == 4
