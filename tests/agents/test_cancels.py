"""What becomes of a command that is cancelled, timed out or orphaned is the same with the front and without it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.agents import processes
from tests.agents.client import NAMES, client_of, program
from tests.agents.outcome import recorded_outcomes
from tests.agents.trial import AGENT_S_MAX, COMMAND_S_MAX, FIRST_PROMPT, QUIET_POLL_S, Trial, install_acode, trial
from tests.agents.wanted_calls import Model

pytestmark = pytest.mark.agents

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL")
# Begins, and waits for a word before it leaves its mark: whoever ends it in between, however late, leaves none.
PATIENT = """echo begun >> begun; n=0
while [ ! -e go ] && [ $n -lt 3000 ]; do sleep 0.1; n=$((n + 1)); done
[ -e go ] && echo x >> ledger
"""
SUBMITS_MAX, SHOWN_S_MAX, HEARD_S_MAX = 4, 30.0, 75.0
SCREEN_POLL_S = 0.1
TURNING = re.compile("[\u2800-\u28ff]")  # the characters of a spinner
CANCELLED_S_MAX = 10.0  # what an agent takes to end a command; one that lives then was not ended


def outlives(one: Trial) -> bool:
    """Whether the command reaches its end, after whatever was done to it or to its agent."""

    def runs() -> bool:
        return any("deploy.sh" in found.line for found in processes.marked(one.place.home))

    processes.wait_until(lambda: not runs(), CANCELLED_S_MAX, poll_s=QUIET_POLL_S)
    (one.place.workspace / "go").touch()
    one.wait_for_quiet()
    return one.effects() == 1


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", NAMES)
def test_a_signal_to_the_agent_ends_its_command_or_not_as_without_acode(name: str, number: str, tmp_path: Path) -> None:
    ended = {acode: finishes(name, number, tmp_path / str(acode), acode=acode) for acode in (False, True)}
    if name == "codex" and number in ("SIGTERM", "SIGHUP", "SIGKILL"):
        # Codex has its shell ended by the death of its parent; the front lets a command finish that would be cut off.
        assert ended[True] >= ended[False]
    else:
        assert ended[True] == ended[False]


def finishes(name: str, number: str, directory: Path, *, acode: bool) -> bool:
    """Whether the command reaches its end although the agent was signalled in the middle of it."""
    client = client_of(name)
    with trial(name, client, directory) as one:
        (one.place.workspace / "deploy.sh").write_text(PATIENT)
        if acode:
            install_acode(one)
        child = one.start(client.start(FIRST_PROMPT))
        begun = one.place.workspace / "begun"
        assert processes.wait_until(begun.exists, AGENT_S_MAX), one.log()
        for found in one.agent_processes():
            with suppress(ProcessLookupError):
                os.kill(found.pid, getattr(signal, number))
        with suppress(subprocess.TimeoutExpired):
            child.wait(COMMAND_S_MAX)
        return outlives(one)


# The agent's own timeout, and the background.

TIMEOUTS: dict[str, dict[str, Any]] = {
    "claude": {"timeout": 1000},
    "codex": {"yield_time_ms": 1000},
    "gemini": {},
    "opencode": {"timeout": 1000},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_timeout_of_the_agent_ends_its_command_or_not_as_without_acode(name: str, tmp_path: Path) -> None:
    """And the record says how it ended, or that nobody knows: what runs in the background has not ended."""
    ended = {acode: timed_out(name, tmp_path / str(acode), acode=acode) for acode in (False, True)}
    assert ended[True][:2] == ended[False][:2]
    background, _, recorded = ended[True]
    assert recorded == (["started"] if background else ["completed"])


def timed_out(name: str, directory: Path, *, acode: bool) -> tuple[bool, bool, list[str]]:
    """Whether the agent left the command to the background, whether it reached its end, and the record."""
    client = client_of(name)
    with trial(name, client, directory) as one:
        (one.place.workspace / "deploy.sh").write_text(PATIENT)
        if name == "gemini":
            settings = one.place.home / ".gemini" / "settings.json"
            inactivity = {"tools": {"shell": {"inactivityTimeout": 3}}}
            settings.write_text(json.dumps({**json.loads(settings.read_text()), **inactivity}))
        one.server.model = Model(calls=(one.call,), trusting=True)
        one.server.arguments = lambda call: with_timeout(name, *client.arguments(call))
        if acode:
            install_acode(one)
        one.run(client.start(FIRST_PROMPT))
        results = [said.text for said in one.server.requests[-1].conversation if said.kind == "result"]
        assert results, one.log()
        background = "background" in results[-1] or "running with session" in results[-1]
        return background, outlives(one), recorded_outcomes(one) if acode else []


def with_timeout(name: str, tool: str, arguments: dict[str, Any] | str) -> tuple[str, dict[str, Any] | str]:
    assert isinstance(arguments, dict)
    return tool, {**arguments, **TIMEOUTS[name]}


# In a terminal.


@contextmanager
def terminal(one: Trial, words: list[str]) -> Iterator[list[str]]:
    """The agent in a terminal of tmux, with a server of its own; what begins every command to that server."""
    server = ["tmux", "-L", f"acode-{one.place.home.parent.name}-{os.getpid()}", "-f", "/dev/null"]
    environment = {**one.variables, "TERM": "xterm-256color"}
    line = [str(program(one.name, one.client)), *words]
    size = ["-x", "150", "-y", "50"]
    subprocess.run(
        [*server, "new-session", "-d", *size, "-s", "agent", *line],
        cwd=one.place.workspace,
        env=environment,
        check=True,
    )
    try:
        yield server
    finally:
        subprocess.run([*server, "kill-server"], check=False, capture_output=True)


def screen(server: list[str]) -> str:
    """Without what turns: opencode shows a call that was cut off as one that runs, for ever."""
    done = subprocess.run([*server, "capture-pane", "-p", "-t", "agent"], check=False, capture_output=True, text=True)
    return TURNING.sub(" ", done.stdout)


def type_in(server: list[str], *keys: str) -> None:
    subprocess.run([*server, "send-keys", "-t", "agent", *keys], check=True)


def wait_for_prompt(one: Trial, server: list[str]) -> None:
    """Until the screen has come to rest; questions of a first start are answered with what is offered."""
    last, since = "", time.monotonic()
    deadline = time.monotonic() + AGENT_S_MAX
    while time.monotonic() < deadline:
        shown = screen(server)
        if shown != last or not shown.strip():
            last, since = shown, time.monotonic()
        elif time.monotonic() - since > 3:
            if not any(words in shown for words in ("Enter to confirm", "Press enter to continue", "Yes, I trust")):
                return
            type_in(server, "Enter")
            since = time.monotonic()
        time.sleep(SCREEN_POLL_S)
    raise AssertionError(f"{one.name} shows no prompt: {last}")


def submit(one: Trial, server: list[str], text: str) -> None:
    """A screen may be at rest before its program listens: what is not shown is typed again, and what is not heard is
    entered again. Never both: a slow agent would take it for a second prompt.
    """
    before, shown = len(one.server.requests), screen(server).count(text)

    def is_heard() -> bool:
        return any(request.tools for request in one.server.requests[before:])

    for _ in range(SUBMITS_MAX):
        type_in(server, "-l", text)
        if processes.wait_until(lambda: screen(server).count(text) > shown, SHOWN_S_MAX, poll_s=SCREEN_POLL_S):
            break
    time.sleep(0.5)  # what is typed at once with the text is taken for a part of it
    for _ in range(SUBMITS_MAX):
        type_in(server, "Enter")
        if processes.wait_until(is_heard, HEARD_S_MAX):
            return
    raise AssertionError(f"{one.name} asks its model nothing: {screen(server)}")


def wait_for(path: Path, server: list[str]) -> None:
    assert processes.wait_until(path.exists, AGENT_S_MAX), screen(server)


@pytest.mark.parametrize("name", NAMES)
def test_killed_in_its_terminal_and_resumed_there_it_does_the_command_once(name: str, tmp_path: Path) -> None:
    client = client_of(name)
    with trial(name, client, tmp_path / "trial") as one:
        install_acode(one)
        with terminal(one, client.interactive(resumes=False)) as server:
            wait_for_prompt(one, server)
            submit(one, server, FIRST_PROMPT)
            wait_for(one.place.workspace / "ledger", server)
            for found in one.agent_processes():
                processes.kill([found])
            one.wait_for_quiet()
        before = len(one.server.requests)
        with terminal(one, client.interactive(resumes=True)) as server:
            wait_for_prompt(one, server)
            submit(one, server, "Continue from where you left off.")

            def answered() -> bool:
                return any(request.tools and request.wanted is None for request in one.server.requests[before:])

            assert processes.wait_until(answered, AGENT_S_MAX), screen(server)
            one.wait_for_quiet()
        assert one.effects() == 1


@pytest.mark.parametrize("name", NAMES)
def test_escape_in_its_terminal_ends_the_command_or_not_as_without_acode(name: str, tmp_path: Path) -> None:
    ended = {acode: escaped(name, tmp_path / str(acode), acode=acode) for acode in (False, True)}
    assert ended[True] == ended[False]


def escaped(name: str, directory: Path, *, acode: bool) -> bool:
    client = client_of(name)
    with trial(name, client, directory) as one:
        (one.place.workspace / "deploy.sh").write_text(PATIENT)
        if acode:
            install_acode(one)
        with terminal(one, client.interactive(resumes=False)) as server:
            wait_for_prompt(one, server)
            submit(one, server, FIRST_PROMPT)
            wait_for(one.place.workspace / "begun", server)
            if name == "codex":  # which ends it a moment after its begin, and from then on leaves it in the background
                assert processes.wait_until(lambda: "background terminal" in screen(server), AGENT_S_MAX, SCREEN_POLL_S)
            type_in(server, "Escape")
            if name == "opencode":  # which wants it twice
                time.sleep(0.2)
                type_in(server, "Escape")
            return outlives(one)
