"""A name on the disk is bytes, and the log is text: every name has one spelling, and the way back is exact."""

from __future__ import annotations

import json
import os

import msgspec
import pytest

from acode.disk.path_names import bytes_of, text_of, visible
from acode.events.types import FileState


@pytest.mark.parametrize(
    "name",
    [
        b"plain.txt",
        "größe-雪".encode(),
        b"latin-\xe9\xff",
        "\uef80\uefff".encode(),  # the very characters that spell bytes
        b"\xed\xa0\x80",  # half of a surrogate pair, which UTF-8 forbids
        b"back\\slash %41 \\xff",
        bytes(byte for byte in range(1, 256) if byte != ord("/")),
    ],
)
def test_every_name_survives_json_and_comes_back_to_the_byte(name: bytes) -> None:
    text = text_of(name)
    assert bytes_of(text) == name
    assert bytes_of(msgspec.json.decode(msgspec.json.encode(FileState(path=text)), type=FileState).path) == name
    assert json.loads(json.dumps(text)) == text


def test_names_that_python_decoded_mean_the_same_file() -> None:
    assert bytes_of(os.fsdecode(b"a\xe9")) == bytes_of(text_of(b"a\xe9")) == b"a\xe9"


def test_two_names_never_share_a_spelling() -> None:
    names = [b"\x80", "\uef80".encode(), b"\xee\xbe\x80", b"\\x80", b"\xc2\x80", b"\xee", b"\xbe"]
    assert len({text_of(name) for name in names}) == len(set(names))


def test_a_shown_name_steers_no_terminal() -> None:
    assert visible("a\x1b[31mb\u202ec" + text_of(b"\xff")) == "a\\x1b[31mb\\u202ec\\xff"
