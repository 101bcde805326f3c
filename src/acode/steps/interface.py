"""What every step kind offers, and what it is given: the shape of the modules in this package.

A kind is a module with six functions. `predict` says before the first start what `look` would find after a power
failure. `prepare` gathers what must be durable before anything happens. `execute` does
the work. `look` says, without changing anything, what became of a step found in flight. `adopt` collects what an
undisturbed run would have recorded for a step that evidence shows to be applied. `roll_back` undoes partial effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from acode.events import types as ev
from acode.events.definition import Step
from acode.plan import Finding
from acode.redact import Redactor
from acode.store.journal import Blob
from acode.store.store import Store
from acode.workspace import Root


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
    keeping: Callable[[ev.RollbackStarted], None]  # called before the first byte is taken back
    idle: Callable[[], None]  # called about every second while waiting, so that commits become power-safe
    output_limit_bytes: int
    timeout_s: float
    probes: bool = True  # whether read-only probe commands may be run
    preimage_budget_bytes: int = 256 * 1_048_576
    boot_id: str = ""
    strict_redaction: bool = False


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into the step's start."""

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
    """What `look` would find if the machine went down in the middle of the step, and what in the plan says so."""

    finding: Finding
    reason: Literal["idempotent", "outputs", "probe", "evidence", "gate", "none"]
    because: str  # the reason in words


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
