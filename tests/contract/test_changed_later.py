"""What was changed after a command had ended is somebody else's, whatever time it bears; its own work never is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from acode.engine import validate
from acode.errors import ChangedFiles
from acode.events import types as ev
from acode.steps.kept import read_status, run_directory
from tests.lives import Life

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
    monkeypatch.setattr(validate, "CLOCK_SLACK_NS", 0)


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
