"""One line of an event file becomes one `LineEvent`, whichever of the format's three dialects it is written in.

Pure. The dialects differ in the key (`type` or `event_type`), in the spelling (`task_started`, `task-started`) and in
where the details stand; an odd type of a single field never loses the rest of the event.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from acode.formats.agent_memory.values import APPROVED_ARTIFACTS, PHASE_NUMBER_MAX, TASK_ID_CHARS_MAX

Kind = Literal[
    "created", "started", "verified", "completed", "failed", "blocked",  # of a task
    "phase", "phase_done", "gate", "made", "ended", "resumed", "other",
]  # fmt: skip

BOM = b"\xef\xbb\xbf"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY_S = 86_400
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE_TIME = re.compile(r"(\d{8})-(\d{4})(?:\d{2})?(?:\D.*)?")
_EPOCH_MILLISECONDS_FROM = 100_000_000_000
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND

KINDS: dict[str, Kind] = {
    "task-created": "created",
    "task-ready": "created",
    "task-claimed": "started",
    "task-started": "started",
    "task-implemented": "started",
    "task-verified": "verified",
    "task-completed": "completed",
    "task-failed": "failed",
    "task-failure": "failed",
    "task-verification-failed": "failed",
    "task-blocked": "blocked",
    "phase-transition": "phase",
    "phase-started": "phase",
    "phase-complete": "phase_done",
    "phase-completed": "phase_done",
    "phase-gate-passed": "gate",
    "prd-created": "made",
    "plan-created": "made",
    "task-graph-created": "made",
    "constitution-created": "made",
    "artifact-created": "made",
    "run-complete": "ended",
    "run-completed": "ended",
    "run-failed": "ended",
    "run-cancelled": "ended",
    "consolidation-completed": "ended",
    "stm-archived": "ended",
    "run-started": "resumed",
    "session-resumed": "resumed",
}
OF_NEWER_VERSIONS = ("bootstrap-", "dependency-", "development-", "unified-")
TASK_KINDS = frozenset({"created", "started", "verified", "completed", "failed", "blocked"})
_FILE_OF_CREATION = {
    "prd-created": "prd.md",
    "plan-created": "plan.md",
    "task-graph-created": "task-graph.json",
    "constitution-created": "constitution.md",
}


class LineHead(msgspec.Struct, gc=False):
    """An event as the line has it, without its details: what most lines of a long log are asked for."""

    type: str | None = None
    event_type: str | None = None
    event_id: str | None = None
    timestamp: str | int | float | None = None
    actor: str | None = None
    task_id: str | None = None
    to_phase: int | str | None = None
    phase: int | str | None = None
    trigger: str | None = None

    @property
    def spelled(self) -> str:
        return self.event_type or self.type or ""

    @property
    def key(self) -> tuple[str | None, str | None]:
        """Of most events only the latest with the same one counts."""
        return self.event_type or self.type, self.task_id


class LineEvent(LineHead, gc=False):
    """The whole event. `details` stays raw: most events are never asked for theirs."""

    details: msgspec.Raw = msgspec.Raw()


_strict = msgspec.json.Decoder(LineEvent)
_any = msgspec.json.Decoder()


class Unreadable(msgspec.Struct, frozen=True):
    reason: str


def parse(line: bytes) -> LineEvent | Unreadable | None:
    """The event on this line; None for a blank line; the reason where there is no event on it."""
    try:
        said = _strict.decode(line)
        if said.event_type or said.type:
            return said
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # a blank line, a byte order mark, or whatever else one line in a thousand is
    return _parse_closely(line)


def _parse_closely(line: bytes) -> LineEvent | Unreadable | None:
    line = line.removeprefix(BOM).strip()
    if not line:
        return None
    try:
        said = _strict.decode(line)
    except msgspec.ValidationError:
        return _parse_oddly_typed(line)
    except (msgspec.DecodeError, ValueError):
        return Unreadable("no JSON")
    except RecursionError:
        return Unreadable("nested too deeply")
    return said if said.spelled else Unreadable("an object without `type` or `event_type`")


def _parse_oddly_typed(line: bytes) -> LineEvent | Unreadable:
    try:
        found = _any.decode(line)
    except (msgspec.MsgspecError, ValueError):
        return Unreadable("no JSON")
    except RecursionError:
        return Unreadable("nested too deeply")
    if not isinstance(found, dict):
        return Unreadable("no JSON object")
    said = LineEvent(
        type=_text(found.get("type")),
        event_type=_text(found.get("event_type")),
        event_id=_text(found.get("event_id")),
        timestamp=_time_or_none(found.get("timestamp")),
        actor=_text(found.get("actor")),
        task_id=_text(found.get("task_id")),
        to_phase=_number_or_text(found.get("to_phase")),
        phase=_number_or_text(found.get("phase")),
        trigger=_text(found.get("trigger")),
        details=msgspec.Raw(msgspec.json.encode(found.get("details"))),
    )
    return said if said.spelled else Unreadable("an object without `type` or `event_type`")


def folded(spelled: str) -> str:
    return spelled.strip().lower().replace("_", "-")


def task_id_of(said: LineEvent) -> str | None:
    """The task's id, where it is one that can be used as a name."""
    return usable_id(said.task_id)


def usable_id(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**18 else ""
    if not isinstance(value, str):
        return None
    value = value.strip()
    return value if 0 < len(value) <= TASK_ID_CHARS_MAX and value.isprintable() else None


def details_of(said: LineEvent) -> dict[str, Any]:
    raw = bytes(said.details)
    if not raw:
        return {}
    try:
        found = _any.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def phase_of(said: LineEvent) -> int | None:
    """The workflow phase that the event names, at its top or in its details; None for anything but 0 to 11."""
    for value in (said.to_phase, said.phase):
        if value is not None:
            return _phase(value)
    details = details_of(said)
    return _phase(details.get("to_phase", details.get("phase")))


def is_newer(name: str) -> bool:
    """Whether only newer versions of the pack, which can bootstrap a project, write events of this type."""
    return name.startswith(OF_NEWER_VERSIONS)


def artifact_made(name: str, said: LineEvent) -> str | None:
    """The file name that a creation event names, cut down to its last component: it is only compared, never opened."""
    if name in _FILE_OF_CREATION:
        return _FILE_OF_CREATION[name]
    path = details_of(said).get("artifact_path")
    return re.split(r"[/\\]", path)[-1] if isinstance(path, str) else None


def approved_digests(said: LineEvent) -> dict[str, str] | None:
    """The SHA-256 of each approved file, where the event names them all."""
    found = details_of(said).get("approved")
    if not isinstance(found, dict) or set(found) != set(APPROVED_ARTIFACTS):
        return None
    digests = {name: value for name, value in found.items() if isinstance(value, str) and _SHA256.fullmatch(value)}
    return digests if len(digests) == len(found) else None


def time_us(value: str | int | float | None) -> int | None:
    """Microseconds since 1970 of an ISO 8601 text or a Unix time; a time without a zone is taken as UTC.

    None where it is no time, or one outside 1970 to 9999, which no run ever happened in.
    """
    if value is None:
        return None
    try:
        if isinstance(value, (int, float)):
            seconds = value / 1000 if abs(value) >= _EPOCH_MILLISECONDS_FROM else value
            at_us = since_epoch(_EPOCH + timedelta(seconds=seconds))
        else:
            moment = datetime.fromisoformat(value.strip())
            at_us = since_epoch(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None
    return at_us if 0 <= at_us <= LAST_US else None


def file_time_us(name: str) -> int | None:
    """The time that an event file's own name states (`20260115-1430.jsonl`)."""
    found = _FILE_TIME.fullmatch(name)
    if not found:
        return None
    try:
        day, minute = found[1], found[2]
        moment = datetime(int(day[:4]), int(day[4:6]), int(day[6:]), int(minute[:2]), int(minute[2:]), tzinfo=UTC)
    except ValueError:
        return None
    return max(0, since_epoch(moment))


def moment(at_us: int) -> datetime:
    return _EPOCH + at_us * _MICROSECOND


def since_epoch(value: datetime) -> int:
    passed = value - _EPOCH  # whose division by a microsecond would cost as much as the parsing
    return (passed.days * _DAY_S + passed.seconds) * 1_000_000 + passed.microseconds


def _phase(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,2}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= PHASE_NUMBER_MAX else None


def _text(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
        return str(value)
    return value if isinstance(value, str) else None


def _time_or_none(value: object) -> str | int | float | None:
    return value if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def _number_or_text(value: object) -> int | str | None:
    return value if isinstance(value, (int, str)) and not isinstance(value, bool) else None
