"""Ask git about a repository without running anything that the repository names, and without changing it.

A cloned repository may name programs in its configuration and attributes: filters, a file monitor, hooks, a signature
checker, a pager, and a remote from which missing objects are fetched. Only a commit step that the user declared may
run them. Every question is bounded in time and size, and gets foreign text only as separate arguments.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CALL_SECONDS_MAX: Final = 5.0
OUTPUT_BYTES_MAX: Final = 16 * 1024 * 1024
OPTIONS: Final = (
    "--no-pager",
    "--no-optional-locks",  # else git rewrites the index, and a kill meanwhile leaves it locked
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "log.showSignature=false",
)
# An object that is missing in a partial clone is fetched by programs that the configuration names. Newer versions of
# git have a switch for this; older ones are given no protocol to fetch by.
ENVIRONMENT: Final = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


def look(root: Path, *arguments: str, seconds: float = CALL_SECONDS_MAX) -> tuple[int, bytes] | None:
    """Exit status and output; None when there is no git that may be run, or it takes too long or says too much.

    A machine that cannot start it now (no descriptor, no process left) is an error: a stale plan would pass for fresh.
    """
    return _run(root, arguments, {}, seconds)


def look_at_files(root: Path, *arguments: str, seconds: float = CALL_SECONDS_MAX) -> tuple[int, bytes] | None:
    """The same for a question that compares files with the index: for this git would run the repository's filters.

    They are switched off one by one, since git has no switch for all. A file that equals its commit only through its
    filter counts as changed then.
    """
    listed = _run(root, ("config", "--null", "--name-only", "--get-regexp", r"^filter\."), {}, seconds)
    if listed is None or listed[0] > 1:
        return None
    return _run(root, arguments, _without_filters(listed[1]), seconds)


def _without_filters(listed: bytes) -> dict[str, str]:
    """As variables and not as `-c`: the name of a filter may hold an equals sign."""
    filters = sorted({os.fsdecode(key).rpartition(".")[0] for key in listed.split(b"\0") if key.count(b".") > 1})
    off = {"clean": "", "smudge": "", "process": "", "required": "false"}
    settings = [(f"{name}.{key}", value) for name in filters for key, value in off.items()]
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _run(root: Path, arguments: tuple[str, ...], variables: dict[str, str], seconds: float) -> tuple[int, bytes] | None:
    import subprocess

    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        ended = subprocess.run(
            ["git", *OPTIONS, *arguments],
            cwd=root,
            env=environment | ENVIRONMENT | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(seconds, 0.1),
            check=False,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError, subprocess.TimeoutExpired):
        return None
    return None if len(ended.stdout) > OUTPUT_BYTES_MAX else (ended.returncode, ended.stdout)
