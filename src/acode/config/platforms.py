"""Which systems acode works on: Linux is proven, macOS is not yet, Windows is refused."""

from __future__ import annotations

from collections.abc import Mapping

from acode.errors import UnsupportedPlatform

OVERRIDE = "ACODE_UNSUPPORTED"
UNPROVEN = "macOS is unproven: the code is the same and type-checked, and no run of the tests there has been green yet"


def refuse_unsupported(platform: str, env: Mapping[str, str]) -> None:
    """On Windows a tree of processes cannot be ended, and links are checked before they are used, not while."""
    if platform == "win32" and env.get(OVERRIDE) != "1":
        raise UnsupportedPlatform(
            "acode does not support Windows: a command could not be ended with all that it started, and links could be"
            " swapped between check and use"
        )
