"""The interface of a step kind: the functions of the modules in this package, and their arguments.

A kind is a module with six functions. `predict` returns before the first start the finding that `look` would make after
a power failure. `prepare` gathers the values that must be durable before anything happens. `execute` does the work.
`look` returns, without changing anything, the outcome of a step found in flight. `adopt` collects the record of an
undisturbed run for a step that evidence shows to be applied. `roll_back` undoes partial effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from acode.events import types as ev
from acode.events.definition import Step
from acode.lease_file import Lease
from acode.plan import Finding
from acode.redact import Redactor
from acode.store.journal import Blob
from acode.store.store import Store
from acode.workspace import Root

SHARE_BYTES_MAX = 16 * 1_048_576  # what the database takes; more where files have a store of their own


class Stop(Protocol):
    """How much a person wants the run to end; asked while waiting."""

    def at_boundary(self) -> bool: ...
    def at_once(self) -> bool: ...


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step works: everything it may know of the world."""

    root: Root
    agent_dir: Path
    session_id: str
    store: Store
    env: Mapping[str, str]
    redactor: Redactor
    manifest: Mapping[str, ev.FileState]
    stop: Stop
    show: Callable[[str, bytes], None]  # step id and a piece of its output, already redacted
    keeping: Callable[[ev.RollbackStarted], None]  # called before the first byte is rolled back
    idle: Callable[[], None]  # called about every second while waiting, so that commits become power-safe
    output_limit_bytes: int
    timeout_s: float
    probes: bool = True  # whether read-only probe commands may be run
    preimage_budget_bytes: int = 256 * 1_048_576
    boot_id: str = ""
    strict_redaction: bool = False
    lease: Lease | None = None  # in a fleet: commands end before it does
    share_bytes_max: int = SHARE_BYTES_MAX  # of a file that a command left and that travels, in a fleet
    turn: AbstractContextManager[object] = nullcontext()  # for reads of the log: other steps may write to it meanwhile


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the step's start event."""

    before: tuple[ev.PreImage, ...] = ()
    before_complete: bool = True
    astray: tuple[str, ...] = ()
    after_sha256: str | None = None
    after_mode: int | None = None
    target: dict[str, Any] = {}
    blobs: dict[str, Blob] = {}
    warning: str | None = None  # said before the step runs


class Done(msgspec.Struct, frozen=True, kw_only=True):
    output: ev.Output | None = None
    files: tuple[ev.FileState, ...] = ()
    touched: tuple[str, ...] = ()
    unrecorded: int = 0  # outputs that are not among the files, because there are too many
    result: Any = None
    blobs: dict[str, Blob] = {}
    duration_ms: int | None = None  # where the evidence knows better than the clock
    spent: ev.Spent | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """It ended by itself without success (`exit`, `error`), or was stopped in the middle (`timeout`, `signal`)."""

    reason: Literal["exit", "error", "timeout", "signal"]
    message: str
    exit_status: int | None = None
    signal: str | None = None
    output: ev.Output | None = None
    files: tuple[ev.FileState, ...] = ()
    touched: tuple[str, ...] = ()
    blobs: dict[str, Blob] = {}
    error: dict[str, Any] = {}  # what a program's function raised, for the program that is given it again


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The finding of `look` if the machine went down in the middle of the step, and the part of the plan it follows
    from.
    """

    finding: Finding
    reason: Literal["idempotent", "outputs", "probe", "evidence", "gate", "none"]
    because: str  # the reason as a text


class RolledBack(msgspec.Struct, frozen=True, kw_only=True):
    restored: tuple[str, ...] = ()
    saved: tuple[ev.PreImage, ...] = ()
    files: tuple[ev.FileState, ...] = ()


def kept_before(site: Site, images: Mapping[str, bytes | None]) -> dict[str, Blob]:
    """Where the bytes of pre-images go: into the start's transaction; those with a secret in them to a private file.

    Bytes that are None were too large for a row, and were brought as such a file already.
    """
    return {sha256: (_purpose(site, data), data) for sha256, data in images.items()}


def _purpose(site: Site, data: bytes | None) -> str:
    secret = data is None or site.redactor.matches(data.decode("utf-8", "surrogateescape"))
    return "sensitive" if secret else "preimage"


class Kind(Protocol):
    """One module of this package, seen from the engine."""

    def predict(self, step: Step) -> Prediction: ...
    def prepare(self, step: Step, site: Site) -> Prepared: ...
    def execute(self, step: Step, site: Site, started: ev.StepStarted) -> Done | Failed: ...
    def look(self, step: Step, site: Site, started: ev.StepStarted) -> Finding: ...
    def adopt(self, step: Step, site: Site, started: ev.StepStarted) -> Done: ...
    def roll_back(self, step: Step, site: Site, started: ev.StepStarted) -> RolledBack: ...
