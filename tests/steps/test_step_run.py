"""What a keeper notes, and what acode makes of it on a full, a sick or a crowded disk: nothing is repeated in doubt."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from acode import lock
from acode.errors import NotWritable, OutcomeUnknown
from acode.events.definition import Run, Step
from acode.plan import Outcome
from acode.steps import keeper, keeper_notes
from acode.steps import run as commands
from acode.steps.interface import Done, Failed
from acode.steps.keeper_notes import Mark, read_mark, read_status, run_directory
from tests.disks import on_a_small_disk, remount
from tests.lives import Life, end_all_in
from tests.sites import Bench, Patient

STEP = Step(id="main.one", action=Run(command="echo out; echo ran >> ledger"))


def bench_in(place: Path, step: Step = STEP) -> Bench:
    (place / "workspace").mkdir()
    return Bench(place / "workspace", place / "state", step)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


@pytest.mark.parametrize("note", ["started", "status", "alive"])
def test_a_note_that_is_there_and_cannot_be_read_never_means_that_nothing_ran(bench: Bench, note: str) -> None:
    started = bench.start(STEP)
    assert isinstance(bench.execute(STEP, started), Done)
    directory = run_directory(bench.agent_dir, started.key)
    for name in ("status", note):
        (directory / name).unlink(missing_ok=True)
    (directory / note).mkdir()  # root reads whatever has no right to be read, but no directory
    with pytest.raises(IsADirectoryError):
        bench.look(STEP, started)


def test_a_torn_mark_is_a_command_that_began(bench: Bench) -> None:
    started = bench.start(STEP)
    directory = run_directory(bench.agent_dir, started.key)
    directory.mkdir(parents=True)
    assert bench.look(STEP, started).outcome is Outcome.NOT_APPLIED
    (directory / "started").write_bytes(b'{"keeper": 1')
    found = bench.look(STEP, started)
    assert found.outcome is Outcome.UNKNOWN and not found.repeatable


def test_an_end_that_cannot_be_collected_now_is_settled_by_what_the_keeper_noted(bench: Bench) -> None:
    """The output of a step is part of its end: without it, what follows would be given other words."""
    step = Step(id="main.one", action=Run(command='echo out; rm -f "$GONE"; mkdir "$GONE"'))
    started = bench.start(step)
    output = run_directory(bench.agent_dir, started.key) / "output"
    bench.env["GONE"] = os.fspath(output)
    outcome = bench.execute(step, started)
    assert isinstance(outcome, Failed) and outcome.reason == "signal" and "cannot be read" in outcome.message
    assert bench.look(step, started).outcome is Outcome.APPLIED
    output.rmdir()
    output.write_bytes(b"out\n")
    adopted = bench.kind(step).adopt(step, bench.site(), started)
    assert adopted.output is not None and adopted.output.tail == "out\n"


def fill(place: Path) -> None:
    """The command fills the disk, talks on, and ends; its end is noted in the room that was taken before it began."""
    talk = "cat /dev/zero > filler 2>/dev/null; yes | head -c 300000; exit 7"
    step = Step(id="main.one", action=Run(command=talk))
    bench = bench_in(place, step)
    started = bench.start(step)
    outcome = bench.execute(step, started)
    assert isinstance(outcome, Failed), outcome
    assert (outcome.reason, outcome.exit_status) == ("exit", 7), outcome
    status = read_status(run_directory(bench.agent_dir, started.key))
    assert status is not None and status.bytes == 300_000 and status.kept < status.bytes


def test_a_command_that_fills_the_disk_ends_as_it_ends_and_its_end_is_known(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path / "small", fill)


def refuse(place: Path) -> None:
    step = Step(id="main.one", action=Run(command="echo ran >> ledger"))
    bench = bench_in(place, step)
    started = bench.start(step)
    directory = run_directory(bench.agent_dir, started.key)
    directory.mkdir(parents=True)
    (directory / "alive").touch()
    with open(place / "filler", "wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(b"\0" * 4096)
    outcome = bench.execute(step, started)
    assert isinstance(outcome, Failed) and "before it could start the command" in outcome.message
    assert bench.look(step, started).outcome is Outcome.NOT_APPLIED
    assert not (bench.workspace / "ledger").exists()


def look_on(place: Path) -> None:
    step = Step(id="main.one", action=Run(command="kill -9 $PPID; sleep 30"))
    bench = bench_in(place, step)
    started = bench.start(step)
    bench.execute(step, started)
    directory = run_directory(bench.agent_dir, started.key)
    mark = read_mark(directory)
    assert mark is not None and mark.command is not None
    bench.close()
    remount(place, "ro")
    assert "still running" in (keeper_notes.still_running(directory, mark) or "")
    os.killpg(mark.command, signal.SIGKILL)
    while keeper_notes.still_running(directory, mark) is not None:
        pass
    assert not keeper_notes.alive_lock_held(directory)


def test_whether_a_command_lives_can_be_seen_where_nothing_can_be_written(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path / "small", look_on)


def test_on_a_full_disk_a_command_is_not_begun(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path / "small", refuse)


def test_the_notes_are_whole_whatever_room_was_taken_for_them(bench: Bench) -> None:
    started = bench.start(STEP)
    assert isinstance(bench.execute(STEP, started), Done)
    directory = run_directory(bench.agent_dir, started.key)
    mark, status = read_mark(directory), read_status(directory)
    assert isinstance(mark, Mark) and status is not None and status.exit == 0
    assert {path.name for path in directory.iterdir()} == {"alive", "claimed", "output", "started", "status"}


def test_a_machine_that_gives_no_lock_is_not_taken_for_a_command_that_lives(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import fcntl

    started = bench.start(STEP)
    assert isinstance(bench.execute(STEP, started), Done)
    (run_directory(bench.agent_dir, started.key) / "status").unlink()

    def no_locks(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match="No locks"):
        bench.look(STEP, started)
    locks = bench.agent_dir / "locks"
    (locks / f"{bench.session_id}.1").touch(mode=0o600)
    with pytest.raises(NotWritable, match="cannot be locked: No locks available"):
        lock.look(locks, bench.session_id, 1)
    opened = set(os.listdir("/proc/self/fd"))
    with pytest.raises(NotWritable, match="cannot be locked"):
        lock.acquire(locks, bench.session_id, lambda: 1, now=bench.store.clock)
    assert set(os.listdir("/proc/self/fd")) == opened, "nothing stays open"


# Stopped, and polite about it.

POLITE = "trap 'echo bye; exit 0' TERM; echo half >> ledger; while :; do sleep 0.02; done"


@pytest.mark.parametrize("why", ["timeout", "signal"])
def test_a_command_that_is_stopped_has_not_done_its_work_even_if_it_then_ends_with_0(bench: Bench, why: str) -> None:
    step = Step(id="main.one", action=Run(command=POLITE), timeout_s=1.0 if why == "timeout" else None)
    if why == "signal":  # the second Ctrl+C
        bench.stop = Patient((bench.workspace / "ledger").exists)
    started = bench.start(step)
    outcome = bench.execute(step, started)
    assert isinstance(outcome, Failed) and outcome.reason == why
    assert outcome.output is not None and outcome.output.tail.endswith("bye\n")
    status = read_status(run_directory(bench.agent_dir, started.key))
    assert status is not None and status.exit == 0 and not status.by_itself
    found = bench.look(step, started)
    assert found.outcome is Outcome.UNKNOWN and "was stopped by" in found.evidence


def test_a_command_that_has_ended_cannot_be_stopped_any_more(tmp_path: Path) -> None:
    """Or whoever holds its output open until its time is up would make a step that is done look cut off."""
    lock_file = os.open(tmp_path, os.O_RDONLY)
    command = keeper.Command(["/bin/sh", "-c", "exit 0"], os.fspath(tmp_path), lambda pid: None, lock_file)
    command.process.communicate()
    command.stop("timeout", 0.0)
    assert command.stopping is None


# Outputs and power cuts.

BUILDS = Step(id="main.one", action=Run(command="mkdir -p out; echo built > out/app", outputs=("out/**",)))


def noted(bench: Bench, key: str, **changes: object) -> None:
    """The keeper's note of the end, as another keeper would have left it."""
    path = run_directory(bench.agent_dir, key) / "status"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_the_note_of_an_end_says_that_the_outputs_came_to_the_disk_before_it(bench: Bench) -> None:
    for step, synced in ((BUILDS, True), (STEP, None)):
        started = bench.start(step)
        assert isinstance(bench.execute(step, started), Done)
        status = read_status(run_directory(bench.agent_dir, started.key))
        assert status is not None and status.synced is (synced if sys.platform == "linux" else None)
        shutil.rmtree(run_directory(bench.agent_dir, started.key))


@pytest.mark.parametrize(
    ("synced", "boot", "outcome"),
    [
        (True, "another", Outcome.APPLIED),
        (None, "this", Outcome.APPLIED),
        (None, "another", Outcome.PARTIAL),
        (False, "this", Outcome.PARTIAL),
    ],
)
def test_an_end_is_believed_after_a_power_cut_where_its_outputs_cannot_have_been_lost(
    bench: Bench, synced: bool | None, boot: str, outcome: Outcome
) -> None:
    started = bench.start(BUILDS)
    assert isinstance(bench.execute(BUILDS, started), Done)
    noted(bench, started.key, synced=synced)
    found = bench.look(BUILDS, started, **({"boot_id": "another"} if boot == "another" else {}))
    assert found.outcome is outcome
    assert found.rolls_back == (outcome is Outcome.PARTIAL)


def test_outputs_that_cannot_be_brought_to_the_disk_are_not_vouched_for(bench: Bench) -> None:
    started = bench.start(BUILDS)
    assert isinstance(bench.execute(BUILDS, started), Done)
    noted(bench, started.key, synced=False)
    collected = commands.collect(BUILDS, bench.site(), started)
    assert isinstance(collected, Failed) and "cannot be brought to the disk" in collected.message


def test_outputs_that_no_keeper_has_synced_are_synced_before_the_step_is_done(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = bench.start(BUILDS)
    assert isinstance(bench.execute(BUILDS, started), Done)
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), sync(fd)))
    assert isinstance(bench.adopt(BUILDS, started), Done)
    assert synced == []
    noted(bench, started.key, synced=None)
    assert isinstance(bench.adopt(BUILDS, started), Done)
    wanted = [bench.workspace / "out" / "app", bench.workspace / "out", bench.workspace]
    assert {path.stat().st_ino for path in wanted} <= set(synced)


# Effects that are no outputs.


@pytest.mark.parametrize("output", ["log.txt", "out", "out/**"])
def test_a_command_that_may_have_written_through_a_link_is_no_command_with_outputs_only(
    tmp_path: Path, output: str
) -> None:
    life = Life(tmp_path)
    life.put("data/real.txt", "old\n")
    written = {"log.txt": "log.txt", "out": "out/f", "out/**": "out/cache/f"}[output]
    if output == "log.txt":
        life.path("log.txt").symlink_to("data/real.txt")
    elif output == "out":
        life.path("out").symlink_to("data")
    else:
        life.path("out").mkdir()
        life.path("out/cache").symlink_to("../data")
    command = f"echo effect >> {written}; echo begun; while [ ! -e door ]; do sleep 0.01; done"
    life.cut_off(
        f"tasks: [{{title: t, steps: [{{run: '{command}', id: work, outputs: ['{output}']}}]}}]", "step_output"
    )
    end_all_in(tmp_path)
    life.put("door", "")
    with pytest.raises(OutcomeUnknown, match=r"through the link .* cannot be restored"):
        life.resume()
    assert [one for one in life.ears.events("step_warning") if "through the link" in one.body.message]
    assert life.text(written).count("effect") == 1


# Where the notes are kept.

COUNTED = """
tasks:
  - title: t
    steps:
      - run: echo "$ACODE_STEP_ID" >> "$LEDGER"; echo begun; while [ ! -e door ]; do sleep 0.01; done
        id: work
"""


def test_notes_that_were_removed_are_no_proof_that_a_command_never_ran(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.cut_off(COUNTED, "step_output", "t.work")
    end_all_in(tmp_path)
    shutil.rmtree(life.path(".agent/run"))
    life.put("door", "")
    with pytest.raises(OutcomeUnknown, match=r"the notes of its keeper in .* are gone"):
        life.resume()
    assert life.effects() == {"t.work": 1}


def test_a_place_without_a_note_is_the_proof_that_a_command_never_ran(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.cut_off(COUNTED, "step_started", "t.work")
    life.put("door", "")
    survey = life.look().survey
    assert survey is not None
    (found,) = survey.continuation.in_flight
    assert (found.outcome, found.evidence) == (Outcome.NOT_APPLIED, "the command was never started")
    shutil.rmtree(life.path(".agent/run"))
    with pytest.raises(OutcomeUnknown):
        life.resume()
    assert life.effects() == {}


def test_a_start_that_promises_no_place_is_believed_as_before(bench: Bench) -> None:
    """Sessions of an acode that made the place later are carried on as it would have done."""
    started = bench.start(STEP)
    assert not started.place_made and not run_directory(bench.agent_dir, started.key).exists()
    assert bench.look(STEP, started).outcome is Outcome.NOT_APPLIED
