"""Decide whether this run may be continued here. Steps 2b and 2c of the format's own resume, and the limits of newer
ones.
"""

from __future__ import annotations

import re
from typing import Final

from acode.formats.arc import phases as p
from acode.formats.arc.checkpoint import Raw, moment, shown
from acode.formats.arc.facts import Facts
from acode.formats.arc.findings import Refusal
from acode.formats.arc.freshness import Freshness
from acode.formats.arc.migrations import Migrated
from acode.hints import AcceptChanges, Hint

NONCE: Final = re.compile(r"[0-9a-f]{12}")
NEWER_NONCE: Final = re.compile(r"[0-9a-f]{12}|[0-9a-f]{32}")
UNREAD_SHOWN_MAX: Final = 5
UNREAD_HINT: Final = "Repair the disk or the file's permissions, then resume the run."
CONFIG_DIR_HINT: Final = "Resume with CLAUDE_CONFIG_DIR set to that directory."


def refusals_of(value: Raw, migrated: Migrated, freshness: Freshness, facts: Facts) -> list[Refusal]:
    found = [nonce_refusal(value, newer=migrated.newer), unread_refusal(facts)]
    found += [config_dir_refusal(value, facts), owner_refusal(value, facts), branch_refusal(value, facts)]
    found.append(_newer_refusal(value, migrated))
    if freshness.stale:
        message = "The plan is stale: the repository has moved on since it was written. " + " ".join(freshness.warnings)
        hint = Hint("Write the plan again, or accept it as it is: {}", AcceptChanges())
        found.append(Refusal(kind="stale_plan", message=message, hint=hint))
    return [refusal for refusal in found if refusal is not None]


def nonce_refusal(value: Raw, *, newer: bool = False) -> Refusal | None:
    nonce = value.get("session_nonce")
    if isinstance(nonce, str) and (NEWER_NONCE if newer else NONCE).fullmatch(nonce):
        return None
    message = f"The checkpoint's session_nonce {shown(nonce, 60)} is not 12 hexadecimal digits: possible tampering."
    hint = "Look at the file and its backups. Restore a good one, or start the run again; nothing was changed."
    return Refusal(kind="tampered", message=message, hint=hint)


def unread_refusal(facts: Facts) -> Refusal | None:
    """A file that the machine refused may be an artifact that changed, a stale plan, or a live session's team."""
    if not facts.unread:
        return None
    named = "; ".join(shown(text) for text in facts.unread[:UNREAD_SHOWN_MAX])
    message = f"The run is not continued from a part of its record. These files cannot be read: {named}."
    return Refusal(kind="unread", message=message, hint=UNREAD_HINT)


def config_dir_refusal(value: Raw, facts: Facts) -> Refusal | None:
    """Both directories are canonical here: a home behind a link is still the same home."""
    recorded = value.get("config_dir")
    if recorded in (None, "") or facts.recorded_config_dir == facts.own_config_dir:
        return None
    message = f"The checkpoint belongs to the config directory {shown(recorded)}, not to {shown(facts.own_config_dir)}."
    return Refusal(kind="other_config_dir", message=message, hint=CONFIG_DIR_HINT)


def owner_refusal(value: Raw, facts: Facts) -> Refusal | None:
    owner = facts.owner
    if owner.pid is None or not owner.alive or owner.pid in (facts.own_pid, facts.own_parent):
        return None
    message = f"The checkpoint is owned by process {owner.pid}, which is alive: another session works on this run."
    hint = f"Wait for process {owner.pid} to end, or end it."
    updated_at = moment(value.get("updated_at"))
    if updated_at is not None and owner.started_at is not None and owner.started_at > updated_at.timestamp():
        hint += " It started after the checkpoint was last written, so it may be another process with a used number."
    return Refusal(kind="live_owner", message=message, hint=hint)


def recorded_branch(value: Raw) -> str | None:
    """The branch that the run works on; only versions after the one that acode migrates to record it for a check."""
    branch, version = value.get("branch"), value.get("schema_version")
    newer = isinstance(version, int) and version > p.SCHEMA_CURRENT
    return branch if newer and isinstance(branch, str) and branch else None


def branch_refusal(value: Raw, facts: Facts) -> Refusal | None:
    """The next phase would work on, and ship, another branch than the phases before it."""
    recorded = recorded_branch(value)
    if recorded is None or not facts.current_branch or facts.current_branch == recorded:
        return None
    message = f"The run works on the branch {shown(recorded)}; the one that is checked out is "
    message += f"{shown(facts.current_branch)}."
    return Refusal(kind="other_branch", message=message, hint="Check that branch out with git, then resume the run.")


def branch_warnings(value: Raw, facts: Facts) -> list[str]:
    recorded = recorded_branch(value)
    if recorded is None or facts.current_branch != "":
        return []
    return [f"The run works on the branch {shown(recorded)}, and HEAD is detached; the branch was not compared."]


def _newer_refusal(value: Raw, migrated: Migrated) -> Refusal | None:
    if not migrated.newer:
        return None
    hint = "Continue the run with the tool that wrote it, or upgrade acode."
    if migrated.schema_from > p.SCHEMA_NEWEST_KNOWN:
        message = f"Schema {migrated.schema_from} is newer than any that acode knows ({p.SCHEMA_NEWEST_KNOWN})."
        return Refusal(kind="unknown_phases", message=message, hint=hint)
    unknown = p.unknown_unfinished(value)
    if not unknown:
        return None
    named = ", ".join(shown(name, 60) for name in unknown[:10])
    message = f"The run has unfinished phases whose place in the order acode does not know: {named}."
    return Refusal(kind="unknown_phases", message=message, hint=hint)
