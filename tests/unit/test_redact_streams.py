"""Redaction of output as it comes: where lines begin and end, how long a line is held, and what a long secret costs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from acode.redact import Redactor, Stream, redactor
from acode.redact.rules import DOUBTFUL_SPOTS, SPOTS, Look, Rules, fallback_rules
from tests.variants import first_of

PLAIN = redactor([])
TOKEN = b"gh" + b"p_" + b"aB3dE6" * 6
MASKED_TOKEN = b"***" + TOKEN[-4:]
HELD_BYTES_MAX = 64 * 1024
HELD_BYTES_MIN = 8 * 1024
WINDOW_BYTES = 16 * 1024


def streamed(one: Redactor, data: bytes, size: int) -> bytes:
    stream = one.stream()
    return b"".join([*(stream.feed(data[at : at + size]) for at in range(0, len(data), size)), stream.finish()])


def knowing(*values: bytes) -> Redactor:
    """With `re`, which compiles a value of many kilobytes in no time."""
    return Redactor(values, strict=False, rules=fallback_rules())


# Lines.


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n", b"\n\r"])
def test_a_line_is_let_go_of_when_it_ends_and_no_sooner(end: bytes) -> None:
    stream = PLAIN.stream()
    assert stream.feed(b"one" + end + b"two") == b"one" + end
    assert stream.feed(b" goes on") == b""
    assert stream.feed(end + b"three" + end + b"fo") == b"two goes on" + end + b"three" + end
    assert stream.feed(b"") == b""
    assert stream.finish() == b"fo"
    assert stream.finish() == b""


def test_a_chunk_with_both_ends_is_let_go_of_up_to_the_last() -> None:
    for chunk in (b"one\rtwo\nthree", b"one\ntwo\rthree"):
        stream = PLAIN.stream()
        assert stream.feed(chunk) == chunk[: -len(b"three")]
        assert stream.finish() == b"three"


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_what_names_a_secret_in_one_line_says_nothing_about_the_next(end: bytes) -> None:
    data = b"the password:" + end + b"x9y8z7w6" + end + b"token=" + end + end + b"a1b2c3d4" + end
    assert streamed(PLAIN, data, len(data)) == data


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_secrets_in_lines_of_their_own_are_all_masked_and_all_else_stays(end: bytes) -> None:
    lines = [b"", b"one", TOKEN, b"two", b"", b"password=x9y8z7w6 three", TOKEN + b" " + TOKEN, b"four", TOKEN]
    shown = [line.replace(TOKEN, MASKED_TOKEN).replace(b"x9y8z7w6", b"***") for line in lines]
    for ended in (b"", end):
        data = end.join(lines) + ended
        for size in (1, 5, len(data)):
            assert streamed(PLAIN, data, size) == end.join(shown) + ended


def test_text_that_is_not_unicode_keeps_its_surrogates_beside_a_secret() -> None:
    assert PLAIN.text("\ud800 password=x9y8z7 \udcff") == "\ud800 password=*** \udcff"


# A line without end.


def test_a_line_is_held_up_to_sixty_four_kilobytes() -> None:
    stream = PLAIN.stream()
    words = b"ab " * (HELD_BYTES_MAX // 3) + b"c"
    assert len(words) == HELD_BYTES_MAX
    assert stream.feed(words) == b""
    assert stream.feed(b"\n") == words + b"\n"  # and anew in the next line
    assert stream.feed(words) == b""
    assert stream.finish() == words  # and after an end
    assert stream.feed(words) == b""
    assert stream.feed(b"d") == (words + b"d")[:-HELD_BYTES_MIN]
    assert stream.feed(b"e") == b""  # what was let go of is not held any more
    assert stream.finish() == (words + b"de")[-HELD_BYTES_MIN - 1 :]


@pytest.mark.parametrize("behind", range(HELD_BYTES_MIN - 2, HELD_BYTES_MIN + 3))
def test_a_long_line_is_let_go_of_up_to_the_secret_or_with_it(behind: int) -> None:
    before = b"ab " * (HELD_BYTES_MAX // 3)
    out = PLAIN.stream().feed(before + TOKEN + b" " * behind)
    assert out == before + (MASKED_TOKEN + b" " * (behind - HELD_BYTES_MIN) if behind >= HELD_BYTES_MIN else b"")


@pytest.mark.parametrize("size", [1_000, 30_000, 200_000])
@pytest.mark.parametrize("value_bytes", [9_000, 57_000, 63_000, 66_000, 150_000])
def test_what_follows_a_secret_that_fills_all_is_not_lost(value_bytes: int, size: int) -> None:
    value = (b"aB3x,&)y" * value_bytes)[:value_bytes]
    for before in (b"", b"ab cd "):
        data = before + b"password=" + value + b" and prose" * 10_000
        out = streamed(PLAIN, data, size)
        assert out in {data.replace(value, b"***"), data.replace(value, b"***" + value[-4:])}


@pytest.mark.parametrize("last", [b")", b",", b"&", b";", b"]})"])
def test_a_secret_that_fills_all_goes_on_behind_a_sign_that_could_have_ended_it(last: bytes) -> None:
    stream = PLAIN.stream()
    out = stream.feed(b"password=" + b"aB3x" * 20_000 + last)
    assert out + stream.feed(b"y8z9 end") + stream.finish() == b"password=*** end"


def test_no_secret_is_parted_from_what_shows_it_by_another_that_fills_all() -> None:
    for begin, behind in ((b"gh" + b"p_", b"password=x9y8z7w6"), (b"login gh" + b"p_", b" password x9y8z7w6")):
        stream = PLAIN.stream()
        out = stream.feed(begin + b"aB3x" * 16_000 + behind + b" ab" * 600)
        assert b"***" in out and b"aB3x" * 3 not in out
        assert b"x9y8z7w6" not in out + stream.feed(b" end\n") + stream.finish()


def test_a_token_within_a_password_is_not_parted_from_the_name_before_it() -> None:
    before, begin, secret = b"ab " * (HELD_BYTES_MAX // 3), b'the password="', b"x9y8-" + TOKEN + b"-more"
    for cut in range(0, len(begin) + len(secret), 3):
        stream = PLAIN.stream()
        held = begin + secret + b'" '
        out = stream.feed(before + held + b" " * (HELD_BYTES_MIN - len(held) + cut)) + stream.finish()
        assert out.rstrip(b" ") == before + begin + b'***more"', cut


def test_only_the_secret_that_fills_all_is_let_go_of() -> None:
    stream = PLAIN.stream()
    assert stream.feed(b"password=" + b"aB3x" * 16_000 + b" ab" * 600 + b" token=a1b2") == b"password=***aB3x"
    assert stream.feed(b"c3d4 end\n") == b" ab" * 600 + b" token=*** end\n"


def test_after_a_secret_that_was_dropped_a_line_is_held_as_before() -> None:
    stream = PLAIN.stream()
    assert stream.feed(b"password=" + b"aB3x" * 20_000) == b"password=***"
    assert stream.feed(b"aB3x") == b""
    words = b" ab" * (HELD_BYTES_MAX // 3) + b"c"
    assert stream.feed(words) == b""
    assert stream.feed(b"d") == (words + b"d")[:-HELD_BYTES_MIN]


@pytest.mark.parametrize("value_bytes", first_of(HELD_BYTES_MIN + 1_000, HELD_BYTES_MAX + 5_000))
def test_a_known_value_longer_than_a_line_is_held_is_masked_in_a_line_without_end(value_bytes: int) -> None:
    value = (b"kn0wn-" * value_bytes)[:value_bytes]
    one = knowing(value)
    before, behind = b"password=x9y8z7 " + b"ab " * 20_000, b" cd" * 20_000
    shown = before.replace(b"x9y8z7", b"***") + b"***" + value[-4:] + behind
    assert streamed(one, before + value + behind, 30_000) == shown


def test_a_line_is_held_for_as_long_as_twice_the_longest_known_value() -> None:
    value = b"kn0wn-" * 12_000
    stream = knowing(value).stream()
    assert stream.feed(b"ab " * 48_000) == b""
    assert len(stream.feed(b"c")) == 2 * len(value) + 1 - len(value)


# The engines.


def test_the_quick_look_is_given_no_more_than_sixty_four_kilobytes() -> None:
    looked: list[int] = []

    def looker(pattern: bytes) -> Look:
        search = re.compile(pattern).search
        return lambda data: looked.append(len(data)) or search(data)

    one = Redactor((), strict=False, rules=Rules(re.compile, looker, None))
    for size in (10, HELD_BYTES_MAX, HELD_BYTES_MAX + 1):
        assert one.text("a" * size) == "a" * size
        text = "a" * (size - 11) + " token=a1b2"
        assert one.text(text) == text.replace("a1b2", "***")
    assert looked == [10, 11, HELD_BYTES_MAX, HELD_BYTES_MAX]


def test_nothing_is_searched_for_where_nothing_is_known() -> None:
    compiled: list[bytes] = []

    def compiler(pattern: bytes) -> re.Pattern[bytes]:
        compiled.append(pattern)
        return re.compile(pattern)

    rules = Rules(compiler, lambda pattern: re.compile(pattern).search, None)
    Redactor((), strict=False, rules=rules)
    assert compiled == []
    Redactor((b"known1",), strict=False, rules=rules)
    assert compiled == [b"known1"]


def test_a_hash_is_not_even_a_clue_unless_every_long_string_is_asked_for() -> None:
    digest = b"0123456789abcdef" * 4
    assert not PLAIN._look(digest) and not PLAIN._has_clue(digest)
    strict = redactor([], strict=True)
    assert strict._look(digest) and strict._has_clue(digest)


def test_without_re2_no_rule_looks_further_than_a_window() -> None:
    one = Redactor((), strict=False, rules=fallback_rules())
    for between, shown in ((16 * 1024 - 30, "***"), (24 * 1024, "x9y8z7")):
        text = "mysql " + "ab " * (between // 3) + "-px9y8z7" + " ab" * 3_000
        assert one.text(text) == text.replace("x9y8z7", shown)
        assert PLAIN.text(text) == text.replace("x9y8z7", "***")


def test_without_re2_what_is_known_is_masked_at_any_place_of_a_long_line() -> None:
    one = knowing(b"known-value-1")
    text = "ab " * 10_000 + "known-value-1" + " cd" * 10_000 + f" {TOKEN.decode()}"
    assert one.text(text) == text.replace("known-value-1", "***").replace(TOKEN.decode(), MASKED_TOKEN.decode())


def test_without_re2_a_long_secret_is_masked_in_a_line_without_end() -> None:
    value = b"aB3x" * 11_000
    for before in (b"", b"ab " * 3_000, b"ab " * 6_000, b"ab " * 15_000):
        data = before + b"password=" + value + b" and prose" * 3_000
        assert streamed(knowing(), data, 10_000) == data.replace(value, b"***aB3x")


@pytest.mark.parametrize("length", [WINDOW_BYTES, 20_000, WINDOW_BYTES + WINDOW_BYTES // 2, 30_000])
def test_without_re2_a_bracket_behind_a_value_is_shown_wherever_it_stands_in_a_long_line(length: int) -> None:
    one, call = Redactor((), strict=False, rules=fallback_rules()), "f(password=7xyz1)"
    for text in (call + " " * (length - 17), " " * 12_000 + call + " " * (length - 12_017), " " * (length - 17) + call):
        assert len(text) == length
        assert one.text(text) == PLAIN.text(text) == text.replace("7xyz1", "***")


def test_without_re2_a_line_of_one_window_is_seen_as_a_whole() -> None:
    one = Redactor((), strict=False, rules=fallback_rules())
    text = "a" * (WINDOW_BYTES // 2) + "_PASSWORD=letmein on" + " token=a1b2".rjust(WINDOW_BYTES // 2 - 20)
    assert len(text) == WINDOW_BYTES
    assert one.text(text) == PLAIN.text(text) == text.replace("a1b2", "***")


@pytest.mark.parametrize("at", [WINDOW_BYTES // 2, WINDOW_BYTES])
def test_without_re2_a_word_does_not_begin_where_a_window_does(at: int) -> None:
    one, word = Redactor((), strict=False, rules=fallback_rules()), "AK" + "IA" + "X9Y8" * 4
    across = "token=a1b2c3".rjust(WINDOW_BYTES // 2 - len(word) + 6)  # over the beginning of the next window
    for before, shown in (("a" * at, word), ("a" * (at - 1) + " ", "***")):
        text = before + word + across + " ab" * 7_000
        assert one.text(text) == PLAIN.text(text) == text.replace(word, shown).replace("a1b2c3", "***")


def test_without_re2_no_rule_looks_at_any_part_of_a_long_line_more_than_twice() -> None:
    looks: dict[bytes, list[int]] = {}

    class Watched:
        def __init__(self, pattern: bytes) -> None:
            self._compiled = re.compile(pattern)
            self._looks = looks.setdefault(pattern, [])

        def search(self, data: bytes, position: int = 0) -> re.Match[bytes] | None:
            self._looks.append(len(data))
            return self._compiled.search(data, position)

        def finditer(self, data: bytes, position: int = 0) -> Iterator[re.Match[bytes]]:
            self._looks.append(len(data))
            return self._compiled.finditer(data, position)

    one = Redactor((), strict=False, rules=Rules(Watched, lambda pattern: re.compile(pattern).search, WINDOW_BYTES))
    line = "ab " * 20_000 + "token=a1b2"
    assert one.text(line) == line.replace("a1b2", "***")
    in_windows = [sizes for sizes in looks.values() if max(sizes) <= WINDOW_BYTES]
    assert len(in_windows) == 3 + len(SPOTS) + len(DOUBTFUL_SPOTS)
    assert all(len(line) <= sum(sizes) <= 2 * len(line) for sizes in in_windows)


def test_a_stream_of_its_own_begins_with_nothing() -> None:
    one, other = PLAIN.stream(), PLAIN.stream()
    assert isinstance(one, Stream)
    assert one.feed(b"held") == b""
    assert other.finish() == b""
