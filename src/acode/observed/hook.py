"""`acode hook`: what happens when an agent calls its hook.

It records and vetoes, nothing else. Every error is caught: an agent lets a tool run whose hook crashed or was too slow,
so a start that cannot be recorded is answered with a veto, unless the user's settings say otherwise. The hook after a
tool never stands in the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from acode.command_notes import process_stat
from acode.engine import split_step
from acode.engine.split_step import Repeat, Settled
from acode.engine.world import World, short
from acode.errors import AcodeError, TerminalState
from acode.events import types as ev
from acode.events.definition import describe_action
from acode.hints import Action as NextAction
from acode.hints import Command, Resolve, Subject
from acode.observed import recorder
from acode.observed.binding import bind, keep_binding, name_process
from acode.observed.doors import Doors, process_name
from acode.observed.hook_answer import Answer
from acode.observed.hook_payload import HookEvent, parse
from acode.observed.recorder import AgentSession, Left
from acode.plan import Action, Outcome
from acode.steps.keeper_notes import read_mark, read_status, run_directory

NOTHING = Answer()
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox")
ANCESTORS_MAX = 12
TAIL_CHARS_MAX = 600
CALLS_TOLD_MAX = 10
CHOICES = "--applied, --not-applied or --retry"
TITLES = {"claude": "Claude Code", "codex": "Codex", "gemini": "Gemini CLI", "opencode": "opencode"}


def handle(data: bytes, env: Mapping[str, str], doors: Doors, parent: int) -> tuple[HookEvent | None, Answer]:
    """The event and the answer to it. `parent`: the process that started the hook."""
    event: HookEvent | None = None
    world: World | None = None
    try:
        event = parse(data)
        if event is None or (event.moment in ("before", "after") and event.only_reads):
            return event, NOTHING
        binding = bind(doors, event.agent, event.session_id, event.directory, env)
        world = recorder.world_for(binding, env)
        agent = agent_process(parent, event.agent)
        at = AgentSession(world, doors, name_process(doors, binding, process_name(agent)), agent)
        try:
            return event, answer_to(event, at)
        except TerminalState:  # a person has ended the session; the agent continues in another one
            at = replace(at, binding=recorder.without_session(doors, at.binding))
            return event, answer_to(event, at)
    except Exception as error:
        return event, failure(event, world, error)


def failure(event: HookEvent | None, world: World | None, error: Exception) -> Answer:
    """Only what may not run unrecorded is blocked: a payload that nobody understands, and a tool before it begins."""
    if event is not None and event.moment != "before":
        return NOTHING
    if world is not None and world.config.settings.hooks.on_error == "allow":
        return NOTHING
    why = f"{error.message} [{error.code}]" if isinstance(error, AcodeError) else f"{type(error).__name__}: {error}"
    hint = f" {error.hint}" if isinstance(error, AcodeError) and error.hint else ""
    blocked = f"acode could not record this call, so it was not run: {why}.{hint}"
    return Answer(error=f"{blocked} Tell the user. (hooks.on_error: allow runs calls unrecorded.)")


def answer_to(event: HookEvent, at: AgentSession) -> Answer:
    match event.moment:
        case "before":
            return before(event, at)
        case "after":
            recorder.end_call(at, event)
        case "start" | "prompt":
            return returned(event, at)
        case "idle" | "end":
            recorder.pause_or_end(at, ends=event.moment == "end")
    return NOTHING


def before(event: HookEvent, at: AgentSession) -> Answer:
    found = recorder.begin_call(at, event)
    if found is None:
        return NOTHING
    session_id = recorder.find_session(at.world, at.binding) or ""
    if isinstance(found, Repeat):
        said = partial(recorder.record_denial, at, session_id, found) if found.completed is not None else None
        return Answer(deny=repeat_in_words(found, session_id), once_said=said)
    open_calls = "; ".join(unknown_in_words(one, session_id) for one in found[:CALLS_TOLD_MAX])
    until = "acode: nothing is changed until the outcome of an earlier call is known (hooks.unknown: block)"
    return Answer(deny=f"{until}: {open_calls}")


def returned(event: HookEvent, at: AgentSession) -> Answer:
    """Settle what was open when the agent went away, and tell its model what is known."""
    if event.prompt and not at.binding.title and not at.binding.session_id:
        title = at.world.redactor.text(" ".join(event.prompt.split()))[: recorder.TITLE_CHARS_MAX]
        keep_binding(at.doors, recorder.titled(at.binding, title))
    left = recorder.settle_for_return(at)
    if not left.settled and not left.ended:
        return NOTHING
    return Answer(context=context_of(at.world, left), once_said=partial(recorder.note_told, at, left))


# Who acts.


def agent_process(parent: int, agent: str) -> ev.Performer:
    """The process that called the hook; one that has ended performs nothing."""
    return split_step.performer(agent_pid(parent), TITLES[agent])


def agent_pid(parent: int) -> int:
    """Past the shells between the agent and its hook."""
    pid = parent
    for _ in range(ANCESTORS_MAX):
        above = parent_of(pid)
        if above <= 1 or command_name(pid) not in SHELLS:
            break
        pid = above
    return pid


def parent_of(pid: int) -> int:
    fields = process_stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def command_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


# What the model is told: short, factual, without secrets.


def context_of(world: World, left: Left) -> str:
    lines = [settled_in_words(world, one, left.session_id) for one in left.settled]
    lines += [f"- step {one.step} had ended already: {how_completed(one)}.{last_output(one)}" for one in left.ended]
    if len(lines) > CALLS_TOLD_MAX:
        lines = [
            *lines[:CALLS_TOLD_MAX],
            f"And {len(lines) - CALLS_TOLD_MAX} more: {to_type(Command('status SESSION'), left.session_id)}",
        ]
    return "\n".join(["acode: you were interrupted in the middle of your work. What is known of your calls:", *lines])


def settled_in_words(world: World, one: Settled, session_id: str) -> str:
    what = called(world, one.started)
    match one.action, one.outcome:
        case Action.WAIT, _:
            return f"- {what} still runs ({one.evidence}). Do not run it again; wait for its end."
        case Action.ASK, _:
            return f"- {unknown_in_words(one, session_id)}"
        case _, Outcome.APPLIED | Outcome.PARTIAL:
            return f"- {what} took effect: {one.evidence}.{ended_with(world, one.started)} Do not run it again."
        case _:
            return f"- {what}: {one.evidence}.{ended_with(world, one.started)}"


def called(world: World, started: ev.StepStarted) -> str:
    what = describe_action(started.definition) if started.definition is not None else started.step
    tool = started.call.tool if started.call is not None else started.kind
    return f"{world.redactor.text(what)[:TAIL_CHARS_MAX]!r} ({tool}, step {started.step})"


def ended_with(world: World, started: ev.StepStarted) -> str:
    """How a command ended and its last words, from the front's notes: redacted in any case."""
    if started.kind != "run":
        return ""
    place = run_directory(world.agent_dir, started.key)
    status = read_status(place)
    if status is None:
        return ""
    how = f"exit status {status.exit}" if status.exit is not None else f"killed by {status.signal}"
    tail = recorder.last_words(world, place, read_mark(place))
    return f" It ended with {how}." + (f" Its last output: {tail!r}." if tail else "")


def unknown_in_words(one: Settled, session_id: str) -> str:
    step = one.started.step
    return (
        f"step {step}: nothing shows whether it took effect ({one.evidence}). Do not run it again. Ask the user to look"
        f" and to say: {to_type(Resolve(step, CHOICES), session_id)}"
    )


def repeat_in_words(found: Repeat, session_id: str) -> str:
    if found.running:
        return (
            f"acode: this exact call still runs, as step {found.step}, since before you were interrupted"
            f" ({found.evidence}). Do not run it again; wait for its end."
        )
    if found.completed is None:
        return (
            f"acode: this exact call was in flight when you were interrupted, as step {found.step}, and nothing shows"
            f" whether it took effect: {found.evidence}. It is not run again until the user has said:"
            f" {to_type(Resolve(found.step, CHOICES), session_id)}"
        )
    how = how_completed(found.completed)
    ran = f"acode: this exact call ran to its end before you came back, as step {found.step}: {how}."
    return f"{ran}{last_output(found.completed)} Continue with that. If it must run a second time, call it again."


def to_type(action: NextAction, session_id: str) -> str:
    """For the person, not for the model, which only passes it on: the form that is typed, also in a plain text."""
    return action.as_command(Subject(short(session_id)))


def last_output(completed: ev.StepCompleted) -> str:
    output = completed.output
    return f" Its last output: {output.tail[-TAIL_CHARS_MAX:]!r}." if output is not None and output.tail else ""


def how_completed(completed: ev.StepCompleted) -> str:
    result = completed.result
    how = result.get("v") if isinstance(result, dict) else None
    if isinstance(how, dict) and how.get("message"):
        return str(how["message"])
    return "it failed" if isinstance(how, dict) and how.get("failed") else "it succeeded"
