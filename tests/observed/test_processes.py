"""Whether a session of another agent lives: proven by pid and start, or said to be unknown."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from acode import lock
from acode.observed import AGENTS
from acode.observed.processes import Running, is_program, judge_record
from acode.observed.session import RecordedProcess
from tests.driver import Acode
from tests.observed.test_inspect import inspected, only
from tests.transcripts import DIED, SESSION, note_claude_process, write_session

linux = pytest.mark.skipif(sys.platform != "linux", reason="the exact start of a process is Linux's")


def now() -> datetime:
    return datetime.now(UTC)


def ticks_of(pid: int) -> str:
    started = lock.process_started(pid)
    assert started is not None
    return str(int(started))


@linux
def test_a_session_whose_noted_process_runs_is_alive_and_not_among_the_dead(
    acode: Acode, home: Path, project: Path
) -> None:
    write_session("claude", home, project, DIED)
    note_claude_process(home, os.getpid(), ticks_of(os.getpid()), process_began(os.getpid()))
    told = inspected(acode)
    assert (told["sessions"], told["alive"]) == ([], 1)
    session = only(acode, "--all")
    assert (session["state"], session["pid"], session["resume"]) == ("alive", os.getpid(), None)
    assert [call["outcome"] for call in session["calls"]] == ["running"]


def process_began(pid: int) -> datetime:
    return datetime.fromtimestamp(psutil.Process(pid).create_time(), UTC)


@linux
def test_a_pid_that_another_process_has_by_now_is_not_the_sessions(acode: Acode, home: Path, project: Path) -> None:
    write_session("claude", home, project, DIED)
    noted = str(int(ticks_of(os.getpid())) - 300)
    note_claude_process(home, os.getpid(), noted, process_began(os.getpid()) - timedelta(seconds=3))
    assert only(acode)["state"] == in_this_namespace("dead")


TWO_LOOKS = """
import subprocess, time
from pathlib import Path
from acode.observed.processes import Processes

def looked_at(*words):
    with subprocess.Popen(words) as child:
        found = [one for one in Processes().running if one.pid == child.pid]
        child.kill()
    return found[0]

earlier = looked_at("sleep", "301")
time.sleep(0.05)  # the start of a process is known to a hundredth of a second
Path("/proc/sys/kernel/ns_last_pid").write_text(str(earlier.pid - 1))
now = looked_at("sleep", "302")
assert now.pid == earlier.pid and now.started_at > earlier.started_at, (earlier, now)
"""


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace everywhere")
def test_a_second_look_sees_who_has_the_pid_by_now() -> None:
    """As in `acode ui`, which looks again and again while pids are given out anew; here in a namespace of its own."""
    inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", TWO_LOOKS]
    ended = subprocess.run(inside, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def in_this_namespace(state: str) -> str:
    """In a container the process may be one outside of it, and acode does not claim to know."""
    return state if lock.pid_namespace() == "pid:[4026531836]" else "no_process_found"


@linux
def test_a_process_that_is_gone_is_dead_and_a_zombie_too(acode: Acode, home: Path, project: Path) -> None:
    write_session("claude", home, project, DIED)
    child = subprocess.Popen(["sleep", "300"])
    note_claude_process(home, child.pid, ticks_of(child.pid), process_began(child.pid))
    assert only(acode, "--all")["state"] == "alive"
    os.kill(child.pid, signal.SIGKILL)
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    session = only(acode)
    assert (session["state"], session["state_reason"]) == ("dead", f"pid {child.pid} is a zombie: it has ended")
    child.wait()
    assert only(acode)["state"] == in_this_namespace("dead")


@linux
def test_a_note_of_another_boot_proves_nothing(acode: Acode, home: Path, project: Path) -> None:
    write_session("claude", home, project, DIED)
    before = datetime.fromtimestamp(psutil.boot_time(), UTC) - timedelta(days=3)
    note_claude_process(home, os.getpid(), ticks_of(os.getpid()), before)
    session = only(acode)
    assert session["state"] == "no_process_found"
    assert "before this machine started, or on another one" in session["state_reason"]


@linux
def test_ticks_that_do_not_fit_the_clock_are_of_another_machine() -> None:
    ticks = float(ticks_of(os.getpid()))
    noted = RecordedProcess(pid=os.getpid(), start_ticks=ticks + 1e7, started_at=process_began(os.getpid()))
    assert judge_record(noted).state == "unknown"


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace everywhere")
def test_from_inside_a_container_a_pid_outside_is_not_called_dead(acode: Acode, home: Path, project: Path) -> None:
    write_session("claude", home, project, DIED)
    note_claude_process(home, os.getpid(), ticks_of(os.getpid()), process_began(os.getpid()))
    command = [sys.executable, "-m", "acode", "inspect", "--json"]
    inside = ["unshare", "--pid", "--fork", "--mount-proc", *command]
    ended = subprocess.run(inside, capture_output=True, text=True, cwd=project, check=False)
    assert ended.returncode == 0, ended.stderr
    assert '"state":"no_process_found"' in ended.stdout
    assert "may be outside" in ended.stdout


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace everywhere")
def test_from_outside_a_process_in_a_container_is_not_called_dead(acode: Acode, home: Path, project: Path) -> None:
    write_session("claude", home, project, DIED)
    with subprocess.Popen(["unshare", "--pid", "--fork", "sleep", "300"]) as outer:
        try:
            while not (children := psutil.Process(outer.pid).children()) or children[0].name() != "sleep":
                pass
            inner = children[0].pid
            note_claude_process(home, 2**22 + 9, ticks_of(inner), process_began(inner))
            session = only(acode)
            assert session["state"] != "dead"
            assert f"pid {inner} began at the same moment" in session["state_reason"]
        finally:
            for child in psutil.Process(outer.pid).children():
                child.kill()


def agent_process(tmp_path: Path, name: str, script: str, *arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    """A real process under an agent's name; it has begun its work when it prints a line."""
    program = tmp_path / name
    shutil.copy("/bin/sh", program)
    process = subprocess.Popen(
        [program, "-c", script, *arguments], cwd=cwd, stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


WAIT = "echo ready; read line"


def test_a_process_of_the_agent_that_has_the_transcript_open_is_the_session(
    acode: Acode, home: Path, project: Path, tmp_path: Path
) -> None:
    path = write_session("codex", home, project, DIED)
    process = agent_process(tmp_path, "codex", f"exec 7<'{path}'; {WAIT}", cwd=tmp_path)
    try:
        session = only(acode, "--all")
        assert (session["state"], session["pid"]) == ("alive", process.pid)
    finally:
        end(process)
    assert only(acode)["state"] == "no_process_found"


def test_a_process_of_the_agent_that_names_the_session_is_the_session(
    acode: Acode, home: Path, project: Path, tmp_path: Path
) -> None:
    write_session("qwen", home, project, DIED)
    process = agent_process(tmp_path, "qwen", WAIT, "--resume", SESSION, cwd=tmp_path)
    try:
        assert only(acode, "--all")["state"] == "alive"
    finally:
        end(process)


def test_a_process_of_the_agent_in_the_same_directory_leaves_it_unknown(
    acode: Acode, home: Path, project: Path, tmp_path: Path
) -> None:
    process = agent_process(tmp_path, "gemini", WAIT, cwd=project)
    try:
        path = write_session("gemini", home, project, DIED)
        later = now().timestamp() + 60
        os.utime(path, (later, later))
        session = only(acode)
        assert (session["state"], session["pid"]) == ("unknown", process.pid)
        assert session["check_first"][0].startswith("Make sure that it is dead")
        os.utime(path, (later - 7200, later - 7200))  # it was silent before that process began
        assert only(acode)["state"] == "no_process_found"
    finally:
        end(process)


def test_an_open_database_shows_nothing_of_the_sessions_in_it(
    acode: Acode, home: Path, project: Path, tmp_path: Path
) -> None:
    path = write_session("opencode", home, project, DIED)
    process = agent_process(tmp_path, "opencode", f"exec 7<'{path}'; {WAIT}", cwd=tmp_path)
    try:
        assert only(acode)["state"] == "no_process_found"
    finally:
        end(process)


@pytest.mark.parametrize(
    ("argv", "agent"),
    [
        (("claude", "--resume"), "claude"),
        (("/x/bin/node", "/x/node_modules/.bin/gemini", "-p"), "gemini"),
        (("node", "--no-warnings", "/x/node_modules/@openai/codex/bin/codex.js"), "codex"),
        (("cat", "claude"), None),
        (("sh", "-c", "gemini"), None),
        (("vim", "notes/opencode/plan.md"), None),
    ],
)
def test_an_agent_is_known_by_its_program_and_not_by_a_word_on_a_command_line(
    argv: tuple[str, ...], agent: str | None
) -> None:
    process = Running(pid=1, name=Path(argv[0]).name, argv=argv, directory="/", started_at=now())
    assert [name for name, one in AGENTS.items() if is_program(one, process)] == ([agent] if agent else [])


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace everywhere")
def test_a_pid_without_a_start_is_not_called_dead_while_the_agent_runs_in_a_container(
    acode: Acode, home: Path, project: Path, tmp_path: Path
) -> None:
    write_session("cline", home, project, DIED)
    assert only(acode)["state"] == in_this_namespace("dead")
    program = tmp_path / "cline"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen(["unshare", "--pid", "--fork", program, "300"], cwd=tmp_path) as outer:
        try:
            while not (children := psutil.Process(outer.pid).children()) or children[0].name() != "cline":
                pass
            assert only(acode)["state"] == "no_process_found"
        finally:
            for child in psutil.Process(outer.pid).children():
                child.kill()
    assert only(acode)["state"] == in_this_namespace("dead")
