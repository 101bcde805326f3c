"""Keepers come from one server and owe it nothing: a command inherits and outlives what it would without one."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.events.definition import Run, Step
from acode.steps import keeper_start
from acode.steps.interface import Done
from acode.steps.keeper_notes import make_run_directory, read_mark, read_status, run_directory
from acode.steps.run import start
from tests.sites import Bench

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every keeper is started by itself")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "workspace").mkdir()
    made = Bench(tmp_path / "workspace", tmp_path / "state")
    yield made
    made.close()


def command(text: str, number: int = 1) -> Step:
    return Step(id=f"main.s{number}", action=Run(command=text))


def server() -> subprocess.Popen[bytes]:
    process = keeper_start._SERVER._process
    assert process is not None
    return process


def text(bench: Bench, name: str) -> str:
    return (bench.workspace / name).read_text()


def test_one_server_serves_all_commands_of_a_process(bench: Bench) -> None:
    assert isinstance(bench.run(command("true", 1)), Done)
    first = server().pid
    assert isinstance(bench.run(command("true", 2)), Done)
    assert server().pid == first


def test_a_server_that_was_killed_is_started_again(bench: Bench) -> None:
    assert isinstance(bench.run(command("true", 1)), Done)
    server().kill()
    server().wait()
    assert isinstance(bench.run(command("echo on > on.txt", 2)), Done)
    assert text(bench, "on.txt") == "on\n"


def test_a_keeper_outlives_its_server(bench: Bench) -> None:
    step = command("echo begun > begun.txt; while [ ! -e go.txt ]; do sleep 0.01; done; echo done > done.txt")
    started = bench.start(step)
    make_run_directory(bench.agent_dir, started.key)
    watch = start(step, bench.site(), started, run_directory(bench.agent_dir, started.key))
    directory = run_directory(bench.agent_dir, started.key)
    while not (bench.workspace / "begun.txt").exists():
        pass
    server().kill()
    server().wait()
    (bench.workspace / "go.txt").touch()
    while os.read(watch, 65_536):
        pass
    os.close(watch)
    status, mark = read_status(directory), read_mark(directory)
    assert status is not None and status.exit == 0 and mark is not None
    assert text(bench, "done.txt") == "done\n"


def test_a_command_inherits_what_its_process_has_now(bench: Bench) -> None:
    assert isinstance(bench.run(command("true", 1)), Done)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    umask = os.umask(0o027)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        assert isinstance(bench.run(command("umask > umask.txt; ulimit -c > core.txt", 2)), Done)
    finally:
        os.umask(umask)
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert (text(bench, "umask.txt"), text(bench, "core.txt")) == ("0027\n", "0\n")


def test_a_command_has_its_own_environment_and_no_descriptor_of_the_server(bench: Bench) -> None:
    bench.env["LARGE"] = "x" * 100_000
    bench.env["GREETING"] = "hello"
    assert isinstance(bench.run(command("echo ${#LARGE} $GREETING > env.txt; ls -l /proc/$$/fd > fds.txt", 1)), Done)
    assert text(bench, "env.txt") == "100000 hello\n"
    assert "socket:" not in text(bench, "fds.txt") and "memfd:" not in text(bench, "fds.txt")
    sockets = [os.readlink(f"/proc/{server().pid}/fd/{name}") for name in os.listdir(f"/proc/{server().pid}/fd")]
    assert sum(name.startswith("socket:") for name in sockets) == 1


def test_the_server_ends_with_its_process_and_not_with_a_forked_child() -> None:
    read, write = os.pipe()
    owner = os.fork()
    if owner == 0:
        mine = keeper_start.KeeperServer()
        mine._ready()
        lingering = os.fork()
        if lingering == 0:
            os.close(write)
            signal.pause()
        assert mine._process is not None
        os.write(write, f"{mine._process.pid} {lingering}".encode())
        os._exit(0)
    os.close(write)
    pid, lingering = (int(one) for one in os.read(read, 100).split())
    os.close(read)
    os.waitpid(owner, 0)
    try:
        while not is_gone(pid):
            pass  # the child that lives on does not keep it
    finally:
        os.kill(lingering, signal.SIGKILL)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
