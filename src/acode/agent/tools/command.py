"""run_command, git_commit and ask_user: the tools that reach beyond the files.

A command runs under a keeper, in the workspace; only the settings say whether it may be repeated after a crash. A
commit carries its key. A person's answer is recorded with the question.
"""

from __future__ import annotations

from acode.agent.context import Context
from acode.agent.gates import answered_with_text
from acode.agent.permission import is_read_only
from acode.agent.tool_schemas import AskUser, GitCommit, RunCommand
from acode.agent.tools.interface import BY_HAND, Answer, Ending, ending_of, execute
from acode.events import types as ev
from acode.events.definition import Commit, Run
from acode.library.declarations import Begun

SHOWN_HEAD_BYTES = 4_096
SHOWN_TAIL_BYTES = 12_288

# run_command.


def run(context: Context, begun: Begun, asked: RunCommand) -> Answer:
    settings = context.world.config.settings
    limit_s = asked.timeout_s if isinstance(asked.timeout_s, int | float) else settings.steps.timeout_seconds
    repeatable = is_read_only(asked.command, settings.tools)
    done = execute(context, begun, Run(command=asked.command), idempotent=repeatable, timeout_s=limit_s)
    return done if isinstance(done, Answer) else ran(context, done, asked)


def ran(context: Context, completed: ev.StepCompleted, asked: RunCommand) -> Answer:
    if completed.output is None and completed.settled:
        return Answer(text=f"{BY_HAND} What it printed was not kept.")
    ending = ending_of(context, completed)
    output = shortened(context.steps.output(completed))
    if completed.output is not None and completed.output.truncated:
        output += f"\n[it printed {completed.output.bytes:,} bytes, of which only the first were kept]"
    return Answer(text="\n".join(filter(None, [output, f"[{how_it_ended(ending)}]"])), error=ending is not None)


def how_it_ended(ending: Ending | None) -> str:
    if ending is None:
        return "exit status 0"
    return f"exit status {ending.exit}" if ending.reason == "exit" else ending.message


def shortened(text: str) -> str:
    """Beginning and end: errors stand in the one or in the other."""
    data = text.rstrip("\n").encode()
    left_out = len(data) - SHOWN_HEAD_BYTES - SHOWN_TAIL_BYTES
    if left_out <= 0:
        return data.decode()
    head = data[:SHOWN_HEAD_BYTES].decode("utf-8", "ignore")
    tail = data[-SHOWN_TAIL_BYTES:].decode("utf-8", "ignore")
    return f"{head}\n[{left_out:,} bytes left out]\n{tail}"


# git_commit.


def commit(context: Context, begun: Begun, asked: GitCommit) -> Answer:
    done = execute(context, begun, Commit(message=asked.message, paths=asked.paths))
    return done if isinstance(done, Answer) else committed(context, done, asked)


def committed(context: Context, completed: ev.StepCompleted, asked: GitCommit) -> Answer:
    ending = ending_of(context, completed)
    if ending is not None:
        output = shortened(context.steps.output(completed))
        return Answer(text="\n".join(filter(None, [output, f"[not committed: {ending.message}]"])), error=True)
    found = completed.result if isinstance(completed.result, dict) else {}
    note = found.get("note")
    if not found.get("commit"):
        return Answer(text=f"No commit was made: {note or BY_HAND}")
    return Answer(text=f"Committed as {found['commit']}." + (f" Note: {note}." if note else ""))


# ask_user.


def ask(context: Context, begun: Begun, asked: AskUser) -> Answer:
    return reply(answered_with_text(context, begun, asked.question))


def reply(said: object) -> Answer:
    return Answer(text=str(said) if said not in (None, "") else "[no answer]")
