"""Steps whose action is known only after they were asked for; acode's own agent asks for its steps like this.

A tool call is asked for by its position, name and arguments. If it is on record, its answer is given back and nothing
is looked at. If it is not, the tool looks around, and says what is to happen: nothing more, a write, a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from acode.engine.gate import Answer, Gate, close
from acode.engine.grants import Allowed
from acode.engine.held_session import Held
from acode.engine.step import Request, lifecycle, perform
from acode.events import types as ev
from acode.events.definition import Action, Approve, Call, digest
from acode.library.arguments import arguments_of
from acode.library.declarations import Begun, How
from acode.library.session import Session
from acode.state import NESTED
from acode.steps import kind_of
from acode.steps.interface import Done, Failed
from acode.steps.run import as_ended

MEANWHILE = Failed(reason="error", message="the file was changed by somebody else in the meantime")


class DeferredSteps:
    """An open session, seen by a program that finds out step by step what to do."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._requests = session._requests

    @property
    def run(self) -> Held:
        return self.session._run

    def offer(self, name: str, arguments: Any, *, shown: str = "") -> Begun:
        """The step on record, or one that can be begun; `arguments` are what a later run must give again."""
        undecided = Call(function=name)
        return self._requests.ask(name, arguments_of(arguments), How(), lambda: undecided, lambda: shown, starts=False)

    def knows(self, name: str) -> bool:
        """Whether the first step of this name, at this place, is on record; it is not asked for by that."""
        self._requests.refuse_if_forked()
        scope = self._requests.scope()
        step = f"{scope.path}{NESTED}{name}" if scope.path else name
        with self.run.turn:
            return self._requests.record.find(step, scope) is not None

    def start(self, begun: Begun, action: Action, *, idempotent: bool = True) -> None:
        """Begin the step. The caller ends it with `complete` or with the session's `fail`."""
        self._decide(begun, action, idempotent=idempotent, timeout_s=None)
        self._requests.begin(begun)

    def complete(
        self, begun: Begun, result: Any, *, files: tuple[ev.FileState, ...] = (), spent: ev.Spent | None = None
    ) -> None:
        self._requests.refuse_if_not_usable()
        self._requests.end(begun, msgspec.structs.replace(self._requests.record.pack(result), files=files, spent=spent))

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
        """A write, a command or a commit, done by the engine; one that ends without success has ended too.

        expected_sha256: of the file that is to be replaced; with another one there, nothing is written.
        """
        self._decide(begun, action, idempotent=idempotent, timeout_s=timeout_s)
        self._requests.at_boundary()
        run, work = self.run, begun.work
        kind = kind_of(work.step.kind)

        def act(started: ev.StepStarted) -> Done | Failed:
            begun.started = started
            replaced = started.before[0].sha256 if expected_sha256 is not None else None
            outcome = MEANWHILE if replaced != expected_sha256 else kind.execute(work.step, run.site(), started)
            return outcome if isinstance(outcome, Done) or self._is_open(outcome) else as_ended(outcome)

        def ended(completed: ev.StepCompleted) -> None:
            begun.completed = completed
            self._requests.finished(begun)

        request = Request(
            retry=lambda failed, failures: None,
            check=self._requests.refuse_if_not_usable,
            before=lambda: self._requests.handled(begun),
            asked=work.asked,
            shown=work.shown,
            ended=ended,
        )
        performed = perform(run, lifecycle(run, work.step, request), act)
        if isinstance(performed.outcome, Failed) and run.world.stop.at_boundary():
            raise KeyboardInterrupt  # in the middle: it is settled when the session is resumed
        self._requests.conclude(begun, performed)
        assert begun.completed is not None
        return begun.completed

    def _is_open(self, failed: Failed) -> bool:
        """Whether its end is unknown. A command that crashed by itself has ended, and the model gets its status."""
        return failed.reason == "signal" and (failed.signal is None or self.run.world.stop.at_boundary())

    def close_gate(
        self,
        begun: Begun,
        gate: Gate,
        answer: Answer,
        result: Any,
        *,
        before: tuple[ev.Known, ...] = (),
        blobs: Mapping[str, Any] | None = None,
    ) -> None:
        """The answer of a person is the result of the step that asked."""
        done = self._requests.record.pack(result)
        done = msgspec.structs.replace(done, blobs={**done.blobs, **(blobs or {})})
        with self.run.turn:
            begun.started = close(self.run, gate, answer, done, before=before)
            self._requests.finished(begun)

    def gate(self, begun: Begun, question: str, **bound: Any) -> Gate:
        """The step as a question to a person; `bound` is what else a yes is bound to."""
        self._decide(begun, Approve(question=question), idempotent=False, timeout_s=None)
        wanted = {"session": self.session.id, "gate": begun.id, "question": question, **bound}
        allowed = Allowed(digest=digest(wanted))
        return Gate(step=begun.work.step, question=question, allowed=allowed, asked=begun.work.asked)

    def output(self, completed: ev.StepCompleted) -> str:
        """The output of its command, as it was captured."""
        return self._requests.record.output(completed)

    def result(self, completed: ev.StepCompleted) -> Any:
        return self._requests.record.unpack(completed)

    def _decide(self, begun: Begun, action: Action, *, idempotent: bool, timeout_s: float | None) -> None:
        step = msgspec.structs.replace(begun.work.step, action=action, idempotent=idempotent, timeout_s=timeout_s)
        begun.todo = msgspec.structs.replace(begun.work, step=step)
