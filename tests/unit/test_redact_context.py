"""What stands before a value decides whether it is secret: the whole name, the separator, and all of the line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acode.redact import Redactor, redactor
from acode.redact.evidence import end_of_unquoted
from acode.redact.rules import fallback_rules, rules

PLAIN = redactor([])
WITHOUT_RE2 = Redactor((), strict=False, rules=fallback_rules())
VALUE_BYTES_JUDGED = 8 * 1024


def masked(text: str) -> str:
    shown = PLAIN.text(text)
    assert WITHOUT_RE2.text(text) == shown, "both engines say the same"
    return shown


# Several in one line.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token_count=x9y8z7 password=x9y8z7", "token_count=x9y8z7 password=***"),
        ('token="a1b2c3d4" password="x9y8z7"', 'token="***" password="***"'),
        ('token="None" password="x9y8z7"', 'token="None" password="***"'),
        ("password=, token=a1b2c3d4", "password=, token=***"),
        ("/etc/passwd: x, password=x9y8z7", "/etc/passwd: x, password=***"),
        ("token=one password=x9y8z7 token=a1b2c3", "token=one password=*** token=***"),
    ],
)
def test_each_value_of_a_line_is_judged_for_itself(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_a_secret_within_another_is_masked_with_it() -> None:
    token = "gh" + "p_" + "aB3dE6" * 6
    assert masked(f'password="x9y8-{token}-more"') == 'password="***more"'
    assert masked(f'password="x9y8-{token}" token={token}') == 'password="***3dE6" token=***3dE6'


def test_secrets_beside_each_other_are_masked_one_by_one() -> None:
    assert redactor(["kn0wn1", "kn0wn2"]).text("kn0wn1kn0wn2 kn0wn1") == "****** ***"


# The name.


@pytest.mark.parametrize("name", ["tokenCount", "TOKEN_URL", "token_expires_at", "Token.Keyword", "secretName2Id"])
def test_a_name_that_ends_in_something_harmless_is_not_the_name_of_a_secret(name: str) -> None:
    assert masked(f'{name} = "x9y8z7"') == f'{name} = "x9y8z7"'


@pytest.mark.parametrize("name", ["token.keyword", "tokenValue", "token2", "TOKEN_VALUE", "token.", "token-X"])
def test_a_name_that_goes_on_otherwise_is_one(name: str) -> None:
    assert masked(f'{name} = "x9y8z7"') == f'{name} = "***"'


@pytest.mark.parametrize("before", ["", "the ", "x" * 90 + " ", "MY_", "A1.", "X-", "_"])
def test_a_word_assigned_to_a_name_in_capitals_is_a_secret(before: str) -> None:
    assert masked(f"{before}PASSWORD=letmein and so on.") == f"{before}PASSWORD=*** and so on."


@pytest.mark.parametrize("before", ["a", "my_", "x X.a_", "x" * 90 + " a", "(a", " a-", "1 b1"])
def test_a_name_is_in_capitals_only_if_all_of_it_is(before: str) -> None:
    assert masked(f"{before}PASSWORD=letmein and so on.") == f"{before}PASSWORD=letmein and so on."


def test_no_more_than_eighty_characters_of_a_name_are_looked_at() -> None:
    for capitals, shown in ((71, "letmein"), (72, "***")):
        name = "a" + "X" * capitals + "PASSWORD"
        assert masked(f"{name}=letmein on") == f"{name}={shown} on"


@pytest.mark.parametrize("text", ["passwd=x9y8z7", "the passwd=x9y8z7"])
def test_passwd_is_a_file_only_behind_a_slash(text: str) -> None:
    assert masked(text) == text.replace("x9y8z7", "***")
    assert masked(f"/{text}") == (f"/{text}" if text.startswith("passwd") else f"/{text.replace('x9y8z7', '***')}")
    assert masked("/password=x9y8z7") == "/password=***"


@pytest.mark.parametrize("scheme", ["Basic", "token", "Digest", "ApiKey"])
def test_the_scheme_before_a_value_is_not_the_value(scheme: str) -> None:
    assert masked(f"X-Auth-Token: {scheme} x9y8z7a6") == f"X-Auth-Token: {scheme} ***"


# Words that begin like a vendor's name.


@pytest.mark.parametrize("vendor", ["aws", "github", "stripe", "AWS", "GitHub", "Stripe"])
def test_a_long_word_behind_a_vendors_name_must_look_random(vendor: str) -> None:
    word = "workflowdispatcheventreceived"
    assert masked(f"see {vendor}_{word} there") == f"see {vendor}_{word} there"
    assert masked(f"see {vendor}_w0rkfl0wD1spatch3ventR there") == f"see {vendor}_w0rkfl0wD1spatch3ventR there".replace(
        f"{vendor}_w0rkfl0wD1spatch3ventR", "***" + "entR"
    )


def test_a_fine_grained_token_is_one_even_if_it_looks_like_words() -> None:
    token = "github" + "_pat_" + "eleven" * 3 + "_" + "twelve" * 10
    assert masked(f"see {token} there") == "see ***elve there"


# Long values.


@pytest.mark.parametrize("context", ['password="{}" x', "password={} x", '"dbPassword": "{}", "b": 1', "TOKEN={}"])
@pytest.mark.parametrize("size", [0, 1, 1_000, VALUE_BYTES_JUDGED, 4 * VALUE_BYTES_JUDGED])
def test_a_long_value_is_masked_to_its_end(context: str, size: int) -> None:
    value = "a)B3" * (VALUE_BYTES_JUDGED // 4) + ("y8,z&)q" * (size // 7 + 1))[:size] + "wxyz"
    assert masked(context.format(value)) == context.format("***wxyz")


def test_a_long_token_is_masked_to_its_end_by_both_engines() -> None:
    for size in (16_380, 16_384, 50_000):
        token = "gh" + "p_" + "aB3" * (size // 3)
        assert masked(f"a {token} b {token} c") == "a ***3aB3 b ***3aB3 c"


def test_a_quoted_value_of_more_than_eight_kilobytes_must_look_random() -> None:
    for words, shown in ((VALUE_BYTES_JUDGED // 4 - 1, "***word"), (VALUE_BYTES_JUDGED // 4, None)):
        value = "word" * words
        assert masked(f'token="{value}"') == f'token="{shown or value}"'


AS_IT_READS = re.compile(rb"(?:[^\s\"'`,;&\\]|\\(?![\"'nrt])|[,;&](?![\w.-]{1,64}[=:]|\s|$|[\"'`]))+")
PIECES = (b"a", b"Zz9", b",", b";", b"&", b"\\", b"\\n", b'"', b" ", b"=", b",k=", b"." * 70, b"\n")


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
def test_a_value_without_quotes_ends_where_its_rule_says_wherever_it_is_entered(line: bytes) -> None:
    """So that of values that overlap each byte is looked at once."""
    for start in range(len(line) + 1):
        found = AS_IT_READS.match(line, start)
        end = end_of_unquoted(rules(), line, start)
        assert end == (found.end() if found else start)
        assert all(end_of_unquoted(rules(), line, inside) == end for inside in range(start, end))


@pytest.mark.parametrize(
    "line",
    [
        "rotate-secrets.yml:8:21: tasks[0].steps[0].timeout: expected a number",
        "src/token.c:118:25: error: expected ';'",
        "password.py:12:5: F401 unused import",
    ],
)
def test_a_line_and_a_column_of_a_file_with_a_telling_name_stay(line: str) -> None:
    assert PLAIN.text(line) == WITHOUT_RE2.text(line) == line


@pytest.mark.parametrize("line", ["token.yml:hunter2:5x", "db.password:8123:4567", "token.txt: 8123:4567a"])
def test_what_only_begins_like_a_line_and_a_column_is_masked(line: str) -> None:
    assert "***" in PLAIN.text(line)
