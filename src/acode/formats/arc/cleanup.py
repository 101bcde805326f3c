"""Remove what a dead session left: team directories, and the word "active" in its state files.

It deletes only below teams/ and tasks/ of the config directory, only names that a diagnosis has checked, and never
through a link. No failure here stops a resume: the host tool's rules make them warnings.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from acode.errors import AcodeError, UnsafePath
from acode.formats.arc import disk
from acode.formats.arc import phases as p
from acode.formats.arc.checkpoint import Raw, decode, encode, shown
from acode.formats.arc.findings import Diagnosis, StaleStateFile
from acode.formats.arc.orphans import team_problem
from acode.formats.arc.repair import recovered_state

RETRY_DELAYS_S: Final = (0.0, 3.0, 8.0)
SHELVES: Final = ("teams", "tasks")
REGISTRATION: Final = "config.json"  # while it lies in teams/<team>/, the host tool takes the team for a living one
STATE_BYTES_MAX: Final = 1024 * 1024

Sleep = Callable[[float], None]
Record = Callable[[Raw], None]


def clean_up(
    root: Path, config_dir: str, diagnosis: Diagnosis, *, now: datetime, sleep: Sleep, record: Record
) -> list[str]:
    """Step 6: teams and state files that the diagnosis named. Returns what could not be done."""
    teams = list(dict.fromkeys(orphan.team for orphan in diagnosis.orphans))
    warnings = release_and_remove(config_dir, teams, sleep=sleep, record=record)
    for stale in diagnosis.stale_state_files:
        problem = _mark_recovered(root, stale, now)
        if problem is None:
            record({"action": "state_file_recovered", "path": stale.path})
        else:
            warnings.append(f"The state file {shown(stale.path)} was left as it is: {problem}.")
    return warnings


def clean_before_phase(
    value: Raw, config_dir: str, *, held_teams: frozenset[str], sleep: Sleep, record: Record
) -> list[str]:
    """Step 8: before a phase starts, teams of phases that do not run are removed. No status is changed."""
    named = [entry.get("team_name") for _, entry in p.entries(value["phases"]) if entry.get("status") != "in_progress"]
    teams = [str(team) for team in named if team and team_problem(team) is None and team not in held_teams]
    return release_and_remove(config_dir, list(dict.fromkeys(teams)), sleep=sleep, record=record)


def release_and_remove(config_dir: str, teams: Sequence[str], *, sleep: Sleep, record: Record) -> list[str]:
    """Release the registrations, remove the directories, release once more: a dying worker may write them again."""
    if not teams:
        return []
    warnings = _retried(teams, lambda team: _release(config_dir, team), sleep=sleep)
    record({"action": "teams_released", "when": "before", "teams": list(teams)})
    warnings += _retried(teams, lambda team: _remove(config_dir, team), sleep=sleep)
    warnings += _retried(teams, lambda team: _release(config_dir, team), sleep=sleep, delays_s=(0.0,))
    record({"action": "teams_released", "when": "after", "teams": list(teams)})
    return list(dict.fromkeys(warnings))


def _retried(
    teams: Iterable[str], act: Callable[[str], None], *, sleep: Sleep, delays_s: Sequence[float] = RETRY_DELAYS_S
) -> list[str]:
    """Each team up to three times, with growing pauses: a worker that is just dying still writes into its directory."""
    left = dict.fromkeys(teams, "")
    refused: dict[str, str] = {}
    for delay_s in delays_s:
        if delay_s:
            sleep(delay_s)
        for team in list(left):
            try:
                act(team)
                del left[team]
            except UnsafePath as problem:
                refused[team] = problem.message
                del left[team]  # a link stays a link, however long one waits
            except OSError as problem:
                left[team] = problem.strerror or str(problem)
        if not left:
            break
    return [f"The team {team} could not be removed: {shown(why)}" for team, why in (refused | left).items()]


def _release(config_dir: str, team: str) -> None:
    with suppress(FileNotFoundError), disk.directory(config_dir, "teams", team) as holder:
        holder.unlink(REGISTRATION)


def _remove(config_dir: str, team: str) -> None:
    for shelf in SHELVES:
        with suppress(FileNotFoundError), disk.directory(config_dir, shelf) as holder:
            disk.remove_tree(holder, team)


def _mark_recovered(root: Path, stale: StaleStateFile, now: datetime) -> str | None:
    """Close a state file, unless it is no longer the one that was judged."""
    try:
        with disk.parent_of(root, stale.path) as (holder, name):
            data, status = disk.read_bounded(holder, name, STATE_BYTES_MAX)
            if decode(data, name=stale.path) != stale.document:
                return "it was changed in the meantime"
            recovered = encode(recovered_state(stale.document, now))
            disk.put(holder, name, recovered, mode=stat.S_IMODE(status.st_mode))
    except AcodeError as problem:
        return shown(problem.message)
    except OSError as problem:
        return shown(problem)
    return None
