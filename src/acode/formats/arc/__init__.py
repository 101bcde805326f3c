"""Arc runs: checkpoints under .claude/arc, found, migrated to schema 19, diagnosed, repaired, claimed and continued.

The order of a resume is: `locate`, `read`, `look`, `diagnose` (a dry run ends here, and nothing was written), then
under `claim`: `look` and `diagnose` again, `clean_up`, `repair`, `write`, `settle_contexts`, and for each phase
`clean_before_phase`, `begin_phase`, `prompt_for_phase`, the driver, `record_phase`, each value stored with `write`.
"""

from acode.formats.arc.checkpoint import Checkpoint, shown
from acode.formats.arc.claim import claim
from acode.formats.arc.cleanup import clean_before_phase, clean_up
from acode.formats.arc.contexts import settle_contexts
from acode.formats.arc.diagnose import diagnose
from acode.formats.arc.discover import Found, locate, read
from acode.formats.arc.facts import Facts
from acode.formats.arc.findings import Diagnosis, Refusal, raise_refusal
from acode.formats.arc.migrations import Migrated, migrate
from acode.formats.arc.orphans import teams_of_live_owners
from acode.formats.arc.phase_record import begin_phase, expected_artifact, prompt_for_phase, record_phase
from acode.formats.arc.phases import PHASE_ORDER, next_phase
from acode.formats.arc.repair import repair
from acode.formats.arc.save import write
from acode.formats.arc.surroundings import look, resolve_config_dir

__all__ = [
    "PHASE_ORDER",
    "Checkpoint",
    "Diagnosis",
    "Facts",
    "Found",
    "Migrated",
    "Refusal",
    "begin_phase",
    "claim",
    "clean_before_phase",
    "clean_up",
    "diagnose",
    "expected_artifact",
    "locate",
    "look",
    "migrate",
    "next_phase",
    "prompt_for_phase",
    "raise_refusal",
    "read",
    "record_phase",
    "repair",
    "resolve_config_dir",
    "settle_contexts",
    "shown",
    "teams_of_live_owners",
    "write",
]
