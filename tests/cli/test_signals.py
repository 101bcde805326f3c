"""Real processes, real signals: pause at the step's end, stop at once on the second, and always a way on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.plans import TWO_AT_ONCE, save, slow
from tests.driver import Acode, Running
from tests.foreign import ARC, MEMORY, WORK, ledger, put_driver, put_foreign

QUICK_GRACE = {"ACODE_STEPS_STOP_GRACE_SECONDS": "0.2"}


def history(acode: Acode) -> list[tuple[str, str | None]]:
    return [(event["type"], event["step"]) for event in acode("session", "history", "--json").json]


@pytest.mark.req("SCN-011c-01")
def test_ctrl_c_waits_for_the_step_and_the_resume_goes_on_after_it(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()))
    running.wait_for_line("│ under way")
    running.signal(signal.SIGINT)
    running.wait_for_line("Pausing after step work.slow … press Ctrl\\+C again to stop it now")
    (workspace / "go.txt").write_text("go\n")
    ended = running.finish()
    name = acode("session", "list", "--json").json[0]["short_id"]
    assert ended.exit_code == 130
    assert ended.stderr.splitlines()[-1] == f"To resume: acode resume {name}"
    resumed = acode("resume", name)
    assert resumed.exit_code == 0
    assert "Loaded state: PAUSED at Task 1, Step 3" in resumed.stderr
    assert [kind for kind, step in history(acode) if step == "work.slow"] == ["step_started", "step_completed"]


def test_the_second_ctrl_c_stops_the_command(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()), "--json")
    running.wait_for_line("under way")
    running.signal(signal.SIGINT)
    running.wait_for_line("Pausing after step work.slow")
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert (ended.exit_code, ended.lines[-1]["data"]["state"]) == (130, "PAUSED")
    assert ended.lines[-1]["data"]["reason_code"] == "paused_by_user"
    found = acode("explain", "--json").json
    assert (found["scenario"], found["in_flight"][0]["step"]) == ("user_interrupt", "work.slow")


@pytest.mark.parametrize("declared", ["", "idempotent: true", "probe: test -f never.txt"])
def test_the_last_line_of_a_stopped_run_names_the_same_next_action_as_its_status(
    acode: Acode, workspace: Path, declared: str
) -> None:
    running = acode.process("run", save(workspace, slow(declared)), "--json", "--on-signal", "stop")
    running.wait_for_line("under way")
    running.signal(signal.SIGTERM)
    last = running.finish().lines[-1]["data"]["next_action"]
    assert last == acode("explain", "--json").json["next_action"]
    assert last.startswith("acode resume " if declared else "acode session resolve ")


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("command", ["run", "resume", "supervise"])
def test_a_signal_stops_the_command_at_once_where_it_is_wanted(
    acode: Acode, workspace: Path, command: str, name: str, status: int
) -> None:
    plan = save(workspace, slow("timeout: 600"))
    words = [command, str(plan)]
    if command == "resume":
        plan.write_text(slow("timeout: 600").replace("    steps:\n", "    steps:\n      - approve: Begin?\n"))
        assert acode("run", plan).exit_code == 10
        session_id = acode("session", "list", "--json").json[0]["session_id"]
        assert acode("session", "approve", session_id).exit_code == 0
        words = ["resume", session_id]
    running = acode.process(*words, "--on-signal", "stop")
    running.wait_for_line("│ under way")
    running.signal(getattr(signal, name))
    ended = running.finish()
    assert ended.exit_code == status
    assert f"Stopping step work.slow now ({name})" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("To resume: acode resume ")
    found = acode("explain", "--json").json
    assert (found["state"], found["scenario"]) == ("PAUSED", "user_interrupt")
    assert (found["in_flight"][0]["step"], found["in_flight"][0]["outcome"]) == ("work.slow", "unknown")
    assert "stopped" in found["in_flight"][0]["evidence"]


def test_a_command_that_ignores_the_request_to_end_is_killed_and_leaves_evidence(acode: Acode, workspace: Path) -> None:
    text = slow("timeout: 600").replace("echo under way", "trap '' TERM; echo under way")
    running = acode.process("run", save(workspace, text), "--on-signal", "stop")
    running.wait_for_line("│ under way")
    running.signal(signal.SIGTERM)
    assert running.finish().exit_code == 143
    (failed,) = [one["data"] for one in acode("session", "history", "--json").json if one["type"] == "step_failed"]
    assert (failed["reason"], failed["signal"]) == ("signal", "SIGKILL")


def test_a_pause_from_another_terminal_waits_for_the_step_also_where_signals_stop_it(
    acode: Acode, workspace: Path
) -> None:
    running = acode.process("run", save(workspace, slow()), "--on-signal", "stop")
    running.wait_for_line("│ under way")
    assert acode("session", "pause", acode("session", "list", "--json").json[0]["short_id"]).exit_code == 0
    running.wait_for_line("Pausing after step work.slow")
    (workspace / "go.txt").write_text("go\n")
    assert running.finish().exit_code == 130
    assert ("step_completed", "work.slow") in history(acode)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_request_to_end_is_given_its_grace_and_then_obeyed(acode: Acode, workspace: Path, name: str) -> None:
    running = acode.process("run", save(workspace, slow()), env=QUICK_GRACE)
    running.wait_for_line("│ under way")
    running.signal(getattr(signal, name))
    ended = running.finish()
    assert ended.exit_code == 143
    assert f"Pausing after step work.slow ({name})" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("To resume: acode resume ")
    assert acode("status", "--json").json["state"] == "PAUSED"


def test_a_signal_uses_up_no_attempt_and_starts_no_cool_down(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()), env=QUICK_GRACE)
    running.wait_for_line("│ under way")
    running.signal(signal.SIGTERM)
    running.finish()
    decision = acode("status", "--json").json["decision"]
    assert (decision["attempt"], decision["cooldown_seconds_remaining"]) == (1, 0)
    assert decision["reason_code"] == "resume_paused_by_user"


@pytest.mark.req("SCN-011c-10")
def test_a_resume_can_be_interrupted_and_resumed_again(acode: Acode, workspace: Path) -> None:
    first = acode.process("run", save(workspace, slow()), env=QUICK_GRACE)
    first.wait_for_line("│ under way")
    first.signal(signal.SIGTERM)
    first.finish()
    second = acode.process("resume", "--last", env=QUICK_GRACE)
    second.wait_for_line("│ under way")
    second.signal(signal.SIGTERM)
    assert second.finish().exit_code == 143
    (workspace / "go.txt").write_text("go\n")
    assert acode("resume", "--last").exit_code == 0
    done = [step for kind, step in history(acode) if kind == "step_completed"]
    assert done == ["work.1", "work.slow", "work.3"]


def test_waiting_for_a_lock_ends_with_ctrl_c(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()))
    running.wait_for_line("│ under way")
    name = acode("session", "list", "--json").json[0]["short_id"]
    waiting = acode.process("resume", name, "--wait")
    waiting.wait_for_line("Waiting for the lock")
    waiting.signal(signal.SIGINT)
    ended = waiting.finish()
    assert ended.exit_code == 130
    assert ended.stderr.splitlines()[-1] == f"To resume: acode resume {name}"
    (workspace / "go.txt").write_text("go\n")
    assert running.finish().exit_code == 0


def test_a_resume_that_waits_gets_the_lock_in_the_end(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()), env=QUICK_GRACE)
    running.wait_for_line("│ under way")
    waiting = acode.process("resume", "--last", "--wait")
    waiting.wait_for_line("Waiting for the lock")
    running.signal(signal.SIGTERM)
    assert running.finish().exit_code == 143
    (workspace / "go.txt").write_text("go\n")
    assert waiting.finish().exit_code == 0


def test_the_command_that_outlived_its_acode_is_waited_for_and_not_started_again(acode: Acode, workspace: Path) -> None:
    text = slow("timeout: 60").replace("echo under way", "echo x >> ran.txt; echo under way")
    running = acode.process("run", save(workspace, text))
    running.wait_for_line("│ under way")
    running.kill()
    waiting = acode.process("resume", "--last")
    waiting.wait_for_line("Action: Waiting for it to end")
    (workspace / "go.txt").write_text("go\n")
    ended = waiting.finish()
    assert ended.exit_code == 0
    assert (workspace / "ran.txt").read_text() == "x\n"


# As a run under nohup, or a background job of a shell script, is started.
DEAF_MAIN = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from acode.cli import main
sys.exit(main(sys.argv[1:]))
"""
DEAF = ("-c", DEAF_MAIN)
DEAF_PROGRAM = """
import signal, acode
signal.signal(signal.SIGINT, signal.SIG_IGN)
with acode.session("k") as session:
    session.run("echo under way; touch begun; while [ ! -e go.txt ]; do sleep 0.01; done", name="slow")
    session.run("touch after.txt", name="after")
"""
RETRIES = "tasks: [{title: t, steps: [{run: 'exit 1', idempotent: true, retry: {attempts: 2, backoff_seconds: 600}}]}]"


def pause(acode: Acode) -> None:
    name = acode("session", "list", "--json").json[0]["session_id"]
    assert acode("session", "pause", name).exit_code == 0


@pytest.mark.parametrize("program", [("-m", "acode"), DEAF], ids=["hears SIGINT", "ignores SIGINT"])
def test_a_pause_that_was_asked_for_is_obeyed_whatever_signals_are_ignored(
    acode: Acode, workspace: Path, program: tuple[str, ...]
) -> None:
    running = acode.process("run", save(workspace, slow()), "--json", program=program)
    running.wait_for_line("under way")
    pause(acode)
    (workspace / "go.txt").write_text("go\n")
    ended = running.finish()
    assert (ended.exit_code, ended.lines[-1]["data"]["reason_code"]) == (130, "paused_by_user")
    assert [kind for kind, step in history(acode) if step == "work.slow"] == ["step_started", "step_completed"]
    assert acode("resume", "--last").exit_code == 0, "an old request pauses no later run"


HEARING_PROGRAM = """
import acode, time
from pathlib import Path

def slow():
    print("under way", flush=True)
    while not Path("go.txt").exists():
        time.sleep(0.01)
    return "done"

with acode.session("k") as session:
    session.step("slow", slow)
    session.step("after", Path("after.txt").touch)
"""


def test_a_pause_waits_for_the_function_of_a_program_that_would_be_interrupted_by_a_signal(
    acode: Acode, workspace: Path
) -> None:
    """A SIGINT would raise KeyboardInterrupt inside the function, and nobody would know whether it took effect."""
    running = acode.process(program=("-c", HEARING_PROGRAM))
    running.wait_for_line("under way")
    pause(acode)
    (workspace / "go.txt").write_text("go\n")
    running.finish()
    assert [kind for kind, step in history(acode) if step == "slow"] == ["step_started", "step_completed"]
    assert not (workspace / "after.txt").exists()
    assert acode("status", "--json").json["state"] == "PAUSED"


def test_a_pause_is_obeyed_while_a_retry_waits(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, RETRIES), "--json", program=DEAF)
    running.wait_for_line("step_retry")
    pause(acode)
    assert running.finish().exit_code == 130


@pytest.mark.parametrize("deaf", [True, False], ids=["ignores SIGINT", "hears SIGINT"])
def test_a_pause_is_obeyed_by_a_program(acode: Acode, workspace: Path, deaf: bool) -> None:
    text = DEAF_PROGRAM if deaf else DEAF_PROGRAM.replace("signal.signal(signal.SIGINT, signal.SIG_IGN)", "")
    running = acode.process(program=("-c", text))
    while not (workspace / "begun").exists():
        pass
    pause(acode)
    (workspace / "go.txt").write_text("go\n")
    running.finish()
    assert acode("status", "--json").json["state"] == "PAUSED"
    assert not (workspace / "after.txt").exists()
    assert requests(workspace) == []


def requests(workspace: Path) -> list[Path]:
    return list((workspace / ".agent" / "locks").glob("*.pause*"))


@pytest.mark.parametrize(
    "program", [("-m", "acode"), pytest.param(DEAF, marks=pytest.mark.release)], ids=["hears SIGINT", "ignores SIGINT"]
)
def test_a_pause_ends_the_supervisor_of_the_session_too(
    acode: Acode, workspace: Path, program: tuple[str, ...]
) -> None:
    running = acode.process("supervise", save(workspace, slow()), "--json", program=program)
    running.wait_for_line("under way")
    pause(acode)
    (workspace / "go.txt").write_text("go\n")
    assert running.finish().exit_code == 130
    assert acode("status", "--json").json["state"] == "PAUSED"
    assert not (workspace / "last.txt").exists()
    assert requests(workspace) == []


@pytest.mark.parametrize("run", [ARC, MEMORY])
def test_a_pause_is_obeyed_by_a_foreign_run_that_ignores_signals(acode: Acode, workspace: Path, run: str) -> None:
    put_driver(workspace, "arc", "agent-memory")
    put_foreign(workspace, run)
    (workspace / "hold").write_text(WORK[run][0])
    running = acode.process("resume", run, "--yes", program=DEAF)
    running.wait_for_line(f"working on {WORK[run][0]}")
    pause(acode)
    (workspace / "gate").write_text("go\n")
    assert running.finish().exit_code == 130
    assert ledger(workspace) == [f"{WORK[run][0]} begun", f"{WORK[run][0]} done"]
    assert requests(workspace) == []


def both_under_way(running: Running) -> None:
    running.wait_for_line("left │ left is under way")
    running.wait_for_line("right │ right is under way")


def test_ctrl_c_names_all_steps_that_it_waits_for(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, TWO_AT_ONCE))
    both_under_way(running)
    running.signal(signal.SIGINT)
    running.wait_for_line("Pausing after steps left.slow and right.slow … press Ctrl\\+C again to stop them now")
    (workspace / "go.txt").write_text("go\n")
    ended = running.finish()
    assert ended.exit_code == 0, "nothing is left to pause before"
    assert [kind for kind, step in history(acode) if kind.startswith("step_")].count("step_completed") == 2


def test_the_second_ctrl_c_stops_all_commands_and_the_dry_run_shows_each(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, TWO_AT_ONCE))
    both_under_way(running)
    running.signal(signal.SIGINT)
    running.wait_for_line("Pausing after steps left.slow and right.slow")
    running.signal(signal.SIGINT)
    running.wait_for_line("Stopping steps left.slow and right.slow now")
    ended = running.finish()
    assert ended.exit_code == 130
    shown = acode("resume", "--last", "--dry-run", "--json").json
    assert sorted(one["step"] for one in shown["in_flight"]) == ["left.slow", "right.slow"]
    assert shown["in_progress"] == shown["in_flight"][0]
    assert "more in flight" in acode("status").stdout
    text = acode("resume", "--last", "--dry-run").stdout
    assert text.count("Step in progress:") == 2
    (workspace / "go.txt").write_text("go\n")
    assert acode("resume", "--last").exit_code == 0


def test_killed_with_two_commands_in_flight_a_resume_waits_for_both(acode: Acode, workspace: Path) -> None:
    text = TWO_AT_ONCE.replace("idempotent: true", "timeout: 60").replace("echo", "echo x >> ran.txt; echo")
    running = acode.process("run", save(workspace, text))
    both_under_way(running)
    running.kill()
    again = acode.process("resume", "--last")
    again.wait_for_line("Action: Waiting for it to end")
    (workspace / "go.txt").write_text("go\n")
    assert again.finish().exit_code == 0
    assert (workspace / "ran.txt").read_text() == "x\nx\n"
