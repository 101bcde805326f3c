"""A remediation checklist made from the actual failure: the failed step, its output, and the actions to try, in order.

Pure. Every line is either a fact from the log or a command that can be typed as it stands.
"""

from __future__ import annotations

import msgspec

from acode.engine.next_action import session_hint
from acode.events.definition import Run, Step, command_line
from acode.hints import Action, Command, Force, Resolve
from acode.state import Session
from acode.workspace import ChangedFile

TAIL_LINES_MAX = 12


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """The facts for a person who has never seen this session."""

    failed_step: str | None
    command: str | None
    exit_status: int | None
    message: str
    last_output: tuple[str, ...]
    changed_files: tuple[str, ...]
    checklist: tuple[str, ...]


def remedy(session: Session, changed: tuple[ChangedFile, ...] = ()) -> Remedy:
    failure = session.failure
    name = session.session_id[-8:]
    step = failed_step(session)
    command = command_line(step.action.command) if step is not None and isinstance(step.action, Run) else None
    message = (
        failure.message if failure else (session.pause.message if session.pause else "the process died without a word")
    )
    tail = tuple(failure.tail.rstrip().splitlines()[-TAIL_LINES_MAX:]) if failure else ()
    return Remedy(
        failed_step=failure.step if failure else session.last_attempted,
        command=command,
        exit_status=failure.exit_status if failure else None,
        message=message,
        last_output=tail,
        changed_files=tuple(one.path for one in changed),
        checklist=tuple(checklist(session, step, command, changed, name)),
    )


def failed_step(session: Session) -> Step | None:
    wanted = session.failure.step if session.failure else session.last_attempted
    if session.plan is None or wanted is None:
        return None
    return next((step for step in session.steps() if step.id == wanted), None)


def checklist(
    session: Session, step: Step | None, command: str | None, changed: tuple[ChangedFile, ...], name: str
) -> list[str]:
    def line(text: str, action: Action) -> str:
        return session_hint(session, text, action).as_command()

    lines = [line("Read what happened: {}", Command("explain SESSION"))]
    if command is not None:
        where = (
            f"cd {step.action.cwd} && " if step is not None and isinstance(step.action, Run) and step.action.cwd else ""
        )
        lines.append(f"Try the command by hand and fix its cause: {where}{command}")
    elif session.failure is None:
        lines.append(
            f"The process died {session.resumes_since_progress} times at the same place: look for memory, time and"
            " disk limits, and at the log: .agent/logs/acode.jsonl"
        )
    for open_step in (step for step in session.in_flight if not session.is_open_task(step)):
        lines.append(line("Settle the step in flight: {}", Resolve(open_step)))
    if changed:
        seen = Command("resume --dry-run SESSION")
        lines.append(line("Files were changed by somebody else; see them: {}", seen))
    lines.append(line("Then grant one more attempt: {}", Force()))
    lines.append(line("Or give it up: {}", Command("session abandon SESSION")))
    return lines
