"""Every source of steps behind one interface: a plan, programs of several kinds, acode's agent, a foreign run.

Each life of a session is a process of its own, forked from the test, so that it can be killed and signalled; its first
life begins the session, every later one resumes it as a user of that source would.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

import acode
from acode.engine.workspace_store import opened
from acode.errors import AcodeError
from acode.events import types as ev
from tests.agent.town import call, plan_turn, served, task_turns
from tests.arc import arc, put, put_run
from tests.conformance import durable_program
from tests.conformance.steps import Step, perform_async, perform_call
from tests.driver import WAIT_S_MAX
from tests.worlds import world

Kind = TypeVar("Kind")
KEY = durable_program.KEY
STATEMENTS = "change.sql"
BESIDE, BESIDE_S = "beside", 0.1  # long enough to be in flight when the first step begins
STOPPED_COMMAND = "a command that was stopped may have acted: a person is asked"


class Source:
    """A session of one source in a place of its own.

    lacks: features that this source has no form of, each with the reason.
    """

    name: ClassVar[str]
    lacks: ClassVar[dict[str, str]] = {}

    def __init__(self, place: Path) -> None:
        self.place = place
        self.workspace = place / "workspace"
        self.workspace.mkdir(parents=True)
        self.ledger = place / "ledger"
        self.lives = 0
        self.env: dict[str, str] = {}
        self.arranged = contextlib.ExitStack()
        self._wrappers: list[Callable[[], None]] = []

    # What a source says of itself.

    def arrange(self, steps: tuple[Step, ...]) -> None:
        """Put down what the session is begun from."""
        raise NotImplementedError

    def first(self) -> int:
        """Begin the session; the exit status."""
        raise NotImplementedError

    def again(self) -> int:
        """Resume it, as its user would."""
        return self.cli("resume", "--last", "--yes")

    def ask_for_something_else(self) -> None:
        """What stands behind the gate, or the question itself, is another one from the next life on."""
        raise NotImplementedError

    # Lives.

    def run(self, *steps: Step) -> int:
        """The first life, from beginning to end; its exit status, negative for a signal."""
        self.arrange(steps)
        return self.finish(self.start())

    def resume(self) -> int:
        return self.finish(self.start())

    def begin_again(self) -> int:
        """As if nothing had been begun: the command or program of the first life once more."""
        self.lives = 0
        return self.resume()

    def start(self) -> int:
        """A life in the background; the process id."""
        self.lives += 1
        begins = self.lives == 1
        child = os.fork()
        if child:
            return child
        status = 70
        try:
            self._become_runner()
            status = self.first() if begins else self.again()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def finish(self, child: int) -> int:
        """Wait for its end; a life that does not end is one that does not obey."""
        watch = threading.Timer(WAIT_S_MAX, os.kill, (child, signal.SIGKILL))
        watch.start()
        try:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        finally:
            watch.cancel()

    def _become_runner(self) -> None:
        os.setsid()
        os.chdir(self.workspace)
        os.environ.update(
            HOME=os.fspath(self.place),
            ACODE_HOME=os.fspath(self.place / "state"),
            LEDGER=os.fspath(self.ledger),
            RUNNER=str(os.getpid()),
            **self.env,
        )
        with open(self.place / "said", "ab") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for number in (1, 2):
            stream = os.fdopen(number, "w", encoding="utf-8", closefd=False, buffering=1)
            setattr(sys, "stdout" if number == 1 else "stderr", stream)
        for wrap in self._wrappers:
            wrap()

    def in_every_life(self, wrap: Callable[[], None]) -> None:
        """Called in the process of each later life, before it does anything; for what a test plants there."""
        self._wrappers.append(wrap)

    @staticmethod
    def cli(*words: str) -> int:
        from acode.cli import main

        try:
            return int(main(list(words)) or 0)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1

    def command(self, *words: str) -> int:
        """Another command of acode beside the session, in a process of its own."""
        child = os.fork()
        if child == 0:
            status = 70
            try:
                self._become_runner()
                status = self.cli(*words)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    # What is left behind.

    @property
    def said(self) -> str:
        return (self.place / "said").read_text(encoding="utf-8", errors="replace")

    def effects(self) -> list[str]:
        return self.ledger.read_text().split() if self.ledger.exists() else []

    def history(self, session_id: str | None = None) -> list[Any]:
        """What is on record of that session, or of the last one."""
        with opened(self.reader(), look_only=True) as store:
            wanted = store.session_ids()[-1:] if session_id is None else [session_id]
            return [one.event for session in wanted for one, _, _ in store.events(session)]

    def acts(self, started: ev.StepStarted) -> bool:
        """Whether this is one of the steps that the test has stated; a session may have others around them."""
        return started.kind == "run"

    def is_beside(self, event: Any) -> bool:
        """Whether a task that is no part of what the test has stated appended this."""
        return False

    def starts(self) -> list[ev.StepStarted]:
        return [one for one in self.events(ev.StepStarted) if self.acts(one)]

    def events(self, kind: type[Kind]) -> list[Kind]:
        return [one for one in self.history() if isinstance(one, kind)]

    def reader(self) -> Any:
        return world(self.place)

    @property
    def session_id(self) -> str:
        with opened(self.reader(), look_only=True) as store:
            return store.session_ids()[-1]

    @property
    def in_flight(self) -> str:
        """The id of the one step that is begun and not ended; acode's own words for it differ by source."""
        with opened(self.reader(), look_only=True) as store:
            (found,) = [
                name
                for name, flight in store.load(store.session_ids()[-1]).session.in_flight.items()
                if self.acts(flight.started)
            ]
            return found

    def close(self) -> None:
        self.arranged.close()


class PlanSource(Source):
    name = "plan"
    lacks: ClassVar[dict[str, str]] = {
        "retry after timeout": STOPPED_COMMAND,
        "long name": "the ids of a plan are short",
    }

    def arrange(self, steps: tuple[Step, ...]) -> None:
        defined = [one for step in steps for one in self.definitions(step)]
        plan = {"title": "Conformance", "tasks": [{"id": "main", "steps": defined}]}
        put(self.workspace, "plan.yml", json.dumps(plan))

    def definitions(self, step: Step) -> list[dict[str, Any]]:
        """A gate has statements behind it: the plan names their file, and a grant is for its content."""
        if not step.gate:
            return [self.definition(step)]
        put(self.workspace, STATEMENTS, "create table one (n);\n")
        return [{"id": step.name, "approve": step.gate}, {"sql": {"file": STATEMENTS, "database": "app.db"}}]

    def ask_for_something_else(self) -> None:
        put(self.workspace, STATEMENTS, "create table other (n);\n")

    @staticmethod
    def definition(step: Step) -> dict[str, Any]:
        declared: dict[str, Any] = {
            "timeout": step.timeout_s,
            "cwd": step.cwd,
            "outputs": list(step.outputs) or None,
            "secret_env": list(step.secret_env) or None,
            "retry": None if step.retry is None else {"attempts": step.retry[0], "backoff_seconds": step.retry[1]},
        }
        kept = {key: value for key, value in declared.items() if value is not None}
        return {"id": step.name, "run": step.line, "idempotent": step.idempotent, **kept}

    def first(self) -> int:
        return self.cli("run", "plan.yml")


class ParallelSource(PlanSource):
    """The same plan beside a task that has steps of its own in flight meanwhile."""

    name = "plan: parallel"

    def arrange(self, steps: tuple[Step, ...]) -> None:
        super().arrange(steps)
        plan = json.loads((self.workspace / "plan.yml").read_text())
        other = {"run": f"sleep {BESIDE_S}", "idempotent": True}
        plan["tasks"].append({"id": BESIDE, "needs": [], "steps": [other, {"read": "plan.yml"}, other]})
        put(self.workspace, "plan.yml", json.dumps({**plan, "parallel": 2}))

    def history(self, session_id: str | None = None) -> list[Any]:
        """Of the task that the test has stated; a pause of the whole session is told of it too."""
        return [one for one in super().history(session_id) if not self.is_beside(one)]

    def is_beside(self, event: Any) -> bool:
        return str(getattr(event, "step", "")).startswith(f"{BESIDE}.")

    def acts(self, started: ev.StepStarted) -> bool:
        return super().acts(started) and started.task != BESIDE


class ProgramSource(Source):
    """A program with a session; running it again resumes it."""

    def arrange(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps

    def first(self) -> int:
        try:
            return self.live()
        except AcodeError as error:
            print(error, error.hint, file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            return 130
        except Exception:
            traceback.print_exc()
            return 1

    def again(self) -> int:
        return self.first()

    def live(self) -> int:
        with acode.session(KEY, workspace=self.workspace) as session:
            for step in self.steps:
                if not self.asked(session, step):
                    self.do(session, step)
        return 0

    def asked(self, session: acode.Session, step: Step) -> bool:
        """Whether the step is a question, which is answered by now."""
        return bool(step.gate) and session.approve(step.gate, name=step.name)

    def ask_for_something_else(self) -> None:
        """The program was changed meanwhile."""
        self.arrange(
            tuple(msgspec.structs.replace(one, gate=f"{one.gate} And now?") if one.gate else one for one in self.steps)
        )

    def do(self, session: acode.Session, step: Step) -> None:
        raise NotImplementedError

    @staticmethod
    def declared(step: Step) -> dict[str, Any]:
        retry = None if step.retry is None else acode.Retry(attempts=step.retry[0], backoff_s=step.retry[1], factor=1)
        return {"idempotent": step.idempotent, "retry": retry, "timeout": step.timeout_s}


class CommandSource(ProgramSource):
    name = "program: command"
    lacks: ClassVar[dict[str, str]] = {"retry after timeout": STOPPED_COMMAND}

    def do(self, session: acode.Session, step: Step) -> None:
        session.run(
            step.line,
            name=step.name,
            cwd=step.cwd,
            outputs=step.outputs,
            secret_env=step.secret_env,
            **self.declared(step),
        )


NO_KEEPER = {
    "keeper": "a function runs in the program itself: when that is killed, nobody saw it end",
    "cwd": "a function works where it likes",
    "outputs": "a function declares none",
    "secret_env": "a function takes its secrets itself",
}


class FunctionSource(ProgramSource):
    name = "program: function"
    lacks = NO_KEEPER

    def acts(self, started: ev.StepStarted) -> bool:
        return started.kind == "call" and started.step in [step.name for step in self.steps]

    def do(self, session: acode.Session, step: Step) -> None:
        session.step(step.name, perform_call, step.line, **self.declared(step))


class AsyncSource(FunctionSource):
    name = "program: async"

    def live(self) -> int:
        async def live() -> None:
            async with acode.session(KEY, workspace=self.workspace) as session:
                for step in self.steps:
                    if self.asked(session, step):
                        continue
                    await session.step(step.name, perform_async, step.line, **self.declared(step))

        asyncio.run(live())
        return 0


class ThreadSource(FunctionSource):
    """Each step is performed by a thread of its own; the first error ends the program."""

    name = "program: threads"

    def do(self, session: acode.Session, step: Step) -> None:
        errors: list[BaseException] = []

        def work() -> None:
            try:
                session.step(step.name, perform_call, step.line, **self.declared(step))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]


class DurableSource(FunctionSource):
    """A durable function: its program calls it first, `acode resume` calls it again."""

    name = "program: durable"

    def arrange(self, steps: tuple[Step, ...]) -> None:
        super().arrange(steps)
        (self.place / "steps.json").write_bytes(msgspec.json.encode(steps))

    def live(self) -> int:
        durable_program.work(os.fspath(self.place / "steps.json"))
        return 0

    def again(self) -> int:
        return self.cli("resume", "--last", "--yes")


MODEL_LIBRARIES = ("acode.agent.model_messages", "pydantic_ai.direct", "pydantic_ai.models.openai", "genai_prices")


class AgentSource(Source):
    name = "agent"
    lacks: ClassVar[dict[str, str]] = {
        "retry": "the model is told of a failure, and decides itself",
        "cwd": "the tool has no working directory",
        "outputs": "the tool declares none",
        "secret_env": "a model is given no secrets",
        "idempotent": "a model declares nothing",
        "failure ends": "the model is told of a failure, and goes on",
        "gate of its own": "a model asks for no gate; that a tool is asked for is a setting",
    }

    def arrange(self, steps: tuple[Step, ...]) -> None:
        for library in MODEL_LIBRARIES:  # once, and not by each life: they take a second
            importlib.import_module(library)
        turns = [{"calls": [self.tool_call(step)]} for step in steps if not step.gate]
        allowed = "ask" if any(step.gate for step in steps) else "allow"
        script = {"models": ["scripted"], "turns": [plan_turn({"id": "work"}), task_turns("Work", *turns, DONE)]}
        url, _ = self.arranged.enter_context(served(script, self.place / "model"))
        self.env = {"ACODE_MODEL": "scripted", "ACODE_MODEL_BASE_URL": url}
        put(self.workspace, ".agent/config.yml", f"tools: {{run_command: {allowed}}}\n")
        assert self.command("config", "trust") == 0

    @staticmethod
    def tool_call(step: Step) -> dict[str, Any]:
        timeout = {} if step.timeout_s is None else {"timeout_s": step.timeout_s}
        return call("run_command", command=step.line, **timeout)

    def first(self) -> int:
        return self.cli("run", "Conform", "--approve-plan")


DONE = {"text": "All is done."}
PHASES = ("work", "code_review", "mend")
DRIVER = """#!/bin/sh
set -e
artifact=$(sed -n 's/^Write the phase.s artifact to: //p' "$ACODE_PROMPT_FILE")
if [ -n "$artifact" ]; then mkdir -p "$(dirname "$artifact")" && echo "$ACODE_TASK $$" > "$artifact"; fi
. "$LINES/$ACODE_TASK"
"""


class ForeignSource(Source):
    """An arc run whose phases are driven by a command; each phase performs one line."""

    name = "foreign run"
    lacks: ClassVar[dict[str, str]] = {
        "retry": "a driver declares no retry",
        "outputs": "a driver declares none",
        "secret_env": "a driver declares none",
        "gate": "its gates are those of its format",
        "gate of its own": "its gates are those of its format",
    }

    def arrange(self, steps: tuple[Step, ...]) -> None:
        assert len(steps) <= len(PHASES)
        lines = self.place / "lines"
        lines.mkdir()
        for phase, step in zip(PHASES, steps, strict=False):
            (lines / phase).write_text(step.line + "\n")
        self.env = {"LINES": os.fspath(lines)}
        put(self.place, "driver.sh", DRIVER).chmod(0o755)
        settings = {
            "command": [os.fspath(self.place / "driver.sh")],
            "idempotent": steps[0].idempotent,
            "timeout": next((step.timeout_s for step in steps if step.timeout_s), 600),
            **({"cwd": steps[0].cwd} if steps[0].cwd else {}),
        }
        put(self.workspace, ".agent/config.yml", json.dumps({"drivers": {"arc": settings}}))
        assert self.command("config", "trust") == 0
        pending: dict[str, Any] = {phase: {"status": "pending"} for phase in PHASES[: len(steps)]}
        put_run(self.workspace, arc(pending))

    def first(self) -> int:
        return self.cli("resume", arc()["id"], "--yes")

    def again(self) -> int:
        return self.first()


@contextlib.contextmanager
def living(kind: type[Source], place: Path) -> Iterator[Source]:
    made = kind(place)
    try:
        yield made
    finally:
        made.close()


__all__ = ["Source", "ev", "living"]
