"""The front: a command behind it behaves, is cancelled and ends as without it, and leaves its notes."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from acode import front
from acode.command_notes import encode
from acode.observed.doors import Doors, lone_fronts, write_doors

WAIT_S_MAX = 60.0
BASH = shutil.which("bash") or "/bin/bash"


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Doors:
    return write_doors(tmp_path_factory.mktemp("front") / "state with a blank")


def shell(doors: Doors, line: str, **how: Any) -> subprocess.CompletedProcess[str]:
    behind = [os.fspath(doors.directory / "shells" / "bash"), "-c", line]
    return subprocess.run(behind, text=True, check=False, stdin=subprocess.DEVNULL, capture_output=True, **how)


def noted(doors: Doors, line: str, name: str) -> dict[str, Any]:
    found = lone_fronts(doors, line)[0].place / name
    return dict(json.loads(found.read_text()))


def wait_until(true: Any, what: str) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not true():
        assert time.monotonic() < until, f"never seen: {what}"
        time.sleep(0.01)


LINES = [
    "echo out; echo err >&2; exit 3",
    "x=(a b c); echo ${x[1]} ${#x[@]}; shopt -s extglob; [[ ab == a?(b) ]] && echo yes",
    "f() { echo in f $1; }; f 1; alias; cd /; pwd; export V=1; sh -c 'echo $V'",
    "set -e; false; echo never",
    "cat <<'END'\na 'quoted' \"text\" $HOME\nEND",
    'read line; echo "read: $? [$line]"; head -c 200000 /dev/zero | wc -c',
    "trap 'echo trapped' EXIT; (exit 7); echo $?; kill -0 $$ && echo alive",
    "yes | head -1; echo ${PIPESTATUS[@]}",
    "echo $BASH_ENV$ACODE_BASH_ENV$SHLVL; ulimit -n; umask",
    "kill -TERM $$",
    "exec no-such-program-here",
]


@pytest.mark.parametrize("line", LINES)
def test_a_command_behaves_as_without_the_front(doors: Doors, line: str) -> None:
    plain = subprocess.run([BASH, "-c", line], text=True, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    behind = shell(doors, line)
    assert (behind.stdout, behind.stderr, behind.returncode) == (plain.stdout, plain.stderr, plain.returncode)


@pytest.mark.parametrize("line", LINES[:4])
def test_bash_env_puts_a_command_behind_the_front_once(doors: Doors, tmp_path: Path, line: str) -> None:
    own = tmp_path / "own.sh"
    own.write_text("echo the user's own file\n")
    env = {**os.environ, "BASH_ENV": os.fspath(doors.bash_env), "ACODE_BASH_ENV": os.fspath(own)}
    plain_env = {**os.environ, "BASH_ENV": os.fspath(own)}
    plain = subprocess.run(
        ["bash", "-c", line, "name", "a"], text=True, check=False, capture_output=True, env=plain_env
    )
    behind = subprocess.run(["bash", "-c", line, "name", "a"], text=True, check=False, capture_output=True, env=env)
    assert (behind.stdout, behind.stderr, behind.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    assert noted(doors, line, "status")["exit"] == plain.returncode


@pytest.mark.parametrize("line", ["echo 'a b'", 'echo "$HOME" | cat', "printf '%s' \"it's\"", "echo a\\ b; exit 4"])
def test_claude_codes_line_is_run_by_the_users_shell_and_its_command_is_known(doors: Doors, line: str) -> None:
    place = doors.directory.parent / "pwd"
    given = f"source /dev/null && eval {front.quoted(line)} < /dev/null && pwd -P >| {front.quoted(os.fspath(place))}"
    assert front.evaluated(given) == line
    plain = subprocess.run(["bash", "-c", given], text=True, check=False, capture_output=True)
    env = {**os.environ, "SHELL": "/bin/bash"}
    behind = subprocess.run([doors.front, given], text=True, check=False, capture_output=True, env=env)
    assert (behind.stdout, behind.returncode) == (plain.stdout, plain.returncode)
    assert noted(doors, line, "status")["exit"] == plain.returncode


def test_claude_codes_hooks_and_servers_pass_unrecorded(doors: Doors) -> None:
    before = len(lone_fronts(doors))
    assert subprocess.run([doors.front, "echo from a hook"], text=True, capture_output=True, check=True).stdout
    assert len(lone_fronts(doors)) == before


def test_a_prefix_of_the_users_own_is_kept(doors: Doors, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text('#!/bin/sh\necho wrapped; exec /bin/bash -c "$1"\n')
    own.chmod(0o755)
    env = {**os.environ, "ACODE_SHELL_PREFIX": os.fspath(own)}
    given = f"source /dev/null && eval 'echo inner' < /dev/null && pwd -P >| {tmp_path}/pwd"
    shown = subprocess.run([doors.front, given], text=True, capture_output=True, check=True, env=env).stdout
    assert shown == "wrapped\ninner\n"


def test_a_line_that_gemini_wrapped_is_known_by_the_command_in_it(doors: Doors) -> None:
    from acode.observed.doors import forms_of

    command = "sh -c 'echo x >> ledger; sleep 5'"
    inner = "echo x >> ledger; sleep 5"
    wrapped = f"shopt -u promptvars; _bg=/tmp/x\n(\n  trap 'jobs -p' EXIT\n{inner}\n)\n__code=$?\nexit $__code"
    wanted = [f"{len(one)} {front.digest(one)}" for one in forms_of(command)]
    assert any(front.is_meant(wrapped, one) for one in wanted)
    assert not any(front.is_meant("eslint; pulse", f"{len(b'ls')} {front.digest(b'ls')}") for _ in wanted)


# Signals and the agent's death.


def start(doors: Doors, line: str, **how: Any) -> subprocess.Popen[bytes]:
    behind = [os.fspath(doors.directory / "shells" / "bash"), "-c", line]
    return subprocess.Popen(behind, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, **how)


def test_a_cancel_reaches_the_command_and_the_front_notes_it(doors: Doors) -> None:
    line = "echo cancelled-by-group; exec sleep 60"
    running = start(doors, line)
    assert running.stdout is not None and running.stdout.readline() == b"cancelled-by-group\n"
    os.killpg(running.pid, signal.SIGTERM)
    assert running.wait(WAIT_S_MAX) == -signal.SIGTERM
    running.stdout.close()
    assert noted(doors, line, "status")["signal"] == "SIGTERM"


def test_a_signal_to_the_front_alone_does_not_end_the_command(doors: Doors, tmp_path: Path) -> None:
    """As Codex's parent-death signal does it."""
    go = tmp_path / "go"
    line = f"echo begun; while [ ! -e '{go}' ]; do sleep 0.02; done; echo finished"
    running = start(doors, line)
    assert running.stdout is not None and running.stdout.readline() == b"begun\n"
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(running.pid, number)
    go.touch()
    assert running.stdout.read() == b"finished\n"
    assert running.wait(WAIT_S_MAX) == 0
    running.stdout.close()


def test_a_command_that_prints_to_a_dead_agent_comes_to_its_end(doors: Doors, tmp_path: Path) -> None:
    done = tmp_path / "done"
    line = f"echo begun; read x < '{tmp_path}/go'; for n in 1 2 3; do echo more $n; done; touch '{done}'"
    os.mkfifo(tmp_path / "go")
    running = start(doors, line)
    assert running.stdout is not None and running.stdout.readline() == b"begun\n"
    running.stdout.close()  # nobody reads any more
    with open(tmp_path / "go", "w") as go:
        go.write("\n")
    assert running.wait(WAIT_S_MAX) == 0
    assert done.exists()
    kept = lone_fronts(doors, line)[0].place / "output.raw"
    assert kept.read_bytes() == b"begun\nmore 1\nmore 2\nmore 3\n"
    assert kept.stat().st_mode & 0o777 == 0o600


def test_what_a_command_left_in_the_background_prints_on_and_keeps_nobody_waiting(doors: Doors, tmp_path: Path) -> None:
    go = tmp_path / "go"
    line = f"(while [ ! -e '{go}' ]; do sleep 0.02; done; echo late) & echo early"
    running = start(doors, line)
    assert running.stdout is not None and running.stdout.readline() == b"early\n"
    assert running.wait(WAIT_S_MAX) == 0, "the command itself has ended"
    assert not select.select([running.stdout], [], [], 0)[0]
    go.touch()
    assert running.stdout.read() == b"late\n"
    running.stdout.close()


def test_a_front_that_can_note_nothing_runs_the_command_all_the_same(tmp_path: Path) -> None:
    doors = write_doors(tmp_path / "state")
    lone = doors.directory / "lone"
    lone.rmdir()
    lone.write_text("in the way")
    assert shell(doors, "echo runs; exit 5").returncode == 5


def test_a_front_whose_python_is_gone_is_the_shell(tmp_path: Path) -> None:
    doors = write_doors(tmp_path / "state")
    for path in (doors.front, doors.directory / "shells" / "bash", doors.bash_env, doors.hook):
        path.write_text(path.read_text().replace(sys.executable, "/no/such/python"))
    assert shell(doors, "echo runs; exit 5").returncode == 5
    assert subprocess.run([doors.front, "exit 6"], check=False).returncode == 6
    env = {**os.environ, "BASH_ENV": os.fspath(doors.bash_env)}
    assert subprocess.run(["bash", "-c", "exit 7"], check=False, env=env).returncode == 7
    assert subprocess.run([doors.hook], check=False, input=b"{}").returncode == 0, "a hook that is gone blocks nothing"


def test_the_front_loads_next_to_nothing() -> None:
    heavy = ("json", "re", "typing", "enum", "signal", "contextlib", "subprocess", "hashlib", "pathlib", "msgspec")
    root = os.fspath(Path(front.__file__).parents[1])
    code = (
        f"import sys; sys.path.append({root!r}); import acode.front; print([n for n in {heavy!r} if n in sys.modules])"
    )
    line = [sys.executable, "-I", "-S", "-c", code]
    assert subprocess.run(line, text=True, capture_output=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("value", ["plain", 'quo"te\\', "line\nbreak\x07", "ä€😀", "\udcff"])
def test_notes_are_json_without_the_module_for_it(value: str) -> None:
    found = json.loads(encode({"text": value, "number": 1.5, "none": None, "yes": True}))
    assert found == {"text": value.encode("utf-8", "replace").decode(), "number": 1.5, "none": None, "yes": True}
