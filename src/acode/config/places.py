"""Where acode keeps what belongs to the user and not to a workspace: keys, anchors, trust, the user's settings.

`ACODE_HOME` moves all of it. A relative value would name another place in every directory and so lose the keys; the
XDG rules say to ignore one, and for `ACODE_HOME` it is an error.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from acode.errors import BadConfig

APP = "acode"
CONFIG_NAME = "config.yml"


def state_dir(env: Mapping[str, str]) -> Path:
    return _directory(_state_dir(env))


def _state_dir(env: Mapping[str, str]) -> Path:
    if moved := _moved(env):
        return moved
    if sys.platform == "win32" or sys.platform == "darwin":
        from platformdirs import user_state_path

        return user_state_path(APP, appauthor=False)
    return _xdg(env, "XDG_STATE_HOME", ".local/state")


def user_config_dir(env: Mapping[str, str]) -> Path:
    if moved := _moved(env):
        return moved
    if sys.platform == "win32" or sys.platform == "darwin":
        from platformdirs import user_config_path

        return user_config_path(APP, appauthor=False)
    return _xdg(env, "XDG_CONFIG_HOME", ".config")


def workspace_config_path(workspace: Path) -> Path:
    return workspace / ".agent" / CONFIG_NAME


def _moved(env: Mapping[str, str]) -> Path | None:
    text = env.get("ACODE_HOME", "")
    if not text:
        return None
    if not os.path.isabs(text) or "\0" in text:
        raise BadConfig(
            f"ACODE_HOME: expected an absolute path, found {text!a}",
            hint="A relative one would name another place in every directory.",
        )
    return Path(text)


def _directory(path: Path) -> Path:
    """A place that can be made or is there. Under a file, as with HOME=/dev/null, nothing could ever be kept."""
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return path
    except NotADirectoryError:
        pass
    except OSError:  # not there yet, or its user refuses it: its first use tells
        return path
    raise BadConfig(
        f"{path}: expected a directory for keys and anchors, found a file in its place",
        hint="Move the file aside, or set ACODE_HOME to a directory of yours.",
    )


def _xdg(env: Mapping[str, str], name: str, below_home: str) -> Path:
    """The Linux rules in place, because importing platformdirs costs more than all the rest of a start."""
    text = env.get(name, "")
    return Path(text) / APP if os.path.isabs(text) else _home(env) / below_home / APP


def _home(env: Mapping[str, str]) -> Path:
    text = env.get("HOME", "")
    if not os.path.isabs(text):
        text = _home_by_user_id()
    if not os.path.isabs(text):
        raise BadConfig("HOME: expected the path of your home directory, found none", hint="Set HOME or ACODE_HOME.")
    return Path(text)


def _home_by_user_id() -> str:
    """The password file's answer; empty where there is none, as for the free user ids of containers."""
    if sys.platform == "win32":
        return os.path.expanduser("~")
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""
