"""Arguments on record are those that are asked for: different values are told apart, equal ones are the same."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import struct
import subprocess
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import acode
from acode import seal
from acode.library import arguments, values
from acode.library.arguments import digest_of
from tests.library.counted import Counted, interrupted
from tests.library.programs import SOURCE, Place

Pair = namedtuple("Pair", "x y")


class Level(IntEnum):
    ONE = 1


class Name(str):
    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 0


class Packed(msgspec.Struct, frozen=True):
    x: Any


def helper() -> None: ...


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DIFFERENT: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**53, 2**53 + 1, 10**5000, 0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1j, 2j),
    *(
        "",
        "1",
        "None",
        "a",
        "\udc80",
        "ä",
        Name("a"),
        b"",
        b"a",
        bytearray(b"a"),
        Level.ONE,
        Decimal(1),
        Decimal("1.0"),
    ),
    *([], (), {}, set(), frozenset(), [1], (1,), {1}, frozenset({1}), [1.0], (1.0,), [True], [[1]], [(1,)], ([1],)),
    *({"a": 1}, {"a": 1.0}, {"a": [1]}, {"a": (1,)}, {1: "a"}, {1.0: "b"}, {True: "c"}, {"1": "a"}, {(1,): "a"}),
    *({"$": "tuple", "v": [1]}, {"$": "float", "v": "1.0"}, {"$": "int", "v": "1"}, {"v": 1}, OrderedDict(a=1)),
    *(Pair(1, 2), Pair(1, 3), Pair(1.0, 2), Point(1), Point(1.0), Point((1,)), Point([1]), Packed(1), Packed(1.0)),
    *(range(3), range(4), int, str, len, print, helper, PurePosixPath("a"), PurePosixPath("b")),
    *(NOON, NOON.replace(tzinfo=None), NOON.replace(fold=1), object()),
]


def test_different_arguments_never_share_a_digest() -> None:
    found = dict[str, Any]()
    for value in DIFFERENT:
        for form in (value, [[[value]]], ((value,),), {"x": [value]}, Point(value, [value])):
            digest = digest_of([form])
            assert digest not in found, (form, found[digest])
            found[digest] = form


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.decimals(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.just("$"), inner)
        | st.dictionaries(st.integers() | st.floats(allow_nan=False) | st.booleans() | st.text(), inner)
        | inner.map(Point)
    ),
    max_leaves=12,
)


def spelled(value: Any) -> Any:
    """The value spelled out with its types, by other means than the digest."""
    kind = type(value)
    if kind is float:
        return "float", struct.pack(">d", value) if not math.isnan(value) else b"nan"
    if kind in (list, tuple):
        return kind.__name__, [spelled(item) for item in value]
    if kind is dict:
        return "dict", sorted(((spelled(key), spelled(item)) for key, item in value.items()), key=repr)
    if kind is Point:
        return "Point", spelled(value.x), spelled(value.y)
    return kind.__name__, repr(value)


def shuffled(value: Any) -> Any:
    """An equal value, filled in another order."""
    kind = type(value)
    if kind in (list, tuple):
        return kind(shuffled(item) for item in value)
    if kind is dict:
        return {key: shuffled(item) for key, item in reversed(value.items())}
    return Point(shuffled(value.x), shuffled(value.y)) if kind is Point else value


@settings(max_examples=60, deadline=None)
@given(json_values, json_values)
def test_two_values_share_a_digest_exactly_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (digest_of(one) == digest_of(other)) == (spelled(one) == spelled(other))
    assert digest_of(shuffled(one)) == digest_of(one)


IN_ANOTHER_PROCESS = """
import sys
sys.path[:0] = {path!r}
from acode.library.arguments import digest_of
from decimal import Decimal
value = [1, 1.0, -0.0, 2**70, "ä", b"b", (1, [2]), {{"z": 1, "a": {{3, 1, 2}}}}, {{2: "b", 1: "a"}}, frozenset("xyz"),
         Decimal("1.50")]
print(digest_of(value))
"""


def test_a_digest_is_the_same_in_every_process() -> None:
    text = IN_ANOTHER_PROCESS.format(path=[str(SOURCE), *sys.path])
    found = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        found.add(subprocess.check_output([sys.executable, "-c", text], env=env, text=True).strip())
    assert found == {"ec78b7479615cf1c84a421218ce2f96f7a583e83b6c0d4a6ed07d3aa8a4b3b73"}


PAIRS = [(1, 1.0), (1, True), (0.0, -0.0), ([1], (1,)), ({"a": 1}, {"a": 1.0}), (Pair(1, 2), Pair(1, 3))]


@pytest.mark.parametrize(("recorded", "asked"), PAIRS)
def test_a_result_is_given_to_no_arguments_that_only_look_the_same(place: Place, recorded: Any, asked: Any) -> None:
    work = Counted(7)
    interrupted("k", lambda s: s.step("a", work, recorded))
    with pytest.raises(acode.NonDeterminism, match="other arguments"), acode.session("k") as s:
        s.step("a", work, asked)
    with acode.session("k") as s:
        assert s.step("a", work, recorded) == 7
    assert len(work.calls) == 1


def test_arguments_by_place_are_not_those_by_name(place: Place) -> None:
    work = Counted(7)
    act = acode.step(name="a")(lambda *args, **kwargs: work(args, kwargs))
    interrupted("k", lambda s: act(1, y=2))
    with pytest.raises(acode.NonDeterminism), acode.session("k"):
        act([1], {"y": 2})


@pytest.mark.parametrize(("recorded", "asked"), [(1, 1.0), (1, True), (0.0, -0.0), ([1], [1.0])])
def test_a_durable_function_is_held_to_the_types_of_its_arguments(place: Place, recorded: Any, asked: Any) -> None:
    calls = list[Any]()

    @acode.durable(key="k")
    def total(value: Any, more: int = 0) -> int:
        calls.append(value)
        return len(calls)

    assert total(recorded) == total(recorded, 0) == total(value=recorded, more=0) == 1
    with pytest.raises(acode.NonDeterminism):
        total(asked)


# Commands.


def command(**more: Any) -> Callable[[acode.Session], object]:
    return lambda s: s.run("echo ran >> ran.txt", name="c", **more)


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        ({"env": {"MODE": "a"}}, {"env": {"MODE": "b"}}),
        ({"env": {"MODE": "a"}}, {}),
        ({"env": {"API_TOKEN": "tok-one"}}, {"env": {"API_TOKEN": "tok-two"}}),
        ({"env": {"A": "x", "B": "y"}}, {"env": {"A": "y", "B": "x"}}),
        ({"secret_env": ["HOME"]}, {}),
        ({"cwd": "."}, {}),
    ],
)
def test_a_command_is_given_the_result_of_no_other_environment(place: Place, recorded: Any, asked: Any) -> None:
    interrupted("k", command(**recorded))
    with pytest.raises(acode.NonDeterminism), acode.session("k") as s:
        command(**asked)(s)
    with acode.session("k") as s:
        command(**recorded, timeout=60, undo="true")(s)  # its time and its undo are not what it does
    assert place.workspace.joinpath("ran.txt").read_text() == "ran\n"


def test_the_values_of_an_environment_stand_in_the_log_as_codes_that_outlive_a_new_key(place: Place) -> None:
    secret = "hunter2-hunter2"
    interrupted("k", command(env={"DB_PASSWORD": secret}))
    assert place.acode("key", "rotate").returncode == 0
    with acode.session("k") as s:
        command(env={"DB_PASSWORD": secret})(s)
        key = arguments.key_of(s._run)
        assert key not in s._run.store.keyring.keys.values()
    log = place.workspace.joinpath(".agent/workspace.db").read_bytes()
    code = seal.seal(key, arguments.PURPOSE, f"DB_PASSWORD={secret}".encode()).hex()
    bare = digest_of(["echo ran >> ran.txt", None, [], None, {"DB_PASSWORD": secret}, []])
    coded = digest_of(["echo ran >> ran.txt", None, [], None, {"DB_PASSWORD": code}, []])
    assert secret.encode() not in log and bare.encode() not in log and coded.encode() in log
    assert place.workspace.joinpath("ran.txt").read_text() == "ran\n"


# Sessions of 0.1.


@contextlib.contextmanager
def first_version() -> Iterator[None]:
    """Starts are recorded by the first rule, as acode 0.1 did."""

    def by_first_rule(value: Any, *, first: Any = None) -> arguments.Arguments:
        then = value if first is None else first
        return arguments.Arguments(values.digest_of(then), None)

    with pytest.MonkeyPatch.context() as earlier:
        for module in ("session", "arguments"):
            earlier.setattr(f"acode.library.{module}.arguments_of", by_first_rule)
        earlier.setattr("acode.library.step_requests.VERSION", 1)
        earlier.setattr("acode.library.step_requests.plain_steps_of", lambda run: None)
        yield


@pytest.mark.parametrize(("recorded", "asked"), [pair for pair in PAIRS[:-1] if pair[1] is not True])
def test_a_session_of_the_first_version_is_compared_by_its_own_rule(place: Place, recorded: Any, asked: Any) -> None:
    work = Counted(7)

    def same(s: acode.Session, value: Any, env: str) -> None:
        assert s.step("a", work, value, [value]) == 7
        begun = s.begin("b", value)
        if not begun.found:
            s.complete(begun)
        s.write("w.txt", "text")
        command(env={"MODE": env})(s)

    with first_version():
        interrupted("k", lambda s: same(s, recorded, "a"))
    interrupted("k", lambda s: same(s, asked, "b"))
    with pytest.raises(acode.NonDeterminism), acode.session("k") as s:
        s.step("a", work, "something else", [1])
    with pytest.raises(acode.NonDeterminism, match="once did the same as a"), acode.session("k") as s:
        s.step("renamed", work, recorded, [recorded])
    assert len(work.calls) == 1
