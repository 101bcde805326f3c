"""One trial: an agent is killed while it does what the scripted model wants, and resumes itself by its own means.

The protocol is written down in docs/reference/kills.md. The effects are counted in a ledger outside the agent.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.agents import processes
from tests.agents.client import Client, Place, program
from tests.agents.model_server import ModelServer, serve
from tests.agents.wanted_calls import Model, WantedCall

Kind = Literal["command", "write", "everything", "hook", "printing"]
FIRST_PROMPT, NEXT_PROMPT = "Do the job.", "Continue from where you left off."
AGENT_S_MAX = 900.0  # opencode fetches packages at its first start with a plugin: minutes on a busy machine
COMMAND_S_MAX = 60.0
HOOK_S_MAX = 300.0
QUIET_POLL_S = 0.05  # every look reads the environment of every process
BESIDE = ("tmux",)  # programs of a trial that are neither its agent nor its command

# Half a second before the effect and half a second after it: a kill finds the command in either half.
DEPLOY = "echo begun >> begun; sleep 0.5; echo x >> ledger; sleep 0.5; echo deployed\n"
# Has its effect, and ends when it is told to: however late the kill comes, it comes before the end.
HELD = """echo begun >> begun; echo x >> ledger; n=0
while [ ! -e go ] && [ $n -lt 9000 ]; do sleep 0.1; n=$((n + 1)); done
echo deployed
"""
# Prints before and after each effect; a command whose reader is gone dies of what it prints, and loses the second one.
PRINTING = """echo begun >> begun; echo x >> ledger
for n in 1 2 3 4 5 6 7 8 9 10; do echo "line $n"; sleep 0.1; done
echo y >> ledger; echo deployed
"""
NOTE = "first line\nsecond line\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Killing:
    """What is killed, and when: so long after the model asked, the command began, or its effect was there."""

    kind: Kind
    since: Literal["asked", "begun", "effect"]
    after_s: float
    hook_after_s: float = 0.0  # a hook is killed so long after it was seen
    waits: bool = False  # resumed when no command runs any more, and not at once
    held: bool = False  # the command does not end before the kill


def drawn(kind: Kind, number: int, seed: int = 20261117) -> Killing:
    """The same moments for everybody: while the call is prepared, while it runs, and shortly after its end."""
    dice = random.Random(f"{seed}/{kind}/{number}")
    early = kind == "write" or number % 5 == 0
    return Killing(
        kind=kind,
        since="asked" if early else "begun",
        after_s=dice.uniform(0.0, 0.6 if early else 1.2),
        hook_after_s=dice.uniform(0.0, 0.1),
        waits=number % 2 == 0,
    )


def drawn_after_effect(number: int, seed: int = 20261117) -> Killing:
    """For the control: a repetition shows only where the first effect was there and the command had not ended."""
    dice = random.Random(f"{seed}/effect/{number}")
    return Killing(kind="command", since="effect", after_s=dice.uniform(0.0, 0.3), waits=number % 2 == 0, held=True)


@dataclass(kw_only=True)
class Trial:
    name: str
    client: Client
    place: Place
    server: ModelServer
    variables: dict[str, str]
    call: WantedCall
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        log = (self.place.home / f"agent-{len(self.started)}.log").open("wb")
        with log:
            child = subprocess.Popen(
                [str(program(self.name, self.client)), *words],
                cwd=self.place.workspace,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(child)
        return child

    def run(self, words: list[str]) -> int:
        """To its end."""
        child = self.start(words)
        try:
            return child.wait(AGENT_S_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end: {self.log()}") from None

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.place.home.glob("*.log")))

    def acode(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "acode", *words],
            cwd=self.place.workspace,
            env={**self.variables, "PYTHONPATH": ":".join(sys.path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def agent_processes(self) -> list[processes.Process]:
        found = processes.marked(self.place.home)
        return [one for one in found if one.program in self.client.PROCESSES]

    def wait_for_quiet(self) -> None:
        """Until no command of the agent runs any more; acode's hooks and the terminal are none."""

        def is_command(found: processes.Process) -> bool:
            return found.program not in (*self.client.PROCESSES, *BESIDE) and "hook_entry" not in found.line

        def is_quiet() -> bool:
            return not any(map(is_command, processes.marked(self.place.home)))

        processes.wait_until(is_quiet, COMMAND_S_MAX, poll_s=QUIET_POLL_S)

    def effects(self, letter: str = "x") -> int:
        ledger = self.place.workspace / "ledger"
        return ledger.read_text().split().count(letter) if ledger.exists() else 0


@contextmanager
def trial(name: str, client: Client, directory: Path, kind: Kind = "command") -> Iterator[Trial]:
    """A fresh home and workspace, and the model; whatever was started is gone afterwards."""
    home, workspace = directory / "home", directory / "workspace"
    for path in (home, workspace):
        path.mkdir(parents=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(workspace)]
    (workspace / "deploy.sh").write_text(PRINTING if kind == "printing" else DEPLOY)
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    call = WantedCall(kind="command", text="sh deploy.sh")
    if kind == "write":
        call = WantedCall(kind="write", text=NOTE, path=str(workspace / "note.txt"))
    with serve(Model(calls=(call,)), client.arguments) as server:
        place = Place(home=home, workspace=workspace, url=server.url)
        variables = place.environment(client.configure(place))
        one = Trial(name=name, client=client, place=place, server=server, variables=variables, call=call)
        try:
            yield one
        finally:
            processes.kill_all(home)
            for child in one.started:
                child.wait()


def install_acode(one: Trial) -> None:
    done = one.acode("hook", "install", one.name)
    assert done.returncode == 0, done.stderr


def kill_in_call(one: Trial, killing: Killing, prompt: str = FIRST_PROMPT) -> bool:
    """Start the agent and kill it at the moment; false if it had ended before."""
    if killing.held:
        (one.place.workspace / "deploy.sh").write_text(HELD)
    child = one.start(one.client.start(prompt))

    def has_ended() -> bool:
        return child.poll() is not None

    if not one.server.wait_for_call(one.call.path or one.call.text, ended=has_ended, timeout_s=AGENT_S_MAX):
        raise AssertionError(f"{one.name} never let the model ask: {one.log()}")
    if killing.kind == "hook":
        kill_hook(one, killing.hook_after_s)
    if killing.since != "asked":
        sign = one.place.workspace / ("begun" if killing.since == "begun" else "ledger")
        processes.wait_until(lambda: sign.exists() or has_ended(), AGENT_S_MAX)
    time.sleep(killing.after_s)
    was_alive = not has_ended()
    if killing.kind == "everything":
        processes.kill_all(one.place.home)
    else:
        kill_repeatedly(one.agent_processes)
    child.wait()
    (one.place.workspace / "go").touch()
    return was_alive


def kill_hook(one: Trial, after_s: float) -> None:
    """The first one that is seen after the model has asked."""

    def hooks() -> list[processes.Process]:
        return [found for found in processes.marked(one.place.home) if "hook_entry" in found.line]

    seen = processes.wait_until(lambda: bool(hooks()), HOOK_S_MAX)
    assert seen, f"no hook was started: {one.log()}"
    time.sleep(after_s)
    processes.kill(hooks())


def kill_repeatedly(found: Callable[[], list[processes.Process]]) -> None:
    while alive := found():
        processes.kill(alive)
        time.sleep(processes.POLL_S)


def resume(one: Trial) -> None:
    one.run(one.client.resume(NEXT_PROMPT))
    one.wait_for_quiet()
