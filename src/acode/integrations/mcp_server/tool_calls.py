"""Tool calls of a client outside: each call is a step of one session, named by the key that the caller gives it.

The session is open while calls are in progress and paused between them, so that a person can answer, settle or cancel
it from a terminal, and a second server of the same client waits for its turn. A key that is on record gets its
recorded answer; another key is a new step. What was in flight when the server was killed is settled when the session
is opened again: by the keeper, by hashes, by the database; and where nothing tells, by a person.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import msgspec

from acode import hints
from acode.agent.tools.command import how_it_ended, shortened
from acode.agent.tools.interface import BY_HAND, Answer, ending_in
from acode.engine.gate import Answer as Reply
from acode.engine.gate import ask, nobody_to_ask
from acode.engine.next_action import session_hint
from acode.engine.preview import Preview, action_now, as_json, next_action, preview
from acode.engine.survey import failed_steps
from acode.engine.workspace_store import opened
from acode.engine.world import Options, World, short
from acode.errors import AcodeError, Escalated, InputRequired, NonDeterminism, StepFailed, UnsafePath, Usage
from acode.events import types as ev
from acode.events.definition import Action, Approve, Commit, Run, Sql, Write, digest
from acode.library.declarations import Begun
from acode.library.deferred_steps import DeferredSteps
from acode.library.open_session import PausedForNow, close, find_session, open_session
from acode.library.session import Session
from acode.library.step_identity import CURRENT, Current, Scope
from acode.library.world import world_of
from acode.state import Session as Recorded
from acode.state import State
from acode.store.step_index import Finished
from acode.text import hides_something
from acode.workspacepath import Outside, inside_workspace

SHOWN_CHARACTERS_MAX: Final = 200
ANSWER_CHARACTERS_MAX: Final = 20_000
BETWEEN_CALLS: Final = PausedForNow("no call is in progress")
ON_RECORD: Final = "[on record: this key was used before; nothing was done again]"
NOBODY: Final = (0, 0)  # calls come in any order: no thread is the one whose order counts


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. `said`: a person's answer to an approval, where the client has asked for it."""

    key: str
    action: Action
    timeout_s: float | None = None
    said: bool | None = None

    @property
    def identity(self) -> list[Any]:
        """What a later call with the same key must give again."""
        return [msgspec.to_builtins(self.action), self.timeout_s]


class Batch:
    """The open session, and the calls that it has been given since it was opened. Each key is asked for once."""

    def __init__(self, session: Session, stack: contextlib.ExitStack) -> None:
        self.bench: DeferredSteps = DeferredSteps(session)
        self.stack = stack
        self.calls = 0
        self.waits: InputRequired | None = None
        self.answers: dict[str, tuple[str, Future[Answer]]] = {}

    @property
    def recorded(self) -> Recorded:
        return self.bench.run.session


class ToolCalls:
    """The calls of one client in one workspace."""

    def __init__(self, session_key: str, workspace: Path) -> None:
        self.session_key = session_key
        self.workspace = workspace
        self._lock = threading.Lock()
        self._batch: Batch | None = None

    @property
    def busy(self) -> bool:
        return self._batch is not None

    def call(self, call: ToolCall) -> Answer:
        """The answer to one call: from the record, from the same call in progress, or of the step that is done now."""
        try:
            call = msgspec.structs.replace(call, action=checked(call.action))
            with self._joined(call) as batch:
                return self._once(batch, call)
        except AcodeError as error:
            return refused(world_of(self.workspace), error)

    @contextlib.contextmanager
    def _joined(self, call: ToolCall) -> Iterator[Batch]:
        """The open session; the first call opens it, the last one that ends closes it."""
        with self._lock:
            self._refuse_beside_gate(call)
            if self._batch is None:
                self._batch = self._open()
            batch = self._batch
            batch.calls += 1
        try:
            yield batch
        finally:
            with self._lock:
                batch.calls -= 1
                if batch.calls == 0:
                    self._batch = None
                    with batch.stack:
                        close(batch.bench.session, self._why_it_rests(batch))

    def _why_it_rests(self, batch: Batch) -> Exception:
        waits = batch.recorded.state is State.AWAITING_APPROVAL
        return batch.waits if waits and batch.waits is not None else BETWEEN_CALLS

    def _refuse_beside_gate(self, call: ToolCall) -> None:
        """Nothing passes a question that waits for its answer; the call that asked it takes the answer."""
        recorded = self._batch.recorded if self._batch is not None else self._look()
        if recorded is None or recorded.state is not State.AWAITING_APPROVAL or recorded.waiting_for is None:
            return
        gate = recorded.waiting_for
        if gate.step != call.key or not isinstance(call.action, Approve):
            text = "Answer with: {}; then call approve again with the key {}."
            raise InputRequired(
                f"the session waits for an answer to {gate.step}: {gate.question}",
                hint=session_hint(recorded, text, hints.Approve(or_deny=True), gate.step),
                gate=gate.step,
            )

    def _open(self) -> Batch:
        with contextlib.ExitStack() as stack:
            session = open_session(
                stack,
                self.session_key,
                self.workspace,
                on_completed="new",  # a person who ended the session wants the next call to begin another one
                on_change="raise",
                probes={},
                # The agent's other tools change files between two calls: that is no reason to stop, and is recorded.
                options=Options(actor="user", changed_files="continue", wait=True),
                entry=None,
                arguments={},
            )
            batch = Batch(session, stack.pop_all())
        run = batch.bench.run
        # A command that failed after the server was killed has been run: its caller is given that, and no second run.
        failed = [step for step in failed_steps(run.session) if (one := run.session.record(step)) and not one.handled]
        if failed:
            run.append(*(ev.FailureHandled(step=step) for step in failed))
        return batch

    def _once(self, batch: Batch, call: ToolCall) -> Answer:
        """The same key again while the session is open gets the same answer, also while the call is in progress."""
        wanted, mine = digest(call.identity), Future[Answer]()
        with self._lock:
            known = batch.answers.get(call.key)
            if known is None:
                batch.answers[call.key] = (wanted, mine)
        if known is not None:
            if known[0] != wanted:
                raise Usage(another_call(call.key), hint=OTHER_KEY)
            return on_record(known[1].result())
        try:
            answer = perform(batch, call)
        except BaseException as error:
            if isinstance(error, InputRequired):
                batch.waits = error
            mine.set_exception(error)
            raise
        mine.set_result(answer)
        return answer

    # Looking, which changes nothing and waits for nobody.

    def _look(self) -> Recorded | None:
        found = find_session(world_of(self.workspace), self.session_key)
        return None if found is None else found[1]

    def answered(self, key: str) -> bool:
        """Whether nobody needs to be asked: this call is on record, or the session waits and was answered."""
        world = world_of(self.workspace)
        found = find_session(world, self.session_key)
        if found is None or found[1].terminal:
            return False
        with opened(world, look_only=True) as store:
            session = store.load(found[0]).session
            assert session.records is not None
            if key in session.records.approvals or session.done(key):
                return True
            return Finished(store, found[0]).find(key) is not None

    def status(self) -> Answer:
        world = world_of(self.workspace)
        try:
            found = find_session(world, self.session_key)
            if found is None:
                return Answer(text="No call is on record yet.")
            seen = preview(world, found[0], Options(actor="system"), probes=False, environment=False)
        except AcodeError as error:
            return refused(world, error)
        session = seen.session
        lines = [
            f"Session {short(session.session_id)} ({self.session_key}): {session.state}",
            f"Steps done: {session.steps_done}",
            *(f"In flight: {step}" for step in session.in_flight),
            *([f"Waits for an answer: {session.waiting_for.question}"] if session.waiting_for else []),
            *([] if seen.lock.held or seen.survey is None else [f"Next: {next_call(seen)}"]),
        ]
        return Answer(text=bounded(world, "\n".join(lines)))

    def explain(self) -> Answer:
        world = world_of(self.workspace)
        try:
            found = find_session(world, self.session_key)
            if found is None:
                return Answer(text="No call is on record yet.")
            document = as_json(preview(world, found[0], Options(actor="system"), probes=False))
        except AcodeError as error:
            return refused(world, error)
        return Answer(text=bounded(world, msgspec.json.format(msgspec.json.encode(document)).decode()))


OTHER_KEY = "Use another key for another call."


def another_call(key: str) -> str:
    return f"the key {key} is on record for a call with other arguments; nothing was done"


# One step.


def checked(action: Action) -> Action:
    """The action with its paths in their one spelling; acode's own files and git's are out of reach."""
    match action:
        case Run(command=command, cwd=cwd):
            if "\0" in command:
                raise Usage("the command holds a null character; nothing was run")
            return msgspec.structs.replace(action, cwd=None if cwd is None else path_in_workspace(cwd))
        case Write(path=path):
            return msgspec.structs.replace(action, path=path_in_workspace(path, changes=True))
        case Sql(file=file, database=database):
            place = None if database is None else path_in_workspace(database, changes=True)
            return msgspec.structs.replace(action, file=path_in_workspace(file), database=place)
        case Commit(paths=paths):
            if any(path.startswith(":") for path in paths):
                raise UnsafePath("expected a path, found a pathspec of git, which can leave the workspace")
            return msgspec.structs.replace(action, paths=tuple(path_in_workspace(path) for path in paths))
        case Approve(question=question) if hides_something(question):
            raise Usage("the question holds control or invisible characters; a person must read all of it")
        case _:
            return action


def path_in_workspace(path: str, *, changes: bool = False) -> str:
    try:
        return inside_workspace(path, changes=changes)
    except Outside as error:
        raise UnsafePath(f"expected a path inside the workspace: {error}; nothing was done") from error


def perform(batch: Batch, call: ToolCall) -> Answer:
    bench, clean = batch.bench, batch.bench.run.world.redactor
    if clean.matches(call.key):
        raise Usage("the key holds what looks like a secret; keys are shown everywhere", hint="Choose another key.")
    place = Scope(certain=False)
    place.owner = NOBODY
    token = CURRENT.set(Current(bench.session, place))
    try:
        begun = bench.offer(call.key, call.identity, shown=clean.text(shown(call.action))[:SHOWN_CHARACTERS_MAX])
        if begun.found:
            return on_record(recount(bench, begun, call))
        if isinstance(call.action, Approve):
            return pass_gate(bench, begun, call)
        bench.execute(begun, call.action, timeout_s=call.timeout_s)
        return recount(bench, begun, call)
    except NonDeterminism as error:
        raise Usage(another_call(call.key), hint=OTHER_KEY, **error.details) from error
    except StepFailed as failed:  # on record: it failed while the server was dead
        return on_record(Answer(text=bounded(bench.run.world, ended_badly(failed)), error=True))
    finally:
        CURRENT.reset(token)


def shown(action: Action) -> str:
    match action:
        case Run(command=command):
            return command if isinstance(command, str) else " ".join(command)
        case Write(path=path):
            return path
        case Sql(file=file, database=database, database_env=variable):
            return f"{file} on {database or variable}"
        case Commit(message=message):
            return message
        case Approve(question=question):
            return question
        case _:
            return ""


def pass_gate(bench: DeferredSteps, begun: Begun, call: ToolCall) -> Answer:
    assert isinstance(call.action, Approve)
    run = bench.run
    gate = bench.gate(begun, run.world.redactor.text(call.action.question))
    reply = ask(
        run, gate, lambda: None if call.said is None else Reply(granted=call.said, note="answered in the client")
    )
    if reply is None:
        text = "Answer with: {}; then call approve again with the same key."
        raise nobody_to_ask(gate, session_hint(run.session, text, hints.Approve(or_deny=True)))
    if reply == "stop":
        raise KeyboardInterrupt
    bench.close_gate(begun, gate, reply, reply.granted)
    return approval(reply.granted)


def approval(granted: bool) -> Answer:
    return Answer(text="Approved." if granted else "Denied. Do not do it.", error=not granted)


def recount(bench: DeferredSteps, begun: Begun, call: ToolCall) -> Answer:
    """The answer from the record alone: live, after a restart and every later time."""
    completed = begun.completed
    assert completed is not None
    if isinstance(call.action, Approve):
        return approval(bool(bench.result(completed)))
    ending = ending_in(bench, completed)
    output = bench.output(completed) if completed.output is not None else ""
    how = outcome(call.action, completed) if ending is None else f"[{how_it_ended(ending)}]"
    text = "\n".join(filter(None, [shortened(output), how]))
    return Answer(text=bounded(bench.run.world, text), error=ending is not None)


def outcome(action: Action, completed: ev.StepCompleted) -> str:
    if completed.settled and completed.output is None and isinstance(action, Run):
        return f"{BY_HAND} What it printed was not kept."
    result = completed.result if isinstance(completed.result, dict) else {}
    match action:
        case Run():
            return "[exit status 0]"
        case Write(path=path):
            return f"Wrote {path}."
        case Sql(file=file):
            return f"Applied {file}."
        case _:
            made = result.get("commit")
            note = result.get("note")
            return f"Committed as {made}." if made else f"No commit was made: {note or BY_HAND}"


def ended_badly(failed: StepFailed) -> str:
    output = failed.details.get("output") or ""
    return "\n".join(filter(None, [shortened(str(output)), f"[{failed.message}]"]))


# Texts for the caller.


def on_record(answer: Answer) -> Answer:
    if answer.text.endswith(ON_RECORD):
        return answer
    return msgspec.structs.replace(answer, text=f"{answer.text}\n{ON_RECORD}")


def next_call(seen: Preview) -> str:
    """No program can be run again here: the client makes the call that was cut off again, or another one."""
    if not isinstance(action_now(seen), hints.Resume):
        return next_action(seen)
    cut_off = next(iter(seen.session.in_flight), None)
    return f"make the call {cut_off} again, with the same key and arguments" if cut_off else "make the next call"


def refused(world: World, error: AcodeError) -> Answer:
    evidence, next_to_do = error.details.get("last_output"), error.hint
    if isinstance(error, Escalated):  # there is no program that a person could run again
        name = short(str(error.details.get("session_id", "")))
        text = "Read why: {}. To begin anew, with all keys free again: {}"
        next_to_do = hints.Hint(
            text, hints.Command("explain SESSION"), hints.Command("session cancel SESSION"), of=name
        ).as_command()
    lines = [f"{error.message} ({error.code})", f"Its last output: {evidence}" if evidence else "", next_to_do]
    return Answer(text=bounded(world, "\n".join(filter(None, lines))), error=True)


def bounded(world: World, text: str) -> str:
    clean = world.redactor.text(text)
    if len(clean) <= ANSWER_CHARACTERS_MAX:
        return clean
    return f"{clean[:ANSWER_CHARACTERS_MAX]}\n[{len(clean) - ANSWER_CHARACTERS_MAX:,} characters left out]"
