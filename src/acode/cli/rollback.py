"""acode session rollback: roll finished steps back, after a preview of the effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click
import msgspec

from acode.cli.candidates import finished_steps, unfinished_sessions
from acode.cli.error_report import clean
from acode.cli.flags import OFFLINE, WHY_OFFLINE, Command, Flags
from acode.cli.follow_run import resume_line_of, shared
from acode.cli.prompts import confirm
from acode.cli.screen import Screen
from acode.cli.signals import Signals
from acode.cli.world import build_world
from acode.engine.held_session import ended
from acode.engine.notices import FinishedStepRolledBack, Notice, RunWarning
from acode.engine.rollback import (
    UndoCall,
    Undoing,
    files_that_stay,
    plan_rollback,
    refuse_incomplete,
    refuse_unsettled,
    roll_back,
)
from acode.engine.world import short
from acode.errors import AcodeError, InputRequired, Interrupted
from acode.log_file import Several, log_of
from acode.state import Session
from acode.text import one_line
from acode.text.durations import count, shortened

WAYS = {
    "files": "restore",
    "undo": "undo",
    "nothing": "nothing to undo",
    "stays": "stays",
}


class RollbackProgress:
    """Says what happens while it happens."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def emit(self, notice: Notice) -> None:
        match notice.body:
            case FinishedStepRolledBack(title=title):
                self.screen.line(f"  {notice.step}: {one_line(title)}")
            case RunWarning(message=message):
                self.screen.warn(one_line(message))

    def durable(self, seq: int) -> None:
        """Nothing is acknowledged here."""


@click.command(cls=Command, name="rollback")
@click.argument("session", metavar="ID", shell_complete=unfinished_sessions)
@click.option(
    "--to",
    metavar="STEP",
    shell_complete=finished_steps,
    help="Keep this step done; all later ones become pending. Without it: all of them.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@OFFLINE
@WHY_OFFLINE
@click.pass_obj
def command(flags: Flags, *, session: str, to: str | None, dry_run: bool, yes: bool) -> int:
    """Roll finished steps back, the latest first.

    Files are compared three ways: a file as the step left it is restored, one that somebody else changed since stays.
    Undo commands run in reverse order. Steps on databases and repositories need an undo.

    Only a session that has not ended can be rolled back: at its end acode removes the earlier contents of its files. To
    keep them until you have looked, end the plan with an approve step.
    """
    world = build_world(flags)
    screen = Screen(flags, world.env)
    found, undoing = plan_rollback(world, session, to)
    name = short(found.session_id)
    if found.terminal:
        error = ended(found, "roll back")
        error.give_hint(f"What stood in the files before was removed when it ended. {error.hint}")
        raise error
    if dry_run:
        return show_dry(screen, found, to, undoing, files_that_stay(world, found, undoing))
    refuse_now(found, undoing)  # before anything is shown that would not happen
    show(screen, name, to, undoing, files_that_stay(world, found, undoing), print_line=screen.line)
    if not undoing:
        return 0
    if not yes:
        if not screen.can_ask:
            raise InputRequired("nobody can be asked whether to roll back", hint="Add --yes, or look with --dry-run.")
        if not confirm(screen, "Roll back?", default=False):
            raise Interrupted("nothing was changed")
    signals = Signals(world.stop, grace_s=world.config.settings.steps.stop_grace_seconds, waits_for=tuple)
    ready = msgspec.structs.replace(world, listener=Several(RollbackProgress(screen), log_of(world)))
    with signals, shared(ready) as pushed:
        done = roll_back(pushed, session, to, undo_of_programs() if found.steps_from.asked else None)
    if flags.json:
        screen.document({"session_id": found.session_id, **msgspec.to_builtins(done)})
    kept = f", {len(done.kept)} kept because somebody changed them" if done.kept else ""
    pending = "1 step is" if len(done.steps) == 1 else f"{len(done.steps):,} steps are"
    screen.line(f"Rolled back: {pending} pending again, {count(len(done.restored), 'file')} restored{kept}")
    screen.insist(resume_line_of(found))
    return 0


def undo_of_programs() -> UndoCall:
    from acode.library.rollback import call

    return call


def refuse_now(session: Session, undoing: tuple[Undoing, ...]) -> None:
    """The refusal that the rollback itself would make."""
    refuse_unsettled(session)
    refuse_incomplete(session, undoing)


def show_dry(
    screen: Screen, session: Session, to: str | None, undoing: tuple[Undoing, ...], kept: Mapping[str, tuple[str, ...]]
) -> int:
    """Show the actions of the rollback, and whether it would be refused."""
    refused: AcodeError | None = None
    try:
        refuse_now(session, undoing)
    except AcodeError as error:
        refused = error
    if screen.flags.json:
        steps = [{**msgspec.to_builtins(one), "kept": list(kept[one.step])} for one in undoing]
        told = clean(screen.flags, refused.as_dict()) if refused is not None else None
        screen.document({"session_id": session.session_id, "to": to, "steps": steps, "refused": told})
        return 0
    show(screen, short(session.session_id), to, undoing, kept, print_line=screen.data)
    if refused is not None:
        screen.data(one_line(f"It would be refused now: {refused.message}"))
        screen.line(f"{screen.paint('hint:', 'now')} {one_line(refused.hint)}")
    return 0


def describe_way(one: Undoing, kept: tuple[str, ...]) -> str:
    paths = [path for path in one.paths if path not in kept]
    what = one.detail or ", ".join(paths[:3]) + ("…" if len(paths) > 3 else "")
    if not what and kept:
        what = "nothing"
    stays = f"; stays, because somebody changed it: {', '.join(kept)}" if kept else ""
    return one_line(WAYS[one.way] + (f": {what}" if what else "") + stays)


def show(
    screen: Screen,
    name: str,
    to: str | None,
    undoing: tuple[Undoing, ...],
    kept: Mapping[str, tuple[str, ...]],
    *,
    print_line: Callable[[str], None],
) -> None:
    if not undoing:
        print_line(f"Session {name}: no finished step comes after {to or 'its beginning'}; nothing to roll back")
        return
    print_line(f"Rolling session {name} back to {to or 'its beginning'} undoes, in this order:")
    for one in undoing:
        print_line(f"  {one.step}  {shortened(one_line(one.title))}  ({describe_way(one, kept[one.step])})")
        if one.missing:
            paths = ", ".join(map(one_line, one.missing))
            screen.warn(f"{one.step}: what stood in {paths} before is on the machine that ran it, not here")
        for path, why in one.damaged.items():
            screen.warn(f"{one.step}: the old content of {one_line(path)} cannot be restored: {one_line(why)}")
