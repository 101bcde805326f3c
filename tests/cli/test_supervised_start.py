"""The note of a supervisor: private, durable, believed only when it can be read, and gone once the end is reported."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from acode.cli.supervised_start import StartNote, SupervisedStart, unreported
from acode.engine.create import PLANS
from acode.engine.start_lock import start_lock
from tests.cli.plans import save, slow
from tests.cli.test_supervise_killed import states
from tests.driver import Acode
from tests.worlds import world

QUICK = "tasks: [{title: t, steps: [{write: {path: made.txt, content: made}}]}]"


def note_of(workspace: Path) -> Path:
    (found,) = (path for path in (workspace / ".agent" / "locks").glob("supervised.*") if path.suffix != ".child")
    return found


@pytest.fixture
def killed(acode: Acode, workspace: Path) -> tuple[str, Path]:
    """A plan whose supervisor and child were killed; and the note that is left."""
    plan = save(workspace, slow())
    running = acode.process("supervise", plan)
    running.wait_for_line("under way")
    running.kill_everything()
    return str(plan), note_of(workspace)


def damaged(note: Path) -> None:
    note.write_bytes(note.read_bytes()[:-5])


def linked(note: Path) -> None:
    os.link(note, note.with_name("other"))


def led_elsewhere(note: Path) -> None:
    note.rename(note.with_name("other"))
    note.symlink_to("other")


def piped(note: Path) -> None:
    note.unlink()
    os.mkfifo(note)


def replaced(note: Path) -> None:
    note.unlink()
    note.mkdir()


@pytest.mark.parametrize("harm", [damaged, linked, led_elsewhere, piped, replaced])
def test_a_note_that_cannot_be_read_is_an_error_and_begins_nothing(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    from acode.errors import LockUnsafe

    start = SupervisedStart(world(tmp_path), "plan")
    start.write(StartNote(since=world(tmp_path).clock()))
    harm(start.path)
    with pytest.raises(LockUnsafe, match="note of an earlier supervisor") as refused:
        unreported(start, lambda since: None, lambda text: None)
    assert "--new" in refused.value.hint


@pytest.mark.release
def test_an_unreadable_note_stops_the_supervisor_until_a_person_says_new(
    acode: Acode, workspace: Path, killed: tuple[str, Path]
) -> None:
    plan, note = killed
    damaged(note)
    (workspace / "go.txt").write_text("go\n")
    refused = acode("supervise", plan)
    assert (refused.exit_code, len(states(acode))) == (16, 1)
    assert "cannot be read: it is damaged" in refused.stderr
    assert acode("supervise", plan, "--new").exit_code == 0
    assert not note.exists()


def test_a_note_is_private_follows_no_link_and_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd))[1])
    start = SupervisedStart(world(tmp_path), "plan")
    target = tmp_path / "elsewhere"
    target.write_text("theirs")
    start.path.symlink_to(target)
    synced.clear()
    start.write(StartNote(since=world(tmp_path).clock()))
    assert target.read_text() == "theirs"
    assert stat.S_IMODE(start.path.lstat().st_mode) == 0o600 and stat.S_ISREG(start.path.lstat().st_mode)
    assert [Path(name).parent.name for name in synced] == ["locks", ".agent"], "the file, then its directory"
    synced.clear()
    start.acknowledge()
    assert (synced, start.read()) == ([os.fspath(start.path.parent)], None)


@pytest.mark.parametrize("named", [["--last"], ["12345678"], []])
def test_new_together_with_a_session_is_a_usage_error(acode: Acode, named: list[str]) -> None:
    refused = acode("supervise", "--new", *named)
    assert refused.exit_code == 2
    assert "--new starts a session of a plan file" in refused.stderr


def test_a_session_whose_end_was_reported_never_stops_a_new_run(acode: Acode, workspace: Path) -> None:
    """A nightly plan runs every night: after success, after a failure, and when its session was collected."""
    plan = save(workspace, QUICK)
    for night in range(1, 3):
        assert acode("supervise", plan).exit_code == 0
        assert states(acode) == ["COMPLETED"] * night
        assert not list((workspace / ".agent" / "locks").glob("supervised.*[!d]"))


@pytest.mark.release
def test_a_note_about_a_session_that_was_removed_stops_no_new_run(
    acode: Acode, workspace: Path, tmp_path: Path
) -> None:
    plan = save(workspace, QUICK)
    assert acode("supervise", plan).exit_code == 0
    here = msgspec.structs.replace(world(tmp_path), workspace=workspace)
    start = SupervisedStart(here, f"plan {plan.name}")
    start.write(StartNote(since=here.clock(), session_id="0" * 36))
    assert acode("supervise", plan).exit_code == 0
    assert states(acode) == ["COMPLETED"] * 2


def test_a_child_that_is_about_to_make_its_session_is_waited_for(acode: Acode, workspace: Path, tmp_path: Path) -> None:
    """The supervisor is killed before its child has made the session; a restart joins that one."""
    plan = save(workspace, slow())
    here = msgspec.structs.replace(world(tmp_path), workspace=workspace)
    with start_lock(here, PLANS, wait_s=0.0, busy="", hint=""):  # the child waits for whoever is beginning a session
        first = acode.process("supervise", plan)
        while not any("run" in child.cmdline() for child in psutil.Process(first.pid).children()):
            pass
        first.kill()
        again = acode.process("supervise", plan)
        again.wait_for_line("Waiting for the child of an earlier supervisor")
        assert states(acode) == []
    again.wait_for_line("Supervising session")
    (workspace / "go.txt").write_text("go\n")
    assert (again.finish().exit_code, states(acode)) == (0, ["COMPLETED"])
