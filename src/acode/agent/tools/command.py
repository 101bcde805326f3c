"""run_command, git_commit and ask_user: what reaches beyond the files.

A command runs under a keeper, in the workspace; whether it may be repeated after a crash is said by the settings and
by nobody else. A commit carries its key. What a person answers is recorded with the question.
"""

from __future__ import annotations

from acode.agent.context import Job
from acode.agent.gates import answered_in_words
from acode.agent.permission import is_read_only
from acode.agent.tool_schemas import AskUser, GitCommit, RunCommand
from acode.agent.tools.interface import BY_HAND, Answer, Ending, ending_of, execute
from acode.events import types as ev
from acode.events.definition import Commit, Run
from acode.library.declarations import Begun

SHOWN_HEAD_BYTES = 4_096
SHOWN_TAIL_BYTES = 12_288

# run_command.


def run(job: Job, begun: Begun, asked: RunCommand) -> Answer:
    settings = job.world.config.settings
    limit_s = asked.timeout_s if isinstance(asked.timeout_s, int | float) else settings.steps.timeout_seconds
    repeatable = is_read_only(asked.command, settings.tools)
    done = execute(job, begun, Run(command=asked.command), idempotent=repeatable, timeout_s=limit_s)
    return done if isinstance(done, Answer) else ran(job, done, asked)


def ran(job: Job, completed: ev.StepCompleted, asked: RunCommand) -> Answer:
    if completed.output is None and completed.settled:
        return Answer(text=f"{BY_HAND} What it printed was not kept.")
    ending = ending_of(job, completed)
    output = shortened(job.bench.output(completed))
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


def commit(job: Job, begun: Begun, asked: GitCommit) -> Answer:
    done = execute(job, begun, Commit(message=asked.message, paths=asked.paths))
    return done if isinstance(done, Answer) else committed(job, done, asked)


def committed(job: Job, completed: ev.StepCompleted, asked: GitCommit) -> Answer:
    ending = ending_of(job, completed)
    if ending is not None:
        output = shortened(job.bench.output(completed))
        return Answer(text="\n".join(filter(None, [output, f"[not committed: {ending.message}]"])), error=True)
    found = completed.result if isinstance(completed.result, dict) else {}
    note = found.get("note")
    if not found.get("commit"):
        return Answer(text=f"No commit was made: {note or BY_HAND}")
    return Answer(text=f"Committed as {found['commit']}." + (f" Note: {note}." if note else ""))


# ask_user.


def ask(job: Job, begun: Begun, asked: AskUser) -> Answer:
    return reply(answered_in_words(job, begun, asked.question))


def reply(said: object) -> Answer:
    return Answer(text=str(said) if said not in (None, "") else "[no answer]")
