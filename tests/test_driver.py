"""The way tests drive acode is honest: a real process, its own lines, and a kill that reaches what it should."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.driver import Running

TALKER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
print("child", child.pid, flush=True)
print("ready", file=sys.stderr, flush=True)
print("got", sys.stdin.readline(), end="", flush=True)
child.wait()
"""


@pytest.fixture
def talker(tmp_path: Path) -> Iterator[Running]:
    running = Running([sys.executable, "-c", TALKER], cwd=tmp_path, env=None, stdin=subprocess.PIPE)
    yield running
    running.kill_everything()


def test_a_line_of_either_stream_can_be_waited_for(talker: Running) -> None:
    assert talker.wait_for_line("^ready") == "ready\n"
    assert talker.wait_for_line(r"child \d+").startswith("child")


def test_what_is_typed_arrives(talker: Running) -> None:
    talker.send("yes\n")
    assert talker.wait_for_line("got") == "got yes\n"


def test_a_line_that_never_comes_is_an_error_with_what_came_instead(tmp_path: Path) -> None:
    running = Running([sys.executable, "-c", "print('other')"], cwd=tmp_path, env=None, stdin=None)
    with pytest.raises(AssertionError, match="other"):
        running.wait_for_line("never")
    assert running.finish().exit_code == 0


def test_everything_that_was_started_dies_with_a_kill_of_everything(talker: Running) -> None:
    child = psutil.Process(int(talker.wait_for_line("child").split()[1]))
    talker.wait_for_line("ready")
    ended = talker.kill_everything()
    assert (ended.exit_code, ended.stderr) == (-signal.SIGKILL, "ready\n")
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_kill_of_acode_alone_leaves_its_commands(talker: Running) -> None:
    child = psutil.Process(int(talker.wait_for_line("child").split()[1]))
    child.suspend()  # or the end of its pipe would end it
    assert talker.kill().exit_code == -signal.SIGKILL
    assert child.is_running()
    child.kill()


def test_programs_under_test_obey_signals_that_the_test_command_ignores() -> None:
    """As with `nohup python3 dev.py test &`, and under some CI runners."""
    show = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {show!r}], check=True)"
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    restored = "from tests.conftest import restore_signals; restore_signals()"
    told = [
        subprocess.run(
            [sys.executable, "-c", f"{ignored}\n{more}\n{start}"],
            cwd=Path(__file__).resolve().parent.parent,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout.strip()
        for more in ("", restored)
    ]
    assert told == ["False", "True"]
