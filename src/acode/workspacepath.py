"""Which paths in plans and settings stay inside the workspace, judged by their text alone.

The same text must be safe on every platform, so drive letters, backslashes and names that only differ by case or
invisible characters are judged everywhere. Links are not seen here: the workspace opens files beneath its root.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath

PATH_BYTES_MAX = 4000
NAME_BYTES_MAX = 255

OWN_DIRECTORY = ".agent"


class Outside(ValueError):
    """The text is no path inside the workspace; the message says why."""


def inside_workspace(text: str, *, changes: bool = False) -> str:
    """The path in its one spelling (`./a//b/` is `a/b`; the root is `.`).

    `changes`: what stands there will be written, rolled back or removed, so git's own files are out of reach as well:
    a hook written there would run later, outside of any plan.
    """
    if not text or text != text.strip():
        raise Outside("it is empty" if not text.strip() else "it begins or ends with a blank")
    if any(unicodedata.category(c) == "Cc" for c in text):
        raise Outside("it holds a control character")
    if "\\" in text:
        raise Outside("it holds a backslash; separate names with /")
    if text.startswith("/") or re.fullmatch(r"[A-Za-z]:.*", text):
        raise Outside("it is absolute")
    names = PurePosixPath(text).parts
    if ".." in names:
        raise Outside("it leaves the workspace through ..")
    if names and names[0] == "~":
        raise Outside("~ is not expanded")
    if len(text.encode()) > PATH_BYTES_MAX or any(len(name.encode()) > NAME_BYTES_MAX for name in names):
        raise Outside(f"it is longer than {PATH_BYTES_MAX} bytes, or a name in it than {NAME_BYTES_MAX}")
    _refuse_protected(names, changes=changes)
    return str(PurePosixPath(text))


def _refuse_protected(names: tuple[str, ...], *, changes: bool) -> None:
    folded = [_as_file_systems_see_it(name) for name in names]
    if OWN_DIRECTORY in (folded if changes else folded[:1]):
        raise Outside(f"{OWN_DIRECTORY}/ belongs to acode")
    if changes and not {".git", "git~1"}.isdisjoint(folded):
        raise Outside(".git belongs to git")


def _as_file_systems_see_it(name: str) -> str:
    """macOS drops invisible characters and folds case, Windows drops trailing dots and blanks."""
    visible = "".join(c for c in unicodedata.normalize("NFC", name) if unicodedata.category(c) != "Cf")
    return visible.rstrip(". ").casefold()
