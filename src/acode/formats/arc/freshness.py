"""Is the plan still about this repository? Five signals, weighted, as the host tool's own gate weighs them.

Pure: what git says comes in as `Drift`. Two judgements may never be lost: a person's override is kept and not asked for
again, and a plan that cannot be judged is not called fresh.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from acode.formats.arc.checkpoint import Raw, moment, object_at, shown, stamp
from acode.formats.arc.facts import Drift, TextFile
from acode.formats.arc.frontmatter import parse_head, text_field

WEIGHTS: Final = {
    "commit_distance": 0.25,
    "file_drift": 0.35,
    "identifier_loss": 0.25,
    "branch_divergence": 0.10,
    "time_decay": 0.05,
}
WARN_BELOW_SCORE: Final = 0.7
BLOCK_BELOW_SCORE: Final = 0.4
COMMIT_DISTANCE_MAX: Final = 100
IDENTIFIERS_MAX: Final = 20
IDENTIFIER_CHARS_MAX: Final = 100
REFERENCES_MAX: Final = 500
UNDECIDED: Final = 0.5  # a signal that ran out of time or has a malformed basis counts half

GIT_SHA: Final = re.compile(r"[0-9a-f]{7,40}")
SAFE_PATH: Final = re.compile(r"[a-zA-Z0-9._/-]{1,300}")
QUOTED: Final = re.compile(r"`([^`\n]{1,300})`")
LINKED: Final = re.compile(r"\]\(([^()\s]{1,300})\)")
IDENTIFIER: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.]{2,99}")
STOPWORDS: Final = frozenset(
    {
        *("null", "true", "false", "error", "string", "number", "object", "function"),
        *("const", "return", "import", "export", "undefined", "Promise"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead:
    git_sha: str | None
    branch: str | None
    date: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """`result` is what the checkpoint should hold; None leaves it alone."""

    result: Raw | None = None
    stale: bool = False
    warnings: tuple[str, ...] = ()


def plan_head(plan: TextFile) -> PlanHead | None:
    """The plan's own statement of what it was written against; None when it has no readable head."""
    head = parse_head(plan.data) if plan.data is not None else None
    if head is None:
        return None
    return PlanHead(**{key: text_field(head, key) for key in ("git_sha", "branch", "date")})


def needs_recheck(value: Raw, head: PlanHead | None) -> bool:
    """The plan names a usable commit, and it is not the one that was checked."""
    if head is None or head.git_sha is None or not GIT_SHA.fullmatch(head.git_sha):
        return False
    if object_at(value, "flags").get("skip_freshness") is True:
        return False
    return head.git_sha != object_at(value, "freshness").get("git_sha")


def recheck(value: Raw, plan: TextFile, drift: Drift | None, now: datetime) -> Freshness:
    """The freshness after a resume, for a checkpoint that has been migrated."""
    head = plan_head(plan)
    if head is None:
        why = plan.problem or ("it is not there" if plan.missing else "its frontmatter is missing or malformed")
        return Freshness(warnings=(f"The plan's freshness was not checked again: {shown(why)}.",))
    if head.git_sha is not None and not GIT_SHA.fullmatch(head.git_sha):
        return Freshness(
            warnings=(f"The plan's git_sha {shown(head.git_sha, 60)} is no commit id; not checked again.",)
        )
    if not needs_recheck(value, head):
        return Freshness()
    if drift is None:
        return Freshness(warnings=("The plan's freshness was not checked again: git gave no answer.",))
    return _judged(value, plan, head, drift, now)


def _judged(value: Raw, plan: TextFile, head: PlanHead, drift: Drift, now: datetime) -> Freshness:
    signals = signals_of(head, drift, references(plan), identifiers(plan), now)
    score = min(max(1 - sum(WEIGHTS[name] * signal["normalized"] for name, signal in signals.items()), 0.0), 1.0)
    status = "STALE" if score < BLOCK_BELOW_SCORE else "WARN" if score < WARN_BELOW_SCORE else "PASS"
    if object_at(value, "freshness").get("status") == "STALE-OVERRIDE":
        status = "STALE-OVERRIDE"
    result = {
        "score": round(score, 6),
        "signals": signals,
        "git_sha": head.git_sha,
        "sha_reachable": drift.sha_reachable,
    }
    result |= {"status": status, "checked_at": stamp(now)}
    warnings = () if status in ("PASS", "STALE-OVERRIDE") else (_told(score, status, signals),)
    return Freshness(result=result, stale=status == "STALE", warnings=warnings)


def _told(score: float, status: str, signals: dict[str, Raw]) -> str:
    drift = signals["file_drift"]
    return (
        f"Plan freshness {score:.2f} of 1 ({status}): {signals['commit_distance']['raw']} commits since the plan, "
        f"{drift['drifted']} of {drift['files_checked']} named files changed."
    )


def signals_of(
    head: PlanHead, drift: Drift, files: list[str], names: list[str], now: datetime
) -> dict[str, dict[str, Any]]:
    """The five signals with their raw numbers, in the shape that the checkpoint keeps."""
    distance = drift.commits_since if drift.sha_reachable and drift.commits_since is not None else COMMIT_DISTANCE_MAX
    changed = drift.changed_since or frozenset()
    drifted = sum(1 for path in files if path in changed) if drift.sha_reachable else 0
    lost = None if drift.identifiers_lost is None else len(drift.identifiers_lost)
    apart = bool(head.branch and drift.current_branch and head.branch != drift.current_branch)
    return {
        "commit_distance": {"raw": distance, "normalized": min(distance / COMMIT_DISTANCE_MAX, 1.0)},
        "file_drift": {
            "files_checked": len(files),
            "drifted": drifted,
            "normalized": drifted / len(files) if files else 0.0,
        },
        "identifier_loss": {
            "ids_checked": len(names),
            "lost": lost or 0,
            "normalized": (UNDECIDED if lost is None else lost / len(names)) if names else 0.0,
        },
        "branch_divergence": {
            "plan_branch": head.branch,
            "current_branch": drift.current_branch,
            "normalized": 0.5 if apart else 0.0,
        },
        "time_decay": {"normalized": _decay(head, drift, now)},
    }


def _decay(head: PlanHead, drift: Drift, now: datetime) -> float:
    written = drift.committed_at
    if written is None and head.date is not None:
        at = moment(head.date)
        if at is None:
            return UNDECIDED
        written = at.timestamp()
    if written is None:
        return 0.0
    days = (now.timestamp() - written) / 86_400
    return 1.0 if days > 90 else 0.6 if days > 60 else 0.3 if days > 30 else 0.0


def _text(plan: TextFile) -> str:
    return (plan.data or b"").decode("utf-8", errors="replace")


def references(plan: TextFile) -> list[str]:
    """The files that a plan names: quoted or linked, relative, with a directory or an extension."""
    text = _text(plan)
    named = dict.fromkeys([*QUOTED.findall(text), *LINKED.findall(text)])
    return [path for path in named if _is_file_reference(path)][:REFERENCES_MAX]


def _is_file_reference(path: str) -> bool:
    if not SAFE_PATH.fullmatch(path) or ".." in path or path[0] in "/-":
        return False
    return "/" in path.rstrip("/") or re.fullmatch(r"[\w-]{1,100}\.[a-z]{1,5}", path) is not None


def identifiers(plan: TextFile) -> list[str]:
    """Names of code that a plan quotes; a name that is gone from the code shows that the code has changed."""
    named = dict.fromkeys(QUOTED.findall(_text(plan)))
    return [
        name for name in named if IDENTIFIER.fullmatch(name) and name not in STOPWORDS and not _is_file_reference(name)
    ][:IDENTIFIERS_MAX]
