"""The findings of a diagnosis: plain values that a person is shown and that a repair follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from acode.errors import (
    AcodeError,
    CannotContinue,
    ChangedFiles,
    EnvironmentInvalid,
    ForeignTampered,
    MachineRefused,
    SessionLocked,
)
from acode.formats.arc.checkpoint import Raw
from acode.formats.arc.freshness import Freshness
from acode.formats.arc.suspended import Verdict
from acode.hints import Hint

RefusalKind = Literal[
    "tampered", "other_config_dir", "live_owner", "other_branch", "unknown_phases", "stale_plan", "unread"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the run may not be continued now; showing it is always allowed."""

    kind: RefusalKind
    message: str
    hint: Hint | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demotion:
    """A completed phase whose artifact is not the one that was recorded: it will run again."""

    phase: str
    artifact: str
    expected: str | None
    found: str | None
    mtime_ns: int | None = None
    """When the rejected bytes were written: the same bytes written again later are a driver's own."""

    def warning(self, downstream: tuple[str, ...]) -> str:
        after = f" Built on it and left as they are: {', '.join(downstream)}." if downstream else ""
        return (
            f"The artifact of the phase {self.phase} ({self.artifact}) is not the recorded one: "
            f"expected {self.expected or 'no hash'}, found {self.found or 'nothing'}. "
            f"The phase goes back to pending and will run again.{after}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A team that a dead session left behind. `resets`: whether its phase starts over."""

    phase: str
    team: str
    resets: bool
    on_disk: bool
    unreachable: bool = False
    """It lies behind a link or in a place that cannot be entered: it is not removed, and its name is not forgotten."""

    @property
    def removed(self) -> bool:
        return self.on_disk and not self.unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleStateFile:
    path: str
    document: Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    checkpoint_path: str
    run_id: str
    plan_file: str | None
    schema_from: int
    schema_to: int
    next_phase: str | None
    demoted: tuple[Demotion, ...]
    orphans: tuple[Orphan, ...]
    reset_phases: tuple[str, ...]
    stale_state_files: tuple[StaleStateFile, ...]
    verdicts: tuple[Verdict, ...]
    freshness: Freshness
    warnings: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    phases: dict[str, str]

    @property
    def finished(self) -> bool:
        return self.next_phase is None and not any(refusal.kind == "unknown_phases" for refusal in self.refusals)

    def as_json(self) -> dict[str, Any]:
        """The fields of `resume --dry-run --json` that only arc has."""
        return {
            "checkpoint_path": self.checkpoint_path,
            "schema_from": self.schema_from,
            "schema_to": self.schema_to,
            "next_phase": self.next_phase,
            "demoted": [{"phase": d.phase, "expected": d.expected, "found": d.found} for d in self.demoted],
            "orphans_cleaned": list(dict.fromkeys(o.team for o in self.orphans if o.removed)),
            "reset_phases": list(self.reset_phases),
            "stale_state_files": [stale.path for stale in self.stale_state_files],
            "suspended": {v.task: {"action": v.action, "reason": v.reason} for v in self.verdicts},
            "warnings": list(self.warnings),
        }


ERRORS: dict[RefusalKind, type[AcodeError]] = {
    "tampered": ForeignTampered,
    "other_config_dir": EnvironmentInvalid,
    "live_owner": SessionLocked,
    "other_branch": EnvironmentInvalid,
    "unknown_phases": CannotContinue,
    "stale_plan": ChangedFiles,
    "unread": MachineRefused,
}


def raise_refusal(refusal: Refusal) -> NoReturn:
    raise ERRORS[refusal.kind](refusal.message, hint=refusal.hint)
