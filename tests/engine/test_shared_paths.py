"""A path that two sessions work on is reported with the step of the other session, and blamed on no own step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import acode
from acode.engine.world import short
from acode.errors import ChangedFiles
from acode.events import types as ev
from tests.driver import Acode
from tests.lives import Life
from tests.tampering import Attack

# How the other session changes the path: by a write, by a declared output, by a command that declares nothing.
CHANGES = {
    "write": "- {write: {path: shared.txt, content: theirs}, id: change}",
    "outputs": "- {run: printf theirs > shared.txt, id: change, outputs: [shared.txt]}",
    "pattern": "- {run: printf theirs > shared.txt, id: change, outputs: ['sh*.txt']}",
    "undeclared": "- {read: shared.txt}\n      - {run: printf theirs > shared.txt, id: change}",
    "removed": "- {read: shared.txt}\n      - {run: rm shared.txt, id: change}",
    "failed": "- {read: shared.txt}\n      - {run: printf theirs > shared.txt; exit 3, id: change}",
}
# How this one comes to know it before.
MINE = {
    "write": "- {write: {path: shared.txt, content: mine}}",
    "outputs": "- {run: printf mine > shared.txt, outputs: [shared.txt]}",
    "read": "- {read: shared.txt}",
}
PAIRS = [*((change, "write") for change in CHANGES), ("write", "outputs"), ("outputs", "read")]


def plan(*steps: str) -> str:
    return "tasks:\n  - title: t\n    steps:\n" + "".join(f"      {step}\n" for step in steps)


def other_session(place: Path, change: str) -> Callable[[], Life]:
    def go() -> Life:
        other = Life(place)
        other.run(plan(CHANGES[change]))
        return other

    return go


def said(life: Life) -> list[str]:
    return [notice.body.message for notice in life.ears.events("warning")]


@pytest.mark.parametrize(("change", "mine"), PAIRS)
def test_a_change_by_another_session_while_a_command_runs_is_not_the_commands(
    tmp_path: Path, change: str, mine: str
) -> None:
    life, others = Life(tmp_path), list[Life]()
    life.put("shared.txt", "before")
    life.ears.at("step_started", lambda: others.append(other_session(tmp_path, change)()), "t.work")
    result = life.run(plan(MINE[mine], "- {run: 'true', id: work}", "- {run: 'true', id: after}"))
    theirs = short(others[0].id)
    assert result.exit_code == 0
    assert [one.touched for one in life.events(ev.StepCompleted)] == [()] * 3
    _, work, after = life.events(ev.StepCompleted)
    accepted = [file for one in life.events(ev.ChangesAccepted) for file in one.files]
    assert "shared.txt" not in [file.path for file in work.files]
    # A file as fresh as the clock's tick is recorded once more as soon as its stat proves it: the same content.
    assert {file.sha256 for file in after.files} <= {file.sha256 for file in accepted}
    named = [text for text in said(life) if "shared.txt" in text]
    assert len(named) == 1, "said once, and known from then on"
    assert f"step t.change of session {theirs}" in named[0] and "t.work" in named[0]
    assert [one.reason for one in life.events(ev.ChangesAccepted)] == [f"step t.change of session {theirs}"]


@pytest.mark.parametrize(("change", "mine"), PAIRS)
def test_a_resume_names_the_session_that_changed_the_file_meanwhile(tmp_path: Path, change: str, mine: str) -> None:
    life = Life(tmp_path)
    life.put("shared.txt", "before")
    life.run(plan(MINE[mine], "- {run: test -e go, id: work}"))
    other = other_session(tmp_path, change)()
    found = life.look().environment
    assert found is not None
    assert [(one.path, one.session_id, one.step) for one in found.changed_files] == [
        ("shared.txt", other.id, "t.change")
    ]
    with pytest.raises(ChangedFiles) as refused:
        life.resume()
    assert f"step t.change of session {short(other.id)}: shared.txt" in refused.value.message
    assert "somebody else" not in refused.value.message


def test_a_step_that_works_on_a_path_which_another_session_changed_says_so(tmp_path: Path) -> None:
    for kind in ("write", "outputs"):
        life, others = Life(tmp_path / kind), list[Life]()
        life.ears.at("step_completed", lambda at=life, to=others: to.append(other_session(at.place, "write")()), "t.1")
        again = MINE[kind].replace("mine", "mine-again")
        assert life.run(plan(MINE[kind], again)).exit_code == 0
        (warning,) = said(life)
        assert "t.2" in warning and f"step t.change of session {short(others[0].id)}" in warning
        assert life.text("shared.txt") == "mine-again"


def test_a_write_of_another_session_that_is_still_in_flight_is_named(tmp_path: Path) -> None:
    """Its completion is not on record yet; its start says what it writes."""
    for change, at in (("write", "step_completed"), ("outputs", "step_output")):
        place = tmp_path / change
        life, other = Life(place), Life(place)

        def cut_off(other: Life = other, change: str = change, at: str = at) -> None:
            text = CHANGES[change].replace("; exit", "").replace("printf theirs > shared.txt", SLOWLY)
            if at == "step_output":
                other.cut_off(plan(text), at, "t.change")
            else:
                with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
                    patch.setattr("acode.engine.step.record_end", interrupt)
                    other.run(plan(text))
                other.id = other.ears.notices[-1].session_id

        life.ears.at("step_started", cut_off, "t.work")
        life.run(plan(MINE["write"], "- {run: 'true', id: work}"))
        assert [one.touched for one in life.events(ev.StepCompleted)] == [()] * 2
        assert f"step t.change of session {short(other.id)}" in said(life)[0]


SLOWLY = "printf theirs > shared.txt; echo written; exec sleep 0.1"


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_person_or_a_command_of_ones_own_is_not_taken_for_another_session(tmp_path: Path) -> None:
    """The same bytes are no proof: the other session must have left this very file."""
    life = Life(tmp_path)
    life.put("shared.txt", "before")
    reader = Life(tmp_path)
    life.ears.at("step_started", other_session(tmp_path, "write"), "t.1")
    text = plan(MINE["write"], "- {run: printf theirs > shared.txt, id: work}", "- {run: test -e go, id: stop}")
    life.run(text)
    assert [one.touched for one in life.events(ev.StepCompleted)] == [(), ("shared.txt",)]
    life.put("shared.txt", "a person's")
    reader.run(plan(MINE["read"]))
    found = life.look().environment
    assert found is not None
    assert [(one.session_id, one.step) for one in found.changed_files] == [(None, None)], "a reader changes nothing"


def test_a_session_whose_log_cannot_be_trusted_is_not_named(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.run(plan(MINE["write"], "- {run: test -e go, id: work}"))
    other = other_session(tmp_path, "write")()
    assert other.look().session.terminal
    attack = Attack(life.path(""))
    seq = attack.seq_of("step_completed", "t.change")
    attack.set_body(seq, attack.body(seq, 2).replace("t.change", "t.chance"), 2)
    found = life.look().environment
    assert found is not None
    assert [(one.path, one.session_id) for one in found.changed_files] == [("shared.txt", None)]


def test_a_function_of_a_program_is_not_blamed_for_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACODE_HOME", str(tmp_path / "state"))
    life = Life(tmp_path)
    others: list[Life] = []
    with acode.session("k", workspace=life.path("")) as s:
        s.write("shared.txt", "mine")
        s.step("work", lambda: others.append(other_session(life.place, "write")()) or 1)
        life.id = s.id
    completed = life.events(ev.StepCompleted)
    assert [file.path for one in completed[1:] for file in one.files] == []
    assert [one.reason for one in life.events(ev.ChangesAccepted)] == [
        f"step t.change of session {short(others[0].id)}"
    ]


def test_explain_names_the_other_session(acode: Acode, workspace: Path) -> None:
    one, two = workspace / "one.yml", workspace / "two.yml"
    one.write_text(plan(MINE["write"], "- {run: test -e go, id: work}"))
    two.write_text(plan(CHANGES["write"]))
    acode("run", one)
    mine = acode("session", "list", "--json").json[0]["short_id"]
    assert acode("run", two).exit_code == 0
    theirs = next(
        row["short_id"] for row in acode("session", "list", "--all", "--json").json if row["short_id"] != mine
    )
    words = f"changed by step t.change of session {theirs}: shared.txt (modified"
    for command in (("explain", mine), ("resume", "--dry-run", mine)):
        assert words in " ".join(acode(*command).stdout.split())
