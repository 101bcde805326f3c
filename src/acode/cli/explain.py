"""acode explain: why a session stopped, what is done, and what a resume would do, for somebody new to all this."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable

import click

from acode.attention import is_approved, state_in_words
from acode.cli import report
from acode.cli.agent import with_model
from acode.cli.candidates import all_sessions
from acode.cli.environment import describe_change
from acode.cli.flags import Command, Flags
from acode.cli.output import output_lines
from acode.cli.positions import Outline, open_tasks, outline_of
from acode.cli.screen import Screen, is_terminal
from acode.cli.session_picker import foreign_run, look_at, stopped_at
from acode.cli.status import describe_owner
from acode.cli.world import build_world
from acode.engine.preview import Preview, as_json, next_action
from acode.engine.shared_paths import author
from acode.engine.world import Options, World, begin_again, short
from acode.events.definition import describe
from acode.plan import Action, Settlement
from acode.policy import ADVICE_FOR_PERSONS, Decision, Reason
from acode.resume_point import Scenario
from acode.text import one_line
from acode.text.durations import ago, attempt_of, count, shortened, took

LABEL_COLUMNS = 12
PENDING_SHOWN_MAX = 6
FILES_SHOWN_MAX = 10

STOPPED = {
    Scenario.FRESH_START: "No step had started yet.",
    Scenario.USER_INTERRUPT: "Somebody paused it.",
    Scenario.MID_OPERATION: "It was cut off in the middle of its work: killed, crashed, or the power went.",
    Scenario.MID_WRITE: "It was cut off while it wrote a file: killed, crashed, or the power went.",
}
CLEAN = {
    "step_failed": "A step failed, so it paused by itself.",
    "timeout": "A step ran out of time, so it paused by itself.",
    "denied": "An approval was denied, so it waits at the gate.",
    "outcome_unknown": "The outcome of a step is unknown, so it waits for a person.",
    "disk_full": "The disk was full, so it paused by itself.",
    "environment": "Files were not what they should be after the last resume, so it paused by itself.",
}
IN_FLIGHT = {
    Action.SKIP: "it happened: a resume continues after it",
    Action.RETRY: "a resume runs it again",
    Action.ROLLBACK_AND_RETRY: "a resume restores its outputs and runs it again",
    Action.ASK: "a person must say whether it took effect",
    Action.WAIT: "it still runs: a resume waits for it",
}


@click.command(cls=Command, name="explain")
@click.argument("session", metavar="[ID]", required=False, shell_complete=all_sessions)
@click.option("--full", is_flag=True, help="With --json: all step ids, not the nearest 1,000.")
@click.pass_obj
def command(flags: Flags, *, session: str | None, full: bool) -> int:
    """Explain why a session stopped, what is done, in flight and pending, what a resume would do, and by which rule."""
    flags.only_looks = True
    world = with_model(build_world(flags))
    screen = Screen(flags, world.env)
    if (run := foreign_run(world, screen, session, None, sure=True)) is not None:
        from acode.cli import foreign

        return foreign.show(world, screen, run, Options(actor="system"), full=full, resuming=False)
    found = look_at(world, screen, session)
    if flags.json:
        screen.document(as_json(found, full=full))
        return 0
    for warning in found.warnings:
        screen.warn(one_line(warning))
    for line in Explanation(world, screen, found).lines():
        screen.data(line)
    return 0


class Explanation:
    """One page of text."""

    def __init__(self, world: World, screen: Screen, found: Preview) -> None:
        self.world = world
        self.screen = screen
        self.found = found
        self.session = found.session
        self.outline: Outline | None = outline_of(found.session)
        width = screen.columns(sys.stdout) if is_terminal(sys.stdout) else 100
        self.width = max(40, min(width, 120))

    def lines(self) -> Iterable[str]:
        yield from self._head()
        if self.found.survey is None:
            yield from self._labelled(
                "Next", [f"nothing is left to resume; for more work: {begin_again(self.session).as_command()}"]
            )
            return
        yield ""
        yield from self._why()
        yield from self._work()
        yield from self._drift()
        yield ""
        if not self.found.lock.held:  # while it runs there is nothing to decide
            yield from self._decision(self.found.survey.decision)
            yield ""
        yield "Nothing is resumed by this. A resume opens with this report:"
        yield from report.of_session(self.found, self.world.redactor).splitlines()
        yield ""
        yield f"{self._bold('Next:')} {next_action(self.found)}"

    def _head(self) -> Iterable[str]:
        session = self.session
        words = state_in_words(session, self.found.attention, running=self.found.lock.held)
        state = self.screen.paint_data(words, "good" if session.terminal else "warn")
        mark = ": a person must look" if self.found.attention == "escalated" else ""
        ended = ago(session.updated_at if session.terminal else stopped_at(session), self.world.clock())
        yield f"{self._bold(f'Session {short(session.session_id)}')}  {self._clean(session.title)}"
        steps = f"{session.steps_done} of {session.steps_total} steps done"
        yield f"{state}{mark} · {steps} · {'ended' if session.terminal else 'last active'} {ended}"

    def _why(self) -> Iterable[str]:
        survey = self.found.survey
        assert survey is not None
        if self.found.lock.held:
            yield from self._labelled("Now", [f"lock {describe_owner(self.found.lock)}"])
            return
        cls = survey.interruption.cls
        first = (
            self._interruption_line(survey.scenario) if self.session.undoing is None else "In the middle of a rollback."
        )
        kind = f"class {cls.value}: " if cls else ("" if survey.interruption.known else "class unknown: ")
        yield from self._labelled("Stopped", [first, f"{kind}{self._clean(survey.interruption.evidence)}"])
        failure = self.session.failure
        if failure is not None and failure.tail.strip():
            yield from self._last_output(failure.tail)
            return
        for one in survey.continuation.in_flight:
            yield from self._last_output(one.last_output)

    def _last_output(self, tail: str) -> Iterable[str]:
        if lines := output_lines(self.world.redactor.text(tail))[1:]:
            yield from self._labelled("Last output", lines)

    def _interruption_line(self, scenario: Scenario) -> str:
        if scenario is Scenario.CLEAN_SHUTDOWN:
            if self.session.pause is not None:
                return CLEAN.get(self.session.pause.reason, "It paused by itself.")
            question = self.session.waiting_for.question if self.session.waiting_for else ""
            gate = "a gate that was approved" if is_approved(self.session) else "a gate"
            return f"It stands at {gate}: {self._clean(question)}"
        return STOPPED[scenario]

    # Done, in flight, pending.

    def _work(self) -> Iterable[str]:
        assert self.found.survey is not None
        continuation = self.found.survey.continuation
        yield from self._labelled("Done", self._done())
        flights = [one for one in continuation.in_flight if not self.session.is_open_task(one.step)]
        yield from self._labelled("In flight", [self._flight(one) for one in flights] or ["nothing"])
        open_steps = {one.step for one in flights}
        pending = [step for step in continuation.pending if step not in open_steps]
        shown = [self._step(step) for step in pending[:PENDING_SHOWN_MAX]]
        if self.session.steps_from.follows_model:
            pending, shown = [], self._tasks_ahead()
        if len(pending) > PENDING_SHOWN_MAX:
            shown.append(f"… and {count(len(pending) - PENDING_SHOWN_MAX, 'more step')}")
        yield from self._labelled("Pending", shown or ["nothing"])

    def _tasks_ahead(self) -> list[str]:
        """The tasks of an agent's plan: the steps inside a task are unknown until the model asks for them."""
        tasks = open_tasks(self.session)
        lines = [
            f"{task.id}: {self._clean(task.title)}"
            + (" (in the middle; continues where the log ends)" if self.session.is_open_task(task.id) else "")
            for task in tasks[:PENDING_SHOWN_MAX]
        ]
        more = len(tasks) - PENDING_SHOWN_MAX
        return [*lines, f"… and {count(more, 'more task')}"] if more > 0 else lines or ["the plan is not made yet"]

    def _done(self) -> list[str]:
        if self.outline is None:
            return [count(self.session.steps_done, "step")]
        lines = []
        for one in self.outline.skipped(self.session):
            title = f": {self._clean(one.title)}" if one.title else ""
            spent = f" ({took(one.took_ms)})" if one.took_ms else ""
            lines.append(f"{one.name}{title}{spent}")
        return lines or ["nothing"]

    def _flight(self, one: Settlement) -> str:
        return f"{self._step(one.step)} – {one.outcome} ({self._clean(one.evidence)}); {IN_FLIGHT[one.action]}"

    def _step(self, step_id: str) -> str:
        place = self.outline.places.get(step_id) if self.outline else None
        return f"{place.name} ({step_id}): {shortened(self._clean(describe(place.step)))}" if place else step_id

    def _drift(self) -> Iterable[str]:
        report = self.found.environment
        # he changed files may be those that the rollback restored
        if report is None or self.session.undoing is not None:
            return
        found = [self._clean(one.message) for one in (*report.errors, *report.warnings)]
        for one in report.changed_files[:FILES_SHOWN_MAX]:
            plain = {name: getattr(one, name) for name in ("path", "change", "modified_at")}
            found.append(f"changed by {self._clean(author(one))}: {describe_change(plain, self.world.clock())}")
        if len(report.changed_files) > FILES_SHOWN_MAX:
            found.append(f"… and {len(report.changed_files) - FILES_SHOWN_MAX} more changed files")
        total = report.total_files
        unchanged = (
            f"none: {count(total, 'file')} as the session left {'it' if total == 1 else 'them'}" if total else "none"
        )
        yield from self._labelled("Drift", found or [unchanged])

    # The decision, rule by rule.

    def _decision(self, decision: Decision) -> Iterable[str]:
        assert self.found.survey is not None
        verdict = "yes" if decision.eligible else "no"
        attempt = attempt_of(decision.attempt, decision.attempts_max)
        yield f"{self._bold('Would it be resumed automatically?')} {verdict} ({decision.describe}, {attempt})"
        for rule in decision.rules:
            sign = self.screen.paint_data("✓", "good") if rule.met else self.screen.paint_data("✗", "bad")
            decides = not rule.met and rule.reason is decision.reason
            mark = self.screen.paint_data("  <- this decides", "warn") if decides else ""
            yield from self._wrapped(f"  {sign} ", 4, f"{rule.name}: {self._clean(rule.because)}", mark)
        yield f"{self._bold('May a person resume it?')} {self._by_hand(decision)}"

    def _by_hand(self, decision: Decision) -> str:
        """A person steps over advice, not over what binds everyone."""
        assert self.found.survey is not None
        if self.session.undoing is not None:
            return "once the rollback is finished"
        if self.found.survey.continuation.needs_person:
            return "once the step in flight is settled"
        bound = [rule for rule in decision.rules if not rule.met and rule.reason not in ADVICE_FOR_PERSONS]
        if any(rule.reason is Reason.LIMIT for rule in bound):
            return "only with --force: the attempts are used up"
        if bound:
            return f"no: {self._clean(bound[0].because)}"
        if self.found.environment is not None and not self.found.environment.valid:
            return "yes, after deciding about the drift above"
        return "yes"

    # Layout.

    def _labelled(self, label: str, lines: Iterable[str]) -> Iterable[str]:
        lead = self._bold(f"{label:<{LABEL_COLUMNS}}")
        for line in lines:
            yield from self._wrapped(lead, LABEL_COLUMNS, line)
            lead = " " * LABEL_COLUMNS

    def _wrapped(self, lead: str, indent: int, text: str, mark: str = "") -> Iterable[str]:
        """`lead` may hold color codes, so its width is an argument."""
        rows = textwrap.wrap(text, self.width - indent, break_on_hyphens=False) or [""]
        for number, row in enumerate(rows):
            end = mark if number == len(rows) - 1 else ""
            yield f"{lead if number == 0 else ' ' * indent}{row}{end}"

    def _clean(self, text: str) -> str:
        return one_line(self.world.redactor.text(text).replace("\n", " ").strip())

    def _bold(self, text: str) -> str:
        return self.screen.paint_data(text, "bold")
