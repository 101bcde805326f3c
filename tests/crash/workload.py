"""Workloads for the sweeps, and the one oracle that judges what is left of them.

The oracle knows nothing of the engine's ways: it compares bytes with an undisturbed run, counts effects in a ledger
outside the workspace, and asks whether everything that was acknowledged is still there.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from acode.engine import Notice, Options, run_plan
from acode.engine.carry_on import resume
from acode.engine.hold import opened
from acode.engine.preview import rows, verify
from acode.errors import AcodeError, NoResumableSession, OutcomeUnknown
from acode.events import types as ev
from tests.worlds import plan_file, world

RESUMES_MAX = 6


class Acknowledged:
    """Writes down, outside of everything, up to where the world was told that nothing can be lost."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, notice: Notice) -> None:
        pass

    def durable(self, seq: int) -> None:
        os.write(self._fd, f"{seq}\n".encode())


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A plan, the files it finds, and what must be true at its end."""

    plan: str
    files: dict[str, str]
    once: tuple[str, ...] = ()  # steps whose command must have run exactly once

    def fresh(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        (place / "workspace").mkdir(parents=True)
        for path, text in self.files.items():
            target = place / "workspace" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def run(self, place: Path, acknowledged: Path | None = None) -> None:
        ears = Acknowledged(acknowledged or place / "acknowledged")
        run_plan(world(place, listener=ears, env=self.env(place)), plan_file(self.plan))

    def env(self, place: Path) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": os.fspath(place), "LEDGER": os.fspath(place / "ledger")}

    def finish(self, place: Path) -> list[str]:
        """Resume until it is done; what a person had to be asked about."""
        asked: list[str] = []
        for _ in range(RESUMES_MAX):
            the_world = world(place, env=self.env(place))
            try:
                waiting = [row for row in rows(the_world) if row.session is None or not row.session.terminal]
            except NoResumableSession:
                waiting = []
            if not waiting:
                return asked
            if waiting[0].error is not None:
                raise waiting[0].error
            try:
                resume(the_world, waiting[0].session_id, Options(force=True))
            except OutcomeUnknown as unknown:
                asked.append(str(unknown.details["step"]))
                return asked
        raise AssertionError(f"not finished after {RESUMES_MAX} resumes")


def workspace_bytes(place: Path) -> dict[str, bytes]:
    """Every file of the workspace that is not acode's own."""
    root = place / "workspace"
    files = (path for path in root.rglob("*") if path.is_file() and ".agent" not in path.relative_to(root).parts)
    return {os.fspath(path.relative_to(root)): path.read_bytes() for path in files}


def ledger(place: Path) -> Counter[str]:
    """How often each step's command has taken effect."""
    try:
        lines = (place / "ledger").read_text().split()
    except FileNotFoundError:
        return Counter()
    return Counter(line.split(":")[1] for line in lines)


def right_after(place: Path, before: dict[str, str], heard: bytes | None = None) -> list[str]:
    """Before anything is recovered: what was acknowledged is there, and every change of the workspace is explained."""
    wrong: list[str] = []
    if heard is None:
        notes = place / "acknowledged"
        heard = notes.read_bytes() if notes.exists() else b""
    acknowledged = max((int(line) for line in heard.split()), default=0)
    the_world = world(place)
    started: set[str] = set()
    last = 0
    try:
        with opened(the_world, look_only=True) as store:
            for session_id in store.session_ids():
                for envelope, _, _ in store.events(session_id):
                    last = envelope.seq
                    if isinstance(envelope.event, ev.StepStarted):
                        started.update(image.path for image in envelope.event.before)
    except NoResumableSession:
        pass
    except AcodeError as error:
        wrong.append(f"the log cannot be read: {error}")
    if last < acknowledged:
        wrong.append(f"acknowledged up to {acknowledged}, but the log ends at {last}")
    for path, data in workspace_bytes(place).items():
        known = before.get(path)
        ours = Path(path).name.startswith(".acode-tmp-")
        if (known is None or data != known.encode()) and path not in started and not ours:
            wrong.append(f"{path} changed and no durable record explains it")
    return wrong


def at_the_end(place: Path, workload: Workload, expected: dict[str, bytes]) -> list[str]:
    """As an undisturbed run would have left it."""
    wrong: list[str] = []
    found = workspace_bytes(place)
    wrong.extend(
        f"{path} is not as an undisturbed run leaves it"
        for path in sorted(found.keys() | expected.keys())
        if found.get(path) != expected.get(path)
    )
    counts = ledger(place)
    wrong.extend(f"{step} took effect {counts[step]} times" for step in workload.once if counts[step] != 1)
    the_world = world(place)
    for row in rows(the_world):
        if row.session is None or str(row.session.state) != "COMPLETED":
            wrong.append(f"session {row.session_id} is {row.session.state if row.session else row.error}")
        wrong.extend(str(problem) for problem in verify(the_world, row.session_id)[1].problems)
    return wrong
