"""Find the leftovers of a dead session: teams, open phases, state files. Step 6 of the format's own resume, foreseen.

Files of a live session are never orphans, however old they look.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from acode.formats.arc import phases as p
from acode.formats.arc.checkpoint import Raw, moment, shown
from acode.formats.arc.facts import Facts, Process, StateFile
from acode.formats.arc.findings import Orphan, StaleStateFile

STALE_AFTER: Final = timedelta(minutes=30)
TEAM: Final = re.compile(r"[a-zA-Z0-9_-]{1,200}")


def judge_teams(value: Raw, facts: Facts) -> tuple[tuple[Orphan, ...], tuple[str, ...], list[str]]:
    """Teams to remove, phases to reset that have no team, and what was passed over."""
    held = teams_of_live_owners(facts)
    orphans, resets, warnings = [], [], []
    for name, entry in p.entries(value["phases"]):
        team, status = entry.get("team_name"), p.status_of(entry)
        if not team:
            if status == "in_progress":
                # The host tool passes over a phase without a team, and nothing would ever run it again.
                resets.append(name)
        elif problem := team_problem(team) or (team in held and "a live session works with it"):
            warnings.append(f"The team of the phase {shown(name, 60)} was left alone: {problem}.")
        else:
            kinds = {facts.teams[team].teams, facts.teams[team].tasks} if team in facts.teams else {"absent"}
            there = {"on_disk": kinds != {"absent"}, "unreachable": not kinds <= {"absent", "directory"}}
            orphans.append(Orphan(phase=name, team=team, resets=status not in p.CLOSED_STATUSES, **there))
    return tuple(orphans), tuple(resets), warnings


def team_problem(team: object) -> str | None:
    """Why a team name may not become part of a path."""
    if not isinstance(team, str) or ".." in team or not TEAM.fullmatch(team):
        return f"its name {shown(team, 80)} holds more than letters, digits, _ and -"
    return None


def teams_of_live_owners(facts: Facts) -> frozenset[str]:
    """Teams that a live session has registered in a state file; nobody else may remove them."""
    named = [
        state.document.get("team_name")
        for state in facts.state_files
        if state.document is not None and state.document.get("status") == "active" and _is_alive(state.owner, facts)
    ]
    return frozenset(name for name in named if isinstance(name, str))


def _is_alive(owner: Process, facts: Facts) -> bool:
    return owner.pid is not None and owner.alive and owner.pid != facts.own_pid


def judge_state_files(facts: Facts, now: datetime) -> tuple[tuple[StaleStateFile, ...], list[str]]:
    """State files that say active although their session has crashed."""
    stale, warnings = [], []
    for state in facts.state_files:
        if state.document is None:
            warnings.append(f"The state file {shown(state.path)} was passed over: {shown(state.problem)}.")
        elif _is_stale(state, now):
            if _is_alive(state.owner, facts):
                warnings.append(
                    f"The state file {shown(state.path)} was left alone: process {state.owner.pid} is alive."
                )
            else:
                stale.append(StaleStateFile(path=state.path, document=state.document))
                warnings.append(
                    f"The state file {shown(state.path)} is of a crashed session; it is marked as recovered."
                )
    return tuple(stale), warnings


def _is_stale(state: StateFile, now: datetime) -> bool:
    document = state.document or {}
    started = moment(document.get("started"))
    return document.get("status") == "active" and (started is None or now - started > STALE_AFTER)


def recorded_teams(value: Raw) -> list[str]:
    """The team names that may become part of a path."""
    teams = [entry.get("team_name") for _, entry in p.entries(value["phases"])]
    return list(dict.fromkeys(str(team) for team in teams if team and team_problem(team) is None))
