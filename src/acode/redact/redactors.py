"""Mask what is secret, in a text or in a stream of output that is cut anywhere."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Iterator
from functools import cached_property
from heapq import merge

from acode.redact.evidence import (
    CODE_WORDS,
    SECRET_BYTES_MAX,
    UNDECIDED,
    Span,
    end_of_unquoted,
    find,
    keys_on_one_line,
    opens_key,
)
from acode.redact.rules import Look, Rules, rules

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` alone would double the time that a keeper takes to start
    from typing import Any

MASK = b"***"
SHOWN_TAIL_CHARS = 4
SHOWN_TAIL_FROM_CHARS = 24
VALUE_CHARS_MIN = 4
VALUE_LINE_CHARS_MIN = 8
HELD_BYTES_MAX = 64 * 1024
KEY_LINES_MAX = 400
LOOK_BYTES_MAX = 64 * 1024


def redactor(secret_values: Iterable[str], strict: bool = False) -> Redactor:
    """Values under 4 characters look like ordinary text; they are left alone, as are `true` and the like.

    Strict mode also masks every string of 20 and more characters: for conversation text only, since it eats hashes.
    """
    return Redactor(_as_printed(secret_values), strict=strict, rules=rules())


class Redactor:
    """Masks secrets in text."""

    def __init__(self, values: tuple[bytes, ...], *, strict: bool, rules: Rules) -> None:
        self.rules = rules
        self.learned: tuple[str, ...] = ()
        self._strict = strict
        self._prepare(values)

    def _prepare(self, values: tuple[bytes, ...]) -> None:
        self._known = values
        # Searched for apart from the rules: to compile those takes as long as a short command, for each set of values.
        own = (self.rules.needles(values) if values else None, self.rules.strict if self._strict else None)
        self._own = tuple(one for one in own if one is not None)
        self.__dict__.pop("_look", None)
        self.held_bytes_min: int = max((SECRET_BYTES_MAX, *map(len, values)))
        self.held_bytes_max: int = max(HELD_BYTES_MAX, 2 * self.held_bytes_min)

    def learn(self, values: Iterable[str]) -> None:
        """Mask these too from now on: a session declares its secrets after its redactor was made."""
        new = tuple(value for value in dict.fromkeys(values) if value not in self.learned)
        if new:
            self.learned = (*self.learned, *new)
            printed = {*self._known, *_as_printed(new)}
            self._prepare(tuple(sorted(printed, key=lambda one: (-len(one), one))))  # the longest first

    @cached_property
    def _look(self) -> Look:
        """Whether a short text has a clue. A keeper, which reads a stream, never compiles this one."""
        quick, own = self.rules.look, self._own
        return (lambda data: quick(data) or any(one.search(data) for one in own)) if own else quick

    def _has_clue(self, data: bytes) -> bool:
        return any(one.search(data) for one in (self.rules.clue, *self._own))

    def text(self, s: str) -> str:
        if len(s) < VALUE_CHARS_MIN:  # no rule and no value is that short
            return s
        if s.isdigit() and not self._own:  # no rule finds anything in a number, as which most arguments are shown
            return s
        data = s.encode("utf-8", "surrogatepass")
        # The quick look keeps to one table of states, and could run out of memory over a text without end.
        if not (self._look if len(data) <= LOOK_BYTES_MAX else self._has_clue)(data):
            return s
        stream = self.stream()
        return (stream.feed(data) + stream.finish()).decode("utf-8", "surrogatepass")

    def matches(self, s: str) -> bool:
        """Whether any rule finds a secret in it."""
        return self.text(s) != s

    def matches_in(self, data: bytes) -> bool:
        """The same for text in UTF-8; bytes that are none are looked at as well as they can be."""
        if len(data) <= LOOK_BYTES_MAX and not self._look(data):
            return False
        return self.matches(data.decode("utf-8", "surrogateescape"))

    def stream(self) -> Stream:
        return Stream(self)

    def lines_with_a_clue(self, data: bytes, position: int) -> Iterator[tuple[int, int]]:
        """(start, end) of each line from `position` on that deserves a closer look, without its end."""
        for hit in merge(*(_hits(one, data, position) for one in (self.rules.clue, *self._own))):
            if hit >= position:
                start = max(data.rfind(b"\n", position, hit), data.rfind(b"\r", position, hit), position - 1) + 1
                end = line_end(data, hit)
                yield start, end
                position = end + 1

    def spans(self, line: bytes) -> list[Span]:
        """Every secret in one line, in order, none overlapping another."""
        if not self._has_clue(line):
            return []
        window = self.rules.window_bytes
        found = find(self.rules, line) if window is None or len(line) <= window else self._in_windows(line, window)
        # Keys are looked for in the whole line by `re` in either case: they may be longer than a window.
        return _merged([*found, *keys_on_one_line(self.rules, line), *self._general(line)])

    def _in_windows(self, line: bytes, window: int) -> Iterator[Span]:
        """The matches of `find`, for an engine that must not see a whole long line at once."""
        reached = 0
        for at in range(0, len(line), window // 2):
            for outer, start, end in find(self.rules, line[at : at + window]):
                if at and outer == 0:
                    continue  # A rule may take this for the beginning of the line. The window before has seen it.
                reaches = at + end
                if at + window < len(line) and not line[reaches : at + window].strip(UNDECIDED):
                    # A match that ends at the edge of a window, or seems to, may continue behind it.
                    reaches = reached = end_of_unquoted(self.rules, line, max(reached, reaches))
                yield at + outer, at + start, reaches

    def _general(self, line: bytes) -> Iterator[Span]:
        for rule in self._own:
            yield from ((match.start(), match.start(), match.end()) for match in rule.finditer(line))

    def mask_line(self, line: bytes) -> bytes:
        return _masked(line, self.spans(line))


def _hits(clue: Any, data: bytes, position: int) -> Iterator[int]:
    """The last byte of each clue: the first one may be the line break before it; the rest is always in one line."""
    return (match.end() - 1 for match in clue.finditer(data, position))


class Stream:
    """Output in chunks of any size. A line is held back until it ends, since a secret may reach into the next chunk."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._key_lines = 0
        self._swallowing = False

    def feed(self, chunk: bytes) -> bytes:
        if self._swallowing:
            chunk = self._swallow(chunk)
        cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if cut == 0:
            self._hold(chunk)
            return self._cut_long_line() if self._held_bytes > self._redactor.held_bytes_max else b""
        block = b"".join((*self._held, chunk[:cut]))
        self._held, self._held_bytes = [], 0
        self._hold(chunk[cut:])
        return self._whole_lines(block)

    def finish(self) -> bytes:
        block = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return self._whole_lines(block)

    def _hold(self, data: bytes) -> None:
        if data:
            self._held.append(data)
            self._held_bytes += len(data)

    def _whole_lines(self, block: bytes) -> bytes:
        """Lines without a clue are copied as they are, unless they belong to a private key."""
        out: list[bytes] = []
        position = self._inside_key(block, 0, out)
        looking = True
        while looking:
            looking = False
            for start, end in self._redactor.lines_with_a_clue(block, position):
                line = block[start:end]
                out += (block[position:start], self._redactor.mask_line(line))
                position = end
                if opens_key(self._redactor.rules, line):
                    self._key_lines = 1
                    position = self._inside_key(block, end, out)
                    looking = True
                    break
        out.append(block[position:])
        return b"".join(out)

    def _inside_key(self, block: bytes, position: int, out: list[bytes]) -> int:
        """Mask the lines of a private key up to its end, or up to the first line that cannot be part of one."""
        rules = self._redactor.rules
        while self._key_lines and position < len(block):
            end = line_end(block, position)
            line = block[position:end]
            whole = rules.key_line.fullmatch(line)
            tail = None if whole else rules.key_tail.search(line)
            if rules.key_end.search(line) or not (whole or tail) or self._key_lines > KEY_LINES_MAX:
                self._key_lines = 0
                break
            if line.strip():
                out += (line[: tail.start()] if tail else b"", MASK)
                self._key_lines += 1
            out.append(block[end : end + 1])
            position = end + 1
        return min(position, len(block))

    def _cut_long_line(self) -> bytes:
        """A line without end: let go of its beginning, but never between a secret and what shows it to be one."""
        data = b"".join(self._held)
        spans = self._redactor.spans(data)
        cut = len(data) - self._redactor.held_bytes_min
        for outer, _, end in reversed(spans):
            if outer < cut < end:
                cut = outer
        if cut == 0:
            # Secrets fill all that may be held. They are let go of; what is still to come of the last one is dropped.
            for outer, _, end in spans:
                cut = end if outer <= cut else cut
            if not data[cut:].strip(UNDECIDED):
                self._held, self._held_bytes, self._swallowing = [], 0, True
                outer, start, _ = spans[-1]
                return _masked(data, [*spans[:-1], (outer, start, len(data))], tail=False)
        self._held, self._held_bytes = [data[cut:]], len(data) - cut
        return _masked(data[:cut], [span for span in spans if span[2] <= cut])

    def _swallow(self, chunk: bytes) -> bytes:
        position = end_of_unquoted(self._redactor.rules, chunk, 0)
        self._swallowing = position == len(chunk)
        return chunk[position:]


def line_end(data: bytes, position: int) -> int:
    ends = [end for end in (data.find(b"\n", position), data.find(b"\r", position)) if end >= 0]
    return min(ends, default=len(data))


def _mask(value: bytes, *, tail: bool) -> bytes:
    text = value.decode("utf-8", "ignore")
    if not tail or len(text) < SHOWN_TAIL_FROM_CHARS:
        return MASK
    return MASK + text[-SHOWN_TAIL_CHARS:].encode()


def _masked(data: bytes, spans: list[Span], *, tail: bool = True) -> bytes:
    out: list[bytes] = []
    position = 0
    for _, start, end in spans:
        out += (data[position:start], _mask(data[start:end], tail=tail))
        position = end
    out.append(data[position:])
    return b"".join(out)


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for outer, start, end in sorted(spans, key=lambda span: (span[1], span[2])):
        if merged and start < merged[-1][2]:
            last = merged[-1]
            merged[-1] = (min(last[0], outer), last[1], max(last[2], end))
        elif end > start:
            merged.append((outer, start, end))
    return merged


def _as_printed(values: Iterable[str]) -> tuple[bytes, ...]:
    """Each value as it may be printed: as it is, line by line, in JSON, in an address, in base64. The longest first."""
    printed: set[bytes] = set()
    for value in values:
        lines = [line.strip() for line in value.strip().splitlines()]
        parts = lines if len(lines) == 1 else [line for line in lines if len(line) >= VALUE_LINE_CHARS_MIN]
        for part in parts:
            raw = part.encode("utf-8", "surrogatepass")
            if len(part) < VALUE_CHARS_MIN or raw.lower() in CODE_WORDS:
                continue
            printed |= {raw, raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"')}
            printed.add(b"".join(bytes((b,)) if bytes((b,)).isalnum() or b in b"_.-~" else b"%%%02X" % b for b in raw))
            if len(raw) >= VALUE_LINE_CHARS_MIN:
                printed.add(b2a_base64(raw, newline=False).rstrip(b"="))
    return tuple(sorted(printed, key=lambda one: (-len(one), one)))
