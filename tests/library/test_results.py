"""What a step returned comes back as it was, whatever its type; what could not, is refused by name."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

import acode
from acode.errors import MissingArtifacts, NotStorable, StepFailed
from acode.events.definition import digest
from acode.library import arguments, values
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


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Doubled:
    x: int
    of: dataclasses.InitVar[int] = 2
    kind: ClassVar[str] = "doubled"

    def __post_init__(self, of: int) -> None:
        object.__setattr__(self, "twice", of * self.x)

    @functools.cached_property
    def root(self) -> re.Pattern[str]:
        return re.compile(str(self.x))


@dataclasses.dataclass(eq=False)
class Refused(Exception):
    code: int


@dataclasses.dataclass
class Listing(dict[str, int]):
    x: int = 0


class Account(pydantic.BaseModel):
    name: str
    at: datetime | None = None
    password: pydantic.SecretStr | None = None
    _seen: int = pydantic.PrivateAttr(0)


class Loose(msgspec.Struct, eq=False):
    x: Any


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
    Access.READ | Access.WRITE,
    Access(0),
    "a\udc80",
    {"\udc80": Path("\udcff")},
    -0.0,
    Account(name="a", at=datetime(2026, 1, 1, tzinfo=UTC)),
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


BERLIN = ZoneInfo("Europe/Berlin")
WINTER = timezone(timedelta(hours=1), "winter")


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        (datetime(2026, 10, 24, 12, tzinfo=BERLIN), lambda v: (v + timedelta(days=1)).isoformat()),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=UTC).replace(tzinfo=None), lambda v: v.fold),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN), lambda v: (v.fold, v.utcoffset())),
        (time(2, 30, fold=1, tzinfo=BERLIN), lambda v: (v.fold, v.tzinfo)),
        (datetime(2026, 1, 1, tzinfo=WINTER), lambda v: v.tzname()),
        (Doubled(4), lambda v: (v.twice, v.__dict__)),
        ([Refused(5)], lambda v: (v[0].code, v[0].args, type(v[0]))),
    ],
)
def test_what_an_equality_does_not_see_comes_back_too(value: Any, asked: Callable[[Any], Any]) -> None:
    assert asked(values.decode(msgspec.json.decode(values.encode(value)))) == asked(value)


def test_a_cached_property_is_computed_again_and_hinders_nothing() -> None:
    value = Doubled(4)
    assert value.root.pattern == "4"
    restored = values.decode(msgspec.json.decode(values.encode(value)))
    assert restored == value and "root" not in vars(restored) and restored.root.pattern == "4"


def seen_before() -> Account:
    account = Account(name="a")
    account._seen = 3
    return account


class Elsewhere(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def tzname(self, at: datetime | None) -> str:
        return "elsewhere"

    def dst(self, at: datetime | None) -> timedelta:
        return timedelta(0)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Account(name="a", password=pydantic.SecretStr("hunter2")), r"Account\.password"),
        (Account(name="a", at=datetime(2026, 10, 24, tzinfo=BERLIN)), r"Account\.at"),
        (seen_before(), r"Account\._seen"),
        (Loose(x=(1, 2)), r"Loose\.x"),
        (Loose(x=float("inf")), "Loose"),
        (Listing(), "Listing"),
        (datetime(2026, 1, 1, tzinfo=Elsewhere()), "Elsewhere"),
        (Packed(x=1, y=["\udc80"]), "half a character"),
        (dataclasses.make_dataclass("Nowhere", ["x"])(1), "Nowhere"),
    ],
)
def test_what_would_not_come_back_as_it_is_is_refused_by_name(value: Any, named: str) -> None:
    with pytest.raises(NotStorable, match=named):
        values.encode([value])


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (datetime(2026, 10, 24, 12, tzinfo=BERLIN), {"$": "datetime.datetime", "v": "2026-10-24T12:00:00+02:00"}),
        (Access.READ | Access.WRITE, {"$": "enum", "type": f"{__name__}:Access", "v": "READ|WRITE"}),
        (
            Doubled(4),
            {"$": "dataclass", "type": f"{__name__}:Doubled", "v": {"x": 4, "of": 2, "kind": "doubled"}},
        ),
        ({1: "\udc80"}, {"$": "dict", "v": [[1, "\udc80"]]}),
    ],
)
def test_digests_of_arguments_are_those_of_earlier_versions(value: Any, recorded: Any) -> None:
    assert values._argument(value, 0) == recorded


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@settings(max_examples=80, deadline=None)
@given(json_values)
def test_any_value_survives_its_encoding(value: Any) -> None:
    data = values.encode(value)
    assert same(values.decode(msgspec.json.decode(data)), value)


scalars = st.none() | st.booleans() | st.integers() | st.text()


@settings(max_examples=100, deadline=None)
@given(st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_the_quick_digest_of_arguments_is_the_canonical_one(value: Any) -> None:
    flat = values._argument(value, 0)
    assert values.digest_of(value) == digest(flat)
    if values._simple(flat, 0):
        assert values._ordered.encode(flat) == rfc8785.dumps(flat)


def test_equal_dicts_are_the_same_argument_whatever_was_put_into_them_first(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = {2: "b", 1: {(1, 2): 3, None: 4}}, {1: {None: 4, (1, 2): 3}, 2: "b"}
    different = [{2: "b", 1: 3}, {"$": "dict", "v": [2, 1]}, {"$": "dict", "v": [1, 2]}, {1: (1, 2)}, {(1, 2): 1}]
    assert len({values.digest_of([value]) for value in different}) == len(different)
    assert one == other and values.digest_of([one]) == values.digest_of([other]) != values.digest_of([{2: "b"}])
    assert arguments.digest_of([one]) == arguments.digest_of([other]) != arguments.digest_of([{2: "b"}])
    work = Counted(7)
    with monkeypatch.context() as earlier:  # a log of the time when the order counted
        as_given = arguments.Arguments(values.digest_of([one], as_given=True), None)
        earlier.setattr("acode.library.session.arguments_of", lambda found, **_: as_given)
        earlier.setattr("acode.library.step_requests.VERSION", 1)
        interrupted("k", lambda s: s.step("a", work, one))
    assert values.digest_of([one]) != values.digest_of([one], as_given=True)
    with acode.session("k") as s:
        assert s.step("a", work, one) == 7
    assert len(work.calls) == 1


def test_arguments_that_are_no_values_count_by_their_type(place: Place) -> None:
    one, other = object(), object()
    assert values.digest_of([one, 1]) == values.digest_of([other, 1]) != values.digest_of([other, 2])
    assert values.digest_of([2**60]) != values.digest_of([2**60 + 1])
    assert values.digest_of([1.0]) != values.digest_of([1.5])
    assert arguments.digest_of([one, 1]) == arguments.digest_of([other, 1]) != arguments.digest_of([other, 2])


@pytest.mark.parametrize(("answer", "expected", "calls"), [("applied", "seen by hand", 1), ("retry", "mended", 2)])
def test_a_step_whose_result_cannot_be_stored_has_run_and_a_person_says_what_it_returned(
    place: Place, answer: Literal["applied", "retry"], expected: str, calls: int
) -> None:
    work = Counted(object(), "mended")
    for _ in range(2):
        with pytest.raises(NotStorable, match="step a has run") as caught, acode.session("k") as s:
            s.step("a", work)
        assert "acode.resolve('k', 'a', 'applied'" in str(caught.value.hint)
    (row,) = place.json("session", "list")
    assert place.json("status", row["short_id"])["steps_done"] == 1  # what is missing is its result: nothing is unknown
    acode.resolve("k", "a", answer, result="seen by hand" if answer == "applied" else None)
    with acode.session("k") as s:
        assert s.step("a", work) == expected
        s.step("b", work)
    assert len(work.calls) == calls + 1


def test_a_result_of_what_may_be_repeated_is_asked_for_again(place: Place) -> None:
    work = Counted(object(), "mended")
    with pytest.raises(NotStorable, match="step a has run"), acode.session("k") as s:
        s.step("a", work, idempotent=True)
    with acode.session("k") as s:
        assert s.step("a", work, idempotent=True) == "mended"


class ApiError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Held(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.connection = object()


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (ApiError(404, "no such page"), ("code",)),
        (json.JSONDecodeError("Expecting value", "{", 1), ("pos", "doc", "lineno")),
        (FileNotFoundError(2, "No such file", "a.txt"), ("errno", "strerror", "filename")),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), ("object", "reason")),
        (ModuleNotFoundError("no module x", name="x"), ("name",)),
        (KeyError("x"), ()),
        (Refused(5), ("code",)),
        (StepFailed("step a: no", hint="mend it", step="a"), ("message", "hint", "details")),
        (Held("in use"), ()),
        (ValueError("\udc80"), ()),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_handled_failure_is_raised_again_as_what_it_was(
    place: Place, error: Exception, names: tuple[str, ...]
) -> None:
    work, other = Counted(error), Counted()

    def handled(s: acode.Session) -> None:
        try:
            s.step("a", work)
        except Exception as found:
            caught.append(found)
        s.step("b", other)

    caught: list[Exception] = []
    for _ in range(2):
        interrupted("k", handled)
    first, again = caught
    assert first is error and type(again) is type(error) and again is not error
    assert (str(again), again.args) == (str(error), error.args)
    assert [getattr(again, name) for name in names] == [getattr(error, name) for name in names]
    assert len(work.calls) == len(other.calls) == 1


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
