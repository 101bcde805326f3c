"""A hint names actions, and each has two forms: a command that can be typed, and a call that a program can make."""

from __future__ import annotations

import pytest

import acode
from acode import hints
from acode.errors import LockLost, StepFailed
from acode.hints import Action, Command, Hint, Resolve, Resume, Rollback, Subject

PLAN = Subject("0a1b2c3d")
PROGRAM = Subject("0a1b2c3d", "nightly", only_by_program=True)
ACTIONS: list[Action] = [
    Resume(),
    Resume(wait=True),
    Resume(in_person=True),
    hints.Force(),
    hints.Force(why=False, only_flag=True),
    hints.AcceptChanges(),
    hints.AcceptChanges(only_flag=True),
    hints.ChooseStrategy("t.1"),
    hints.ChooseStrategy("t.1", only_retry=True),
    hints.ReplacePlan("plan.yml"),
    hints.ReplacePlan("my plan.yml", forced=True),
    hints.ResumeElsewhere("/elsewhere"),
    Resolve("t.1"),
    Resolve("t.1", "--applied"),
    Resolve("t.1", in_words=True),
    hints.StateResult("t.1"),
    hints.Approve(),
    hints.Approve(or_deny=True),
    Rollback("t.1"),
    Rollback(),
    hints.RestoreBlobs(),
    hints.BeginAgain("run --new plan.yml"),
    hints.BeginAgain(),
    Command("session repair SESSION"),
]


def every_action(of: type[Action] = Action) -> set[type[Action]]:
    below = of.__subclasses__()
    return set().union(*(every_action(one) or {one} for one in below)) if below else set()


def test_every_action_is_among_those_tried_here() -> None:
    assert {type(action) for action in ACTIONS} == every_action()


@pytest.mark.parametrize("action", [one for one in ACTIONS if isinstance(one, hints.ResumeAction)], ids=repr)
def test_a_session_that_only_its_program_resumes_is_never_to_be_resumed_by_a_command(action: Action) -> None:
    assert "acode resume" in Resume().as_command(PLAN)
    assert action.as_command(PROGRAM) == action.as_call(PROGRAM) and "acode resume" not in action.as_call(PROGRAM)


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
def test_a_call_that_a_hint_names_exists_in_the_library(action: Action) -> None:
    form = action.as_call(PROGRAM)
    names = [word.partition("(")[0].removeprefix("acode.") for word in form.split() if word.startswith("acode.")]
    assert all(hasattr(acode, name) for name in names), form


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
def test_what_a_program_cannot_call_is_said_to_be_for_a_terminal(action: Action) -> None:
    form = action.as_call(PROGRAM)
    assert ("acode session" in form) == ("in a terminal" in form), form


@pytest.mark.parametrize(
    ("hint", "command", "call"),
    [
        (Hint("Make room, then resume."), "Make room, then resume.", "Make room, then resume."),
        (
            Hint("Then: {}", Resume(), of="cd7eaa51"),
            "Then: acode resume cd7eaa51",
            "Then: run the program again (its key is 'k')",
        ),
        (
            Hint("Wait for it ({}), or stop it", Resume(wait=True), of="cd7eaa51"),
            "Wait for it (acode resume cd7eaa51 --wait), or stop it",
            "Wait for it (run the program again, with wait=True), or stop it",
        ),
        (
            Hint("or: {}", Command("resume SESSION --remote"), of="cd7eaa51"),
            "or: acode resume cd7eaa51 --remote",
            "or: acode resume cd7eaa51 --remote (in a terminal)",
        ),
        (
            Hint("{}, with it", Rollback("STEP"), of="cd7eaa51"),
            "acode session rollback cd7eaa51 --to STEP, with it",
            "acode.rollback('k', to='STEP'), with it",
        ),
        (
            Hint("{}.", Resolve("t.2", "--not-applied"), of="cd7eaa51"),
            "acode session resolve cd7eaa51 t.2 --not-applied.",
            "acode.resolve('k', 't.2', 'not_applied').",
        ),
        (
            Hint("Look: {}; or: {}.", Command("session verify"), Command("session repair SESSION"), of="cd7eaa51"),
            "Look: acode session verify; or: acode session repair cd7eaa51.",
            "Look: acode session verify (in a terminal); or: acode session repair cd7eaa51 (in a terminal).",
        ),
    ],
)
def test_a_hint_is_a_command_for_a_person_and_a_call_for_a_program(hint: Hint, command: str, call: str) -> None:
    assert (hint.as_command(), hint.as_call("k")) == (command, call)


def test_a_hint_without_a_session_names_none() -> None:
    assert Hint("See: {}", Command("session repair SESSION --accept-rollback")).as_command() == (
        "See: acode session repair --accept-rollback"
    )


def test_a_hint_inside_another_is_about_the_same_session_and_speaks_to_the_same_reader() -> None:
    outer = Hint("{} Then: {}", Hint("Read {{}}: {}", Resolve("a{}b")), Resume(), of=Subject("cd7eaa51", "k"))
    answers = "--applied|--not-applied|--retry"
    assert (
        outer.as_command() == f"Read {{}}: acode session resolve cd7eaa51 a{{}}b {answers} Then: acode resume cd7eaa51"
    )
    assert outer.as_call().startswith("Read {}: acode.resolve('k', 'a{}b', 'applied')")


def test_text_that_was_put_in_is_never_taken_for_a_place() -> None:
    assert Hint("{} Then: {}", "the file {0} {x}", Resume()).as_command() == "the file {0} {x} Then: acode resume"


def test_an_error_speaks_to_a_person_until_it_leaves_the_library() -> None:
    for error, call in (
        (LockLost("lost"), "Another process has resumed the session; see: acode status (in a terminal)"),
        (
            StepFailed("no", hint=Hint("Then: {}", Resume(), of="cd7eaa51")),
            "Then: run the program again (its key is 'k')",
        ),
        (StepFailed("no", hint="Ask {somebody}."), "Ask {somebody}."),
    ):
        assert "acode." not in error.hint and "program" not in error.hint
        error.address_program("k")
        assert error.hint == call and error.as_dict()["hint"] == call
