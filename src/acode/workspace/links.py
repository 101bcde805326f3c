"""Where a link in the workspace leads: from name to name, by their text, and never out of it.

Nothing is opened through a link. Each path on the way is one of the workspace's own, so a check of all of them notices
another link as well as another content at its end.
"""

from __future__ import annotations

import os
import posixpath
import stat

from acode.disk.open_beneath import Root
from acode.disk.path_names import parent_of, text_of, visible
from acode.errors import UnsafePath
from acode.workspacepath import Outside, inside_workspace

LINKS_MAX = 40  # as many as Linux follows


def way_of(root: Root, rel: str) -> tuple[str, ...]:
    """The path, and where it is a link, the paths to its target, which may not exist.

    UnsafePath where the way leaves the workspace, enters acode's own directory, or does not end.
    """
    way = [rel]
    while (target := _target(root, way[-1])) is not None:
        if len(way) > LINKS_MAX:
            raise UnsafePath(f"{visible(rel)} leads through more than {LINKS_MAX} links", path=rel)
        way.append(_beneath(root, way[-1], target))
    return tuple(way)


def _target(root: Root, rel: str) -> str | None:
    if rel == ".":
        return None
    try:
        with root.at(rel) as (directory, name):
            found = directory.stat(name)
            return directory.readlink(name) if found is not None and stat.S_ISLNK(found.st_mode) else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _beneath(root: Root, link: str, target: str) -> str:
    """The target as a path of the workspace. A path that goes down and up again is not judged by its text: the way down
    may lead through another link, and then the way up ends elsewhere.
    """
    top = text_of(os.fsencode(root.path)).rstrip("/") + "/"
    start, rest = ("", target.removeprefix(top)) if target.startswith(top) else (parent_of(link), target)
    names = [name for name in rest.split("/") if name not in ("", ".")]
    downward = [name for name in names if name != ".."]
    try:
        if rest.startswith("/"):
            raise Outside("that is not in the workspace")
        if names[len(names) - len(downward) :] != downward:
            raise Outside("it goes down and up again")
        return inside_workspace(posixpath.normpath(posixpath.join(start, rest)))
    except Outside as error:
        raise UnsafePath(
            f"{visible(link)} is a link to {visible(target)}: {error}",
            hint="A link is followed to a file in the workspace only. Copy the file there, or name it by its own path.",
            path=link,
        ) from error
