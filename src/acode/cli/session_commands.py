"""acode session resolve, approve, deny, checkpoint, unlock, pause, cancel, abandon: what a person does to a session.

Each becomes one recorded event; none of them executes a step.
"""

from __future__ import annotations

import importlib.util
import json
import os
from typing import Any

import click
import msgspec

from acode.cli import foreign
from acode.cli.candidates import open_steps, unanswered_gates, unfinished_sessions
from acode.cli.flags import OFFLINE, WHY_OFFLINE, Command, Flags, reason_option
from acode.cli.follow_run import resume_line_of, shared
from acode.cli.screen import Screen
from acode.cli.world import build_world
from acode.engine import session_commands
from acode.engine.notices import Notice, RunWarning
from acode.engine.world import World, short
from acode.errors import Usage
from acode.events import types as ev
from acode.formats.find_run import find_run
from acode.state import Session
from acode.text import one_line

ID = click.argument("session", metavar="ID", shell_complete=unfinished_sessions)
REASON = reason_option()
GATE = click.argument("gate", metavar="[GATE]", required=False, shell_complete=unanswered_gates)
NOTE = click.option("--note", metavar="TEXT", default="", help="A remark for the record.")


class Warned:
    """Passes on what there is to warn about, and keeps it for the document."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.warnings: list[str] = []

    def emit(self, notice: Notice) -> None:
        if isinstance(notice.body, RunWarning):
            self.warnings.append(notice.body.message)
            self.screen.warn(one_line(notice.body.message))

    def durable(self, seq: int) -> None:
        """Nothing is acknowledged here."""


def begin(flags: Flags) -> tuple[World, Screen]:
    """The decision is pushed like any other event; another machine may have the session meanwhile."""
    screen = Screen(flags, os.environ)
    world = build_world(flags, listener=Warned(screen))
    return click.get_current_context().with_resource(shared(world)), screen


def on_server(world: World, session: str) -> bool:
    """Whether a session is answered on the server: one of the fleet, which no workspace here has."""
    if world.config.settings.sync.url is None or importlib.util.find_spec("procrastinate") is None:
        return False
    from acode.fleet.answers import is_here

    return not is_here(world, session)


def answer_in_fleet(
    world: World,
    screen: Screen,
    session: str,
    say: Any,
    sentence: str,
    *,
    goes_on: bool = True,
    applied: str | None = None,
    **more: Any,
) -> int:
    """From any machine: the answer is recorded, and the next attempt queued with it."""
    from acode.fleet.answers import answer

    found, queued = answer(world, session, say, goes_on=goes_on, applied=applied)
    way = "It is queued: a worker continues it." if queued else "It stays parked; see: acode fleet parked"
    return report_session(screen, found, sentence, way=way, queued=queued, **more)


def report_session(screen: Screen, session: Session, sentence: str, *, way: str = "", **more: Any) -> int:
    """One document for programs, one sentence and the next command for people."""
    if screen.flags.json:
        screen.document(
            {
                "session_id": session.session_id,
                "short_id": short(session.session_id),
                "state": str(session.state),
                **more,
            }
        )
    else:
        screen.data(one_line(sentence))
    if not session.terminal:
        screen.line(way or resume_line_of(session))
    return 0


@click.command(cls=Command, name="resolve")
@ID
@click.argument("step", metavar="STEP", shell_complete=open_steps)
@click.option("--applied", is_flag=True, help="It happened: continue after it.")
@click.option("--not-applied", is_flag=True, help="It did not happen: run it.")
@click.option("--retry", is_flag=True, help="Still unknown; running it again is accepted.")
@NOTE
@click.option("--result", metavar="JSON", help="With --applied, of a program's function: what it returned.")
@click.option("--force", is_flag=True, help="Although its command still runs.")
@OFFLINE
@WHY_OFFLINE
@click.pass_obj
def resolve_step(
    flags: Flags, /, *, session: str, step: str, note: str, result: str | None, force: bool, **said: bool
) -> int:
    """State the outcome of a step, or of its undo, that was cut off and left no evidence."""
    answer = the_one_answer(said)
    value = result_in(result, answer)
    world, screen = begin(flags)
    words = {
        "applied": "is taken as done",
        "not_applied": "is taken as not done, and will run",
        "retry": "will run again, which you accepted",
    }
    if result is None and on_server(world, session):

        def say(there: World, name: str) -> Session:
            return session_commands.resolve(there, name, step, answer, note=note, force=force)[0]

        sentence = f"Step {step} {words[answer]}."
        applied = step if answer == "applied" else None
        return answer_in_fleet(world, screen, session, say, sentence, applied=applied, step=step, resolved=answer)
    if result is not None:
        from acode.library.resolve import settle_with_result

        settled = settle_with_result(world, session, step, value, note=note)
        return report_session(screen, settled, f"Step {step} is taken as done.", step=step, resolved=answer)
    settled, undo = session_commands.resolve(world, session, step, answer, note=note, force=force)
    if undo is not None:
        return report_undo(screen, settled, undo, answer)
    return report_session(screen, settled, f"Step {step} {words[answer]}.", step=step, resolved=answer)


def result_in(text: str | None, answer: str) -> Any:
    """The value that was typed; refused before anything is recorded."""
    if text is None:
        return None
    if answer != "applied":
        raise Usage("--result is what a step returned, so it needs --applied")
    try:
        return json.loads(text)
    except ValueError as error:
        raise Usage(
            f"--result is no JSON: {error}", hint="For example: --result '{\"id\": 7}', or --result null"
        ) from error


def the_one_answer(said: dict[str, bool]) -> str:
    """Refuse two contradicting answers: the recorded one decides whether a step runs again."""
    answers = [name for name, given in said.items() if given]
    if len(answers) == 1:
        return answers[0]
    if not answers:
        raise Usage("state its outcome: --applied, --not-applied or --retry", hint="See: acode explain")
    given = " and ".join(f"--{name.replace('_', '-')}" for name in answers)
    raise Usage(f"{given} contradict each other; nothing was recorded", hint="Say one of them. See: acode explain")


def report_undo(screen: Screen, session: Session, undo: ev.UndoStarted, answer: str) -> int:
    """The rollback that it belongs to is not over: it is given again."""
    to = f" --to {undo.to}" if undo.to else ""
    words = {
        "applied": "is taken as done",
        "not_applied": "is taken as not done: the step stands as before",
        "retry": "will run again, which you accepted",
    }
    sentence = f"The undo of step {undo.step} {words[answer]}."
    way = f"To continue the rollback: acode session rollback {short(session.session_id)}{to}"
    return report_session(screen, session, sentence, way=way, step=undo.step, undo=True, resolved=answer)


def gate_in_fleet(world: World, screen: Screen, session: str, gate: str | None, *, granted: bool, note: str) -> int:
    def say(there: World, name: str) -> Session:
        return session_commands.answer_gate(there, name, gate, granted=granted, note=note)[0]

    sentence = "Approved. The steps behind the gate may run." if granted else "Denied."
    return answer_in_fleet(world, screen, session, say, sentence, goes_on=granted, granted=granted)


@click.command(cls=Command, name="approve")
@ID
@GATE
@NOTE
@OFFLINE
@WHY_OFFLINE
@click.pass_obj
def approve(flags: Flags, *, session: str, gate: str | None, note: str) -> int:
    """Say yes at the gate a session waits at; the yes covers exactly the steps behind it as they are now."""
    return answer_gate(flags, session, gate, granted=True, note=note)


@click.command(cls=Command, name="deny")
@ID
@GATE
@NOTE
@OFFLINE
@WHY_OFFLINE
@click.pass_obj
def deny(flags: Flags, *, session: str, gate: str | None, note: str) -> int:
    """Say no at the gate a session waits at; it stays there, and a resume asks again."""
    return answer_gate(flags, session, gate, granted=False, note=note)


def answer_gate(flags: Flags, session: str, gate: str | None, *, granted: bool, note: str) -> int:
    world, screen = begin(flags)
    if (run := find_run(world, session)) is not None:
        return foreign.answer(world, screen, run, granted=granted, note=note)
    if on_server(world, session):
        return gate_in_fleet(world, screen, session, gate, granted=granted, note=note)
    found, step = session_commands.answer_gate(world, session, gate, granted=granted, note=note)
    next_to_it = "The steps behind it may run" if granted else f"The session is {found.state}"
    sentence = f"{'Approved' if granted else 'Denied'}: {step}. {next_to_it}."
    return report_session(screen, found, sentence, gate=step, granted=granted)


@click.command(cls=Command, name="checkpoint")
@ID
@click.option("--label", metavar="TEXT", default="", help="A name for it.")
@OFFLINE
@WHY_OFFLINE
@click.pass_obj
def checkpoint(flags: Flags, *, session: str, label: str) -> int:
    """Make a save point of a session that is not running."""
    world, screen = begin(flags)
    found, number = session_commands.save_point(world, session, label)
    sentence = f"Checkpoint {number} of session {short(found.session_id)} is made, at event {found.seq}."
    return report_session(screen, found, sentence, checkpoint_id=number, seq=found.seq)


@click.command(cls=Command, name="unlock")
@ID
@click.option("--force", is_flag=True, help="Although the owner is alive; it is fenced off. Audited.")
@REASON
@OFFLINE
@click.pass_obj
def unlock_session(flags: Flags, *, session: str, force: bool, reason: str) -> int:
    """Break the lock of a dead owner. A process that held it and wakes up later cannot write any more."""
    world, screen = begin(flags)
    found, holder, broken = session_commands.unlock(world, session, force=force, reason=reason)
    whose = f" of pid {holder.pid}" if holder is not None else ""
    sentence = f"The lock{whose} is broken." if broken else "The session is not locked: nothing to do."
    return report_session(screen, found, sentence, broken=broken)


@click.command(cls=Command, name="pause")
@ID
@OFFLINE
@WHY_OFFLINE
@click.pass_obj
def pause_session(flags: Flags, *, session: str) -> int:
    """Ask a running session to pause after its current step."""
    world, screen = begin(flags)
    heard = Warned(screen)
    found, pid = session_commands.pause(msgspec.structs.replace(world, listener=heard), session)
    name = short(found.session_id)
    sentence = (
        f"Process {pid} was asked to pause session {name}; it does so after its current step."
        if pid is not None
        else f"Session {name} is {found.state}; no process runs it."
    )
    return report_session(screen, found, sentence, pid=pid, warnings=heard.warnings)


@click.command(cls=Command, name="cancel")
@ID
@REASON
@OFFLINE
@click.pass_obj
def cancel(flags: Flags, *, session: str, reason: str) -> int:
    """End a session that is not wanted any more. It cannot be resumed afterwards; what it did stays."""
    world, screen = begin(flags)
    heard = Warned(screen)
    found = session_commands.end(msgspec.structs.replace(world, listener=heard), session, cancelled=True, reason=reason)
    return report_session(screen, found, f"Session {short(found.session_id)} is CANCELLED.", warnings=heard.warnings)


@click.command(cls=Command, name="abandon")
@ID
@REASON
@OFFLINE
@click.pass_obj
def abandon(flags: Flags, *, session: str, reason: str) -> int:
    """End a session that has failed for good. It cannot be resumed afterwards; what it did stays."""
    world, screen = begin(flags)
    heard = Warned(screen)
    found = session_commands.end(
        msgspec.structs.replace(world, listener=heard), session, cancelled=False, reason=reason
    )
    sentence = f"Session {short(found.session_id)} is FAILED: abandoned."
    return report_session(screen, found, sentence, warnings=heard.warnings)
