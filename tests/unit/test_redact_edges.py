"""Where a secret ends and prose begins: the edges of every rule of redaction, one case on either side of each."""

from __future__ import annotations

import base64
import hashlib

import pytest

from acode.redact import Redactor, redactor
from acode.redact.rules import fallback_rules

PLAIN = redactor([])
WITHOUT_RE2 = Redactor((), strict=False, rules=fallback_rules())
TOKEN = "gh" + "p_" + "aB3dE6" * 6
NOT_CAMELS = ("Hunter22", "Foo123Bar", "WXYZabcDef1", "AbcDefGhiJklMnoPqrStu", "utf8Decoder")
HELD_BYTES_MIN = 8 * 1024  # of a line without end, so much is kept back


def masked(text: str) -> str:
    shown = PLAIN.text(text)
    assert WITHOUT_RE2.text(text) == shown, "both engines say the same"
    return shown


def streamed(one: Redactor, data: bytes, size: int) -> bytes:
    stream = one.stream()
    return b"".join([*(stream.feed(data[at : at + size]) for at in range(0, len(data), size)), stream.finish()])


# Brackets around a value belong to the code, brackets within it to the value.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("f(password=7xyz1)", "f(password=***)"),
        ("f(g(h(password=7xyz1)))", "f(g(h(password=***)))"),
        ("[password=7xyz1]", "[password=***]"),
        ("{password=7xyz1}", "{password=***}"),
        ("<password=7xyz1>", "<password=***>"),
        ("password=7xyz1:", "password=***:"),
        ("password=7x(y2)", "password=***"),
        ("password=7x[y2]", "password=***"),
        ("password=7x{y2}", "password=***"),
        ("password=7x<y2>", "password=***"),
        ("f(password=7x(y2))", "f(password=***)"),
        ("f(password=7x(y)(z))", "f(password=***)"),
    ],
)
def test_a_bracket_ends_a_value_where_it_was_opened_before_it(text: str, shown: str) -> None:
    assert masked(text) == shown


# Quoted.


@pytest.mark.parametrize(
    "value",
    [
        "MY_SECRET_NAME",
        "Correct horse",
        "choose well.",
        "choose well:",
        "choose well!",
        "choose well?",
        "the best one",
        "aa bb cc dd ee ff gg hh ii",
    ],
)
def test_a_quoted_sentence_or_the_name_of_a_variable_is_no_secret(value: str) -> None:
    assert masked(f'password = "{value}"') == f'password = "{value}"'


@pytest.mark.parametrize(
    "value",
    ["my_secret_name", "MYSECRET", "Hunter", "hunter2.", "correct horse", "correct horsX", "aa bb cc dd ee ff gg hh"],
)
def test_a_quoted_word_or_a_few_words_are_one(value: str) -> None:
    assert masked(f'password = "{value}"') == 'password = "***"'


@pytest.mark.parametrize("value", ["changeme!", "None.", " null, ", "?", "***", "<here>", "${X1}", "xxxx"])
def test_a_placeholder_is_no_secret_whatever_signs_stand_around_it(value: str) -> None:
    assert masked(f'password = "{value}"') == f'password = "{value}"'


@pytest.mark.parametrize("value", ["nullX", "Xnull", "changeme1"])
def test_a_placeholder_with_more_to_it_is_one(value: str) -> None:
    assert masked(f'password = "{value}"') == 'password = "***"'


@pytest.mark.parametrize(("name", "value"), [("DB_PASSWORD", "db_password"), ("my_token1", "My_Token1")])
def test_a_value_that_only_repeats_its_name_is_no_secret(name: str, value: str) -> None:
    assert masked(f'x_ {name}="{value}"') == f'x_ {name}="{value}"'


@pytest.mark.parametrize("path", ["/x12", "~x12", "./x1", "../x1", "C:\\x1", "c:/x1", "Z:/x1"])
def test_the_other_pwd_is_a_directory(path: str) -> None:
    assert masked(f"OLDPWD={path}") == f"OLDPWD={path}"
    assert masked(f"PASSWORD={path}") == "PASSWORD=***"


@pytest.mark.parametrize("value", ["x1/y", "CC:/x1", "C:x1"])
def test_what_is_no_path_behind_pwd_is_a_password(value: str) -> None:
    assert masked(f"OLDPWD={value}") == "OLDPWD=***"


# Without quotes.


@pytest.mark.parametrize(
    "value", ["qWeRtYuI", "ABcdEFghIJ", "abcDefGh", "a1b2", "123456789012", "x-1-y", "X9y8", *NOT_CAMELS]
)
def test_a_value_that_looks_random_is_a_secret(value: str) -> None:
    assert masked(f"token={value} done") == "token=*** done"


@pytest.mark.parametrize(
    "value",
    [
        "a1b",
        "abcdefgh",
        "ABCDEFGH",
        "qWeRtYu",
        "abcdEfgh",
        "12345678901",
        "self.x1y2",
        "args.token1",
        "load1(x)",
        "one-two",
        "one_two3four",
        "Load1(x7)",
        "FooBarBazQux",
        "Utf8Decoder",
        "Abc12Def34Ghi",
        "abcDefGhi",
        "One-TWO.Three_",
        "_ONE::two/THREE33",
    ],
)
def test_a_value_that_code_could_hold_as_well_is_none(value: str) -> None:
    assert masked(f"token={value} done") == f"token={value} done"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=letmeinx", "password=***"),
        ("password: letmeinx", "password: ***"),
        ("password=letmein", "password=letmein"),
        ("password=letmeinx and more", "password=letmeinx and more"),
        ("PASSWORD=letmein and more", "PASSWORD=*** and more"),
        ("password=1234", "password=***"),
        ("token=1234", "token=1234"),
        ("pwd=/var/lib/x1", "pwd=/var/lib/x1"),
        ("password=/var/lib/x1", "password=***"),
    ],
)
def test_a_word_is_a_password_only_where_nothing_else_can_stand(text: str, shown: str) -> None:
    assert masked(text) == shown


# Known values.


@pytest.mark.parametrize("value", ["ab1c", "12ab"])
def test_a_known_value_of_four_characters_is_masked(value: str) -> None:
    assert redactor([value]).text(f"x {value} y") == "x *** y"


def test_short_lines_of_a_known_value_are_left_alone_and_the_others_are_masked() -> None:
    known = redactor(["x7\nchangeme\neight-ch\nseven-c\n"])
    assert known.text("x7 changeme eight-ch seven-c") == "x7 changeme *** seven-c"


@pytest.mark.parametrize("value", ["hunter22", "hunter2xW", "hunter2xyz"])
def test_a_known_value_in_base64_is_masked_with_and_without_its_padding(value: str) -> None:
    encoded = base64.b64encode(value.encode()).decode()
    assert redactor([value]).text(f"{encoded.rstrip('=')} {encoded}") == "*** ***" + "=" * encoded.count("=")


def test_a_known_value_of_less_than_eight_bytes_is_not_looked_for_in_base64() -> None:
    encoded = base64.b64encode(b"hunter2").decode()
    assert redactor(["hunter2"]).text(encoded) == encoded


def test_a_known_value_that_is_no_text_is_masked_too() -> None:
    assert redactor(["k\udcffsecret1"]).text("a k\udcffsecret1 b") == "a *** b"


def test_hashes_are_masked_only_where_it_is_asked_for() -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    assert redactor([]).text(digest) == digest
    assert redactor(["something"]).text(digest) == digest


# A line without end.


def test_a_secret_that_ends_where_a_long_line_is_cut_is_masked() -> None:
    before = b"ab " * 22_000
    for behind in range(HELD_BYTES_MIN - 2, HELD_BYTES_MIN + 3):
        data = before + TOKEN.encode() + b" " * behind
        out = PLAIN.stream().feed(data)
        assert TOKEN.encode() not in out and len(out) <= len(data) - HELD_BYTES_MIN
        assert streamed(PLAIN, data, len(data)) == before + b"***" + TOKEN[-4:].encode() + b" " * behind


def test_a_secret_before_one_that_fills_all_is_masked_too() -> None:
    data = f"login {TOKEN} password {'aB3' * 40_000}\nnext".encode()
    assert streamed(PLAIN, data, 5_000) == b"login *** password ***\nnext"


def test_what_follows_a_secret_that_was_dropped_comes_through_from_its_first_character() -> None:
    stream = PLAIN.stream()
    out = stream.feed(b"ghp" + b"_" + b"aB3" * 40_000)
    assert out + stream.feed(b" end\n") + stream.finish() == b"*** end\n"
