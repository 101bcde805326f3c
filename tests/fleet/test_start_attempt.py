"""An attempt is a process of its own, begun like a new interpreter; a worker learns how each ends, whatever happens to
the server that forks them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import acode
from acode.fleet.attempt import end_of, last_line
from acode.fleet.start_attempt import AttemptProcess, AttemptStarter, _alone
from tests.driver import WAIT_S_MAX
from tests.fleets import LOOK_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every attempt is a new interpreter")
PLAN = """
title: Attempt
tasks:
  - title: Work
    steps:
      - run: {command}
        idempotent: true
      - run: "true"
"""
# Prints what a command loads that the attempt server has not loaded.
LOADS_MORE = """
import sys
from acode.cli import attempt_server, main
attempt_server.load()
loaded = set(sys.modules)
status = main(sys.argv[1:])
print(status, *sorted(set(sys.modules) - loaded), file=sys.stderr)
"""


class Site:
    """A worker's environment, and sessions to be made in it."""

    def __init__(self, place: Path, code: Path) -> None:
        self.place = place
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "ACODE_HOME": str(place / "state"),
            "PYTHONPATH": str(code),
        }
        self.starter = AttemptStarter(self.env)

    def run(self, name: str, command: str) -> AttemptProcess:
        workspace = self.place / name
        workspace.mkdir()
        (workspace / "plan.yml").write_text(PLAN.format(command=json.dumps(command)))
        words = ["-C", str(workspace), "run", str(workspace / "plan.yml"), "--json", "--no-input"]
        return self.starter.start(words, {**self.env, "NAME": name})

    def server(self) -> psutil.Process:
        assert self.starter._server is not None
        return psutil.Process(self.starter._server.pid)

    def attempts(self) -> list[psutil.Process]:
        return self.server().children()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, Path(acode.__file__).parent.parent)
    yield made
    (tmp_path / "go").touch()
    made.starter.close()


def ended(process: AttemptProcess) -> tuple[bytes, int | None]:
    return last_line(process), process.wait()


def until_written(path: Path) -> str:
    while not path.exists() or not path.read_text().endswith("\n"):
        time.sleep(LOOK_S)
    return path.read_text()


def waits(site: Site, name: str) -> str:
    """A command that outlives its attempt ends with the test at the latest, when its place is removed."""
    here = site.place
    return f"echo begun > {here}/{name}.begun; while [ -d {here} ] && [ ! -e {here}/go ]; do sleep 0.05; done"


def test_attempts_share_a_loaded_engine_and_nothing_that_a_process_has_of_its_own(site: Site) -> None:
    both = [site.run(name, "echo $NAME > seen") for name in ("one", "two")]
    ends = [ended(one) for one in both]
    assert [code for _, code in ends] == [0, 0]
    names = [json.loads(said)["session_id"] for said, _ in ends]
    assert len(set(names)) == 2, "a random state that forks share would make the same ids"
    assert [(site.place / name / "seen").read_text() for name in ("one", "two")] == ["one\n", "two\n"]


def test_a_forked_attempt_says_and_ends_what_a_new_interpreter_would(site: Site) -> None:
    for words in (["--version"], ["resume", "nothing", "--auto", "--json"], ["no such command"]):
        here = ["-C", str(site.place), *words]
        forked, alone = site.starter.start(here, site.env), _alone(here, site.env)
        with forked.said as said, alone.said as said_alone:
            assert said.read() == said_alone.read()
        assert forked.wait() == alone.wait()


def test_an_attempt_that_is_asked_to_end_at_once_does(site: Site) -> None:
    attempt = site.run("one", waits(site, "one"))
    attempt.ask_to_end()
    _, code = ended(attempt)
    assert code in (-signal.SIGTERM, 143)


def test_an_attempt_in_a_group_of_its_own_is_told_to_the_worker_when_it_is_killed(site: Site) -> None:
    attempt = site.run("one", waits(site, "one"))
    until_written(site.place / "one.begun")
    (process,) = site.attempts()
    assert os.getpgid(process.pid) == process.pid
    process.kill()
    assert ended(attempt)[1] == -signal.SIGKILL


def test_a_request_to_end_for_all_processes_of_a_unit_leaves_the_server_to_tell_their_ends(site: Site) -> None:
    attempt = site.run("one", waits(site, "one"))
    until_written(site.place / "one.begun")
    for one in (site.server(), *site.attempts()):
        one.send_signal(signal.SIGTERM)
    (site.place / "go").touch()
    assert ended(attempt)[1] == 143


def test_an_attempt_outlives_its_server_and_its_end_is_awaited_all_the_same(site: Site) -> None:
    attempt = site.run("one", waits(site, "one"))
    until_written(site.place / "one.begun")
    (process,) = site.attempts()
    site.server().kill()
    assert site.starter._server is not None
    site.starter._server.wait()
    assert process.is_running()
    (site.place / "go").touch()
    said, code = ended(attempt)
    assert code is None, "nobody has its exit status"
    process.wait(WAIT_S_MAX)
    assert end_of(code, said).state == "COMPLETED", "but what it said last came"
    assert ended(site.run("two", "true"))[1] == 0


def test_after_an_upgrade_attempts_begin_with_the_new_code_and_those_that_run_are_waited_for(tmp_path: Path) -> None:
    code = tmp_path / "code"
    shutil.copytree(Path(acode.__file__).parent, code / "acode", ignore=shutil.ignore_patterns("__pycache__"))
    site = Site(tmp_path, code)
    try:
        attempt = site.run("one", waits(site, "one"))
        until_written(site.place / "one.begun")
        before = site.server().pid
        os.utime(code / "acode" / "__init__.py", ns=(1, 1))
        assert ended(site.run("two", "true"))[1] == 0
        assert site.server().pid != before
        (site.place / "go").touch()
        assert ended(attempt)[1] == 0
    finally:
        (site.place / "go").touch()
        site.starter.close()


def test_an_attempt_of_a_plan_loads_nothing_of_the_engine_that_the_server_has_not(site: Site) -> None:
    """Else every attempt would load it again."""
    attempt = site.run("one", waits(site, "one"))
    until_written(site.place / "one.begun")
    attempt.ask_to_end()
    (site.place / "go").touch()
    said, code = ended(attempt)
    assert code == 143
    words = ["-C", str(site.place / "one"), "--json", "--no-input", "resume", json.loads(said)["session_id"]]
    resumed = subprocess.run(
        [sys.executable, "-c", LOADS_MORE, *words], env=site.env, check=True, capture_output=True, text=True
    )
    status, *more = resumed.stderr.split()
    assert (status, [name for name in more if name.startswith("acode")]) == ("0", [])
