"""acode session logs, watch and diff: what steps printed and changed, also while another process runs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
import msgspec

from acode.attention import state_in_words
from acode.cli.candidates import all_sessions, begun_steps
from acode.cli.flags import Command, Flags
from acode.cli.jsonlines import JsonLines, redacted
from acode.cli.meter import Meter, meter_of
from acode.cli.output import shown
from acode.cli.positions import outline_of, titled_position
from acode.cli.progress import Progress
from acode.cli.screen import Screen
from acode.cli.session_picker import to_look_into
from acode.cli.world import build_world
from acode.engine.file_changes import FileChange, file_changes
from acode.engine.follow_log import LogTail, Printed, followed
from acode.engine.held_session import load_verified
from acode.engine.notices import Notice, SessionReopened, SessionStart, StepOutput
from acode.engine.preview import Preview, next_action, preview, rows
from acode.engine.watch import watch
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import Options, World, short
from acode.errors import Usage
from acode.events import Envelope
from acode.events import types as ev
from acode.state import Session, State
from acode.text import one_line
from acode.workspace import Root

ID = click.argument("session", metavar="[ID]", required=False, shell_complete=all_sessions)
STEP = click.argument("step", metavar="[STEP]", required=False, shell_complete=begun_steps)

# How `run` and `resume` end when a session pauses for this reason.
EXIT_OF_PAUSE = {"user": 130, "signal": 143, "denied": 12, "outcome_unknown": 19, "environment": 17, "lease_lost": 16}
REASON_OF_PAUSE = {  # as the run that was paused names it
    "user": "paused_by_user",
    "signal": "paused_by_user",
    "drained": "paused_by_user",
    "denied": "approval_denied",
    "timeout": "step_failed",
    "outcome_unknown": "resume_non_idempotent_step",
    "environment": "post_resume_validation_failed",
}
EXIT_OF_STATE = {State.COMPLETED: 0, State.FAILED: 1, State.CANCELLED: 15, State.AWAITING_APPROVAL: 10}


# Logs.


class Printing:
    """Pieces become lines, each told with the attempt that printed it; a half line waits for its end."""

    def __init__(self, step: str | None) -> None:
        self.wanted = step
        self.begun = False  # the step that was asked for has begun
        self._rest: dict[tuple[str, int], bytes] = {}

    def lines(self, entries: Iterable[Envelope | Printed]) -> Iterator[tuple[str, int, str]]:
        for entry in entries:
            event = entry.event if isinstance(entry, Envelope) else None
            step = entry.step if isinstance(entry, Printed) else getattr(event, "step", None)
            if step is None or self.wanted not in (None, step):
                continue
            self.begun = self.begun or isinstance(event, ev.StepStarted) or isinstance(entry, Printed)
            if isinstance(entry, Printed):
                yield from self._fed(entry)
            elif isinstance(event, ev.StepCompleted | ev.StepFailed):
                yield from self._finished(event.step, event.attempt)
                if event.output is not None and event.output.truncated:
                    yield step, event.attempt, f"… cut: it printed {event.output.bytes:,} bytes in all"

    def rest(self) -> Iterator[tuple[str, int, str]]:
        for step, attempt in list(self._rest):
            yield from self._finished(step, attempt)

    def _fed(self, piece: Printed) -> Iterator[tuple[str, int, str]]:
        key = (piece.step, piece.attempt)
        *whole, self._rest[key] = (self._rest.get(key, b"") + piece.data).split(b"\n")
        for line in whole:
            yield *key, line.decode("utf-8", "replace")

    def _finished(self, step: str, attempt: int) -> Iterator[tuple[str, int, str]]:
        if left := self._rest.pop((step, attempt), b""):
            yield step, attempt, left.decode("utf-8", "replace")


@click.command(cls=Command, name="logs")
@ID
@STEP
@click.option("-f", "--follow", is_flag=True, help="Continue until the session, or the step, has ended.")
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Of what is there already, only the last N lines."
)
@click.pass_obj
def logs(flags: Flags, *, session: str | None, step: str | None, follow: bool, tail: int | None) -> int:
    """What the steps of a session printed, or one of them; also while another process runs it."""
    world = build_world(flags)
    screen = Screen(flags, world.env)
    name = to_look_into(world, screen, session)
    with opened(world, look_only=True) as store:
        session_id = resolve_id(world, store, name)
        loaded, _ = load_verified(world, store, session_id)
        log, printing = LogTail(world, store, session_id), Printing(step)
        there = list(printing.lines(log.entries()))
        if step is not None and not printing.begun:
            refuse_strange_step(loaded.session, step)
        if not follow:
            there += printing.rest()
        there = there if tail is None else list(deque(there, maxlen=tail))
        if flags.json and not follow:
            screen.document(as_documents(there))
            return 0
        show = JsonShow(screen, world, session_id) if flags.json else TextShow(screen, headings=step is None)
        show.lines(there)
        if follow:
            follow_lines(world, log, printing, show)
        elif not there:
            screen.line("Nothing was printed." if step is None or printing.begun else f"Step {step} has not begun.")
    return 0


def refuse_strange_step(session: Session, step: str) -> None:
    if session.plan is not None and any(step == one.id for one in session.steps()):
        return
    raise Usage(
        f"session {short(session.session_id)} has no step {step}",
        hint=f"See its steps: acode session show {short(session.session_id)}",
    )


def as_documents(lines: Iterable[tuple[str, int, str]]) -> list[dict[str, Any]]:
    """One object for each attempt that printed something, in the order of their first lines."""
    found: dict[tuple[str, int], list[str]] = {}
    for step, attempt, line in lines:
        found.setdefault((step, attempt), []).append(line)
    return [{"step": step, "attempt": attempt, "lines": text} for (step, attempt), text in found.items()]


def follow_lines(world: World, log: LogTail, printing: Printing, show: TextShow | JsonShow) -> None:
    """Until nobody works on the session any more; of one step, until that has ended."""

    def until_step_ends() -> Iterator[Envelope | Printed]:
        for entry in followed(world, log, follow=True):
            yield entry
            event = entry.event if isinstance(entry, Envelope) else None
            ended = isinstance(event, ev.StepCompleted) and event.step == printing.wanted
            if ended or (isinstance(event, ev.SessionPaused | ev.SessionCompleted) and printing.wanted is not None):
                return

    try:
        for line in printing.lines(until_step_ends()):
            show.lines([line])
        show.lines(printing.rest())
    except KeyboardInterrupt:
        show.lines(printing.rest())


class TextShow:
    """Lines for people: nothing in them steers the terminal."""

    def __init__(self, screen: Screen, *, headings: bool) -> None:
        self.screen = screen
        self.headings = headings
        self._of: tuple[str, int] | None = None

    def lines(self, lines: Iterable[tuple[str, int, str]]) -> None:
        for step, attempt, line in lines:
            if self.headings and self._of != (step, attempt):
                again = f" (attempt {attempt})" if attempt > 1 else ""
                self.screen.data(self.screen.paint_data(f"==> {one_line(step)}{again} <==", "bold"))
            self._of = (step, attempt)
            self.screen.data(shown(line))


class JsonShow:
    """The lines that `run --json` prints for output."""

    def __init__(self, screen: Screen, world: World, session_id: str) -> None:
        self.world = world
        self.session_id = session_id
        self.out = JsonLines(screen, world.redactor)

    def lines(self, lines: Iterable[tuple[str, int, str]]) -> None:
        for step, _, line in lines:
            self.out.emit(
                Notice(
                    body=StepOutput(text=f"{line}\n"),
                    at=self.world.clock(),
                    session_id=self.session_id,
                    task=step.partition(".")[0],
                    step=step,
                )
            )


# Watch.


class Watching(Progress):
    """What people see of a run, for somebody who joins it."""

    def _session_start(self, notice: Notice, body: SessionStart | SessionReopened) -> None:
        assert notice.session is not None
        self._outline = outline_of(notice.session)
        at = titled_position(notice.session, self._outline, self.redactor)
        title = one_line(self.redactor.text(body.title))
        self.screen.line(f"Watching session {self._bold(body.short_id)}: {title}, {at}. Ctrl+C ends the watching only.")

    def show_meter(self, meter: Meter | None) -> None:
        super().show_meter(meter)
        self.line.summarize(self._resting_summary())

    def _resting_summary(self) -> Callable[[], str] | None:
        """It stands there all the time: a watcher is asked nothing that it could be in the way of."""
        return self._meter.text if self._meter is not None else None


@click.command(cls=Command, name="watch")
@ID
@click.pass_obj
def watch_session(flags: Flags, *, session: str | None) -> int:
    """Follow a session that another process runs, until that ends; without ID the one that runs now.

    With --json the lines are those of acode run, as far as they are on record: committed, and synced within a second.
    """
    world = build_world(flags)
    screen = Screen(flags, world.env)
    name = to_look_into(world, screen, session) if session is not None else running_now(world, screen)
    lines = JsonLines(screen, world.redactor) if flags.json else None
    progress = Watching(screen, world.redactor, world.monotonic)
    executed = 0
    with opened(world, look_only=True) as store:
        session_id = resolve_id(world, store, name)
        try:
            for notice in watch(world, store, session_id):
                (lines or progress).emit(notice)
                if isinstance(notice.body, SessionReopened) and screen.lively and notice.session is not None:
                    progress.show_meter(meter_of(world, store, notice.session))
                if lines is not None and notice.seq is not None:
                    lines.durable(notice.seq)
                executed += notice.body.event == "step_completed"
        except KeyboardInterrupt:
            return 130
        finally:
            progress.line.stop()
    return last_words(world, screen, lines, session_id, executed)


def running_now(world: World, screen: Screen) -> str:
    """The session that a process works on now; else the one that a look without an id is about."""
    found = next((row.session_id for row in rows(world) if row.running), None)
    return found if found is not None else to_look_into(world, screen, None)


def last_words(world: World, screen: Screen, lines: JsonLines | None, session_id: str, executed: int) -> int:
    found = preview(world, session_id, Options(actor="system"), probes=False, environment=False)
    session = found.session
    following = next_action(found) if found.survey is not None else ""
    if lines is None:
        words = state_in_words(session, found.attention, running=found.lock.held)
        screen.line(f"\nSession {short(session_id)}: {words}" + (f". Next: {following}" if following else ""))
        return 0
    lines.ended(
        at=world.clock(),
        state=str(session.state),
        exit_code=exit_of(found),
        reason_code=reason_of(session),
        executed_steps=executed,
        next_action=following,
    )
    return 0


def reason_of(session: Session) -> str:
    """The reason that the process which ran it has given in its own last line."""
    if session.state is State.AWAITING_APPROVAL:
        return "approval_required"
    if session.pause is not None:
        return REASON_OF_PAUSE.get(session.pause.reason, session.pause.reason)
    return str(session.state).lower()


def exit_of(found: Preview) -> int | None:
    """How the process that ran it has ended; None where it was cut off, and so has told nobody."""
    session = found.session
    if session.state is State.PAUSED and session.pause is not None:
        return EXIT_OF_PAUSE.get(session.pause.reason, 1)
    return EXIT_OF_STATE.get(session.state)


# Diff.


@click.command(cls=Command, name="diff")
@ID
@STEP
@click.pass_obj
def diff(flags: Flags, *, session: str | None, step: str | None) -> int:
    """What a session, or one of its steps, changed in files whose contents are known."""
    world = build_world(flags)
    screen = Screen(flags, world.env)
    name = to_look_into(world, screen, session)
    with opened(world, look_only=True) as store, Root(world.workspace) as root:
        session_id = resolve_id(world, store, name)
        loaded, _ = load_verified(world, store, session_id)
        changes = file_changes(store, root, loaded.session, step)
    if flags.json:
        found = [msgspec.to_builtins(one) for one in changes]
        screen.document(redacted({"session_id": session_id, "step": step, "files": found}, world.redactor))
        return 0
    for one in changes:
        show_change(world, screen, one)
    if not changes:
        screen.line("No file is known to have changed.")
    return 0


COLORS = {"+": "good", "-": "bad", "@": "now"}


def show_change(world: World, screen: Screen, one: FileChange) -> None:
    """Named only where it cannot be compared; the text has no control characters any more."""
    if not one.compared:
        screen.data(world.redactor.text(f"{one_line(one.path)}: {one.change}; {one.text}"))
        return
    for line in world.redactor.text(one.text).splitlines():
        color = "bold" if line[:3] in ("---", "+++") else COLORS.get(line[:1])
        screen.data(screen.paint_data(line, color) if color else line)
