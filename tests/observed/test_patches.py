"""A call that names several files: each is kept as it was, all together settle it, and a rollback restores them all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from acode.events import types as ev
from acode.events.definition import Call
from acode.observed.session import Delete, Edit, Other, Write
from acode.observed.tool_effects import FILES_IN_A_PATCH_MAX, patch_effects
from tests.observed.agents import Agent, Place
from tests.observed.test_hook import denied, told
from tests.variants import first_of

PATCH = """*** Begin Patch
*** Add File: new/deep/added.txt
+first
+second
*** Update File: changed.txt
@@ heading
 kept
-old
+new
*** Update File: moved.txt
*** Move to: there.txt
@@
-here
+there
*** End of File
*** Delete File: gone.txt
*** End Patch
"""
BEFORE = {"changed.txt": "heading\nkept\nold\n", "moved.txt": "here\n", "gone.txt": "soon\n"}
AFTER = {"new/deep/added.txt": "first\nsecond\n", "changed.txt": "heading\nkept\nnew\n", "there.txt": "there\n"}
TOOLS = {"codex": ("apply_patch", "command"), "opencode": ("apply_patch", "patchText")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    for name, content in BEFORE.items():
        (place.workspace / name).write_text(content)
    return place


def files(place: Place) -> dict[str, str]:
    found = [path for path in place.workspace.rglob("*") if path.is_file() and ".agent" not in path.parts]
    return {os.fspath(path.relative_to(place.workspace)): path.read_text() for path in found}


def apply(place: Place, *names: str) -> None:
    """What the agent does; `names`: only these."""
    for name in names or (*AFTER, *BEFORE):
        path = place.workspace / name
        if name in AFTER:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(AFTER[name])
        else:
            path.unlink()


def ask(agent: Agent, moment: str = "before", call: str = "p", patch: str = PATCH) -> tuple[int, dict[str, Any], str]:
    tool, key = TOOLS[agent.name]
    return agent.hook(moment, tool=tool, arguments={key: patch}, call=call)


@pytest.mark.parametrize("name", first_of(*TOOLS))
def test_a_finished_patch_is_shown_file_by_file_and_rolled_back_whole(place: Place, name: str) -> None:
    with place.agent(name) as agent:
        assert ask(agent) == (0, {}, "")
        apply(place)
        assert ask(agent, "after") == (0, {}, "")
        agent.hook("idle")
    (row,) = place.rows()
    shown = json.loads(place.acode("session", "diff", row["short_id"], "--json").stdout)
    changes = {one["path"]: one["change"] for one in shown["files"]}
    assert changes == {
        "new/deep/added.txt": "created",
        "changed.txt": "modified",
        "there.txt": "created",
        "moved.txt": "deleted",
        "gone.txt": "deleted",
    }
    rolled = place.acode("session", "rollback", row["short_id"], "--yes")
    assert rolled.returncode == 0, rolled.stderr
    assert files(place) == BEFORE and not (place.workspace / "new").exists()


@pytest.mark.parametrize("name", first_of(*TOOLS))
def test_a_patch_that_was_applied_when_its_agent_died_is_not_applied_again(place: Place, name: str) -> None:
    with place.agent(name) as agent:
        assert ask(agent) == (0, {}, "")
        apply(place)
        agent.kill()
    with place.agent(name) as agent:
        words = told(agent.hook("prompt")[1])
        assert "took effect: as it was to leave them" in words and "there.txt" in words
        assert "ran to its end before you came back" in denied(ask(agent, call="q")[1])


def test_a_patch_that_had_not_begun_may_be_applied(place: Place) -> None:
    with place.agent("codex") as agent:
        assert ask(agent) == (0, {}, "")
        agent.kill()
    with place.agent("codex") as agent:
        assert "as before: " in told(agent.hook("prompt")[1])
        assert ask(agent, call="q") == (0, {}, "")


def test_a_patch_that_was_cut_off_between_two_files_is_asked_of_a_person(place: Place) -> None:
    with place.agent("codex") as agent:
        assert ask(agent) == (0, {}, "")
        apply(place, "new/deep/added.txt", "changed.txt")
        agent.kill()
    with place.agent("codex") as agent:
        words = told(agent.hook("prompt")[1])
        assert "as it was to leave them: new/deep/added.txt, changed.txt" in words
        assert "as before: moved.txt, there.txt, gone.txt" in words
        assert "acode session resolve" in denied(ask(agent, call="q")[1])
    (row,) = place.rows()
    started = next(one for one in place.history() if isinstance(one, ev.StepStarted))
    assert place.acode("session", "resolve", row["short_id"], started.step, "--applied").returncode == 0
    rolled = place.acode("session", "rollback", row["short_id"], "--yes")
    assert rolled.returncode == 0, rolled.stderr
    assert files(place) == BEFORE


def test_a_file_that_somebody_changed_since_stays_as_it_is(place: Place) -> None:
    with place.agent("codex") as agent:
        assert ask(agent) == (0, {}, "")
        apply(place)
        ask(agent, "after")
        agent.hook("idle")
    (place.workspace / "changed.txt").write_text("by a person\n")
    (row,) = place.rows()
    assert place.acode("session", "rollback", row["short_id"], "--yes").returncode == 0
    assert files(place) == {**BEFORE, "changed.txt": "by a person\n"}


@pytest.mark.parametrize("before", first_of("", "cd . && ", "cd '.' && "))
def test_a_patch_in_a_command_of_codex_is_settled_by_its_files(place: Place, before: str) -> None:
    """Codex applies it without a shell: that no front saw it must not mean that it never began."""
    with place.agent("codex") as agent:
        agent.perform("true")  # so that the front is known to be in the way
        line = f"{before}apply_patch <<'EOF'\n{PATCH}EOF\n"
        assert agent.begin(line) == (0, {}, "")
        apply(place)
        agent.kill()
    with place.agent("codex") as agent:
        assert "took effect: as it was to leave them" in told(agent.hook("prompt")[1])


def test_files_outside_the_workspace_are_not_taken_for_unchanged(place: Place) -> None:
    outside = place.base / "elsewhere.txt"
    patch = f"*** Begin Patch\n*** Add File: a.txt\n+a\n*** Add File: {outside}\n+b\n*** End Patch\n"
    with place.agent("codex") as agent:
        assert ask(agent, patch=patch) == (0, {}, "")
        agent.kill()
    with place.agent("codex") as agent:
        assert "it may change more than its files" in told(agent.hook("prompt")[1])
    started = next(one for one in place.history() if isinstance(one, ev.StepStarted))
    assert started.definition is not None and isinstance(started.definition.action, Call)
    assert [one.path for one in started.before] == ["a.txt"] and started.definition.action.more


def test_an_edit_whose_result_only_the_tool_knows_is_kept_as_it_was(place: Place) -> None:
    notebook = place.workspace / "book.ipynb"
    notebook.write_text("{}\n")
    arguments = {"notebook_path": os.fspath(notebook), "new_source": "1 + 1"}
    with place.agent() as agent:
        assert agent.hook("before", tool="NotebookEdit", arguments=arguments, call="n") == (0, {}, "")
        notebook.write_text('{"cells": []}\n')
        agent.hook("after", tool="NotebookEdit", arguments=arguments, call="n")
        agent.hook("idle")
    (row,) = place.rows()
    assert place.acode("session", "rollback", row["short_id"], "--yes").returncode == 0
    assert notebook.read_text() == "{}\n"


# Reading a patch.


def test_each_file_of_a_patch_is_what_it_would_become() -> None:
    assert patch_effects(PATCH) == (
        Write(path="new/deep/added.txt", content="first\nsecond\n"),
        Edit(path="changed.txt", replacements=(("kept\nold", "kept\nnew"),)),
        Delete(path="moved.txt"),
        Edit(path="there.txt", replacements=(("here", "there"),), moved_from="moved.txt"),
        Delete(path="gone.txt"),
    )


def test_a_part_that_only_adds_lines_does_not_say_what_the_file_becomes() -> None:
    text = "*** Begin Patch\n*** Update File: a\n@@\n+more\n*** End Patch"
    assert patch_effects(text) == (Edit(path="a", replacements=()),)


def test_too_many_files_are_not_taken_for_all() -> None:
    heads = "\n".join(f"*** Delete File: {number}" for number in range(FILES_IN_A_PATCH_MAX + 1))
    assert isinstance(patch_effects(f"*** Begin Patch\n{heads}\n*** End Patch")[-1], Other)
    assert patch_effects("no patch") == (Other(),)
