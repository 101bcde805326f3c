"""What was changed after a command had ended is somebody else's, whatever time it bears; its own work never is."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from acode.engine import environment
from acode.errors import ChangedFiles
from acode.events import types as ev
from acode.steps import keeper
from acode.steps.keeper_notes import read_status, run_directory
from tests.lives import Killed, Life

LONG_AGO_NS = 10**18
UNDECLARED = """
tasks:
  - title: t
    steps:
      - write: {path: config.ini, content: "safe=1\\n"}
      - run: echo "safe=2" > config.ini; echo begun
        id: work
      - run: cp config.ini used.ini
        idempotent: true
"""


@pytest.fixture(autouse=True)
def without_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is long to wait for; here one disk has one clock, whose next tick is enough."""
    monkeypatch.setattr(environment, "CLOCK_SLACK_NS", 0)


def ended(tmp_path: Path, plan: str) -> Life:
    """acode was killed while its command ran; the keeper has noted how that ended."""
    life = Life(tmp_path)
    life.cut_off(plan, "step_output", "t.work")
    while read_status(notes(life)) is None or life.look().survey.continuation.in_flight[0].action == "wait":  # type: ignore[union-attr]
        pass
    return life


def notes(life: Life) -> Path:
    (started,) = [one for one in life.events(ev.StepStarted) if one.step == "t.work"]
    return run_directory(life.path(".agent"), started.key)


def edit(life: Life, name: str, text: str, *, time_ns: int | None = None) -> None:
    """By somebody else, a tick of the clock after the end was noted, under a time of their choice."""
    noted = (notes(life) / "status").stat().st_ctime_ns
    while life.put(name, text).stat().st_ctime_ns <= noted:
        pass
    if time_ns is not None:
        os.utime(life.path(name), ns=(time_ns, time_ns))


def changed(life: Life) -> list[str]:
    report = life.look().environment
    assert report is not None
    return [one.path for one in report.changed_files]


@pytest.mark.parametrize("time_ns", [None, LONG_AGO_NS])
def test_a_change_after_the_end_is_found_under_whatever_time_it_bears(tmp_path: Path, time_ns: int | None) -> None:
    """cp -p, tar and rsync -t keep the old one."""
    life = ended(tmp_path, UNDECLARED)
    assert changed(life) == [], "that was the command"
    edit(life, "config.ini", "safe=0\n", time_ns=time_ns)
    assert changed(life) == ["config.ini"]
    with pytest.raises(ChangedFiles):
        life.resume()
    assert not life.path("used.ini").exists()


def test_notes_that_were_copied_date_nothing_by_their_own_time(tmp_path: Path) -> None:
    """A workspace that was restored or moved has new times throughout, and nobody has changed a thing."""
    life = ended(tmp_path, UNDECLARED)
    status = notes(life) / "status"
    shutil.copy2(status, status.with_name("copy"))
    os.replace(status.with_name("copy"), status)
    kept = life.path("config.ini").stat().st_mtime_ns
    edit(life, "config.ini", "safe=2\n", time_ns=kept)
    assert changed(life) == []
    assert life.resume().exit_code == 0


# Outputs.

BUILDS = """
tasks:
  - title: t
    steps:
      - run: mkdir -p build; echo good > build/app; ln -s app build/link; echo begun
        id: work
        outputs: ["build/**"]
      - run: cp build/app shipped
        outputs: [shipped]
"""


def test_outputs_that_were_changed_after_the_end_are_not_adopted_in_silence(tmp_path: Path) -> None:
    life = ended(tmp_path, BUILDS)
    assert changed(life) == []
    edit(life, "build/app", "EVIL\n", time_ns=LONG_AGO_NS)
    assert changed(life) == ["build/app"]
    with pytest.raises(ChangedFiles, match="build/app"):
        life.resume()
    assert not life.path("shipped").exists()


def test_outputs_that_are_as_the_command_left_them_are_adopted(tmp_path: Path) -> None:
    life = ended(tmp_path, BUILDS)
    edit(life, "beside.txt", "no output\n")
    assert life.resume().exit_code == 0
    assert life.text("shipped") == "good\n"
    assert life.attempts("t.work") == 1 and life.person.asked == []


def test_changed_outputs_that_a_person_accepts_are_adopted_and_not_asked_about_again(tmp_path: Path) -> None:
    life = ended(tmp_path, BUILDS)
    edit(life, "build/app", "mine\n")
    life.person.to_changes = "continue"
    life.ears.at("changes_accepted", life.die)
    with pytest.raises(Killed):
        life.resume()
    assert changed(life) == []
    assert life.resume().exit_code == 0
    assert life.text("shipped") == "mine\n"
    assert life.person.asked == ["changes"] and "its command had ended before" in life.person.viewed[0]


@pytest.mark.parametrize("how", ["", "setsid"])
def test_what_children_of_the_command_write_after_its_end_is_its_own(tmp_path: Path, how: str) -> None:
    late = (
        f"{how} sh -c 'while [ ! -e door ]; do sleep 0.01; done; echo late > build/log; touch done' >/dev/null 2>&1 &"
    )
    life = ended(tmp_path, BUILDS.replace("echo begun", f"{late} echo begun"))
    noted = (notes(life) / "status").stat().st_ctime_ns
    life.put("door", "")
    while not life.path("done").exists():
        pass
    assert life.path("build/log").stat().st_ctime_ns > noted
    assert changed(life) == []
    assert life.resume().exit_code == 0


def test_outputs_that_are_going_to_be_put_back_are_nobodys_business(tmp_path: Path) -> None:
    """A rollback of our own that was cut off has changed them too."""
    life = ended(tmp_path, BUILDS)
    path = notes(life) / "status"
    inode = path.stat().st_ino
    status = json.loads(path.read_text())
    assert status["synced"] is True
    path.write_text(json.dumps({**status, "synced": False}))
    assert path.stat().st_ino == inode
    edit(life, "build/app", "half\n")
    assert changed(life) == []
    assert life.resume().exit_code == 0
    assert life.text("shipped") == "good\n"


def test_whoever_cannot_see_other_processes_knows_of_nobody_and_still_notes_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert keeper._left_nobody(1) is None
