"""Steps that one process begins and another ends: the shape of an agent whose tools are observed by hooks.

The life itself acts. Before and after each step it starts a process that records the step and ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

from acode.engine import split_step
from acode.engine.create import create_program
from acode.engine.workspace_store import has_database, opened
from acode.engine.world import Options
from acode.errors import AcodeError
from acode.events import types as ev
from acode.events.definition import Call
from acode.events.definition import Step as Definition
from acode.library.world import world_of
from acode.steps.interface import Done, Failed
from tests.conformance.sources import NO_KEEPER, Source
from tests.conformance.steps import Step

KEY = "observed"
REFUSED = 71


def in_process(record: Callable[[], None]) -> None:
    """Record in a process of its own, as a hook does; a refusal ends the life with the same status."""
    child = os.fork()
    if child == 0:
        status = REFUSED
        try:
            record()
            status = 0
        except AcodeError as error:
            print(error, error.hint, file=sys.stderr)
            status = error.exit_code
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        sys.stdout.flush()
        os._exit(status if status > 0 else REFUSED)


class SplitSource(Source):
    name = "two processes"
    lacks = {  # noqa: RUF012 - as its neighbours
        **NO_KEEPER,
        "retry": "the performer decides itself whether it tries again",
        "timeout": "the performer's own",
        "gate": "the performer asks its own person",
        "lock during the act": "the session is not held while the performer acts",
        "pause": "the performer asks for its next step whenever it likes",
        "failure ends": "the performer is told, and decides",
        "damage": "a session is found by its id, never begun for a second time",
        "idempotent": "nothing is declared of a performer's tool",
    }

    def arrange(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps

    def acts(self, started: ev.StepStarted) -> bool:
        return started.kind == "call"

    def here(self) -> Any:
        return world_of(self.workspace)

    def first(self) -> int:
        def create() -> None:
            with create_program(self.here(), KEY, entry=None, arguments={}):
                pass

        if not has_database(self.here()):
            in_process(create)
        return self.live()

    def again(self) -> int:
        in_process(lambda: split_step.settle_open(self.here(), self.found(), Options(actor="user")))
        return self.live()

    def live(self) -> int:
        try:
            return self.act()
        except AcodeError as error:
            print(error, error.hint, file=sys.stderr)
            return error.exit_code

    def found(self) -> str:
        with opened(self.here(), look_only=True) as store:
            return store.session_ids()[-1]

    def act(self) -> int:
        with opened(self.here(), look_only=True) as store:
            session = store.load(self.found()).session
            events = [envelope.event for envelope, _, _ in store.events(self.found())]
        done = {one.step for one in events if isinstance(one, ev.StepCompleted)}
        if session.terminal:
            return 0
        for step in self.steps:
            if step.name not in done:
                self.one(step)
        in_process(lambda: split_step.complete_for(self.here(), self.found()))
        return 0

    def one(self, step: Step) -> None:
        by = split_step.performer(os.getpid(), "the agent")
        asked = ev.Asked(arguments=step.line, after=None)
        definition = Definition(id=step.name, action=Call(function="shell"))
        in_process(lambda: self.begin(definition, by, asked))
        ended = subprocess.run(["/bin/sh", "-c", step.line], check=False, stdout=subprocess.PIPE, text=True)
        outcome: Done | Failed = Done(result={"v": ended.returncode})
        if ended.returncode:
            outcome = Failed(reason="exit", message=ended.stdout[-200:], exit_status=ended.returncode)
        in_process(lambda: split_step.end_for(self.here(), self.found(), self.key_of(step.name), outcome))

    def begin(self, definition: Definition, by: ev.Performer, asked: ev.Asked) -> None:
        split_step.begin_for(self.here(), self.found(), definition, by, asked=asked)

    def key_of(self, step: str) -> str:
        with opened(self.here(), look_only=True) as store:
            return store.load(self.found()).session.in_flight[step].started.key
