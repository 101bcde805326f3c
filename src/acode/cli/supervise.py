"""acode supervise: run or resume in a child process under the policy until it ends, is escalated or stopped.

Works without a terminal, under systemd or cron. Every child makes and records its own decision; this process only
looks, waits and starts the next one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, assert_never

import click

from acode.cli.candidates import sessions_or_plans
from acode.cli.flags import OFFLINE, ON_SIGNAL, WHY_OFFLINE, Command, Flags
from acode.cli.jsonlines import JsonLines
from acode.cli.plan_argument import is_file, read_plan
from acode.cli.run import unfinished_of
from acode.cli.screen import Screen
from acode.cli.session_picker import foreign_run, to_resume
from acode.cli.supervised_start import StartNote, SupervisedStart, unreported
from acode.cli.world import build_world
from acode.engine.create import same_plan
from acode.engine.missing_checkpoint import missing_checkpoint_on_record
from acode.engine.notices import Notice, reopened
from acode.engine.preview import history, next_action, preview
from acode.engine.session_list import active_since
from acode.engine.workspace_store import has_database, opened
from acode.engine.world import Options, World, short
from acode.errors import NoResumableSession, SessionLocked, Usage
from acode.events.types import SessionCreated
from acode.log_file import log_of
from acode.state import Session, State
from acode.supervise import (
    COUNTDOWN_STEP_S,
    ChildEnd,
    ChildStarts,
    Standing,
    SupervisionEnds,
    SupervisorNotice,
    supervise,
)

EXIT_OF_STATE = {State.COMPLETED: 0, State.FAILED: 1, State.CANCELLED: 15}


@click.command(cls=Command, name="supervise")
@click.argument("what", metavar="[ID|PLAN]", required=False, shell_complete=sessions_or_plans)
@click.option("--last", is_flag=True, help="The most recently active unfinished session.")
@click.option("--new", is_flag=True, help="Start a new session of the plan, whatever became of the ones before.")
@click.option("--yes", is_flag=True, help="Confirm which session, and trust the workspace's configuration.")
@click.option("--force", is_flag=True, help="Allow the home directory or / as the workspace.")
@ON_SIGNAL
@OFFLINE
@WHY_OFFLINE
@click.pass_obj
def command(flags: Flags, *, what: str | None, last: bool, new: bool, yes: bool, force: bool) -> int:
    """Run or resume in a child process under the resume policy, until it ends, is escalated or is stopped.

    With a plan file its unfinished session is resumed, or a new one started. Without an argument the most recent
    session is shown and confirmed; where nobody can be asked, that needs --last or --yes.
    """
    if new and (what is None or not is_file(what)):
        raise Usage("--new starts a session of a plan file; an existing session is named without it")
    world = build_world(flags, force=force, yes=yes, wants_trust=True)
    screen = Screen(flags, world.env)
    if what is not None and is_file(what):
        return supervise_plan(flags, world, screen, what, new=new)
    sure = last or yes
    if (run := foreign_run(world, screen, what, None, sure=sure, verb="supervise")) is not None:
        run_id = run.run_id
        return Supervisor(flags, world, screen).go(["resume", run_id, "--auto"], lambda: run_id)
    text = what if what is not None else to_resume(world, screen, last=last, yes=yes, asks=True, verb="supervise")
    # Looked at before anything is supervised: a name that nobody has, or a log that cannot be used, is an error here.
    options = Options(actor="system")
    with missing_checkpoint_on_record(world, options):
        name = preview(world, text, options, probes=False, environment=False).session.session_id
    return Supervisor(flags, world, screen).go(None, lambda: name)


def supervise_plan(flags: Flags, world: World, screen: Screen, text: str, *, new: bool) -> int:
    """The unfinished session of this plan, or a new one."""
    planfile = read_plan(world, text)
    if planfile.path is None:
        raise Usage("a plan from stdin cannot be supervised: its child reads the file", hint="Save it as a file.")
    return supervise_start(
        Supervisor(flags, world, screen),
        SupervisedStart(world, f"plan {within(world, planfile.path)}"),
        is_meant=lambda created: same_plan(created, planfile),
        unfinished=lambda: unfinished_of(world, planfile),
        line=["run", planfile.path, *(["--new"] if new else [])],
        what="plan",
        new=new,
    )


def within(world: World, path: str) -> str:
    """Seen from the workspace, so that a moved workspace keeps its notes."""
    place, root = Path(path), world.workspace.resolve()
    return place.relative_to(root).as_posix() if place.is_relative_to(root) else path


def supervise_task(flags: Flags, world: World, screen: Screen, text: str, *, new: bool, approve_plan: bool) -> int:
    """The unfinished session of this task, or a new one; nobody is asked, so the plan waits for its approval."""
    from acode.agent.session_loop import checked_goal
    from acode.cli import agent

    agent.refuse_unsupported()
    goal = checked_goal(world, text)
    model = ["--model", world.config.settings.model.name] if world.config.origin("model.name") == "flag" else []
    return supervise_start(
        Supervisor(flags, world, screen),
        SupervisedStart(world, f"task {goal}"),
        is_meant=lambda created: agent.same_task(created, goal),
        unfinished=lambda: agent.unfinished_of(world, goal),
        line=["run", goal, "--new", *model, *(["--approve-plan"] if approve_plan else [])],
        what="task",
        new=new,
    )


def supervise_start(
    supervisor: Supervisor,
    start: SupervisedStart,
    *,
    is_meant: Callable[[SessionCreated], bool],
    unfinished: Callable[[], Session | None],
    line: list[str],
    what: str,
    new: bool,
) -> int:
    """Continue or report the session that an earlier supervisor left, or begin one; then its end is acknowledged."""
    world = supervisor.world
    session_id, how = (None, "") if new else left_over(supervisor, start, is_meant, unfinished, what)
    if session_id is not None:
        supervisor.screen.line(f"Supervising session {short(session_id)}, {how}")
        start.write(StartNote(since=world.clock(), session_id=session_id))
        code = supervisor.go(None, lambda: session_id)
    else:
        since = world.clock()
        start.write(StartNote(since=since))
        with start.lock_for_child() as descriptor:
            code = supervisor.go(line, lambda: made_since(world, is_meant, since), descriptor)
    start.acknowledge()  # the next start begins a session of its own
    return code


def left_over(
    supervisor: Supervisor,
    start: SupervisedStart,
    is_meant: Callable[[SessionCreated], bool],
    unfinished: Callable[[], Session | None],
    what: str,
) -> tuple[str | None, str]:
    """The session to be continued or reported, and the reason as a text."""
    world, show = supervisor.world, supervisor.screen.line
    found = unreported(start, lambda since: session_since(world, is_meant, since), show)
    if found is not None and is_there(world, found):
        return found, "whose end no supervisor has reported"
    left = unfinished()
    return (left.session_id if left is not None else None), f"which this {what} has left unfinished"


def is_there(world: World, session_id: str) -> bool:
    """Whether the session still exists: the person who removed it has seen its end."""
    if not has_database(world):
        return False
    with opened(world, look_only=True) as store:
        return store.has(session_id)


def session_since(world: World, is_meant: Callable[[SessionCreated], bool], since: datetime) -> str | None:
    """The session that the first child has made, found by its first event: a killed child reports nothing."""
    for session in active_since(world, since):
        if session.created_at < since:
            continue
        with closing(history(world, session.session_id)) as events:  # type: ignore[type-var]
            created = next(events)[0].event
        if isinstance(created, SessionCreated) and is_meant(created):
            return session.session_id
    return None


def made_since(world: World, is_meant: Callable[[SessionCreated], bool], since: datetime) -> str:
    found = session_since(world, is_meant, since)
    if found is None:
        raise NoResumableSession("the child ended before it had made a session")
    return found


def how_it_ended(code: int) -> ChildEnd:
    if code >= 0:
        return ChildEnd(exit_code=code)
    try:
        return ChildEnd(exit_code=None, signal=signal.Signals(-code).name)
    except ValueError:  # a real-time signal has no name
        return ChildEnd(exit_code=None, signal=f"signal {-code}")


class Supervisor:
    """The children of one session, and the signals that are meant for them."""

    def __init__(self, flags: Flags, world: World, screen: Screen) -> None:
        self.flags = flags
        self.world = world
        self.screen = screen
        self.name: Callable[[], str] = str
        self._inherited: tuple[int, ...] = ()
        self.child: subprocess.Popen[bytes] | None = None
        self.ended: ChildEnd | None = None  # the last child's word
        self.stopped_by: str | None = None
        self._unheard: int | None = None  # a signal for a child that was just being started

    def go(self, first: list[str] | None, name: Callable[[], str], inherited: int | None = None) -> int:
        """`name`: the session, as soon as there is one. `inherited`: a descriptor that the children keep open."""
        self.name, self._inherited = name, () if inherited is None else (inherited,)
        before = {number: signal.signal(number, self._heard) for number in self._watched()}
        try:
            code = supervise(
                first=(lambda: self._start(first)) if first is not None else None,
                resume=lambda: self._start(["resume", self.name(), "--auto"]),
                look=self._look,
                count_down=self._count_down,
                stopped=lambda: self.stopped_by is not None,
                emit=self._emit,
                locked_s_max=self.world.config.settings.session.lock_timeout_seconds,
            )
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if code == SessionLocked.exit_code:  # a child that met the lock has been waited for; this is the end of it
            shown, waited_s = short(self.name()), self.world.config.settings.session.lock_timeout_seconds
            raise SessionLocked(
                f"session {shown} may still be at work elsewhere after {waited_s:g} s: in another process, in a command"
                " of its own or on another machine",
                hint=f"See by whom: acode status {shown}. Then: acode supervise {shown}",
            )
        code = 143 if code == 130 and self.stopped_by not in (None, "SIGINT") else code
        if self.flags.json and (self.ended is None or self.ended.exit_code != code):
            self._last_lines(code)
        return code

    def _last_lines(self, code: int) -> None:
        """Print the last lines where no child has: the reader of the lines waits for a session_end."""
        found = preview(self.world, self.name(), Options(actor="system"), probes=False, environment=False)
        session, at = found.session, self.world.clock()
        lines = JsonLines(self.screen, self.world.redactor)
        lines.emit(Notice(body=reopened(session), at=at, session_id=session.session_id, seq=session.seq))
        reason = found.survey.decision.reason_code if found.survey is not None else str(session.state).lower()
        lines.end(
            at=at,
            state=str(session.state),
            exit_code=code,
            reason_code=reason if self.stopped_by is None else "paused_by_user",
            next_action=next_action(found) if found.survey is not None else "",
        )

    @staticmethod
    def _watched() -> list[signal.Signals]:
        names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
        return [getattr(signal, name) for name in names if hasattr(signal, name)]

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        """The child is in a group of its own, so a signal reaches it exactly once: through here."""
        self.stopped_by = signal.Signals(number).name
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)
        else:
            self._unheard = number

    def _start(self, arguments: list[str]) -> ChildEnd:
        flags = ["-C", str(self.world.workspace), "--no-input"]
        also = (("--json", self.flags.json), ("-q", self.flags.quiet), ("-v", self.flags.verbose))
        flags += [flag for flag, on in also if on]
        if self.world.offline is not None and arguments[0] == "resume":
            arguments = [*arguments, "--offline", "--reason", self.world.offline]
        if self.flags.on_signal == "stop":
            arguments = [*arguments, "--on-signal", "stop"]
        group: dict[str, Any] = {"process_group": 0, "pass_fds": self._inherited} if sys.platform != "win32" else {}
        line = [sys.executable, "-m", "acode", *flags, *arguments]
        self.child = subprocess.Popen(line, stdin=subprocess.DEVNULL, env=dict(self.world.env), **group)
        if self._unheard is not None:
            self.child.send_signal(self._unheard)
        self.ended = how_it_ended(self.child.wait())
        return self.ended

    def _look(self) -> Standing:
        try:
            found = preview(self.world, self.name(), Options(actor="system"), probes=False, environment=False)
        except NoResumableSession as error:
            return Standing(decision=None, state="not there", exit_code=error.exit_code)
        session = found.session
        if found.survey is None:
            return Standing(decision=None, state=str(session.state), exit_code=EXIT_OF_STATE[session.state])
        return Standing(
            decision=found.survey.decision,
            state=str(session.state),
            locked=found.lock.held,
            resumes=session.resumes,
        )

    def _count_down(self, seconds: float, why: str) -> bool:
        """Wait, visibly; False when somebody stopped it."""
        until = time.monotonic() + seconds
        self.screen.line(f"Waiting {seconds:.0f} s ({why}) before the next attempt; Ctrl+C stops")
        while (left := until - time.monotonic()) > 0:
            if self.stopped_by is not None:
                self._draw("")
                self.screen.insist(f"Stopped while waiting. To resume: acode resume {short(self.name())}")
                return False
            self._draw(f"  {left:.0f} s left")
            time.sleep(min(left, COUNTDOWN_STEP_S))
        self._draw("")
        return self.stopped_by is None

    def _draw(self, text: str) -> None:
        if self.screen.lively:
            self.screen.put(f"\r\x1b[2K{text}")

    def _emit(self, notice: SupervisorNotice) -> None:
        log = log_of(self.world)
        match notice:
            case ChildStarts(why=why):
                log.write("info", "child_starts", why=why)
            case ChildEnd(exit_code=code, signal=killed_by):
                log.write("info", "child_ended", exit_code=code, signal=killed_by)
                if killed_by is not None:
                    self.screen.line(f"The child was killed by {killed_by}")
            case SupervisionEnds(exit_code=code, why=why):
                log.write("info", "supervision_ends", exit_code=code, why=why)
                if self.child is None:
                    self.screen.line(f"Nothing is left to do: {why}")
            case _:
                assert_never(notice)
