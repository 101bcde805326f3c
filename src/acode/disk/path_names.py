"""Paths inside the workspace as text: relative, separated by /, and the same on the disk, in memory and in the log.

A name on a POSIX disk is bytes, and the log is JSON, which knows only text. A byte that is not UTF-8 becomes one
character of U+EF80..U+EFFF, U+EF00 plus the byte. A name that really holds such a character is spelled byte by byte in
the same way, so every name has one spelling and the way back is exact. Ordinary text stays as it is, backslashes and
surrogate-escaped text from `os.fsdecode` included. No ASCII byte is ever spelled that way, so neither / nor .. hides.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import lru_cache

from acode.errors import UnsafePath
from acode.workspacepath import NAME_BYTES_MAX, OWN_DIRECTORY, PATH_BYTES_MAX

_SPELLED = range(0xEF80, 0xF000)
_ESCAPED = range(0xDC80, 0xDD00)  # what Python's surrogateescape makes of the same bytes
_TO_TEXT = {escaped: chr(spelled) for escaped, spelled in zip(_ESCAPED, _SPELLED, strict=True)} | {
    code: "".join(chr(0xEF00 + byte) for byte in chr(code).encode()) for code in _SPELLED
}
_TO_BYTES = dict(zip(_SPELLED, map(chr, _ESCAPED), strict=True))


def text_of(name: bytes) -> str:
    """A name from the disk as text that JSON can carry."""
    return name.decode("ascii") if name.isascii() else name.decode("utf-8", "surrogateescape").translate(_TO_TEXT)


def bytes_of(text: str) -> bytes:
    """The name on the disk that `text_of` came from."""
    return text.encode("ascii") if text.isascii() else text.translate(_TO_BYTES).encode("utf-8", "surrogateescape")


@lru_cache(maxsize=4096)
def parts_of(rel: str) -> tuple[str, ...]:
    """The names a path goes through; () is the root itself, spelled "." """
    if rel == ".":
        return ()
    parts = tuple(rel.split("/"))
    if not rel or "\0" in rel or {"", ".", ".."} & set(parts):
        raise UnsafePath(f"{visible(rel)!r} is no path inside the workspace", path=visible(rel))
    if sys.platform == "win32" and any(character in rel for character in '\\:*?"<>|'):
        raise UnsafePath(f"{visible(rel)!r} cannot be a path on Windows", path=visible(rel))
    try:
        names = [bytes_of(part) for part in parts]
    except UnicodeEncodeError as error:
        raise UnsafePath(f"{visible(rel)!r} holds text that no path can hold", path=visible(rel)) from error
    if max(map(len, names)) > NAME_BYTES_MAX or sum(map(len, names)) + len(names) > PATH_BYTES_MAX:
        raise UnsafePath(f"the path {visible(rel[:60])!r}… is too long", path=visible(rel[:200]))
    return parts


def parent_of(rel: str) -> str:
    """The directory a path stands in; that of a top-level name is the root, "." """
    return rel.rpartition("/")[0] or "."


def below(directory: str, name: str) -> str:
    return name if directory == "." else f"{directory}/{name}"


def is_acodes_own(rel: str) -> bool:
    """Whether the path is acode's own directory, here or in a workspace inside this one, or lies in one."""
    return any(part.casefold() == OWN_DIRECTORY for part in rel.split("/"))


def visible(text: str) -> str:
    """The text with nothing in it that steers a terminal or hides: such characters are spelled out."""
    return "".join(_spelled_out(character) for character in text)


def _spelled_out(character: str) -> str:
    code = ord(character)
    if code in _SPELLED:
        return f"\\x{code - 0xEF00:02x}"
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return character
