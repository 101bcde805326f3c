"""A run as a person follows it, on stderr: what is loaded, skipped, checked and settled, then step after step."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, assert_never

import msgspec

from acode.cli import sync_state
from acode.cli.environment import changed_lines, check_lines
from acode.cli.live_line import LiveLine
from acode.cli.output import OutputLines
from acode.cli.positions import (
    Outline,
    Skipped,
    agent_lines,
    agent_place,
    agent_skipped,
    of_agent,
    outline_of,
    replacement_lines,
    settled_lines,
)
from acode.cli.remediation import show_remedy
from acode.cli.screen import Screen
from acode.engine import notices
from acode.engine.notices import Notice
from acode.engine.world import short
from acode.redact import Redactor
from acode.state import NESTED, Session
from acode.text import one_line
from acode.text.durations import STEP_SHOWN_CHARS_MAX, attempt_of, count, shortened, took

if TYPE_CHECKING:
    from acode.cli.meter import Meter

PATHS_SHOWN_MAX = 5


class Progress:
    """A listener that talks."""

    def __init__(self, screen: Screen, redactor: Redactor, monotonic: Callable[[], float]) -> None:
        self.screen = screen
        self.redactor = redactor
        self.line = LiveLine(screen, monotonic)
        self.session_id: str | None = None
        self.state = ""
        self.resumed = False
        self._outline: Outline | None = None
        self._is_parallel = False
        self._tasks: list[str] = []  # whose names were shown, the last one last
        self._running: dict[str, float] = {}  # steps that run at the same time, and since when
        self._monotonic = monotonic
        self._turn = threading.RLock()
        self._held: list[Notice] | None = None  # what came while a person is asked
        self._ready = False
        self._checked = False
        self._warned: set[str] = set()
        self._outputs: dict[str, OutputLines] = {}
        self._titles: dict[str, str] = {}  # of an agent's steps, which no plan names
        self.meter_of: Callable[[Session], Meter | None] | None = None
        self._meter: Meter | None = None

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """While a person is asked, other tasks may run: their lines are shown after the answer."""
        self.line.summarize(None)
        self._held = []
        try:
            yield
        finally:
            with self._turn:
                held, self._held = self._held, None
                for notice in held:
                    self._emit(notice)

    def emit(self, notice: Notice) -> None:
        with self._turn:
            if self._held is None:
                self._emit(notice)
            else:
                self._held.append(notice)

    def _emit(self, notice: Notice) -> None:
        self.session_id = notice.session_id
        if notice.session is not None:
            self.state = str(notice.session.state)
            if self._meter is not None:
                self._meter.session = notice.session
        match notice.body:
            case notices.StepStarted() as body:
                self._step_started(notice, body)
            case notices.StepOutput() as body:
                self._step_output(notice, body)
            case notices.StepWarning() as body:
                self._step_warning(notice, body)
            case notices.StepRetry() as body:
                self._step_retry(body)
            case notices.StepCompleted() as body:
                self._step_completed(notice, body)
            case notices.StepFailed() as body:
                self._step_failed(notice, body)
            case notices.FinishedStepRolledBack():
                pass  # the command that rolls back shows it
            case notices.ApprovalRequest():
                self._approval_request(notice)
            case notices.ContextCompacted() as body:
                self._context_compacted(body)
            case body:
                self._emit_of_resume(notice, body)

    def _emit_of_resume(self, notice: Notice, body: notices.ResumeBody | notices.SessionBody) -> None:
        match body:
            case notices.ResumeDecision():
                self._resume_decision(body)
            case notices.EnvironmentChecked():
                self._environment(notice, body)
            case notices.ChangesAccepted():
                self._changes_accepted()
            case notices.ResumeStarted():
                self._resume_started(notice, body)
            case notices.ResumeCompleted():
                pass  # the last line reports it
            case notices.StepSettled():
                self._step_settled(notice, body)
            case notices.StepWaiting():
                self._step_waiting(notice, body)
            case notices.StepRolledBack():
                self._step_rolled_back(notice, body)
            case _:
                self._emit_of_session(notice, body)

    def _emit_of_session(self, notice: Notice, body: notices.SessionBody) -> None:
        match body:
            case notices.SessionStart() | notices.SessionReopened():
                self._session_start(notice, body)
            case notices.RunWarning():
                self._warning(body)
            case notices.Backup():
                self.screen.line(f"  Backup of the database: {one_line(body.path)}")
            case notices.PlanChanged():
                self._plan_changed(notice)
            case notices.PlanReplaced():
                self._plan_changed(notice)
                for line in replacement_lines(msgspec.to_builtins(body)):
                    self.screen.line(f"  {line}")
            case notices.TaskCompleted():
                self._task_completed(notice, body)
            case notices.Escalated():
                self._escalated(body)
            case notices.SyncChanged():
                self._sync_changed(body)
            case notices.Repaired():
                pass  # the command that repairs shows it
            case _:
                assert_never(body)

    def durable(self, seq: int) -> None:
        """People may see a step end a moment before it is power-safe; only programs rely on the difference."""

    # Beginning.

    def _session_start(self, notice: Notice, body: notices.SessionStart | notices.SessionReopened) -> None:
        session = notice.session
        assert session is not None
        self._outline = outline_of(session)
        self._is_parallel = self._outline is not None and session.plan is not None and session.plan.parallel > 1
        self.resumed = body.resumed
        title = one_line(self.redactor.text(session.title))
        if self.resumed:
            self.screen.line(f"Resuming session {self._bold(short(session.session_id))}...")
            self.screen.line(f"  Plan: {title}")
            self._loaded(session)
        else:
            size = f"{count(session.tasks_total, 'task')}, {count(session.steps_total, 'step')}"
            if session.steps_from.follows_model:
                size = f"planned and done by {model_of(session)}"
            if session.steps_from.carries_run:
                size = f"carries the {session.source} run {one_line(session.run_id)}"
            self.screen.line(f"Session {self._bold(short(session.session_id))}: {title} ({size})")
        if self.meter_of is not None:
            self.show_meter(self.meter_of(session))

    def show_meter(self, meter: Meter | None) -> None:
        """On a terminal: beside the step that runs, and below its lines as soon as it prints some."""
        self._meter = meter
        self.line.beside = meter.text if meter is not None else None

    def _loaded(self, session: Session) -> None:
        if session.steps_from.follows_model:
            for line in agent_lines(session):
                self.screen.line(f"  {line}")
            return
        if self._outline is None:
            self.screen.line(f"  Loaded state: {session.state}")
            return
        place = self._outline.next_step(session)
        places = self._outline.in_flight(session) or ([place] if place else [])
        at = f" at {'; '.join(one.name for one in places)}" if places else ", all steps done"
        self.screen.line(f"  Loaded state: {session.state}{at}")
        for one in self._outline.skipped(session):
            self.screen.line(f"  Skipping: {one.name} (complete)")
        if session.steps_done:
            spent = sum(session.records.task_ms.values()) if session.records else 0
            self.screen.line(
                f"  Skipped in all: {session.steps_done} of {session.steps_total} steps ({took(spent)} of work)"
            )
        if places:
            self.screen.line(f"  Starting from: {'; '.join(one.name for one in places)}")
        self.screen.line(f"  Remaining: {count(session.steps_total - session.steps_done, 'step')}")

    def _plan_changed(self, notice: Notice) -> None:
        """A task has appeared: from here on its steps have a place and a title."""
        if notice.session is not None:
            self._outline = outline_of(notice.session)

    def _warning(self, body: notices.RunWarning) -> None:
        self.line.close()
        self.line.print_above(f"{self._paint('warning:', 'warn')} {one_line(body.message)}")

    def _resume_decision(self, body: notices.ResumeDecision) -> None:
        self.screen.detail(
            f"  Decision: {body.reason_code}, {attempt_of(body.attempt, body.max_attempts)} without progress"
        )
        # A person who resumes a pause knows of it.
        advice = [line for line in body.advice if not line.startswith("paused by")]
        if not body.eligible:
            return  # a refusal follows, for a person too
        if advice:
            self.screen.line("  Note: a person may resume; an automatic resume would be refused now:")
        for line in advice:
            self.screen.line(f"    - {one_line(line)}")

    # The environment.

    def _environment(self, notice: Notice, body: notices.EnvironmentChecked) -> None:
        report = body.report
        self._checked = True
        self._ready = report.valid
        self.screen.line("\nValidating environment...")
        for line in check_lines(self.screen, report):
            self.screen.line(line)
        for line in changed_lines(self.screen, report.changed_files, notice.at):
            self.screen.line(line)

    def _changes_accepted(self) -> None:
        self._ready = True
        self.screen.line("\nContinuing with changed files...")

    def _resume_started(self, notice: Notice, body: notices.ResumeStarted) -> None:
        started = body.started
        self.screen.detail(
            f"  Scenario: {started.scenario}; checkpoint {started.checkpoint_id};"
            f" replayed events {started.replay_first} to {started.replay_last}"
        )
        if body.sync.status == "degraded":
            self.screen.line("")
            for line in sync_state.in_full(body.sync.as_json(), notice.at):
                self.screen.line(line)
        self.screen.line("\nEnvironment ready. Resuming..." if self._checked and self._ready else "\nResuming...")
        if notice.session is None:
            return
        if notice.session.steps_from.follows_model:
            at = agent_place(notice.session)
            self._skipped(agent_skipped(notice.session))
            self.screen.line(f"  Continuing from {at.name if at else of_agent(notice.session)}")
        elif self._outline is not None:
            self._skipped(self._outline.skipped(notice.session))

    def _skipped(self, finished: list[Skipped]) -> None:
        for one in finished:
            title = f": {self._clean(one.title)}" if one.title else ""
            spent = f", took {took(one.took_ms)}" if one.title and one.took_ms else ""
            self.screen.line(f"  {self._good('✓')} {one.name}{title} {self._dim(f'(skipped{spent})')}")

    def _sync_changed(self, body: notices.SyncChanged) -> None:
        """The line to the server broke, or stands again; the work never waited for it."""
        self.line.close()
        pending = count(body.pending_events, "event")
        if body.change == "restored":
            self.line.print_above(f"Sync: connected again, {pending} pending")
            return
        self.line.print_above(f"Sync: DEGRADED - {pending} pending ({one_line(body.reason or '')}). {sync_state.NOTE}")

    # A step that was found in progress.

    def _step_settled(self, notice: Notice, body: notices.StepSettled) -> None:
        self.line.close()
        step = notice.step or ""
        if notice.session is not None and notice.session.steps_from.follows_model and is_task(notice):
            self.screen.detail(f"\nTask {one_line(step)}: was in the middle, and continues where the log ends")
            return
        self.screen.line(f"\nStep: {self.title(step)}")
        for name, value in settled_lines(body.kind, body.outcome, body.action, one_line(body.evidence)):
            self.screen.line(f"{name}: {value}")

    def _step_waiting(self, notice: Notice, body: notices.StepWaiting) -> None:
        step = notice.step or ""
        self.screen.line(f"\nStep: {self.title(step)}")
        self.screen.line("Status: Was in progress")
        self.screen.line(f"Checking: {one_line(body.evidence)}")
        self.screen.line("Action: Waiting for it to end (Ctrl+C stops the waiting, not the command)")

    def _step_rolled_back(self, notice: Notice, body: notices.StepRolledBack) -> None:
        self.line.close()
        restored, saved = body.restored, body.saved
        names = ", ".join(one_line(path) for path in restored[:PATHS_SHOWN_MAX])
        more = f" and {len(restored) - PATHS_SHOWN_MAX} more" if len(restored) > PATHS_SHOWN_MAX else ""
        self.screen.line(f"Restored: {names}{more}")
        if saved:
            way = f"acode session export {short(notice.session_id)} --kept DIR"
            self.screen.line(f"Kept: what stood there ({count(saved, 'file')}); to get it: {way}")
        if body.saved_until_end:
            secret = count(body.saved_until_end, "file")
            self.screen.line(f"Only until the session ends: {secret} with what looks like a secret")

    # Steps.

    def _step_warning(self, notice: Notice, body: notices.StepWarning) -> None:
        message = body.message
        if message not in self._warned or self.screen.flags.verbose:
            self._warned.add(message)
            self._head(notice)
            self.line.close()
            self.line.print_above(self._dim(f"    note on {notice.step}: {one_line(message)}"))

    def _step_started(self, notice: Notice, body: notices.StepStarted) -> None:
        self._head(notice)
        if notice.session is not None and notice.session.steps_from.follows_model:
            self._titles[notice.step or ""] = title_of(notice, body)
            if is_task(notice):
                self._task_of_agent(notice.session, title_of(notice, body))
                return
        self._output_of(notice)
        again = f" (attempt {body.attempt})" if body.attempt > 1 else ""
        begun = f"  {self._paint('●', 'now')} {self._label(notice)}{again}"
        if self._is_parallel:
            self._running[notice.step or ""] = self._monotonic()
            self.line.print_above(begun)
            self.line.summarize(self._summary)
        else:
            self.line.open(begun)
            self.line.summarize(self._meter.text if self._meter is not None else None)
        if self.screen.flags.verbose:
            self.line.print_above(self._dim(f"    key {body.key}"))

    def _head(self, notice: Notice) -> None:
        """The task's name above its first step."""
        place = self._outline.places.get(notice.step or "") if self._outline else None
        known = self._tasks if self._is_parallel else self._tasks[-1:]  # of several, each is introduced once
        if place is None or self._outline is None or place.task.id in known:
            return
        self.line.close()
        self._tasks.append(place.task.id)
        total = len(self._outline.order)
        self.line.print_above(self._bold(f"\nTask {place.task_number}/{total}: {self._clean(place.task.title)}"))

    def _summary(self) -> str:
        """The steps that run now, each with its seconds."""
        now = self._monotonic()
        steps = ", ".join(f"{step} {took((now - at) * 1000)}" for step, at in self._running.items())
        return f"  running: {steps}" + (f"  {self._meter.text()}" if self._meter is not None else "")

    def _resting_summary(self) -> Callable[[], str] | None:
        """What stands below all lines while no step runs: nothing, because a question may come next."""
        return None

    def _step_output(self, notice: Notice, body: notices.StepOutput) -> None:
        self._output_of(notice).feed(body.text)

    def _output_of(self, notice: Notice) -> OutputLines:
        label = one_line(notice.task or "") if self._is_parallel else ""
        return self._outputs.setdefault(notice.step or "", OutputLines(self.screen, self.line, label))

    def _task_of_agent(self, session: Session, title: str) -> None:
        """A task is a step with steps inside: its name stands above them."""
        self.line.close()
        if session.tasks_done < session.steps_from.planning_tasks:  # making the plan is no task of the plan
            self.screen.line(self._bold(f"\n{self._clean(title)}"))
            return
        number = session.plan_tasks_done + 1
        total = max(session.plan_tasks_total, number)
        self.screen.line(self._bold(f"\nTask {number}/{total}: {self._clean(title)}"))

    def _context_compacted(self, body: notices.ContextCompacted) -> None:
        self.line.close()
        why = "the model refused it as too long" if body.reason == "refused" else "it has become long"
        self.screen.line(self._dim(f"    the conversation is replaced by a summary: {why}"))

    def _step_completed(self, notice: Notice, body: notices.StepCompleted) -> None:
        if self._meter is not None:
            self._meter.add(body.duration_ms)
        self._end_output(notice)
        how = "already applied" if body.settled else took(body.duration_ms)
        if notice.session is not None and notice.session.steps_from.follows_model:
            if notice.step in self._titles and not is_task(notice):  # an answer that was just given needs no line
                self.line.close(f"  {self._good('✓')} {self._label(notice, len(how) + 2)} {self._dim(f'({how})')}")
                self._touched(body.touched)
            return
        self._head(notice)
        progress = f"({how}) [{body.done}/{body.total}]"
        self.line.close(f"  {self._good('✓')} {self._label(notice, len(progress))} {self._dim(progress)}")
        self._touched(body.touched)

    def _step_failed(self, notice: Notice, body: notices.StepFailed) -> None:
        self._end_output(notice)
        self._head(notice)
        how = {"timeout": "out of time", "signal": "stopped"}.get(body.reason, "failed")
        label = self._label(notice, len(how))
        self.line.close(f"  {self._paint('✗', 'bad')} {label} {self._paint(how, 'bad')}")
        self._touched(body.touched)

    def _step_retry(self, body: notices.StepRetry) -> None:
        self.line.print_above(f"    trying again in {body.after_seconds:g} s (attempt {body.attempt})")

    def _touched(self, paths: list[str]) -> None:
        if paths:
            names = ", ".join(one_line(path) for path in paths[:PATHS_SHOWN_MAX])
            more = f" and {len(paths) - PATHS_SHOWN_MAX} more" if len(paths) > PATHS_SHOWN_MAX else ""
            self.line.print_above(self._dim(f"    it changed {names}{more}"))

    def _task_completed(self, notice: Notice, body: notices.TaskCompleted) -> None:
        if self._outline is None:
            return
        number = next((n for n, task in enumerate(self._outline.order, 1) if task.id == notice.task), 0)
        if self.screen.flags.verbose:
            self.line.print_above(self._dim(f"  Task {number} complete ({took(body.duration_ms)})"))

    def _approval_request(self, notice: Notice) -> None:
        self._head(notice)
        self.line.close()

    def _escalated(self, body: notices.Escalated) -> None:
        self.line.close()
        self.screen.line(f"{self._paint('⚠', 'warn')} Escalated ({body.reason_code}): a person must look.")
        if self._ready:  # a refusal shows it with its error
            show_remedy(self.screen, msgspec.to_builtins(body.remedy))

    # Small things.

    def _end_output(self, notice: Notice) -> None:
        output = self._outputs.pop(notice.step or "", None)
        if output is not None:
            output.finish()
        self._running.pop(notice.step or "", None)
        self.line.summarize(self._summary if self._running else self._resting_summary())

    def _label(self, notice: Notice, after: int = 0) -> str:
        """The step's place and title; on a terminal no longer than the line, with the text `after` it."""
        step = notice.step or ""
        place = self._outline.places.get(step) if self._outline else None
        label = f"{place.name}: {self._clean(place.title)}" if place else self._titles.get(step, step)
        if not self.screen.lively:
            return shortened(label, STEP_SHOWN_CHARS_MAX)
        return shortened(label, min(self.screen.columns() - len("  ✓ ") - after - 2, STEP_SHOWN_CHARS_MAX))

    def title(self, step: str) -> str:
        """The step's title, redacted and printable; its id where no plan names it."""
        return shortened(self._clean(self._outline.title(step) if self._outline else step))

    def _clean(self, text: str) -> str:
        return one_line(self.redactor.text(text).replace("\n", " ").strip())

    def _paint(self, text: str, style: str) -> str:
        return self.screen.paint(text, style)

    def _good(self, text: str) -> str:
        return self._paint(text, "good")

    def _dim(self, text: str) -> str:
        return self._paint(text, "dim")

    def _bold(self, text: str) -> str:
        return self._paint(text, "bold")


def is_task(notice: Notice) -> bool:
    return NESTED not in (notice.step or "")


def title_of(notice: Notice, body: notices.StepStarted) -> str:
    """The title of an agent's step: a tool's call with its arguments."""
    if body.kind != "call":
        return one_line(body.title)
    shown = "" if isinstance(body.shown, msgspec.UnsetType) else body.shown.removesuffix("?")
    return one_line(body.title.removeprefix("Call ") if is_task(notice) or not shown else shown)


def model_of(session: Session) -> str:
    model = session.created.model if session.created is not None else None
    return one_line(str(model.get("name"))) if model else "a model"
