"""One session's life through the engine itself: run, cut off, edited by others, resumed, with a person who answers."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from acode.engine.create import run_plan
from acode.engine.notices import Notice
from acode.engine.preview import Preview, preview
from acode.engine.resume import resume
from acode.engine.workspace_store import opened
from acode.engine.world import Options, Result, World
from acode.events import types as ev
from acode.plan import Settlement
from acode.planfile import PlanFile, load_plan
from acode.state import Session
from acode.workspace import ChangedFile
from tests.driver import WAIT_S_MAX, end_all_below
from tests.worlds import Ears, world

Kind = TypeVar("Kind")


class Killed(BaseException):
    """The process ends here: nothing of acode catches this, and nothing is written any more."""


class Person:
    """Somebody at the terminal, with an answer for everything; None where there is nobody to ask."""

    def __init__(self) -> None:
        self.to_gates: Literal["yes", "no", "stop"] | None = None
        self.to_changes: Literal["continue", "abort"] | None = None
        self.to_unknown: Literal["applied", "not_applied", "retry", "stop"] | None = None
        self.to_strategy: Literal["rollback", "retry", "stop"] | None = None
        self.to_tools: Literal["yes", "no", "always"] | None = None
        self.to_plan: Callable[[str, str], tuple[str, str] | None] = lambda text, wrong: None
        self.to_questions: str | None = None
        self.asked: list[str] = []
        self.viewed: list[str] = []

    def approve(self, session: Session, step: str, question: str, covers: list[str]) -> Any:
        self.asked.append(f"gate {step}")
        return self.to_gates

    def changed_files(self, changed: tuple[ChangedFile, ...], view: Callable[[str], str]) -> Any:
        self.asked.append("changes")
        self.viewed.extend(view(one.path) for one in changed)
        return self.to_changes

    def unknown_outcome(self, settlement: Settlement) -> Any:
        self.asked.append(f"unknown {settlement.step}")
        return self.to_unknown

    def strategy(self, settlement: Settlement) -> Any:
        self.asked.append(f"strategy {settlement.step}")
        return self.to_strategy

    def allow(self, session: Session, step: str, question: str) -> Any:
        self.asked.append(f"tool {step}: {question}")
        return self.to_tools

    def plan(self, session: Session, text: str, wrong: str) -> Any:
        self.asked.append("plan")
        return self.to_plan(text, wrong)

    def reply(self, session: Session, step: str, question: str) -> Any:
        self.asked.append(f"question {question}")
        return self.to_questions


class Hook(Ears):
    """Ears that do something at a moment of the test's choice, once."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[str, str | None, Callable[[], object]]] = []

    def at(self, event: str, act: Callable[[], object], step: str | None = None) -> None:
        self._waiting.append((event, step, act))

    def forget(self) -> None:
        """What has not happened yet is not waited for any more."""
        self._waiting.clear()

    def emit(self, notice: Notice) -> None:
        super().emit(notice)
        for one in list(self._waiting):
            event, step, act = one
            if notice.body.event == event and step in (None, notice.step):
                self._waiting.remove(one)
                act()


class Life:
    """A place, its settings, and the one session that lives in it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.settings: dict[str, object] = {}
        self.person = Person()
        self.ears = Hook()
        self.ledger = place / "ledger"
        self.env = {"PATH": os.environ["PATH"], "HOME": os.fspath(place), "LEDGER": os.fspath(self.ledger)}
        self.clock: Callable[[], datetime] | None = None
        self.id = ""
        (place / "workspace").mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self.place / "workspace" / name

    def put(self, name: str, text: str) -> Path:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def text(self, name: str) -> str:
        return self.path(name).read_text()

    def world(self, **changes: Any) -> World:
        made = world(
            self.place, listener=self.ears, answers=self.person, clock=self.clock, env=self.env, flags=self.settings
        )
        return msgspec.structs.replace(made, **changes)

    def run(self, text: str, **changes: Any) -> Result:
        result = run_plan(self.world(**changes), self.plan(text))
        self.id = result.session_id
        return result

    def plan(self, text: str) -> PlanFile:
        """The plan as a file of the workspace, so that it is there to be compared."""
        path = self.put("plan.yml", textwrap.dedent(text))
        return load_plan(path, plan_bytes_max=10_000_000, timeout_s_default=60.0)

    def cut_off(self, text: str, event: str, step: str | None = None) -> None:
        """Run until this is told, and no further."""
        self.ears.at(event, self.die, step)
        try:
            self.run(text)
        except Killed:
            self.id = self.ears.notices[-1].session_id
            return
        raise AssertionError(f"{event} of {step} was never told")

    def die(self) -> None:
        raise Killed

    def resume(self, world: World | None = None, **options: Any) -> Result:
        return resume(world or self.world(), self.id, Options(**options))

    def look(self, **options: Any) -> Preview:
        return preview(self.world(), self.id, Options(**options))

    def history(self) -> list[Any]:
        with opened(self.world(), look_only=True) as store:
            return [envelope for envelope, _, _ in store.events(self.id)]

    def events(self, kind: type[Kind]) -> list[Kind]:
        return [one.event for one in self.history() if isinstance(one.event, kind)]

    def settled(self, step: str) -> list[str]:
        return [str(one.outcome) for one in self.events(ev.StepSettled) if one.step == step]

    def attempts(self, step: str) -> int:
        return sum(one.step == step for one in self.events(ev.StepStarted))

    def effects(self) -> Mapping[str, int]:
        """How often each line was noted outside the workspace."""
        lines = self.ledger.read_text().split() if self.ledger.exists() else []
        return {line: lines.count(line) for line in lines}


def until(true: Callable[[], bool]) -> None:
    """Poll; the machine may be busy, so the bound is generous."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """A zombie has ended; only its parent has not looked yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def end_all_in(place: Path) -> None:
    """What still works in the workspace dies without a word, as if the machine had gone down."""
    end_all_below(place / "workspace")
