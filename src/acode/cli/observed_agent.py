"""Sessions of observed agents on the command line: start one for a task, and settle and resume one."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import uuid
from collections.abc import Callable
from types import FrameType

import msgspec

from acode.cli.flags import Flags
from acode.cli.follow_run import Execution, shared
from acode.cli.screen import Screen
from acode.cli.signals import WATCHED
from acode.config import state_dir
from acode.engine import split_step
from acode.engine.world import Options, World, short
from acode.errors import NoResumableSession, OutcomeUnknown, StepFailed
from acode.observed import launch
from acode.observed.binding import RUN_VARIABLE, keep_binding
from acode.observed.doors import doors_in
from acode.observed.hook import TITLES
from acode.state import Session, State


def resume_agent(flags: Flags, world: World, name: str, options: Options, *, starts: bool) -> int:
    """Settle what was in flight, then start the agent's own resume command in this terminal."""
    execution = Execution(flags, world, asks=options.actor == "user", name=name)
    with execution.signals, shared(execution.world) as ready:
        session = split_step.settle_open(ready, name, options)
    execution.progress.line.stop()
    headless = options.actor == "system"
    found = launch.binding_of(doors_in(state_dir(world.env)), session)
    going = launch.resume(session, found, headless=headless)
    directory = going.directory if os.path.isdir(going.directory) else os.fspath(world.workspace)
    if not starts:
        return show_command(flags, world, session, going.command, directory)
    program = launch.find_program(going.command, world.env)
    if headless:
        return follow(world, session.source, going.command, directory, lambda: session.session_id)
    Screen(flags, world.env).line(f"Settled. Starting: {shlex.join(going.command)}")
    os.chdir(directory)
    os.execve(program, list(going.command), dict(world.env))
    return 0  # for readers: nothing comes back from there


def show_command(flags: Flags, world: World, session: Session, command: tuple[str, ...], directory: str) -> int:
    screen = Screen(flags, world.env)
    line = f"cd {shlex.quote(directory)} && {shlex.join(command)}"
    if flags.json:
        about = {"session_id": session.session_id, "source": session.source, "kind": session.kind}
        screen.document({**about, "command": list(command), "directory": directory})
    else:
        screen.line(f"Session {short(session.session_id)} is settled. To continue:")
        screen.data(line)
    return 0


def start_agent(flags: Flags, world: World, agent: str, task: str, arguments: tuple[str, ...], *, auto: bool) -> int:
    """For one task; under the resume policy in a child process, where nobody watches."""
    if not auto:
        return run_agent(flags, world, agent, task, arguments)
    from acode.cli.supervise import Supervisor

    run, doors = uuid.uuid4().hex, doors_in(state_dir(world.env))
    world = msgspec.structs.replace(world, env={**world.env, RUN_VARIABLE: run})

    def recorded() -> str:
        found = launch.binding_of_run(doors, run)
        session_id = (found.session_id or found.ended_session) if found is not None else ""
        if not session_id:
            raise NoResumableSession(f"{TITLES[agent]} ended before a hook of it had recorded anything")
        return session_id

    line = ["run", "--agent", agent, task, *(["--", *arguments] if arguments else [])]
    return Supervisor(flags, world, Screen(flags, world.env)).go(line, recorded)


def run_agent(flags: Flags, world: World, agent: str, task: str, arguments: tuple[str, ...]) -> int:
    """Start the agent without a terminal, and let its hooks record what it does."""
    command = launch.start(agent, task, arguments)
    launch.find_program(command, world.env)
    run = world.env.get(RUN_VARIABLE) or uuid.uuid4().hex
    world = msgspec.structs.replace(world, env={**world.env, RUN_VARIABLE: run})
    doors = doors_in(state_dir(world.env))

    def recorded() -> str | None:
        found = launch.binding_of_run(doors, run)
        if found is not None and found.arguments != arguments:
            found = msgspec.structs.replace(found, arguments=arguments)
            keep_binding(doors, found)
        return (found.session_id or found.ended_session or None) if found is not None else None

    code = follow(world, agent, command, os.fspath(world.workspace), recorded)
    if launch.binding_of_run(doors, run) is None and recorded() is None:
        Screen(flags, world.env).warn(
            f"no hook of {TITLES[agent]} was called, so that nothing was recorded; see: acode hook check {agent}"
        )
    return code


def follow(
    world: World, agent: str, command: tuple[str, ...], directory: str, session_of: Callable[[], str | None]
) -> int:
    """Wait for the agent, pass signals on to it, and record how it ended."""
    code = run_beneath(list(command), directory, dict(world.env))
    session_id = session_of()
    if session_id is None:
        return code if code >= 0 else 128 - code
    session = split_step.close_for(world, session_id, code, TITLES[agent])
    return status_of(session, agent, code)


def run_beneath(command: list[str], directory: str, env: dict[str, str]) -> int:
    """The exit status of a child that gets every signal sent to us, also one that comes while it is being started."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(sent: int, _frame: FrameType | None) -> None:
        if child is None:
            early.append(sent)
        else:
            child.send_signal(sent)

    # One that is ignored stays so, for the child too: somebody (nohup, a shell's background job) means it.
    watched = [one for one in WATCHED if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in watched}
    try:
        child = subprocess.Popen(command, cwd=directory, env=env, stdin=subprocess.DEVNULL)
        for sent in early:
            child.send_signal(sent)
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def status_of(session: Session, agent: str, code: int) -> int:
    if session.state is State.COMPLETED:
        return 0
    unknown = next((step for step, flight in session.in_flight.items() if flight.unknown is not None), None)
    name = short(session.session_id)
    if unknown is not None:
        raise OutcomeUnknown(
            f"the outcome of step {unknown} of session {name} is unknown",
            hint=f"Find out, then say so: acode session resolve {name} {unknown} --applied|--not-applied|--retry",
            step=unknown,
        )
    how = f"ended with exit status {code}" if code >= 0 else f"was killed by signal {-code}"
    raise StepFailed(f"{TITLES[agent]} {how}", hint=f"To resume: acode resume {name}")
