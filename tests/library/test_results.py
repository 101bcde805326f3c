"""What a step returned comes back as it was, whatever its type; what could not, is refused by name."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

import acode
from acode.errors import MissingArtifacts, NotStorable
from acode.events.definition import digest
from acode.library import values
from tests.library.counted import Counted, interrupted
from tests.library.programs import Place


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    at: datetime
    tags: tuple[str, ...] = ()
    inner: Any = None


class Packed(msgspec.Struct):
    x: int
    y: list[str]


RICH: list[Any] = [
    None,
    True,
    0,
    -1.5,
    float("inf"),
    2**53 + 1,
    -(10**40),
    "é\ud7ff\x00",
    [1, [2, {"a": None}]],
    {"$": "not a tag", "x": 1},
    {1: "a", (2, 3): "b"},
    (1, (2,)),
    {1, 2},
    frozenset({"a"}),
    b"\x00\xff",
    [bytearray(b"x")],
    datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    date(2026, 1, 2),
    time(3, 4),
    timedelta(days=-1, microseconds=1),
    Decimal("1.10"),
    uuid.UUID(int=5),
    PurePosixPath("/a/b"),
    Path("x"),
    Colour.RED,
    Row("a", datetime(2026, 1, 1, tzinfo=UTC), ("t",), [Row("b", datetime(2026, 1, 2, tzinfo=UTC))]),
    Packed(x=1, y=["z"]),
    "x" * 200_000,
    b"y" * 200_000,
]


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("value", RICH, ids=lambda value: type(value).__name__)
def test_a_result_comes_back_with_its_type(place: Place, value: Any) -> None:
    work = Counted(value)
    interrupted("k", lambda s: s.step("a", work))
    with acode.session("k") as s:
        assert same(s.step("a", work), value)
    with acode.session("k") as s:  # and from a completed session
        assert same(s.step("a", work), value)
    assert len(work.calls) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(json_values)
def test_any_value_survives_its_encoding(value: Any) -> None:
    try:
        data = values.encode(value)
    except UnicodeEncodeError:
        return
    assert same(values.decode(msgspec.json.decode(data)), value)


scalars = st.none() | st.booleans() | st.integers() | st.text()


@settings(max_examples=100, deadline=None)
@given(st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_the_quick_digest_of_arguments_is_the_canonical_one(value: Any) -> None:
    flat = values._argument(value, 0)
    assert values.digest_of(value) == digest(flat)
    if values._simple(flat, 0):
        assert values._ordered.encode(flat) == rfc8785.dumps(flat)


def test_arguments_that_are_no_values_count_by_their_type(place: Place) -> None:
    one, other = object(), object()
    assert values.digest_of([one, 1]) == values.digest_of([other, 1]) != values.digest_of([other, 2])
    assert values.digest_of([2**60]) != values.digest_of([2**60 + 1])
    assert values.digest_of([1.0]) != values.digest_of([1.5])


def test_a_result_that_cannot_be_stored_leaves_its_step_open_for_a_person(place: Place) -> None:
    work = Counted(object())
    with pytest.raises(NotStorable, match="step a has run"), acode.session("k") as s:
        s.step("a", work)
    with pytest.raises(acode.OutcomeUnknown), acode.session("k"):
        pass
    acode.resolve("k", "a", "applied", result="seen by hand")
    with acode.session("k") as s:
        assert s.step("a", work) == "seen by hand"
    assert len(work.calls) == 1


def test_a_secret_result_stands_in_no_row_and_goes_with_the_session(place: Place) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6"
    work = Counted({"token": secret})
    interrupted("k", lambda s: s.step("login", work, secret))
    rows = b"".join(path.read_bytes() for path in (place.workspace / ".agent").glob("workspace.db*"))
    assert secret.encode() not in rows
    with acode.session("k") as s:
        assert s.step("login", work, secret) == {"token": secret}
    everything = [path for path in place.path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert everything == []
    with pytest.raises(MissingArtifacts, match="held a secret"), acode.session("k") as s:
        s.step("login", work, secret)


def test_importing_the_library_loads_next_to_nothing(place: Place) -> None:
    code = "import sys; before = set(sys.modules); import acode; print(len(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", code], env=place.env(), capture_output=True, text=True, check=True)
    assert int(found.stdout) <= 3, "names are loaded when they are used"
