"""The conformance suite has teeth: a guard that is taken out of the one place that performs a step makes a row fail.

That the same row passes without the bug is the suite itself.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from acode.engine import plain_step, step
from acode.library import plain_calls
from tests.conformance.every_source import SOURCES
from tests.conformance.planted import CATALOGUE, Planted
from tests.conformance.sources import living

# Functions of the lifecycle without a planted bug, each with the reason.
NO_BUG = {
    "execute": "it hands the act to the kind of the step",
    "settlement": "an event, and no act of its own",
    "emit_started": "what is shown",
    "warn_of": "what is shown",
    "emit_completed": "what is shown",
    "begin": "it waits for append_start and confirm_start, where bugs are planted",
    "end": "it waits for record_end, where bugs are planted",
    "fail": "it waits for record_failure, where bugs are planted",
    "completion_of": "only data",
    "withdraw": "needs a task that is cancelled: tests/library",
}
NO_BUG_OF_PLAIN = {"plain_steps_of": "whether a start is durable says careful, where a bug is planted"}
NO_BUG_OF_PLAIN_CALLS = {
    "append_start": "it gathers what append_start of the engine records, where bugs are planted",
    "append_end": "it waits for append_end of the engine, where bugs are planted",
    "conclude": "it hands the outcome to the lifecycle",
    "conclude_async": "it hands the outcome to the lifecycle",
    "begun_at": "only data",
}


@pytest.mark.parametrize("planted", CATALOGUE, ids=str)
def test_a_planted_bug_fails_its_row(planted: Planted, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, living(planted.source, tmp_path / "place") as source:
        planted.plant(patch, tmp_path)
        with pytest.raises(AssertionError) as failure:
            planted.row(source)
    assert planted.shows in str(failure.value)


def test_every_function_of_the_lifecycle_has_a_planted_bug() -> None:
    broken = {edit.function for planted in CATALOGUE for edit in planted.edits}
    for module, no_bug in ((step, NO_BUG), (plain_step, NO_BUG_OF_PLAIN), (plain_calls, NO_BUG_OF_PLAIN_CALLS)):
        functions = [one for one in vars(module).values() if inspect.isfunction(one)]
        unbroken = {one.__name__ for one in functions if one.__module__ == module.__name__ and one not in broken}
        assert unbroken == set(no_bug), "a new function needs a bug that a row catches, or a reason why not"


def test_every_source_has_a_planted_bug() -> None:
    assert {planted.source for planted in CATALOGUE} == set(SOURCES)
