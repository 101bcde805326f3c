"""Bugs in both forms of the order in which a step is performed, each with the guarantee and the source that must fail.

A bug is stated as the lines it replaces, so it is one that could have been written; a line that is gone fails loudly.
It lives in the process of the test and in the lives that a source forks, and nothing in acode knows of it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from acode.engine import gate, plain_step, step
from acode.library import plain_calls
from tests.conformance import sources
from tests.conformance import test_guarantees as rows
from tests.conformance.hook_source import HookSource
from tests.conformance.sources import (
    AgentSource,
    AsyncSource,
    CommandSource,
    DurableSource,
    ForeignSource,
    FunctionSource,
    ParallelSource,
    PlanSource,
    Source,
    ThreadSource,
)
from tests.conformance.split_source import SplitSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Lines of a function, and what stands in their place."""

    function: Callable[..., Any]
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The text of the module with this edit."""
        right = inspect.getsource(self.function)
        assert right.count(self.old) == 1, f"{self.function.__name__} has no such line any more: {self.old}"
        return text.replace(right, right.replace(self.old, self.new))


def edited(module: ModuleType, edits: tuple[Edit, ...], directory: Path) -> ModuleType:
    """A copy of the module with these edits, which knows the classes of the right one."""
    text = inspect.getsource(module)
    for edit in edits:
        text = edit.applied(text)
    place = directory / f"{module.__name__}.py"
    place.write_text(text)
    spec = spec_from_file_location(module.__name__, place)
    assert spec is not None and spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    vars(copy).update({name: value for name, value in vars(module).items() if inspect.isclass(value)})
    return copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A bug, the guarantee that it breaks, and what the row of that guarantee reports for the source.

    patience_s: how long a life is waited for that does not end.
    """

    bug: str
    edits: tuple[Edit, ...]
    row: Callable[[Source], None]
    source: type[Source]
    shows: str
    patience_s: float = sources.WAIT_S_MAX

    def __str__(self) -> str:
        return self.bug

    def plant(self, patch: pytest.MonkeyPatch, directory: Path) -> None:
        """Each edited function takes the place of the right one, by whatever name a module of acode knows it."""
        patch.setattr(sources, "WAIT_S_MAX", self.patience_s)
        (name,) = {edit.function.__module__ for edit in self.edits}
        copy = edited(sys.modules[name], self.edits, directory)
        known = [one for name, one in sys.modules.items() if name.partition(".")[0] == "acode"]
        for edit in self.edits:
            wrong = getattr(copy, edit.function.__name__)
            for module, names in [(one, [n for n, v in vars(one).items() if v is edit.function]) for one in known]:
                for alias in names:
                    patch.setattr(module, alias, wrong)


def without(function: Callable[..., Any], line: str, instead: str = "pass") -> tuple[Edit, ...]:
    return (Edit(function=function, old=line, new=instead),)


RECORD_START = "run.record(*before, *awake(run), started, durable=careful(step, started), blobs=blobs)"
PLAIN = "durable=durable, wait=False, short=short, together=together"
RECORD_PLAIN_START = f"""(envelope,) = run.journal.append(started, {PLAIN})
    return started, Recorded(envelope.seq, durable)"""
RECORD_PLAIN_END = f"""(envelope,) = run.journal.append(completed, {PLAIN})
    run.executed += 1
    return Recorded(envelope.seq, durable)"""
NOTHING_RECORDED = "Recorded(run.session.seq, False)"
SETTLE_START = "await settle_async(run, record)"
ENDED_BY_ITSELF = 'if failed.reason in ("exit", "error"):'
COUNT_FAILURES = "return flight.failures if flight is not None else record.failures if record is not None else 1"
HEED_STOP = "while not run.world.stop.at_boundary():"

CATALOGUE = (
    # The start.
    Planted(
        bug="the start is not recorded",
        edits=without(step.append_start, RECORD_START, NOTHING_RECORDED),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=PlanSource,
        shows="what has acted was begun on record",
    ),
    Planted(
        bug="the start is recorded after the act",
        edits=(
            *without(step.append_start, RECORD_START, NOTHING_RECORDED),
            *without(step.record_end, "events = (*before, *own", "events = (*before, *awake(run), started, *own"),
        ),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=CommandSource,
        shows="what has acted was begun on record",
    ),
    Planted(
        bug="the start of a plain step is not recorded",
        edits=without(plain_step.append_start, RECORD_PLAIN_START, f"return started, {NOTHING_RECORDED}"),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=FunctionSource,
        shows="what has acted was begun on record",
    ),
    Planted(
        bug="a thread acts before its start is synced",
        edits=without(plain_step.confirm_start, "run.settle(record)"),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=ThreadSource,
        shows="a power cut does not take the record",
    ),
    Planted(
        bug="a task acts before its start is synced",
        edits=without(
            plain_step.confirm_start_async, SETTLE_START, "await settle_async(run, Recorded(record.seq, False))"
        ),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=AsyncSource,
        shows="a power cut does not take the record",
    ),
    Planted(
        bug="a task acts before its start is committed",
        edits=without(plain_step.confirm_start_async, SETTLE_START),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=AsyncSource,
        shows="what has acted was begun on record",
    ),
    Planted(
        bug="a task is told that its step is done before the end is committed",
        edits=without(plain_calls.perform_plain_async, "await settle_async(run, ended)"),
        row=rows.test_a_step_that_is_told_to_be_done_is_on_record_after_a_power_cut,
        source=AsyncSource,
        shows="== [True, True]",
    ),
    Planted(
        bug="a step acts before its start is synced",
        edits=without(step.confirm_start, "yield record", "yield msgspec.structs.replace(record, durable=False)"),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=CommandSource,
        shows="a power cut does not take the record",
    ),
    Planted(
        bug="a step acts before its start is committed",
        edits=without(step.confirm_start, "yield record", "yield from ()"),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=CommandSource,
        shows="what has acted was begun on record",
    ),
    Planted(
        bug="a step is told to be done before its end is committed",
        edits=without(step.record_end, "yield record", "yield from ()"),
        row=rows.test_a_step_that_is_told_to_be_done_is_on_record_after_a_power_cut,
        source=CommandSource,
        shows="== [True, True]",
    ),
    Planted(
        bug="a hook does not wait for what it has recorded",
        edits=without(step.settle_all, "run.settle(record)"),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=SplitSource,
        shows="what has acted was begun on record",
    ),
    Planted(
        bug="no start is durable",
        edits=without(step.careful, "return started.kind !=", "return False and started.kind !="),
        row=rows.test_a_step_is_on_record_before_it_acts,
        source=AgentSource,
        shows="a power cut does not take the record",
    ),
    Planted(
        bug="a start is durable only where a repeat does harm",
        edits=without(step.careful, "if started.before or declared_outputs(step):", "if False:"),
        row=rows.test_a_step_that_changes_the_workspace_is_on_record_after_a_power_cut,
        source=PlanSource,
        shows="somebody else's",
    ),
    Planted(
        bug="neither the start nor the end is durable",
        edits=without(step.lifecycle, "not careful(step, started)", "False"),
        row=rows.test_a_step_that_is_told_to_be_done_is_on_record_after_a_power_cut,
        source=CommandSource,
        shows="[False, False] == [True, True]",
    ),
    Planted(
        bug="neither the start nor the end of a plain step is durable",
        edits=without(plain_step.append_end, RECORD_PLAIN_END, RECORD_PLAIN_END.replace("durable)", "False)")),
        row=rows.test_a_step_that_is_told_to_be_done_is_on_record_after_a_power_cut,
        source=ThreadSource,
        shows="[False, False] == [True, True]",
    ),
    Planted(
        bug="an attempt is given the number of an earlier one",
        edits=without(step.start_of, "session.next_attempt(step.id) if attempt is None else attempt", "1"),
        row=rows.test_attempts_are_counted_over_kills,
        source=DurableSource,
        shows="== [1, 2, 3, 4]",
    ),
    Planted(
        bug="a session that waited acts without being told to execute",
        edits=without(step.awake, "return (ev.SessionExecuting(reason=reason or run.source.wakes),)", "return ()"),
        row=rows.test_nothing_behind_a_gate_begins_before_it_is_granted,
        source=PlanSource,
        shows="1 == 0",
    ),
    # The guards.
    Planted(
        bug="a plan's owner acts on a broken lock",
        edits=without(step.confirm_start, "guard_before_act(run)"),
        row=rows.test_an_owner_whose_lock_was_broken_does_not_act,
        source=PlanSource,
        shows="['one', 'two'] == ['one']",
    ),
    Planted(
        bug="a task beside another acts on a broken lock",
        edits=without(step.confirm_start, "guard_before_act(run)"),
        row=rows.test_an_owner_whose_lock_was_broken_does_not_act,
        source=ParallelSource,
        shows="['one', 'two'] == ['one']",
    ),
    Planted(
        bug="nobody looks whether the lock is broken",
        edits=without(step.guard_before_act, "run.journal.refuse_if_fenced()"),
        row=rows.test_an_owner_whose_lock_was_broken_does_not_act,
        source=AsyncSource,
        shows="['one', 'two'] == ['one']",
    ),
    Planted(
        bug="a hook lets its performer act on a broken lock",
        edits=without(step.confirm_start, "guard_before_act(run)"),
        row=rows.test_an_owner_whose_lock_was_broken_does_not_act,
        source=SplitSource,
        shows="['one', 'two'] == ['one']",
    ),
    Planted(
        bug="the tool of an observed agent acts on a broken lock",
        edits=without(step.confirm_start, "guard_before_act(run)"),
        row=rows.test_an_owner_whose_lock_was_broken_does_not_act,
        source=HookSource,
        shows="['one', 'two'] == ['one']",
    ),
    Planted(
        bug="a plain step acts on a broken lock",
        edits=without(plain_step.confirm_start, "guard_before_act(run)"),
        row=rows.test_an_owner_whose_lock_was_broken_does_not_act,
        source=FunctionSource,
        shows="['one', 'two'] == ['one']",
    ),
    Planted(
        bug="a step that ended well has removed the log",
        edits=without(step.record_end, "guard_after_act(run, step.id)"),
        row=rows.test_a_step_with_a_retry_that_removes_the_log_ends_the_session_as_lost,
        source=AsyncSource,
        shows="['clean', 'pay'] == ['clean']",
    ),
    Planted(
        bug="a plain step that ended well has removed the log",
        edits=without(plain_step.append_end, "guard_after_act(run, step)"),
        row=rows.test_a_step_that_removes_the_log_ends_the_session_as_lost,
        source=FunctionSource,
        shows="== 20",
    ),
    Planted(
        bug="a step that failed has removed the log",
        edits=without(step.record_failure, "guard_after_act(run, started.step)"),
        row=rows.test_a_failing_step_that_removes_the_log_ends_the_session_as_lost,
        source=PlanSource,
        shows="== 20",
    ),
    Planted(
        bug="nobody looks whether the log is gone",
        edits=without(step.guard_after_act, "if os.access(run.database, os.F_OK):", "if True:"),
        row=rows.test_a_step_that_removes_the_log_ends_the_session_as_lost,
        source=ForeignSource,
        shows="== 20",
    ),
    Planted(
        bug="a link leads a command out of the workspace",
        edits=without(step.prepare, "refuse_outside(step, site)"),
        row=rows.test_a_step_works_inside_the_workspace,
        source=CommandSource,
        shows="0 not in (0, 70)",
    ),
    Planted(
        bug="nobody looks where a step works",
        edits=without(step.refuse_outside, "step.action.cwd is not None", "False"),
        row=rows.test_a_step_works_inside_the_workspace,
        source=CommandSource,
        shows="0 not in (0, 70)",
    ),
    Planted(
        bug="a link is compared by its own name",
        edits=without(step.refuse_directory_outside, "place = os.path.realpath(", "place = os.path.abspath("),
        row=rows.test_a_step_works_inside_the_workspace,
        source=PlanSource,
        shows="0 not in (0, 70)",
    ),
    # The act.
    Planted(
        bug="the act is performed twice",
        edits=without(step.perform, "else act(wanted)", "else (act(wanted), act(wanted))[1]"),
        row=rows.test_attempts_are_counted_over_kills,
        source=FunctionSource,
        shows="8 == 4",
    ),
    Planted(
        bug="a plain act is performed twice",
        edits=without(
            plain_calls.perform_plain,
            "value = function(*args, **kwargs)",
            "value = (function(*args, **kwargs), function(*args, **kwargs))[1]",
        ),
        row=rows.test_no_step_is_skipped,
        source=FunctionSource,
        shows="== ['one', 'two', 'three']",
    ),
    Planted(
        bug="the end is recorded before the act has returned",
        edits=without(
            step.lifecycle, "outcome = yield started", "end(run, step, started, Done()); outcome = yield started"
        ),
        row=rows.test_an_unknown_outcome_is_asked_and_not_repeated,
        source=CommandSource,
        shows="0 == 19",
    ),
    Planted(
        bug="a task performs a plain act twice",
        edits=without(
            plain_calls.perform_plain_async,
            "value = await function(*args, **kwargs)",
            "value = (await function(*args, **kwargs), await function(*args, **kwargs))[1]",
        ),
        row=rows.test_no_step_is_skipped,
        source=AsyncSource,
        shows="== ['one', 'two', 'three']",
    ),
    Planted(
        bug="a plain task acts on a broken lock",
        edits=without(plain_step.confirm_start_async, "guard_before_act(run)"),
        row=rows.test_an_owner_whose_lock_was_broken_does_not_act,
        source=AsyncSource,
        shows="['one', 'two'] == ['one']",
    ),
    Planted(
        bug="a task performs the act twice",
        edits=without(
            step.perform_async,
            "if isinstance(wanted, float) else act(wanted))",
            "if isinstance(wanted, float) else act(wanted)); isinstance(wanted, float) or await act(wanted)",
        ),
        row=rows.test_attempts_are_counted_over_kills,
        source=AsyncSource,
        shows="8 == 4",
    ),
    # The end.
    Planted(
        bug="the change of another session is taken for the step's own",
        edits=without(
            step.own_changes,
            "return attribute(run, started.step, seen(run, done.files), done.touched)",
            "return Attributed(files=done.files, touched=done.touched)",
        ),
        row=rows.test_a_change_by_another_session_is_not_taken_for_the_change_of_a_step,
        source=PlanSource,
        shows="== [(), ()]",
    ),
    # The failure.
    Planted(
        bug="a failure is not settled",
        edits=without(step.record_failure, ENDED_BY_ITSELF, "if False:"),
        row=rows.test_a_failed_step_is_repeated_when_a_person_resumes,
        source=FunctionSource,
        shows="19 == 0",
    ),
    Planted(
        bug="a step that was stopped is settled as not applied",
        edits=without(step.record_failure, ENDED_BY_ITSELF, "if True:"),
        row=rows.test_a_step_out_of_time_is_not_taken_for_done,
        source=DurableSource,
        shows="it was stopped in the middle",
    ),
    Planted(
        bug="a failure is recorded with its secrets",
        edits=without(step.record_failure, "message=run.world.redactor.text(failed.message)", "message=failed.message"),
        row=rows.test_a_secret_that_a_failure_names_is_on_no_record,
        source=FunctionSource,
        shows="== []",
    ),
    # The next attempt.
    Planted(
        bug="failures are counted by each process for itself",
        edits=without(
            step.failures_of, COUNT_FAILURES, "run.failed = getattr(run, 'failed', 0) + 1; return run.failed"
        ),
        row=rows.test_attempts_are_counted_over_kills,
        source=PlanSource,
        shows="the failure before the kill counts",
    ),
    Planted(
        bug="a kill counts as a failure",
        edits=without(step.failures_of, COUNT_FAILURES, "return run.session.next_attempt(step_id) - 1"),
        row=rows.test_attempts_are_counted_over_kills,
        source=ThreadSource,
        shows="the kill is no failure",
    ),
    Planted(
        bug="a step that was stopped is repeated without a decision on record",
        edits=without(step.accept_retry, ENDED_BY_ITSELF, "if True:"),
        row=rows.test_an_attempt_out_of_time_is_followed_by_the_next_only_with_a_decision_on_record,
        source=FunctionSource,
        shows="StepSettled",
    ),
    Planted(
        bug="a failure is settled twice",
        edits=without(step.accept_retry, ENDED_BY_ITSELF, "if False:"),
        row=rows.test_attempts_are_counted_over_kills,
        source=CommandSource,
        shows="each attempt is settled once",
    ),
    Planted(
        bug="an attempt finds the outputs of the failed one",
        edits=without(step.begin_attempt, "restore_leftovers(run, step)"),
        row=rows.test_an_attempt_finds_its_outputs_as_the_first_one_did,
        source=CommandSource,
        shows="['leftover'] == []",
    ),
    Planted(
        bug="a wait does not look at the stop switch",
        edits=without(step.wait, "while not stops():", "while True:"),
        row=rows.test_ctrl_c_is_obeyed_while_a_retry_waits,
        source=PlanSource,
        shows="-9 == 130",
        patience_s=1.0,
    ),
    Planted(
        bug="a wait of a task does not look at the stop switch",
        edits=without(step.wait_async, HEED_STOP, "while True:"),
        row=rows.test_a_pause_from_another_terminal_is_obeyed_while_a_retry_waits,
        source=AsyncSource,
        shows="-9 == 130",
        patience_s=1.0,
    ),
    Planted(
        bug="who stops a wait gets the next attempt",
        edits=without(step.lifecycle, "if (yield float(wait_s)):", "if (yield float(wait_s)) is None:"),
        row=rows.test_a_pause_from_another_terminal_is_obeyed_while_a_retry_waits,
        source=ThreadSource,
        shows="1 == 130",
    ),
    # Gates.
    Planted(
        bug="a grant for something else opens the gate",
        edits=without(
            gate.answer_on_record, "known is not None and known.action_digest == gate.allowed.digest", "True"
        ),
        row=rows.test_a_grant_for_something_else_opens_no_gate,
        source=FunctionSource,
        shows="0 == 10",
    ),
)
