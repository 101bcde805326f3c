"""Steps of which it is known only after they were asked for what they will do; acode's own agent works at this bench.

A tool call is asked for by its position, name and arguments. If it is on record, its answer is given back and nothing
is looked at. If it is not, the tool looks around, and says what is to happen: nothing more, a write, a command.
"""

from __future__ import annotations

from typing import Any

import msgspec

from acode.engine import called
from acode.engine.held_session import Held
from acode.engine.step import guard_after_act
from acode.engine.walk import record_failure
from acode.events import types as ev
from acode.events.definition import Action, Call
from acode.library.arguments import arguments_of
from acode.library.declarations import Begun, How
from acode.library.session import Session
from acode.state import NESTED
from acode.steps import kind_of
from acode.steps.interface import Failed
from acode.steps.run import as_ended

MEANWHILE = Failed(reason="error", message="the file was changed by somebody else in the meantime")


class Bench:
    """An open session, seen by a program that finds out step by step what to do."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._asking = session._asking

    @property
    def run(self) -> Held:
        return self.session._run

    def offer(self, name: str, arguments: Any, *, shown: str = "") -> Begun:
        """The step on record, or one that can be begun; `arguments` are what a later run must give again."""
        undecided = Call(function=name)
        return self._asking.ask(name, arguments_of(arguments), How(), lambda: undecided, lambda: shown, starts=False)

    def knows(self, name: str) -> bool:
        """Whether the first step of this name, at this place, is on record; it is not asked for by that."""
        self._asking.refuse_if_forked()
        scope = self._asking.scope()
        step = f"{scope.path}{NESTED}{name}" if scope.path else name
        with self.run.turn:
            return self._asking.record.find(step, scope) is not None

    def start(self, begun: Begun, action: Action, *, idempotent: bool = True) -> None:
        """It begins now. Whoever began it ends it with `complete` or with the session's `fail`."""
        self._decide(begun, action, idempotent=idempotent, timeout_s=None)
        self._asking.begin(begun)

    def complete(
        self, begun: Begun, result: Any, *, files: tuple[ev.FileState, ...] = (), spent: ev.Spent | None = None
    ) -> None:
        assert begun.started is not None
        self._asking.refuse_if_not_usable()
        done = msgspec.structs.replace(self._asking.record.pack(result), files=files, spent=spent)
        with self.run.turn:
            self._asking.refuse_if_not_usable()
            called.end(self.run, begun.started, done, took_ms=self._asking.took_ms(begun))
            self._asking.finished(begun)

    def answer(self, begun: Begun, action: Action, result: Any, *, files: tuple[ev.FileState, ...] = ()) -> None:
        """A step that only looked: what it found is its result."""
        self.start(begun, action)
        self.complete(begun, result, files=files)

    def execute(
        self,
        begun: Begun,
        action: Action,
        *,
        idempotent: bool = False,
        timeout_s: float | None = None,
        expected_sha256: str | None = None,
    ) -> ev.StepCompleted:
        """A write, a command or a commit, done by the engine; one that ends without success has ended all the same.

        expected_sha256: of the file that is to be replaced; with another one there, nothing is written.
        """
        self._decide(begun, action, idempotent=idempotent, timeout_s=timeout_s)
        step = begun.work.step
        with self.run.turn:
            self._asking.at_boundary()
            site = self.run.site()
            self._asking.begin(begun, site)
        assert begun.started is not None
        replaced = begun.started.before[0].sha256 if expected_sha256 is not None else None
        outcome = MEANWHILE if replaced != expected_sha256 else kind_of(step.kind).execute(step, site, begun.started)
        guard_after_act(self.run, begun.id)
        if isinstance(outcome, Failed) and outcome.reason == "signal":
            self._leave_open(begun, outcome)
        done = as_ended(outcome) if isinstance(outcome, Failed) else outcome
        with self.run.turn:
            begun.completed = called.end(self.run, begun.started, done, took_ms=self._asking.took_ms(begun))
            self._asking.finished(begun)
        return begun.completed

    def _leave_open(self, begun: Begun, failed: Failed) -> None:
        """Unless its end is known: a command that crashed by itself has ended, and whoever asked is told."""
        by_a_person = self.run.world.stop.at_boundary()
        if failed.signal is not None and not by_a_person:
            return
        assert begun.started is not None
        record_failure(self.run, begun.started, failed, self._asking.took_ms(begun))
        if by_a_person:
            raise KeyboardInterrupt  # in the middle: it is settled when the session goes on
        raise self._asking.error_of(begun, failed)

    def output(self, completed: ev.StepCompleted) -> str:
        """What its command printed, as it was captured."""
        return self._asking.record.output(completed)

    def result(self, completed: ev.StepCompleted) -> Any:
        return self._asking.record.unpack(completed)

    def _decide(self, begun: Begun, action: Action, *, idempotent: bool, timeout_s: float | None) -> None:
        step = msgspec.structs.replace(begun.work.step, action=action, idempotent=idempotent, timeout_s=timeout_s)
        begun._work = msgspec.structs.replace(begun.work, step=step)
