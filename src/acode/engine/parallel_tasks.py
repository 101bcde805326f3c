"""Perform tasks at the same time: those whose needs are done, each in a thread, at most so many as the plan allows.

The threads perform steps by the one lifecycle of `engine.step`; the calling thread starts them, and asks at gates,
because a terminal and signals belong to it. A failure, a signal or a refusal lets every other step reach its end before
the session is paused, so that no step is left in flight whose outcome somebody could have recorded.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterator

import msgspec

from acode.engine.endings import Ending, pause_by_signal, stop_at_failure
from acode.engine.gate import is_granted, pass_gate
from acode.engine.held_session import Held
from acode.engine.step import WAIT_SLICE_S
from acode.engine.walk import perform_attempts
from acode.engine.world import Nobody
from acode.errors import WriteFailed
from acode.events.definition import Approve, Commit, Sql, Step, Task
from acode.steps.interface import Done, Failed


class TaskDone(msgspec.Struct, frozen=True):
    task: Task


class AtGate(msgspec.Struct, frozen=True):
    task: Task
    gate: Step


class StepFailed(msgspec.Struct, frozen=True):
    task: Task
    step: Step
    failed: Failed


class Halted(msgspec.Struct, frozen=True):
    """The task stands between two of its steps; `error`: the thread could not continue."""

    task: Task
    error: BaseException | None = None


News = TaskDone | AtGate | StepFailed | Halted


class ParallelTasks:
    """The tasks of one plan: waiting for their needs, at work, at a gate, or done."""

    def __init__(self, run: Held, order: tuple[Task, ...], at_once_max: int, skipped: int) -> None:
        self._run = run
        self._skipped = skipped
        self._at_once_max = at_once_max
        self._total = sum(len(task.steps) for task in order)
        done = {task.id for task in order if all(run.session.done(step.id) for step in task.steps)}
        self._done: set[str] = done
        self._waiting = [task for task in order if task.id not in done]
        self._at_work: dict[str, threading.Thread] = {}
        self._gates: list[AtGate] = []
        self._failures: list[StepFailed] = []
        self._errors: list[BaseException] = []
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._halting = False
        self._alone: dict[str, threading.Lock] = {}  # by what two steps must not change at the same time

    def perform(self) -> Ending:
        """To the end of all tasks (None), or to the first reason to stop."""
        try:
            while True:
                self._start_ready()
                gate = self._gate_to_pass()
                if gate is not None:
                    ending = self._pass(gate)
                    if ending is not None:
                        return ending
                elif self._at_work:
                    self._hear(self._news.get())
                else:
                    return self._end()
        finally:
            self._drain()

    # The calling thread.

    def _start_ready(self) -> None:
        """Always the first tasks in the order of the plan whose needs are done."""
        ready = [task for task in self._waiting if self._done.issuperset(task.needs)]
        for task in ready[: self._at_once_max - len(self._at_work)]:
            if self._halts():
                return
            self._waiting.remove(task)
            thread = threading.Thread(target=self._work, args=(task,), name=f"acode-task-{task.id}")
            thread.start()
            self._at_work[task.id] = thread  # only what runs is waited for

    def _hear(self, news: News) -> None:
        self._at_work.pop(news.task.id).join()
        match news:
            case TaskDone(task=task):
                self._done.add(task.id)
            case AtGate():
                self._gates.append(news)
            case StepFailed(task=task):
                self._failures.append(news)
                self._waiting.insert(0, task)
            case Halted(task=task, error=error):
                self._waiting.insert(0, task)
                if error is not None:
                    self._errors.append(error)

    def _gate_to_pass(self) -> AtGate | None:
        """One that is granted already, or that a person can answer now. Where nobody can, the others run first: the
        session waits only when nothing is left to do without the answer."""
        if self._halts():
            return None
        granted = next((one for one in self._gates if is_granted(self._run, one.gate)), None)
        asks = not isinstance(self._run.world.answers, Nobody) or not self._at_work
        return granted or (self._gates[0] if self._gates and asks else None)

    def _pass(self, at: AtGate) -> Ending:
        self._gates.remove(at)
        self._waiting.insert(0, at.task)
        ending = pass_gate(self._run, at.gate, self._skipped, drain=self._drain)
        self._raise_errors()
        return ending

    def _drain(self) -> None:
        """Every step in flight reaches its end, and none begins."""
        if self._at_work:
            self._halting = True
        while self._at_work:
            self._hear(self._news.get())

    def _end(self) -> Ending:
        """Nothing is at work any more, and all that could begin has."""
        self._raise_errors()
        if self._failures:
            # A command that was stopped by a person's wish is no failure of its own.
            own = [one for one in self._failures if one.failed.reason != "signal"]
            first, *others = own or self._failures
            also = tuple(one.step.id for one in others)
            return stop_at_failure(self._run, first.step, first.failed, self._skipped, also=also)
        if self._waiting or self._gates:
            return pause_by_signal(self._run, self._skipped)
        return None

    def _raise_errors(self) -> None:
        """The first one that says more than that another thread's write had failed before."""
        if self._errors:
            raise next((one for one in self._errors if not isinstance(one, WriteFailed)), self._errors[0])

    def _halts(self) -> bool:
        return self._halting or self._run.world.stop.at_boundary()

    # The threads.

    def _work(self, task: Task) -> None:
        try:
            news = self._walk(task)
        except BaseException as error:
            news = Halted(task, error)
        if isinstance(news, StepFailed) or (isinstance(news, Halted) and news.error is not None):
            self._halting = True  # before anybody hears of it: no other step may begin
        self._news.put(news)

    def _walk(self, task: Task) -> News:
        session = self._run.session
        for step in task.steps:
            if session.done(step.id):
                continue
            if self._halts() and step.id not in self._run.begun:  # a read that is on record as begun is read
                return Halted(task)
            if isinstance(step.action, Approve):
                return AtGate(task, step)
            with self._only_one(step) as free:
                if not free:
                    return Halted(task)
                performed = perform_attempts(self._run, step, last=self._is_last, stopped=self._halts)
            if performed.stopped:
                return Halted(task)
            if not isinstance(performed.outcome, Done):
                return StepFailed(task, step, performed.outcome)
        return TaskDone(task)

    def _is_last(self) -> bool:
        return self._run.session.steps_done + 1 == self._total

    @contextlib.contextmanager
    def _only_one(self, step: Step) -> Iterator[bool]:
        """Whether the step may begin: where two must not work at the same time, as soon as the other has ended."""
        name = self._changes(step)
        if name is None:
            yield True
            return
        with self._run.turn:
            lock = self._alone.setdefault(name, threading.Lock())
        while not lock.acquire(timeout=WAIT_SLICE_S):
            if self._halts():
                yield False
                return
        try:
            yield True
        finally:
            lock.release()

    def _changes(self, step: Step) -> str | None:
        """Its repository, or its database file: git refuses a second commit meanwhile, SQLite a second writer."""
        match step.action:
            case Commit():
                return "repository"
            case Sql(database=named, database_env=variable):
                database = named or self._run.world.env.get(variable or "", "")
                inside = os.path.join(self._run.world.workspace, database)
                return None if "://" in database else os.path.realpath(inside)
            case _:
                return None
