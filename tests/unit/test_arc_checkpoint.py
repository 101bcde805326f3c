"""Foreign JSON and foreign text: read strictly, or refused by name; shown without what could fool a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.errors import ForeignUnreadable
from acode.formats.arc import shown
from acode.formats.arc.checkpoint import CHECKPOINT_BYTES_MAX, decode, encode, moment, shown_block, stamp


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a": 1',
        b"[]",
        b"null",
        b'{"a": 1, "a": 2}',
        b'{"phases": {"work": {"status": "completed", "status": "pending"}}}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"a": "\xff"}',
        b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' + b"9" * 5000 + b"}",
        b"{} {}",
        b'{"a": "' + b"x" * CHECKPOINT_BYTES_MAX + b'"}',
    ],
    ids=lambda data: repr(data[:24]),
)
def test_json_that_two_readers_could_read_differently_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ForeignUnreadable) as refused:
        decode(data, name="the/file.json")
    assert refused.value.exit_code == 20
    assert "the/file.json" in refused.value.message


def test_a_byte_order_mark_is_no_damage() -> None:
    assert decode(b'\xef\xbb\xbf{"a": 1}', name="f") == {"a": 1}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_do_more_than_refuse(data: bytes) -> None:
    try:
        value = decode(data, name="f")
    except ForeignUnreadable:
        return
    assert decode(encode(value), name="f") == value


def test_what_is_written_keeps_big_numbers_unicode_and_the_order_of_keys() -> None:
    value = {"z": 2**70, "a": "ä✓", "m": [0.1, -0.0, None, True]}
    assert decode(encode(value), name="f") == value
    assert list(decode(encode(value), name="f")) == ["z", "a", "m"]


def test_shown_text_is_one_cut_line_without_control_or_direction_marks() -> None:
    assert shown("a\x1b[31m\nb\u202e\u200bc\x00\u2028d") == "a[31m bcd"
    assert len(shown("x" * 10_000)) == 200
    assert shown(None) == "None"


def test_a_shown_block_keeps_its_lines() -> None:
    assert shown_block("a\r\nb\x1b\n\tc", 100) == "a\nb\n\tc"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01T13:00:00.000+01:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01T12:00:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        (1_772_366_400_000, datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("", None),
        ("soon", None),
        ("0001-01-01T00:00:00+23:59", None),
        (True, None),
        (-1, None),
        (10**30, None),
        (None, None),
    ],
)
def test_times_are_read_in_every_spelling_of_the_format_and_never_guessed(text: object, at: datetime | None) -> None:
    assert moment(text) == at


def test_a_written_time_reads_back_as_itself() -> None:
    at = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    assert stamp(at) == "2026-03-01T12:00:00.123Z"
    assert moment(stamp(at)) == at
