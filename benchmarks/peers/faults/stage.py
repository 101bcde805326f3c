"""One engine in one scenario: its processes are started, stopped where they were told, killed, frozen and judged."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.peers.contenders import Contender, Process, set_up
from benchmarks.peers.faults.verdict import Verdict, counted, undecided
from benchmarks.peers.kills import decided
from benchmarks.peers.servers import NotHere, Running
from tests.postgres import Server

ENGINES = (
    Contender(name="acode", module="on_acode", variant="default", ours=True),
    Contender(name="acode, idempotent", module="on_acode", variant="idempotent", ours=True),
    Contender(name="DBOS", module="on_dbos", server="postgres"),
    Contender(name="Absurd", module="on_absurd", server="postgres"),
    Contender(name="LangGraph", module="on_langgraph", server="postgres"),
)
END_S_MAX = 90.0
ASKED_MAX = 10
ASKS_FOR_AN_OUTCOME = ("OutcomeUnknown", "NotStorable")  # errors of acode that name the step; a person answers


class Hung(Exception):
    """Nothing was heard of a process for as long as the scenario waits."""


@dataclass(kw_only=True)
class Live:
    """A process under way; a thread reads what it says, so that waiting for it can end."""

    process: Process
    heard: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    ending: dict[str, Any] | None = None
    reader: threading.Thread | None = None

    def start(self) -> None:
        """Started, with its engine loaded: what it does from now on does not wait for a busy machine."""
        self.process.start()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        said = self._next(END_S_MAX)
        self.ending = said if said is None or "ended" in said else None

    def close(self) -> None:
        self.process.kill()
        if self.reader is not None:
            self.reader.join()
        child = self.process.child
        for pipe in (child.stdin, child.stdout) if child is not None else ():
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _read(self) -> None:
        try:
            while "ended" not in (said := self.process.hear()):
                self.heard.put(said)
            self.heard.put(said)
        except (NotHere, ValueError) as reason:
            self.heard.put({"ended": "refused", "by": "died", "text": str(reason)[-400:]})

    def until(self, where: str) -> bool:
        """Wait for the place; False if it ended instead."""
        said = self._next(END_S_MAX)
        if said is None:
            raise Hung(f"never came to {where}")
        assert said.get("at", where) == where, said
        self.ending = said if "ended" in said else None
        return self.ending is None

    def end(self, within_s: float = END_S_MAX) -> dict[str, Any] | None:
        """How it ended; None if it has not."""
        if self.ending is None:
            self.ending = self._next(within_s)
        return self.ending

    def _next(self, within_s: float) -> dict[str, Any] | None:
        try:
            return self.heard.get(timeout=within_s)
        except queue.Empty:
            return None

    def signal(self, number: signal.Signals) -> None:
        assert self.process.child is not None
        os.killpg(self.process.child.pid, number)


@dataclass(kw_only=True)
class Stage:
    contender: Contender
    path: Path
    running: Running
    postgres: Server | None
    stack: ExitStack
    asked: int = 0
    refusals: list[str] = field(default_factory=list)

    @property
    def ledger(self) -> str:
        file = self.path / "ledger"
        return file.read_text() if file.exists() else ""

    def start(self, *stops: str, do: str = "run", decision: dict[str, Any] | None = None, **program: Any) -> Live:
        place = {"path": str(self.path), "variant": self.contender.variant, "dsn": self.running.dsn}
        asked = {"module": self.contender.module, "place": place, "stops": stops, "do": do}
        asked |= {"decision": decision, "program": program}
        process = Process(
            contender=self.contender,
            path=self.path,
            running=self.running,
            asked=asked,
            program="benchmarks.peers.faults.program",
        )
        live = Live(process=process)
        self.stack.callback(live.close)
        live.start()
        return live

    def killed_at(self, where: str, **program: Any) -> bool:
        """Killed there with SIGKILL; False if it never came there."""
        live = self.start(where, **program)
        arrived = live.until(where)
        if not arrived:
            self.note_refusal(live.ending)
        live.process.kill()
        return arrived

    def finish(self, *stops: str, **program: Any) -> dict[str, Any]:
        """Started again until it has ended; where acode asks for an outcome, a person looks into the ledger."""
        while True:
            ended = self.start(*stops, **program).end()
            if ended is None:
                return {"ended": "hung"}
            if ended.get("by") not in ASKS_FOR_AN_OUTCOME or self.asked >= ASKED_MAX:
                return ended
            self.asked += 1
            self.decide(str(ended["step"]))

    def note_refusal(self, ended: dict[str, Any] | None) -> None:
        if ended is not None and "by" in ended and ended["by"] not in ASKS_FOR_AN_OUTCOME:
            self.refusals.append(str(ended["by"]))

    def decide(self, step: str) -> None:
        applied = step.removeprefix("step-") in self.ledger.split()
        self.start(do="decide", decision={"step": step, "applied": applied}).end()

    def judge(self, items: list[Any], ended: dict[str, Any] | None) -> Verdict:
        lost, repeated = counted(self.ledger, items)
        found = ended or {"ended": "hung"}
        return Verdict(
            lost=lost,
            repeated=repeated,
            undecided=undecided(repeated, decided(self.path)),
            ended=found["ended"],
            asked=self.asked,
            refusals=self.refusals,
            text=str(found.get("by") or found.get("text", "")),
        )


@contextmanager
def stage(contender: Contender, postgres: Server | None, *, shared: bool = False) -> Iterator[Stage]:
    """A fresh place for the engine; shared: acode too has PostgreSQL, for its shared history."""
    needs = replace(contender, server="postgres") if shared else contender
    with ExitStack() as stack:
        path, running = stack.enter_context(set_up(needs, postgres))
        yield Stage(contender=contender, path=path, running=running, postgres=postgres, stack=stack)
