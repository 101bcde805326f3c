"""Is this a secret? The judgement behind the rules: names, values, and the many things that only look like one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from acode.redact.names import looks_secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acode.redact.rules import Rules

SECRET_BYTES_MAX = 8 * 1024
NAME_BYTES_MAX = 80
UNQUOTED_CHARS_MIN = 4
PASSWORD_WORD_CHARS_MIN = 8
JOINED_RANDOM_CHARS_MIN = 16
KEY_BODY_CHARS_MIN = 16
KEY_LOOK_BYTES = 1024
CLOSERS = b")]}>,;:"
# value may have ended before them or continue after them
UNDECIDED = CLOSERS + b"&"  # where a text is cut behind these,

Span = tuple[int, int, int]
"""(where the context begins that shows it to be secret, where the secret begins, where it ends)"""

CODE_WORDS = frozenset(
    b"str string bytes bytearray none null nil true false undefined required optional object any int integer bool"
    b" boolean number char text varchar function password passwd passphrase pwd secret token apikey api_key example"
    b" changeme redacted hidden masked unset empty missing invalid incorrect expired disabled enabled prompt stdin"
    b" default void self this typing callable include same-origin omit".split()
)
_HARMLESS_ENDINGS = frozenset(
    b"s type types url uri name names id ids count counts len length size path file files dir env expires expiry"
    b" expiration expired at ttl limit max min policy field format class hint prefix suffix izer izers ize ized ization"
    b" less reset strength label placeholder usage budget index pos position line lineno kind endpoint store manager"
    b" provider list set map hash hashed version status state required enabled rotation regex pattern rule rules scope"
    b" scopes issuer audience algorithm alg info help error errors message fingerprint public arn ref owner source"
    b" smanager seconds minutes ms header headers param params var variable cls func factory dict tuple stream".split()
)
_WEAK_NAMES = frozenset(b"passcode pass cookie auth creds jwt _key _pat".split())
_PASSWORDS = (b"password", b"passwd", b"passphrase", b"pwd")
_ARTICLES = frozenset(b"a an the is must should not no your my if for to use".split())
_OWNERS = rb"(?:self|cls|this|args|opts|options|config|settings|os|env|process|data|request|response)"


def find(rules: Rules, line: bytes) -> Iterator[Span]:
    """Every secret that a rule finds in one line; they may overlap."""
    for match in rules.shapes.finditer(line):
        if _is_shaped(match.group(1)):
            yield match.start(1), match.start(1), match.end(1)
    yield from _in_context(rules, line)
    for spot in rules.spots:
        for match in spot.finditer(line):
            if _is_quoted_secret(rules, match.group(1), b""):
                yield match.start(), match.start(1), match.end(1)
    for spot in rules.doubtful_spots:
        for match in spot.finditer(line):
            if _is_unquoted_secret(rules, match.group(1), b"", b" ", at_end=False):
                yield match.start(), match.start(1), match.end(1)
    if rules.programs.search(line):
        yield from _in_commands(rules, line)


def opens_key(rules: Rules, line: bytes) -> bool:
    """A begin mark with nothing but the key's own characters behind it, and no end mark: the key continues below."""
    begins = list(rules.key_begin.finditer(line))
    if not begins or rules.key_end.search(line, begins[-1].end()):
        return False
    return bool(rules.key_opening.fullmatch(line, begins[-1].end()))


def keys_on_one_line(rules: Rules, line: bytes) -> Iterator[Span]:
    """A private key as JSON and environment files have it: with `\\n` between its lines.

    A line may be made of nothing but marks. No part of it is read once for each of them: a mark inside the last key is
    passed over, and what was found behind an earlier mark is searched for again only behind that.
    """
    covered, reach, end_mark = 0, 0, 0
    for begin in rules.key_begin.finditer(line):
        start = begin.end()
        if start < covered:
            continue
        if reach <= start:
            reach = _end_of_key_text(rules, line, start)
        if len(line[start : min(reach, start + KEY_LOOK_BYTES)].strip()) < KEY_BODY_CHARS_MIN:
            continue
        if end_mark < start:
            ended = rules.key_end.search(line, start)
            end_mark = ended.start() if ended else len(line) + 1
        covered = end_mark if end_mark <= len(line) else reach
        yield begin.start(), start, covered


def _end_of_key_text(rules: Rules, line: bytes, start: int) -> int:
    """Where the characters that a key is written with end. The pattern is bounded, so that `re` needs little memory."""
    rest = rules.key_rest.match(line, start)
    while rest is not None and rest.end() > start:
        start = rest.end()
        rest = rules.key_rest.match(line, start)
    return start


def _is_shaped(value: bytes) -> bool:
    """A word that merely begins like a vendor's name must look random, or it is a long identifier."""
    if value[:7].lower().startswith((b"aws_", b"github_", b"stripe_")) and not value.startswith(b"github_pat_"):
        return _looks_random(value.partition(b"_")[2])
    return True


def _in_commands(rules: Rules, line: bytes) -> Iterator[Span]:
    """`docker login -p …`: the flags are looked for once behind the first such program, lest a line be read n times."""
    for program, flag in rules.commands:
        named = program.search(line)
        for match in flag.finditer(line, named.end()) if named else ():
            end = _end_of_argument(rules, line, match.end(), match.group(1))
            value = line[match.end() : min(end, match.end() + SECRET_BYTES_MAX)]
            if value and value[:1] != b"-" and not _is_placeholder(rules, value, b""):
                yield named.start(), match.end(), end


def _end_of_argument(rules: Rules, line: bytes, start: int, quote: bytes | None) -> int:
    closed = line.find(quote, start, start + SECRET_BYTES_MAX) if quote else -1
    return closed if closed >= 0 else end_of_unquoted(rules, line, start)


def _in_context(rules: Rules, line: bytes) -> Iterator[Span]:
    covered, reach, written = 0, 0, len(line.rstrip())
    for match in rules.context.finditer(line):
        if match.start() < covered or _is_harmless_name(match.group(2)):
            continue
        name = _whole_name(line, match.start(), match.end(2))
        if name == b"passwd" and line[match.start() - 1 : match.start()] == b"/":
            continue  # /etc/passwd is a file
        weak = match.group(1).lower() in _WEAK_NAMES
        if weak and not _names_a_variable(name, match.group(3), match.group(4)):
            continue
        quote, start = match.group(4), match.end()
        end = line.find(quote, start, start + SECRET_BYTES_MAX) if quote else -1
        if end >= 0:
            if _is_quoted_secret(rules, line[start:end], name):
                covered = end
                yield match.start(), start, end
            continue
        scheme = rules.scheme.match(line, start)
        start = scheme.end() if scheme else start
        if start >= reach:  # else it begins inside the last one that was looked at, and ends where that does
            reach = end_of_unquoted(rules, line, start)
        if reach == start:
            continue
        whole = line[start : min(reach, start + SECRET_BYTES_MAX)]
        value = _without_closers(whole)
        if weak and re.fullmatch(rb"[\d.,/:%]+[a-z]{0,2}", value):
            continue  # `first_pass: 12/20` is a result
        if _is_position(match.group(2), match.group(3), value):
            continue
        at_end = start + len(value) >= written
        if _is_unquoted_secret(rules, value, name, match.group(3), at_end=at_end):
            # Judged by its first 8 KiB, lest a hostile line take forever; masked to its end.
            covered = reach if len(whole) == SECRET_BYTES_MAX else start + len(value)
            yield match.start(), start, covered


def end_of_unquoted(rules: Rules, line: bytes, start: int) -> int:
    """Where a value without quotes ends; `start` where none begins there."""
    found = rules.unquoted_end.search(line, start)
    return found.start() if found else len(line)


def _is_harmless_name(ending: bytes) -> bool:
    """`token_count`, `passwordless`, `Token.Name`: named after a secret, but not the name of one."""
    words = re.findall(rb"[A-Z]?[a-z]+|[A-Z]+|\d+", ending)
    return bool(words) and (words[-1].lower() in _HARMLESS_ENDINGS or (ending[:1] == b"." and ending[1:2].isupper()))


def _is_position(ending: bytes, separator: bytes, value: bytes) -> bool:
    """`token.c:12:5`, `rotate-secrets.yml:3:14`: a line and a column of a file, as compilers and acode name them."""
    extension = re.search(rb"\.[A-Za-z][A-Za-z0-9]{0,7}$", ending)
    return extension is not None and separator == b":" and re.fullmatch(rb"\d{1,7}:\d{1,5}", value) is not None


def _names_a_variable(name: bytes, separator: bytes, quote: bytes | None) -> bool:
    """`DB_PASS=`, `dbPass: '…'`; not `pass: 12`, `bypass=…`, `cache_key=…`: prose and code use the weak names too."""
    said = name.decode("ascii", "replace")
    if not looks_secret(said) or (name.lower().endswith(b"key") and not name.isupper()):
        return False
    return bool(quote) or b"=" in separator or re.search(rb"[A-Za-z0-9][_-]|[a-z][A-Z]", name) is not None


def _whole_name(line: bytes, start: int, end: int) -> bytes:
    while (
        start > 0 and end - start < NAME_BYTES_MAX and (line[start - 1 : start].isalnum() or line[start - 1] in b"_-.")
    ):
        start -= 1
    return line[start:end]


def _without_closers(value: bytes) -> bytes:
    """`f(password=x1y2)`: the bracket was opened before the value and belongs to the code around it."""
    while value[-1:] and value[-1:] in CLOSERS:
        opener = {b")": b"(", b"]": b"[", b"}": b"{", b">": b"<"}.get(value[-1:])
        if opener is not None and value.count(opener) >= value.count(value[-1:]):
            break
        value = value[:-1]
    return value


def _is_placeholder(rules: Rules, value: bytes, name: bytes) -> bool:
    bare = value.strip().strip(b".,:!?")
    if not bare or bare.lower() in CODE_WORDS or rules.template.fullmatch(bare):
        return True
    if b"pwd" in name.lower() and re.fullmatch(rb"(?:[/~]|[A-Za-z]:[\\/]).*", bare):
        return True  # the other meaning of the word: a working directory
    return bare.lower() == name.lower()


def _is_quoted_secret(rules: Rules, value: bytes, name: bytes) -> bool:
    if _is_placeholder(rules, value, name) or re.fullmatch(rb"[A-Z]+(?:_[A-Z]+)+", value):
        return False  # capitals joined by underscores are the name of a variable, as in os.environ
    words = value.split()
    sentence = len(words) > 8 or value[:1].isupper() or value[-1:] in b".:!?" or words[0] in _ARTICLES
    return not (len(words) > 1 and sentence)


def _is_unquoted_secret(rules: Rules, value: bytes, name: bytes, separator: bytes, *, at_end: bool) -> bool:
    """Behind a name and without quotes stands code as often as a secret: it must look like one, or be an assignment."""
    if len(value) < UNQUOTED_CHARS_MIN or value[:1] in b"=([{" or _is_placeholder(rules, value, name):
        return False
    if name.isupper() and separator == b"=":
        return True
    lowered = name.lower()
    is_password = any(word in lowered for word in _PASSWORDS)
    if value.isdigit():
        return is_password or len(value) >= 12
    if re.fullmatch(_OWNERS + rb"\.[\w.]+|[A-Za-z_.]+\d{0,3}[(\[].*", value):
        return False
    if _looks_random(value):
        return is_password or not re.fullmatch(rb"(?:[A-Z]{1,3}[a-z]{2,}\d{0,2}){2,6}", value)
    words_only = value.isalpha() and len(value) >= PASSWORD_WORD_CHARS_MIN
    return is_password and words_only and at_end and separator in {b"=", b": "}


def _looks_random(value: bytes) -> bool:
    """Not a word, not words joined: digits among letters, signs, or capitals without rhyme."""
    if value.isalpha():
        return len(value) >= 8 and _has_odd_capitals(value)
    joined = rb"_*[A-Za-z]+(?:[_.:/-]+[A-Za-z]+\d{0,2})*[_.]*|[a-z]+\d{0,2}(?:_[a-z0-9]+)+"
    if not re.fullmatch(joined, value):
        return True
    return any(
        len(word) >= JOINED_RANDOM_CHARS_MIN and _has_odd_capitals(word) for word in re.findall(rb"[A-Za-z]+", value)
    )


def _has_odd_capitals(word: bytes) -> bool:
    humps = len(re.findall(rb"[a-z][A-Z]", word)) + len(re.findall(rb"[A-Z]{2,}", word))
    return humps * 4 >= len(word)
