"""Commands whose hook was killed: the agent ran them all the same, and only the front noted them.

The next hook of the agent's session takes each over into the log as a step, which is then settled like any call in
flight. The name of the step is that of the note, so that a hook that is killed in between is continued by the next one,
and of two hooks at once the one that holds the session takes it. The notes of a front that still writes stay in its
place until it has ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acode import lock as locks
from acode.disk.own_files import read_own
from acode.engine import split_step
from acode.engine.held_session import Held
from acode.events import types as ev
from acode.events.definition import Run, Step
from acode.front import is_meant
from acode.observed.binding import Binding, bindings
from acode.observed.doors import Doors, LoneFront, copy_notes, lone_fronts, lone_of, process_name, wanted_forms
from acode.steps.keeper_notes import (
    alive_lock_held,
    read_mark,
    read_status,
    run_directory,
    still_running,
)
from acode.store.step_index import Finished

TOOL: Final = "shell"  # the agent's own name for the tool is not known here
ASKED: Final = "line-"  # before the digest of a line: the arguments of the call are not known either
WAIT_S_MAX: Final = 1.0
WAIT_S: Final = 0.01


def take_over(run: Held, doors: Doors, binding: Binding, agent: ev.Performer) -> list[ev.StepStarted]:
    """Record them as begun, with the front's notes in the place of the step. Those that have ended under an agent that
    lives are returned: it has seen their end, and nobody needs to be told."""
    seen = []
    pointed = {lone_of(run_directory(run.world.agent_dir, one.started.key)) for one in run.session.in_flight.values()}
    for lone, by in lone_calls(doors, binding, agent):
        if lone.place in pointed:  # of a call whose hook recorded its start
            continue
        lives = locks.alive(by)
        wait_for_notes(lone.place)
        if lives and read_status(lone.place) is None:
            continue  # in the background, or just begun: its agent knows of it
        started = begun(run, lone, by)
        if started is None:
            shutil.rmtree(lone.place, ignore_errors=True)
            continue
        ended = still_running(lone.place, read_mark(lone.place)) is None
        copy_notes(lone.place, run_directory(run.world.agent_dir, started.key))
        if ended:
            remove(lone)
        if lives:
            seen.append(started)
    return seen


def remove(lone: LoneFront) -> None:
    shutil.rmtree(lone.place, ignore_errors=True)
    with contextlib.suppress(OSError):
        lone.place.parent.rmdir()


def begun(run: Held, lone: LoneFront, by: ev.Performer) -> ev.StepStarted | None:
    """The start of its step, recorded now or by a hook that was killed then; None: the step has ended."""
    step = step_name(lone)
    if step in run.session.in_flight:
        return run.session.in_flight[step].started
    if run.session.record(step) is not None or Finished(run.store, run.session.session_id).find(step) is not None:
        return None
    return split_step.begin_held(
        run,
        Step(id=step, action=Run(command=lone.command)),
        by,
        asked=ev.Asked(arguments=asked_line(lone.command)),
        shown="the hook of this call was killed: its front noted it",
        call=ev.ToolCall(id=f"{lone.place.parent.name}/{lone.place.name}", tool=TOOL),
    )


def step_name(lone: LoneFront) -> str:
    """Short, because a person may have to type it, and the same for the same note."""
    whole = os.fsencode(f"{lone.place.parent.name}/{lone.place.name}")
    return f"{TOOL}-{hashlib.sha256(whole).hexdigest()[:8]}"


def is_taken_over(started: ev.StepStarted) -> bool:
    """Its notes are those that it was made from, and no others are looked for."""
    return started.asked is not None and started.asked.arguments.startswith(ASKED)


def asked_line(line: str) -> str:
    return ASKED + hashlib.sha256(line.encode()).hexdigest()


def wait_for_notes(place: Path) -> None:
    """A front that is just about to note that the command began, or how it ended, is given the moment that it needs."""
    until = time.monotonic() + WAIT_S_MAX
    while read_status(place) is None and alive_lock_held(place) and time.monotonic() < until:
        mark = read_mark(place)
        if mark is not None and mark.command is not None and locks.process_started(mark.command) is not None:
            return
        time.sleep(WAIT_S)


# Whose they are.


def lone_calls(doors: Doors, binding: Binding, agent: ev.Performer) -> Iterator[tuple[LoneFront, ev.Performer]]:
    """Those of this session of the agent, the oldest first, and the process that ran each."""
    for lone in reversed(lone_fronts(doors, since=binding.since)):
        name = owner_of(lone, doors, binding)
        if name == process_name(agent):
            yield lone, agent
        elif name is not None:
            yield lone, performer_of(lone, name, agent.name)


def owner_of(lone: LoneFront, doors: Doors, binding: Binding) -> str | None:
    """The process of the agent, as hooks of its session have named it. One that no hook has ever named is found by the
    directory, if it is gone and only this session belongs there."""
    mine = next((name for name in lone.ancestors if name in binding.processes), None)
    if mine is not None:
        return mine
    parent = lone.ancestors[0]
    if not binding.since or lives(parent) or not is_in(lone.directory, binding.workspace):
        return None
    for other in bindings(doors):
        same = (other.agent, other.agent_session) == (binding.agent, binding.agent_session)
        if not same and (other.workspace == binding.workspace or set(lone.ancestors) & set(other.processes)):
            return None
    return parent


def is_in(directory: str, workspace: str) -> bool:
    here, root = os.path.realpath(directory), os.path.realpath(workspace)
    return os.path.commonpath([here, root]) == root


def lives(name: str) -> bool:
    pid, started = numbers_of(name)
    return pid > 0 and locks.process_started(pid) == started


def numbers_of(name: str) -> tuple[int, float]:
    pid, _, started = name.partition("-")
    return (int(pid), float(started)) if pid.isdecimal() and started.isdecimal() else (0, 0.0)


def performer_of(lone: LoneFront, name: str, title: str) -> ev.Performer:
    pid, started = numbers_of(name)
    mark = read_mark(lone.place)
    return ev.Performer(
        pid=pid,
        started=started,
        boot_id=mark.boot_id if mark is not None else locks.boot_id(),
        pid_namespace=mark.pid_namespace if mark is not None else locks.pid_namespace(),
        name=title,
    )


# A call that asks for the same.


def same_lines(run: Held, command: str) -> Iterator[ev.Asked]:
    """What was recorded of such commands, and is this one in an agent's wrapping. Only their line is known, so that it
    is compared as a front compares it."""
    for started in [one.started for one in run.session.in_flight.values() if is_taken_over(one.started)]:
        if started.asked is not None and is_line(run, started.key, command):
            yield started.asked
    finished = Finished(run.store, run.session.session_id)
    for arguments, step in {**run.session.fresh, **run.session.untold}.items():
        completed = finished.find(step) if arguments.startswith(ASKED) else None
        if completed is not None and is_line(run, completed.key, command):
            yield ev.Asked(arguments=arguments)


def is_line(run: Held, key: str, command: str) -> bool:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        line = read_own(run_directory(run.world.agent_dir, key) / "command").decode()
        return any(is_meant(line, one) for one in wanted_forms(command))
    return False
