"""A hook that is killed between what it records and what it prints, and an agent that dies of the same blow.

What a model was not told, it cannot know: a denial counts once it was printed and its agent lived to keep it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.observed.agents import Place, payload, wait_until
from tests.observed.test_hook import denied, told
from tests.variants import first_of

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/syscall").exists(), reason="this kernel does not show what a process waits for"
)
LINE = "echo x >> ledger"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An agent has run a command and was killed: another process of it must not repeat that without knowing."""
    place = Place(tmp_path)
    with place.agent() as agent:
        agent.perform(LINE)
        agent.kill()
    return place


@contextmanager
def hook_about_to_print(place: Place, moment: str, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    """A hook that has handled its payload and cannot print yet: nobody reads, and the pipe is full.

    The agent is the process of the test.
    """
    told_of = json.dumps(payload("claude", moment, place.workspace, **more)).encode()
    reading, writing = os.pipe()
    os.write(writing, b"\0" * (fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) - 1))
    hook = subprocess.Popen([place.doors.hook], stdin=subprocess.PIPE, stdout=writing, env=place.env)
    os.close(writing)
    try:
        assert hook.stdin is not None
        hook.stdin.write(told_of)
        hook.stdin.close()
        wait_until(lambda: is_printing(hook.pid), "a hook that prints")
        yield hook
    finally:
        hook.kill()
        hook.wait()
        os.close(reading)


def is_printing(pid: int) -> bool:
    """Whether it is in a call of the kernel whose first argument is its standard output."""
    call, *arguments = Path(f"/proc/{pid}/syscall").read_text().split()
    return call.isdecimal() and arguments[:1] == ["0x1"]


def ask(place: Place, call: str) -> str:
    """The same call, by the process of the test; the reason of the veto."""
    asked = payload("claude", "before", place.workspace, tool="Bash", arguments={"command": LINE}, call=call)
    out = run_hook(place, asked)
    return denied(json.loads(out)) if out.strip() else ""


def run_hook(place: Place, told_of: dict[str, Any]) -> bytes:
    text = json.dumps(told_of).encode()
    return subprocess.run([place.doors.hook], input=text, capture_output=True, env=place.env, check=True).stdout


@pytest.mark.parametrize("served", first_of(False, True), ids=["by itself", "by the resident"])
def test_a_denial_that_was_never_printed_is_given_again(place: Place, served: bool) -> None:
    if served:
        run_hook(place, payload("claude", "start", place.workspace))
        wait_until(lambda: any(place.doors.directory.glob("resident-*[!k]")), "the resident")
    with hook_about_to_print(place, "before", tool="Bash", arguments={"command": LINE}, call="first") as hook:
        hook.kill()
        hook.wait()
    assert "ran to its end" in ask(place, "second"), "the model was told nothing"
    assert ask(place, "third") == "", "now it knows, and decides"


def test_a_denial_that_its_agent_may_not_have_kept_is_given_again(place: Place) -> None:
    with place.agent() as agent:
        assert "ran to its end" in denied(agent.begin(LINE)[1])
        agent.kill()
    with place.agent() as agent:
        assert "ran to its end" in denied(agent.begin(LINE)[1])
        agent.perform(LINE)
    assert place.lines("ledger") == ["x", "x"]


def test_what_was_settled_and_never_printed_is_told_at_the_next_prompt(place: Place) -> None:
    with place.agent() as agent:
        agent.perform("true")
        assert agent.begin("echo y >> ledger") == (0, {}, "")
        agent.start_command("echo y >> ledger")
        agent.answer()
        agent.kill()
    with hook_about_to_print(place, "prompt") as hook:
        hook.kill()
        hook.wait()
    assert "step_settled" in place.types()
    with place.agent() as agent:
        assert "had ended already" in told(agent.hook("start")[1])
        assert agent.hook("prompt") == (0, {}, ""), "this process was told"


@pytest.mark.parametrize("name", first_of("claude", "gemini"))
def test_an_earlier_call_of_the_same_batch_is_not_repeated_either(tmp_path: Path, name: str) -> None:
    """A model may ask for several calls at once, and some agents keep no result until the last of them has ended."""
    place = Place(tmp_path)
    with place.agent(name) as agent:
        agent.perform(LINE)
        assert agent.begin("echo second >> ledger") == (0, {}, "")
        agent.kill()
    with place.agent(name) as agent:
        assert "ran to its end" in denied(agent.begin(LINE)[1])
    assert place.lines("ledger") == ["x"]


def test_a_turn_that_was_ended_is_known_to_its_model(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.agent() as agent:
        agent.perform(LINE)
        agent.hook("idle")
        agent.kill()
    with place.agent() as agent:
        agent.perform(LINE)
    assert place.lines("ledger") == ["x", "x"]
