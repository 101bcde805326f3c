"""Every error of acode: a code, an exit status, a sentence, and a hint. Exceptions mean "cannot continue"; a refusal by
the policy is a value until the command line turns it into one of these. The table in docs/reference/errors.md is
generated from these classes, so a class is the only place a code is defined.
"""

from __future__ import annotations

import errno
from typing import ClassVar

from acode.errors.fleet import FleetUnsupported as FleetUnsupported
from acode.errors.fleet import NotInFleet as NotInFleet
from acode.errors.fleet import SourceUnavailable as SourceUnavailable
from acode.errors.model import BadReply as BadReply
from acode.errors.model import BudgetSpent as BudgetSpent
from acode.errors.model import ContextTooLong as ContextTooLong
from acode.errors.model import ModelChanged as ModelChanged
from acode.errors.model import ModelLoops as ModelLoops
from acode.errors.model import ModelOverloaded as ModelOverloaded
from acode.errors.model import ModelRefused as ModelRefused
from acode.errors.model import ModelTimeout as ModelTimeout
from acode.errors.model import ModelTrouble as ModelTrouble
from acode.errors.model import ModelUnavailable as ModelUnavailable
from acode.errors.model import ModelUnknown as ModelUnknown
from acode.errors.model import ModelUnsupported as ModelUnsupported
from acode.errors.observed import AgentSettingsUnusable as AgentSettingsUnusable
from acode.errors.observed import HookNotSeen as HookNotSeen
from acode.errors.observed import HookPayload as HookPayload
from acode.errors.observed import TranscriptUnreadable as TranscriptUnreadable
from acode.errors.root import AcodeError as AcodeError
from acode.errors.root import every_error as every_error
from acode.hints import AcceptChanges, Command, Force, Hint

VERIFY = Command("session verify")
REPAIR = Command("session repair")
ACCEPT_ROLLBACK = Command("session repair --accept-rollback")

# Error numbers that concern the machine itself, a failing disk or a limit, and not the requested file.
OF_THE_MACHINE = frozenset(
    getattr(errno, name)
    for name in ("EIO", "ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOLCK", "ENOMEM", "ESTALE", "ETIMEDOUT")
    if hasattr(errno, name)  # not every system has each of them
)

# Input of the caller.


class Usage(AcodeError):
    """The command line does not say something acode can do."""

    code = "ACODE-CLI-001"
    exit_code = 2
    default_hint: ClassVar[Hint | str] = Hint("See {}.", Command("--help"))


class InputRequired(AcodeError):
    """A question must be answered and nobody can be asked."""

    code = "ACODE-CLI-002"
    exit_code = 10


class Interrupted(AcodeError):
    """A person stopped acode before it had begun, or at a question."""

    code = "ACODE-CLI-003"
    exit_code = 130


class UnsupportedPlatform(AcodeError):
    """acode cannot keep its promises on this system."""

    code = "ACODE-CLI-004"
    exit_code = 2
    default_hint = "Use it in WSL (wsl --install); ACODE_UNSUPPORTED=1 runs it anyway, without its guarantees."


class Stale(AcodeError):
    """The answer was given to something that is not there any more; nothing was recorded."""

    code = "ACODE-CLI-006"
    exit_code = 10
    default_hint: ClassVar[Hint | str] = "Look at the session again, then answer."


class UnknownSession(AcodeError):
    """The id names no session, or more than one."""

    code = "ACODE-SESSION-002"
    exit_code = 14
    default_hint: ClassVar[Hint | str] = Hint("List the sessions: {}", Command("session list --all"))


class BadConfig(AcodeError):
    """The configuration cannot be used; nothing was run."""

    code = "ACODE-CFG-001"
    exit_code = 3
    default_hint: ClassVar[Hint | str] = Hint("Check it with: {}", Command("config check"))


class BadPlan(AcodeError):
    """The plan file cannot be used; nothing was run."""

    code = "ACODE-PLAN-001"
    exit_code = 2


class PlanConflict(AcodeError):
    """An edited plan changes or removes steps that the session has begun; nothing was replaced."""

    code = "ACODE-PLAN-002"
    exit_code = 2
    default_hint = Hint("Leave finished steps as they are; see: {}", Command("resume ID --plan FILE --dry-run"))


# Resuming.


FIRST_PLAN = Hint("{} writes a first plan, {} runs it", Command("init"), Command("run plan.yml"))


class NoResumableSession(AcodeError):
    """There is nothing to resume here."""

    code = "ACODE-RESUME-001"
    exit_code = 14
    default_hint: ClassVar[Hint | str] = Hint("Start one: {}", FIRST_PLAN)


class TerminalState(AcodeError):
    """The session has ended; terminal states are not resumed."""

    code = "ACODE-RESUME-002"
    exit_code = 15


class SessionLocked(AcodeError):
    """Another process works on the session."""

    code = "ACODE-RESUME-003"
    exit_code = 16


class EnvironmentInvalid(AcodeError):
    """The workspace is not as the session left it; details hold every mismatch."""

    code = "ACODE-RESUME-004"
    exit_code = 17


class CheckpointMissing(AcodeError):
    """Checkpoint rows that the log says exist are gone."""

    code = "ACODE-RESUME-005"
    exit_code = 20
    default_hint: ClassVar[Hint | str] = Hint("Rebuild them from the verified log: {}", REPAIR)


class CannotContinue(AcodeError):
    """The log's end matches no scenario, or the plan cannot be continued."""

    code = "ACODE-RESUME-006"
    exit_code = 1


class IdempotencyConflict(AcodeError):
    """The same key is recorded with other content."""

    code = "ACODE-RESUME-007"
    exit_code = 20


class Escalated(AcodeError):
    """The attempt limit is reached; a person must look."""

    code = "ACODE-RESUME-008"
    exit_code = 18


class OutcomeUnknown(AcodeError):
    """A step was in flight and nothing shows whether it took effect; a person decides."""

    code = "ACODE-RESUME-009"
    exit_code = 19


class CoolingDown(AcodeError):
    """An automatic attempt came before the cool-down ended."""

    code = "ACODE-RESUME-010"
    exit_code = 75


class RefusedByPolicy(AcodeError):
    """An automatic attempt is not allowed: disabled, paused by the user, or an unknown interruption class."""

    code = "ACODE-RESUME-011"
    exit_code = 13


class StepStillRunning(AcodeError):
    """The command of the step in flight lives on without acode."""

    code = "ACODE-RESUME-012"
    exit_code = 16


class ChangedFiles(AcodeError):
    """Files the session works on were changed by somebody else and nobody can be asked."""

    code = EnvironmentInvalid.code
    detail_code = "ACODE-RESUME-013"
    exit_code = 17
    default_hint: ClassVar[Hint | str] = Hint(
        "Look with: {}; then restore the files, or accept them with: {} (or {}), or start a new session",
        Command("resume --dry-run"),
        AcceptChanges(only_flag=True),
        Force(why=False, only_flag=True),
    )


class MissingArtifacts(AcodeError):
    """Files or rows that the session needs are gone or unreadable."""

    code = "ACODE-RESUME-014"
    exit_code = 17


class RecoveryTimeout(AcodeError):
    """Recovery took longer than resume.recovery_timeout_seconds."""

    code = "ACODE-RESUME-015"
    exit_code = 1
    default_hint = "Raise resume.recovery_timeout_seconds in .agent/config.yml, then resume again."


class ApprovalDenied(AcodeError):
    """A person said no at a gate."""

    code = "ACODE-SESSION-007"
    exit_code = 12


class BadTransition(AcodeError):
    """The session's state machine does not allow this step."""

    code = "ACODE-SESSION-001"


class StepFailed(AcodeError):
    """A step ended by itself without success; the session is paused."""

    code = "ACODE-STEP-001"


class StepTimeout(StepFailed):
    """A step ran out of time and was stopped; the session is paused."""

    code = "ACODE-STEP-002"


# Programs that ask for their steps themselves.


class NonDeterminism(AcodeError):
    """The program asks for other steps than the ones on record; details show both sides."""

    code = "ACODE-LIB-001"


class NotStorable(AcodeError):
    """A step's result is of a type that cannot be stored, or a stored one cannot be restored."""

    code = "ACODE-LIB-002"


# Locks.


class LockPermissions(AcodeError):
    """The lock file can be read or written by others."""

    code = "LOCK-001"
    exit_code = 16


class LockForeignOwner(AcodeError):
    """The lock file belongs to another user."""

    code = "LOCK-002"
    exit_code = 16


class LockForeignProcess(AcodeError):
    """The lock is held by a process that is not acode."""

    code = "LOCK-003"
    exit_code = 16


class LockLost(AcodeError):
    """Somebody broke this process's lock while it slept; it must not write any more."""

    code = "LOCK-004"
    exit_code = 16
    default_hint: ClassVar[Hint | str] = Hint("Another process has resumed the session; see: {}", Command("status"))


class LockUnsafe(AcodeError):
    """The lock file is a link or no regular file."""

    code = "LOCK-005"
    exit_code = 16


# Integrity.


class CheckpointForged(AcodeError):
    """A checkpoint's seal does not match its content: it was changed outside acode."""

    code = "CKPT-001"
    exit_code = 20
    default_hint = Hint("Look with: {}; rebuild it from the verified log with: {}", VERIFY, REPAIR)


class FileModified(AcodeError):
    """A file is not the one that was validated."""

    code = "FILE-001"
    exit_code = 17


class UnsafePath(AcodeError):
    """A path leaves the workspace, or goes through a link."""

    code = "FILE-002"
    exit_code = 17


class FileTooLarge(AcodeError):
    """A file is over the limit that acode holds in memory."""

    code = "FILE-003"


class ChainBroken(AcodeError):
    """An event's code does not match its content or its predecessor: the log was changed outside acode."""

    code = "ACODE-LOG-001"
    exit_code = 20
    default_hint = Hint("Name the first bad event with: {}; then repair it, audited: {}", VERIFY, REPAIR)


class SequenceGap(AcodeError):
    """Events are missing from the log."""

    code = "ACODE-LOG-002"
    exit_code = 20
    default_hint: ClassVar[Hint | str] = Hint("Name them with: {}; then repair it, audited: {}", VERIFY, REPAIR)


class UnreadableEvent(AcodeError):
    """An event cannot be parsed."""

    code = "ACODE-LOG-003"
    exit_code = 20
    default_hint: ClassVar[Hint | str] = Hint("Name it with: {}; then repair it, audited: {}", VERIFY, REPAIR)


class UnknownEventType(AcodeError):
    """The log holds an event of a kind that this version does not know; it may be a revocation."""

    code = "ACODE-LOG-004"
    exit_code = 20
    default_hint = Hint("Upgrade acode, or resume without it (audited): {}", Command("resume --lenient"))


class ReplayDisorder(AcodeError):
    """The order by time is not the order of the log: replay would not be deterministic."""

    code = "ACODE-LOG-005"
    exit_code = 20


class LogRolledBack(AcodeError):
    """The log is older than its anchor says: it was rolled back to an earlier state, or lost."""

    code = "ACODE-LOG-006"
    exit_code = 20
    default_hint: ClassVar[Hint | str] = Hint("After an honest restore from a backup: {}", ACCEPT_ROLLBACK)


class CopiedWorkspace(AcodeError):
    """The workspace is a copy of another one that still has the session: both would do the same steps."""

    code = "ACODE-LOG-011"
    exit_code = 20


class EventTooLarge(AcodeError):
    """An event is over 1 MiB; large payloads go to blobs."""

    code = "ACODE-LOG-007"


class BlobDamaged(AcodeError):
    """A stored blob is gone or does not have the content its name says."""

    code = "ACODE-LOG-008"
    exit_code = 20


class BeyondRepair(AcodeError):
    """So much of the log is damaged that nothing is left to stand on; nothing was changed."""

    code = "ACODE-LOG-009"
    exit_code = 20
    default_hint: ClassVar[Hint | str] = "Restore .agent/ from a backup."


class BundleDamaged(AcodeError):
    """An exported bundle cannot be read, or is not what was exported."""

    code = "ACODE-LOG-010"
    exit_code = 20


class KeyUnusable(AcodeError):
    """The signing key cannot be used: readable by others, owned by somebody else, too short, or unreadable."""

    code = "ACODE-KEY-001"
    exit_code = 20


class KeyMissing(AcodeError):
    """The log was signed with a key that is not here."""

    code = "ACODE-KEY-002"
    exit_code = 20


# The store.


class StoreUnusable(AcodeError):
    """The database cannot be opened or does not keep its promises; nothing was changed."""

    code = "ACODE-DB-001"


class DatabaseCorrupt(AcodeError):
    """The database is damaged, its disk does not give it, or a file of acode's own is not what acode makes."""

    code = "ACODE-DB-002"
    exit_code = 20


class NewerSchema(AcodeError):
    """The database was written by a newer acode."""

    code = "ACODE-DB-003"
    exit_code = 20
    default_hint: ClassVar[Hint | str] = "Upgrade acode."


class SchemaMismatch(AcodeError):
    """The database's tables are not the ones acode made."""

    code = "ACODE-DB-004"
    exit_code = 20


class DiskFull(AcodeError):
    """The disk is full; nothing that was acknowledged is lost."""

    code = "ACODE-DB-005"
    default_hint: ClassVar[Hint | str] = "Make room, then resume."


class NotWritable(AcodeError):
    """The workspace or its database cannot be written."""

    code = "ACODE-DB-006"
    default_hint = "Check the permissions and the owner, and that the file system is not mounted read-only."


class WriteFailed(AcodeError):
    """A commit or fsync failed; the run stops, and the next resume derives the state from the log."""

    code = "ACODE-DB-007"


class StoreBusy(AcodeError):
    """Another process held the database's write lock for too long."""

    code = "ACODE-DB-008"
    exit_code = 16


class OldSqlite(AcodeError):
    """The SQLite library has a known corruption bug."""

    code = "ACODE-DB-009"
    default_hint: ClassVar[Hint | str] = "Upgrade apsw: pip install -U apsw"


class MachineRefused(AcodeError):
    """The machine refused a file: a disk that is sick, full, closed or read-only, or too many files are open."""

    code = "FILE-004"
    default_hint = "Fix the cause, then try again; everything that sessions have recorded is safe."


class UnsafeWorkspace(AcodeError):
    """The directory is not a place for a workspace."""

    code = "ACODE-WS-001"
    exit_code = 2


# Runs that other tools began.


class ForeignUnreadable(AcodeError):
    """A foreign run's file cannot be read as what it should be; nothing was changed or deleted."""

    code = "ACODE-FOREIGN-001"
    exit_code = 20


class ForeignTampered(AcodeError):
    """A foreign run's own integrity mark does not match; the run is shown and not continued."""

    code = "ACODE-FOREIGN-002"
    exit_code = 20


# The second tier.


class SyncFailed(AcodeError):
    """The server of the shared copy cannot be reached or refuses; sessions continue without it."""

    code = "ACODE-SYNC-001"
    default_hint: ClassVar[Hint | str] = Hint(
        "Give the same command again when the server answers; pending events are kept here until then. See: {}",
        Command("sync status"),
    )


class SyncUnsupported(AcodeError):
    """A server is configured and PostgreSQL support is not installed."""

    code = "ACODE-SYNC-002"
    exit_code = 3
    default_hint = 'Install it: pip install "acode-cli[postgres]"; or remove sync.url and ACODE_POSTGRES_URL.'


class SyncDisabled(AcodeError):
    """A shared copy is asked for and no server is configured."""

    code = "ACODE-SYNC-003"
    exit_code = 3
    default_hint = Hint("Set ACODE_POSTGRES_URL, or sync.url in .agent/config.yml (then: {}).", Command("config trust"))


class HistoryDiverged(AcodeError):
    """Two machines have written after the same past; nothing is merged, a person chooses one side."""

    code = "ACODE-SYNC-004"
    exit_code = 20


class StaysAtHome(AcodeError):
    """The session cannot be resumed elsewhere: values that it needs hold secrets, and those never leave their
    machine.
    """

    code = "ACODE-SYNC-005"
    exit_code = 17


class LeaseLost(AcodeError):
    """Another machine has the session, or this is only a copy of it."""

    code = "LOCK-006"
    exit_code = 16


class LeaseExpired(AcodeError):
    """The lease of a session in a fleet was not renewed in time; another machine may have the session."""

    code = "LOCK-007"
    exit_code = 16
    default_hint = Hint("A worker continues it as soon as the server lets it; see: {}", Command("fleet status"))
