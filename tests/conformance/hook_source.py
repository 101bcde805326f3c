"""An agent observed by hooks, with the front under its shell: its life is the agent, and it does what agents do.

Before and after each tool it calls the hook, in a process of its own; its commands run behind the real front. It
remembers only the calls whose results it saw, so that after a kill it asks again for the one in flight.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from acode import errors
from acode.observed import hook
from acode.observed.doors import Doors, doors_in, write_doors
from acode.observed.hook_answer import Answer, printed
from tests.conformance.sources import Source
from tests.conformance.steps import Step

REFUSED = 71
SESSION = "4f5c1c39-observed"
STATUS_OF = {one.code: one.exit_code for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "code")}


class HookSource(Source):
    name = "observed agent"
    lacks = {  # noqa: RUF012 - as its neighbours
        "cwd": "the agent's tools work where they like",
        "outputs": "an agent declares none",
        "secret_env": "an agent declares none",
        "retry": "the agent decides itself whether it tries again",
        "retry after timeout": "the agent decides itself whether it tries again",
        "gate": "the agent asks its own person",
        "gate of its own": "the agent asks its own person",
        "lock during the act": "the session is not held while the agent acts",
        "pause": "acode does not run the agent, and says so",
        "failure ends": "the agent is told, and decides",
        "idempotent": "an agent declares nothing of its tools",
    }

    def arrange(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self.doors: Doors = write_doors(self.place / "state")

    @property
    def memory(self) -> Path:
        return self.place / "memory"

    def first(self) -> int:
        self.ask("SessionStart", source="startup")
        self.ask("UserPromptSubmit", prompt="Conform")
        for step in self.steps:
            if step.name not in self.remembered():
                self.call(step)
        self.ask("SessionEnd", reason="other")
        return 0

    def again(self) -> int:
        return self.first()

    def remembered(self) -> list[str]:
        return self.memory.read_text().split() if self.memory.exists() else []

    def call(self, step: Step) -> None:
        tool = {"tool_name": "Bash", "tool_input": {"command": step.line}, "tool_use_id": f"{step.name}-{os.getpid()}"}
        answer = self.ask("PreToolUse", **tool)
        if "nothing shows" in answer.deny:
            leave(errors.OutcomeUnknown.exit_code)
        if not answer.deny:
            shell = os.fspath(self.doors.directory / "shells" / "bash")
            ended = subprocess.run([shell, "-c", step.line], check=False, stdout=subprocess.PIPE, text=True)
            self.ask("PostToolUse", **tool, tool_response={"stdout": ended.stdout})
        with open(self.memory, "a", encoding="utf-8") as file:
            file.write(f"{step.name}\n")

    def ask(self, event: str, **fields: Any) -> Answer:
        """Call the hook as the agent does, in a process of its own; what it refuses to record ends the life."""
        payload = {"session_id": SESSION, "cwd": os.fspath(self.workspace), "hook_event_name": event, **fields}
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = REFUSED
            try:
                found = hook.handle(json.dumps(payload).encode(), dict(os.environ), doors_in(self.state), os.getppid())
                os.write(writing, json.dumps([found[1].deny, found[1].context, found[1].error]).encode())
                print(printed(*found), file=sys.stderr)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(writing)
        with open(reading, "rb") as pipe:
            told = pipe.read()
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended:
            leave(ended if ended > 0 else REFUSED)
        deny, context, error = json.loads(told)
        if error:
            leave(next(status for code, status in STATUS_OF.items() if f"[{code}]" in error))
        return Answer(deny=deny, context=context)

    @property
    def state(self) -> Path:
        return self.place / "state"


def leave(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
