"""Private keys in output: what opens one, what belongs to it, what ends it, however the output is cut."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from acode.redact import Redactor, redactor
from acode.redact.rules import Rules, fallback_rules, rules

PLAIN = redactor([])
WITHOUT_RE2 = Redactor((), strict=False, rules=fallback_rules())
BEGIN = "-----BEGIN RSA PRIVATE " + "KEY-----"
END = "-----END RSA PRIVATE " + "KEY-----"
BODY = "MIIEowIBAAKCAQEAx9y8z7w6MIIEowIBAAKCAQEAx9y8z7w6MIIEowIBAAKCAQEA"
TOKEN = "gh" + "p_" + "aB3dE6" * 6
PUTTY = (
    "PuTTY-User-Key-File-3: ssh-ed25519",
    "Encryption: none",
    "Comment: eddsa-key-20260101",
    "Public-Lines: 2",
    "AAAAC3NzaC1lZDI1NTE5AAAAIHx9y8z7w6",
    "x9y8z7w6",
    "Private-Lines: 1",
    "AAAAIC3NzaC1lZDI1NTE5x9y8z7w6",
    "Private-MAC: 00ff",
    "after",
)
KEY_LINES_MAX = 400


def masked(text: str) -> str:
    """The same by both engines, and however it is cut."""
    shown = PLAIN.text(text)
    assert WITHOUT_RE2.text(text) == shown
    data = text.encode()
    for size in (1, 7, 50):
        stream = PLAIN.stream()
        chunks = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
        assert b"".join([*chunks, stream.finish()]).decode() == shown, size
    return shown


@pytest.mark.parametrize("end", ["\n", "\r"])
@pytest.mark.parametrize("before", [(), ("one",), ("", "one", "two")])
def test_a_putty_key_is_masked_from_its_first_line_to_its_code(before: tuple[str, ...], end: str) -> None:
    shown = [*before, PUTTY[0], *["***"] * 7, *PUTTY[8:]]
    assert masked(end.join([*before, *PUTTY])) == end.join(shown)


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_every_line_of_a_key_is_masked_and_everything_else_stays(end: str) -> None:
    lines = ["one", "", BEGIN, BODY, "", BODY[:8], BODY, END, "two", BODY, f"three {TOKEN}", "four"]
    shown = ["one", "", BEGIN, "***", "", "***", "***", END, "two", BODY, f"three ***{TOKEN[-4:]}", "four"]
    for ended in ("", end):
        assert masked(end.join(lines) + ended) == end.join(shown) + ended


def test_a_key_behind_another_is_masked_too() -> None:
    text = f"{BEGIN}\n{BODY}\n{END}\n{BEGIN}\n{BODY}\n{END}\nand {BEGIN}\n{BODY}\n{END}\n"
    assert masked(text) == text.replace(BODY, "***")


def test_a_key_that_opens_behind_the_end_of_another_is_masked() -> None:
    text = f"{BEGIN}\n{BODY}\n{END}{BEGIN}\n{BODY}\n{END}\n"
    assert masked(text) == text.replace(BODY, "***")
    line = f"{END} {BEGIN}\\n{BODY}\\n{END}\\n done"
    assert masked(line) == f"{END} {BEGIN}***{END}\\n done".replace("***", "***EA\\n")


def test_a_key_that_ends_without_its_mark_is_masked_up_to_what_cannot_belong_to_it() -> None:
    assert masked(f"{BEGIN}\n{BODY}\n{BODY}") == f"{BEGIN}\n***\n***"
    assert masked(f"{BEGIN}\n{BODY}\nAnd this is prose.\n{BODY}\n") == f"{BEGIN}\n***\nAnd this is prose.\n{BODY}\n"
    assert masked(f"{BEGIN}\n{BODY}\nthe token=a1b2c3\n") == f"{BEGIN}\n***\nthe token=***\n"


@pytest.mark.parametrize("prefix", ["web_1  | ", "2026-01-15T10:00:00Z "])
def test_the_prefix_of_a_line_of_a_key_is_shown(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in (BEGIN, BODY, BODY, END, "after"))
    assert masked(text) == text.replace(BODY, "***")


@pytest.mark.parametrize("signs", ["    ", "+", "> ", "# "])
def test_signs_before_a_line_of_a_key_are_masked_with_it(signs: str) -> None:
    assert masked(f"{BEGIN}\n{signs}{BODY}\n{signs}{BODY}\nafter.\n") == f"{BEGIN}\n***\n***\nafter.\n"


def test_a_line_that_only_ends_like_one_of_a_key_needs_sixteen_characters_of_it() -> None:
    for length, shown in ((15, BODY[:15]), (16, "***")):
        text = f"{BEGIN}\nweb: {BODY}\nweb_1: {BODY[:length]}\n"
        assert masked(text) == f"{BEGIN}\nweb: ***\nweb_1: {shown}\n"


def test_no_more_than_four_hundred_lines_are_taken_for_a_key() -> None:
    text = f"{BEGIN}\n" + f"{BODY}\n\n" * (KEY_LINES_MAX + 5)
    assert PLAIN.text(text) == f"{BEGIN}\n" + "***\n\n" * KEY_LINES_MAX + f"{BODY}\n\n" * 5


# On one line.


def test_the_end_mark_and_what_follows_it_are_shown() -> None:
    for join in (" ", "\\n", "\\\\n"):
        line = f"key: {BEGIN}{join}{BODY}{join}{BODY}{join}{END}{join}more"
        tail = (BODY + join)[-4:]
        assert masked(line) == f"key: {BEGIN}***{tail}{END}{join}more"


def test_a_key_that_is_cut_off_within_its_line_is_masked_as_far_as_it_goes() -> None:
    assert masked(f'"{BEGIN}\\n{BODY}" and more') == f'"{BEGIN}***{BODY[-4:]}" and more'


def test_less_than_sixteen_characters_are_no_key() -> None:
    for length in (1, 9, 15):
        text = f"{BEGIN} {BODY[:length]} ."
        assert masked(text) == text
    assert masked(f"{BEGIN} {BODY[:16]} .") == f"{BEGIN}***."


def test_a_begin_mark_among_words_opens_no_key() -> None:
    for line in (f"the mark {BEGIN} is not one (see below)", f"{BEGIN}...{END}"):
        text = f"{line}\n{BODY}\n"
        assert masked(text) == text
    assert masked(f"{BEGIN}{END} {BODY}") == f"{BEGIN}{END} {BODY}"
    assert masked(f"{BEGIN}...{END} {BEGIN}\n{BODY}\n") == f"{BEGIN}...{END} {BEGIN}\n***\n"


class Watched:
    """A pattern, and how many bytes its looks have gone over."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self.looked_bytes = 0

    def _looked(self, found: re.Match[bytes] | None, data: bytes, start: int) -> re.Match[bytes] | None:
        self.looked_bytes += (found.end() if found else len(data)) - start
        return found

    def match(self, data: bytes, start: int = 0) -> re.Match[bytes] | None:
        return self._looked(self._pattern.match(data, start), data, start)

    def search(self, data: bytes, start: int = 0) -> re.Match[bytes] | None:
        return self._looked(self._pattern.search(data, start), data, start)


@pytest.mark.parametrize("made", [rules, fallback_rules], ids=["re2", "re"])
@pytest.mark.parametrize("unit", [BEGIN, f"{BEGIN}{BODY}!", f"{BEGIN}{BODY}{END}", f"{BEGIN} {END} "])
def test_a_line_of_nothing_but_marks_is_read_a_few_times_and_not_once_for_each(
    made: Callable[[], Rules], unit: str
) -> None:
    own = made.__wrapped__()
    own.__dict__.update(key_rest=(rest := Watched(own.key_rest)), key_end=(end := Watched(own.key_end)))
    line = unit * 1_000
    shown = Redactor((), strict=False, rules=own).text(line)
    assert shown == PLAIN.text(line) and BODY not in shown
    assert max(rest.looked_bytes, end.looked_bytes) <= 8 * len(line)
