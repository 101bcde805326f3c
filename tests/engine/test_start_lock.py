"""Of several that begin a plan at the same moment one does its work; the others say that it is being done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.cli.run import refuse_second
from acode.engine import create
from acode.engine.create import run_plan
from acode.engine.start_lock import start_lock
from acode.engine.world import World
from acode.errors import InputRequired, SessionLocked
from acode.planfile import PlanFile
from acode.workspace import Directory, Root, ensure_agent_dir, files
from tests.lives import Life

WORK = """
tasks:
  - title: t
    steps:
      - run: 'echo "$ACODE_STEP_ID" >> "$LEDGER"; while [ ! -e door ]; do sleep 0.01; done'
"""


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path)
    yield made
    made.put("door", "")


class Beginner(threading.Thread):
    """A process that has found no unfinished session, and is about to begin one."""

    def __init__(self, life: Life, plan: PlanFile, looks: threading.Event, goes_on: threading.Event) -> None:
        super().__init__()
        self.life, self.plan, self.looks, self.goes_on = life, plan, looks, goes_on
        self.refused: Exception | None = None

    def run(self) -> None:
        world = self.life.world()

        def refuse(shared: World) -> None:
            refuse_second(self.plan, frozenset(), shared)
            self.looks.set()
            assert self.goes_on.wait(20.0)

        try:
            run_plan(world, self.plan, refuse=refuse)
        except InputRequired as error:
            self.refused = error


def test_two_that_both_found_no_unfinished_session_do_not_begin_two(life: Life) -> None:
    plan = life.plan(WORK)
    first, second, goes_on = threading.Event(), threading.Event(), threading.Event()
    one, other = Beginner(life, plan, first, goes_on), Beginner(life, plan, second, goes_on)
    one.start()
    assert first.wait(20.0), "it has looked, and found none"
    other.start()
    assert not second.wait(0.5), "the other one looks when the first has begun, not before"
    goes_on.set()
    other.join(20.0)
    life.put("door", "")
    one.join(20.0)
    assert one.refused is None
    assert isinstance(other.refused, InputRequired) and "has an unfinished session here" in other.refused.message
    assert life.effects() == {"t.1": 1}


def test_whoever_never_comes_to_an_end_with_beginning_is_named(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "BEGIN_WAIT_S", 0.05)
    taken = start_lock(life.world(), create.PLANS, wait_s=1.0, busy="", hint="")
    with taken, pytest.raises(SessionLocked, match="just beginning a session") as caught:
        run_plan(life.world(), life.plan(WORK), refuse=lambda: None)
    assert caught.value.exit_code == 16


def test_two_that_make_acodes_directory_at_the_same_moment_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes between the writing of the new file and its renaming."""
    rename, others = files._rename_over, 1

    def slowly(directory: Directory, temp: str, name: str, rel: str) -> None:
        nonlocal others
        others, first = others - 1, others > 0
        if first:
            with Root(tmp_path) as root:
                ensure_agent_dir(root)
        rename(directory, temp, name, rel)

    monkeypatch.setattr(files, "_rename_over", slowly)
    with Root(tmp_path) as root:
        own = ensure_agent_dir(root)
    assert (own / ".gitignore").read_text().endswith("*\n!config.yml\n")
    assert [path.name for path in own.iterdir() if path.name.startswith(files.TEMP_PREFIX)] == []
