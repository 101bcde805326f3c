"""Plain calls are performed in one piece and recorded as every other step is: the same bytes, the same state."""

from __future__ import annotations

import asyncio
import gc
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import MethodType
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import acode
from acode.errors import NotStorable
from acode.events import encode
from acode.library import session as sessions
from acode.library import step_requests
from tests.library.programs import Place
from tests.stores import folded, log_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=6,
)
SECRETS = ("AKIAIOSFODNN7EXAMPLE", "password = hunter2-hunter2", "\ud800 half a character")
ARGUMENTS = JSON | st.tuples(st.integers(), st.text(max_size=5)) | st.binary(max_size=9) | st.sampled_from(SECRETS)
RESULTS = ARGUMENTS | st.just("x" * 70_000) | st.sets(st.integers(), max_size=2) | st.just(object())


class Left(Exception):
    """The program ends here."""


def as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    return MethodType(lambda self, *args, **kwargs: function(*args, **kwargs), object())


def as_object(function: Callable[..., Any]) -> Callable[..., Any]:
    class Callable:
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    return Callable()


FORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "function": lambda function: function,
    "method": as_method,
    "object": as_object,
    "partial": lambda function: partial(function, 1, of="it"),
}


class Call(msgspec.Struct):
    """One step of a random program; `inner`: steps that its function asks for itself."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    fails: bool = False
    idempotent: bool = False
    inner: tuple[Call, ...] = ()
    form: str = "function"


def calls(depth: int) -> st.SearchStrategy[Call]:
    return st.builds(
        Call,
        name=st.sampled_from(["read", "pay", "send-1"]),
        args=st.lists(ARGUMENTS, max_size=3).map(tuple),
        kwargs=st.dictionaries(st.sampled_from(["of", "to"]), ARGUMENTS, max_size=1),
        result=RESULTS,
        fails=st.booleans() if depth else st.just(False),
        idempotent=st.booleans(),
        inner=st.lists(calls(depth - 1), max_size=2).map(tuple) if depth else st.just(()),
        form=st.sampled_from([*FORMS]),
    )


def perform(session: acode.Session, call: Call) -> str:
    """How the step ended, as its program sees it."""

    def function(*args: Any, **kwargs: Any) -> Any:
        for one in call.inner:
            perform(session, one)
        if call.fails:
            raise ValueError(f"no {call.name}: {SECRETS[0]}")
        return call.result

    how = sessions.REPEATABLE if call.idempotent else sessions.PLAIN
    try:
        value = session.do(call.name, FORMS[call.form](function), call.args, call.kwargs, how)
    except (ValueError, NotStorable) as error:
        return f"{type(error).__name__} {error}"
    assert value is call.result
    return repr(value)


async def perform_in_loop(session: acode.Session, call: Call) -> str:
    """The same with a coroutine function, in a task of an event loop."""

    async def function(*args: Any, **kwargs: Any) -> Any:
        for one in call.inner:
            await perform_in_loop(session, one)
        await asyncio.sleep(0)
        if call.fails:
            raise ValueError(f"no {call.name}: {SECRETS[0]}")
        return call.result

    how = sessions.REPEATABLE if call.idempotent else sessions.PLAIN
    try:
        value = await session.do(call.name, function, call.args, call.kwargs, how)
    except (ValueError, NotStorable) as error:
        return f"{type(error).__name__} {error}"
    assert value is call.result
    return repr(value)


@contextmanager
def at_length() -> Iterator[None]:
    """No step is plain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_requests, "plain_steps_of", lambda run: None)
        yield


Remains = tuple[list[str], list[bytes], list[tuple[str, str, str]]]


def run(program: list[Call]) -> Remains:
    found = None
    with (
        tempfile.TemporaryDirectory() as workspace,
        suppress(Left),
        acode.session("k", workspace=workspace) as session,
    ):
        found = remains(session, [perform(session, call) for call in program])
        raise Left  # a step whose result is lost may still be open
    assert found is not None
    return found


def run_in_loop(program: list[Call]) -> Remains:
    async def live(workspace: str) -> Remains:
        found = None
        with suppress(Left):
            async with acode.session("k", workspace=workspace) as session:
                found = remains(session, [await perform_in_loop(session, call) for call in program])
                raise Left
        assert found is not None
        return found

    with tempfile.TemporaryDirectory() as workspace:
        return asyncio.run(live(workspace))


def remains(session: acode.Session, seen: list[str]) -> Remains:
    """What the program saw, its rows without what differs from run to run, and the rows of blobs."""
    held = session._run
    session_id, state = held.session.session_id, held.session
    assert state == folded(held.store, session_id)
    rows = [body for _, body, _ in held.store.rows(session_id, 0, 10_000)]
    log, boot_id = list(log_of(held.store, session_id)), state.boot_id
    again = [encode(envelope, first_key=envelope.key_id, boot_id=boot_id) for envelope in log[1:]]
    assert [msgspec.json.decode(row) for row in again] == [msgspec.json.decode(row) for row in rows[1:]]
    blobs = held.store.db.execute("SELECT sha256, purpose, coalesce(hex(data), '') FROM blobs ORDER BY 1, 2")
    return seen, [timeless(row) for row in rows[1:]], list(blobs)


def timeless(row: bytes) -> bytes:
    return re.sub(rb'"at":"[^"]*"|"(?:duration_)?ms":\d+,?', b"", row)


@settings(deadline=None, max_examples=20)
@given(st.lists(calls(1), min_size=1, max_size=4))
@example([Call("pay", (1, "a"), {}, "paid", idempotent=True), Call("pay", (), {"to": 2.5}, None)])
@example([Call("pay", (2**60, -1), {}, "x" * 70_000), Call("pay", (SECRETS[0],), {}, SECRETS[1])])
@example([Call("pay", (), {}, object(), idempotent=True), Call("read", (SECRETS[2],), {}, 1)])
@example([Call("pay", (), {}, 1, fails=True), Call("pay", (), {}, 2), Call("read", (), {}, 3)])
@example([Call("pay", (), {}, 1, inner=(Call("read", (1,), {}, 1), Call("read", (2,), {}, b"x")))])
@example([Call("pay", (7,), {"to": 2}, 1, form=form, fails=form == "object") for form in FORMS])
def test_a_step_in_one_piece_leaves_the_bytes_and_the_state_of_one_at_length(program: list[Call]) -> None:
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACODE_HOME", home)
        in_one_piece = run(program)
        with at_length():
            assert run(program) == in_one_piece


@settings(deadline=None, max_examples=10)
@given(st.lists(calls(1), min_size=1, max_size=4))
@example([Call("pay", (1, "a"), {}, "paid", idempotent=True), Call("pay", (), {}, "x" * 70_000)])
@example([Call("pay", (), {}, object(), idempotent=True), Call("read", (SECRETS[2],), {}, SECRETS[1])])
@example([Call("pay", (), {}, 1, fails=True), Call("pay", (), {}, 2, inner=(Call("read", (1,), {}, b"x"),))])
def test_so_does_a_step_of_a_coroutine_function(program: list[Call]) -> None:
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACODE_HOME", home)
        in_one_piece = run_in_loop(program)
        with at_length():
            assert run_in_loop(program) == in_one_piece


def refuse(*args: Any) -> None:
    pytest.fail("done again")


def left_and_resumed(before: list[Call], after: list[Call]) -> tuple[list[str], list[bytes]]:
    """What a program saw that was left behind `before`, asked for it again and continued; and the rows of its steps."""
    found = None
    with tempfile.TemporaryDirectory() as workspace:
        with suppress(Left), acode.session("k", workspace=workspace) as session:
            for call in before:
                perform(session, call)
            raise Left
        with suppress(Left), acode.session("k", workspace=workspace) as session:
            for call in before:
                session.step(call.name, refuse, *call.args)
            seen = [perform(session, call) for call in after]
            held = session._run
            assert held.session == folded(held.store, held.session.session_id)
            rows = [body for _, body, _ in held.store.rows(held.session.session_id, 0, 10_000)]
            found = seen, [timeless(row) for row in rows if b'"type":"step_' in row]
            raise Left
    assert found is not None
    return found


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 3), st.lists(calls(1), min_size=1, max_size=4))
@example(1, [Call("pay", (1, "a"), {}, "paid", idempotent=True), Call("read", (), {}, 3), Call("pay", (), {}, 4)])
@example(2, [Call("pay", (), {}, 1, fails=True), Call("pay", (), {}, 2), Call("read", (), {}, 3)])
@example(1, [Call("read", (), {}, 0, inner=(Call("pay", (1,), {}, 1),)), Call("pay", (2,), {}, "x" * 70_000)])
def test_the_steps_of_a_resumed_program_are_the_same_in_one_piece(known: int, program: list[Call]) -> None:
    before = [Call("look", (number,), {}, number) for number in range(known)]
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACODE_HOME", home)
        in_one_piece = left_and_resumed(before, program)
        with at_length():
            assert left_and_resumed(before, program) == in_one_piece


def test_new_steps_of_a_resumed_program_are_performed_in_one_piece(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second one: with the first the program has asked for all that is on record."""
    with suppress(Left), acode.session("k") as session:
        for number in range(3):
            session.step(f"look-{number}", str, number)
        raise Left
    names = list[str]()
    right = acode.Session._do_at_length

    def noted(self: acode.Session, name: str, *args: Any, **named: Any) -> Any:
        names.append(name)
        return right(self, name, *args, **named)

    monkeypatch.setattr(acode.Session, "_do_at_length", noted)
    with acode.session("k") as session:
        for number in range(3):
            session.step(f"look-{number}", str, number)
        for number in range(3):
            assert session.step(f"pay-{number}", lambda amount: amount, number) == number
    assert names == ["look-0", "look-1", "look-2", "pay-0"]


def test_a_step_is_not_taken_for_new_before_all_on_record_was_asked_for(place: Place) -> None:
    """It was renamed: it would be done twice."""
    paid = list[int]()

    def pay(amount: int) -> None:
        paid.append(amount)

    with suppress(Left), acode.session("k") as session:
        session.step("look", lambda: 1)
        session.step("pay", pay, 7)
        raise Left
    with pytest.raises(acode.NonDeterminism), acode.session("k") as session:
        session.step("look", lambda: 1)
        session.step("pay-now", pay, 7)
    assert paid == [7]


def test_most_calls_are_performed_in_one_piece(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the comparison above would compare nothing."""
    monkeypatch.setattr(acode.Session, "_do_at_length", lambda *args, **kwargs: pytest.fail("at length"))
    with acode.session("k") as session:
        assert session.step("pay", lambda amount: amount, 7) == 7
        assert session.step("pay", lambda: "x" * 70_000, idempotent=True) == "x" * 70_000
        assert session.step("join", ",".join, ["a", "b"]) == "a,b"
        assert session.step("length", len, "abc") == 3
        assert session.step("pay", as_method(lambda amount: amount), 8) == 8


def test_a_session_with_steps_on_record_performs_none_in_one_piece(place: Place) -> None:
    with pytest.raises(ZeroDivisionError), acode.session("k") as session:
        session.step("pay", lambda: 1)
        raise ZeroDivisionError
    with acode.session("k") as session:
        assert session._requests.plain is None
        assert session.step("pay", lambda: 2) == 1


def test_a_failed_call_is_not_kept_alive(place: Place) -> None:
    class Held:
        pass

    def fail() -> None:
        held.append(Held())
        raise ValueError("no")

    held: list[Any] = []
    with acode.session("k") as session:
        with pytest.raises(ValueError, match="no"):
            session.step("pay", fail)
        gc.disable()
        try:
            known = weakref.ref(held.pop())
            assert known() is None
        finally:
            gc.enable()


def test_steps_of_a_coroutine_function_are_performed_in_one_piece(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list[str]()
    right = acode.Session._do_async_at_length

    async def noted(self: acode.Session, name: str, *args: Any, **named: Any) -> Any:
        names.append(name)
        return await right(self, name, *args, **named)

    async def pay(amount: int) -> int:
        return amount

    async def live() -> list[int]:
        async with acode.session("k") as session:
            return await asyncio.gather(*(session.step(f"pay-{number}", pay, number) for number in range(8)))

    monkeypatch.setattr(acode.Session, "_do_async_at_length", noted)
    assert asyncio.run(live()) == [*range(8)]
    assert names == []
