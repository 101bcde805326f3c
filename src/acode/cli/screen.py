"""Where text goes: data to stdout, messages to stderr; colors and signs only where the other end can show them.
Everything makes sense without color. A sign that the stream's encoding does not have is replaced by a plain one. A pipe
that was closed at the other end is no error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from acode.errors import AcodeError

if TYPE_CHECKING:
    from acode.cli.early_flags import Flags

STYLES = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1", "now": "36"}
PLAIN_SIGNS = str.maketrans(
    {"✓": "ok", "✗": "x", "●": "*", "⚠": "!", "…": "...", "“": '"', "”": '"', "·": "-", "–": "-", "—": "-", "→": "->"}
    | {"│": "|", "’": "'"}
)


class Screen:
    """The two streams of one command."""

    def __init__(self, flags: Flags, env: Mapping[str, str]) -> None:
        self.flags = flags
        self.env = env

    # Data.

    def data(self, text: str) -> None:
        """To stdout. Raises BrokenPipeError where nobody reads any more; the command line ends quietly then."""
        try:
            write(sys.stdout, text + "\n")
        except BrokenPipeError:
            raise
        except OSError as error:
            raise AcodeError(
                f"the output cannot be written: {error.strerror}", hint="Nothing else was lost."
            ) from error

    def document(self, value: Any) -> None:
        """One JSON document, indented for a person on a terminal and on one line for a program."""
        self.json_text(as_json(value, pretty=is_terminal(sys.stdout)))

    def json_text(self, text: str) -> None:
        """JSON has its own way to write what an encoding lacks, or what would steer the terminal it is shown on."""
        if not text.isascii() or "\x7f" in text:
            text = "".join(escaped(char) if steers(char) else char for char in text)
        try:
            text.encode(sys.stdout.encoding if sys.stdout is not None else "utf-8")
        except UnicodeEncodeError:
            text = "".join(char if char.isascii() else escaped(char) for char in text)
        self.data(text)

    # Talk.

    def line(self, text: str = "") -> None:
        if not self.flags.quiet:
            self.insist(text)

    def detail(self, text: str) -> None:
        if self.flags.verbose:
            self.line(text)

    def warn(self, text: str) -> None:
        self.line(f"{self.paint('warning:', 'warn')} {text}")

    def insist(self, text: str) -> None:
        """Printed also with -q: errors, questions, and the next command."""
        self.put(text + "\n")

    def put(self, text: str) -> None:
        # Nobody listens to stderr: that must not end the work.
        with contextlib.suppress(OSError, ValueError):
            write(sys.stderr, text)

    # How it looks.

    def paint(self, text: str, style: str, *, on: TextIO | None = None) -> str:
        if not self.coloured(on if on is not None else sys.stderr):
            return text
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m"

    def paint_data(self, text: str, style: str) -> str:
        return self.paint(text, style, on=sys.stdout)

    def coloured(self, stream: TextIO | None) -> bool:
        if self.env.get("NO_COLOR"):
            return False
        if self.env.get("FORCE_COLOR", "0") not in ("", "0"):
            return True
        return is_terminal(stream) and self.env.get("TERM") != "dumb"

    @property
    def lively(self) -> bool:
        """Whether a line of talk may be drawn over."""
        return not self.flags.quiet and self.env.get("TERM") != "dumb" and is_terminal(sys.stderr)

    @property
    def can_ask(self) -> bool:
        return is_terminal(sys.stdin) and is_terminal(sys.stderr) and not self.flags.no_input

    def columns(self, stream: TextIO | None = None) -> int:
        """The width of the terminal, or one that suits a file."""
        if (fixed := self.env.get("COLUMNS", "")).isdecimal() and int(fixed) > 0:
            return int(fixed)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return os.get_terminal_size((stream or sys.stderr).fileno()).columns or 80
        return 100


def is_terminal(stream: TextIO | None) -> bool:
    with contextlib.suppress(ValueError):
        return stream is not None and stream.isatty()
    return False


def write(stream: TextIO | None, text: str) -> None:
    if stream is not None:
        stream.write(showable(text, stream.encoding))
        stream.flush()


def showable(text: str, encoding: str | None) -> str:
    """The text as this encoding can hold it: ✓ crashes under ASCII, and a name may be no text at all."""
    try:
        text.encode(encoding or "ascii")
    except UnicodeEncodeError:
        plain = text.translate(PLAIN_SIGNS)
        return plain.encode(encoding or "ascii", "backslashreplace").decode(encoding or "ascii")
    except LookupError:
        return text.translate(PLAIN_SIGNS).encode("ascii", "backslashreplace").decode()
    return text


def as_json(value: Any, *, pretty: bool = False) -> str:
    """Plain JSON. Text that is no text (a lone surrogate) is escaped, so that every reader can take it."""
    try:
        import msgspec

        raw = msgspec.json.encode(value)
        return (msgspec.json.format(raw, indent=2) if pretty else raw).decode()
    except (UnicodeEncodeError, TypeError):
        import json

        return json.dumps(value, default=str, indent=2 if pretty else None)


def steers(char: str) -> bool:
    """Beyond what JSON escapes by itself: 8-bit controls, and characters that turn the direction of text."""
    return "\x7f" <= char <= "\x9f" or char in "\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def escaped(char: str) -> str:
    """As JSON escapes it: in two halves beyond the first plane."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def close_streams(code: int) -> int:
    """Flush what is left; a reader that has gone must not make the interpreter complain at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except ValueError:
            continue
        except OSError as error:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if not isinstance(error, BrokenPipeError) and code == 0:
                code = 1
    return code
