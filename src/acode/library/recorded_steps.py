"""The record of a program's steps: find it, compare it with a request, and prove that it is absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.errors import AcodeError, BlobDamaged, ChainBroken, MissingArtifacts, NonDeterminism, NotStorable
from acode.events import types as ev
from acode.events.definition import Call, Step
from acode.hints import Hint, Resolve, Rollback, StateResult
from acode.library import values
from acode.library.arguments import Arguments
from acode.library.declarations import OnChange
from acode.library.step_identity import Scope, Taken
from acode.state import NESTED, TERMINAL, State, StepRecord
from acode.steps.interface import Done
from acode.store.blobs import INLINE_BYTES_MAX
from acode.store.step_index import Finished
from acode.store.sync_cursor import cursor_of

WHY_CHARACTERS_MAX = 2_000


LOST = "lost"  # in a completion's result: why it is not there


def without_result(why: str) -> Done:
    return Done(result={LOST: why[:WHY_CHARACTERS_MAX]})


Work = tuple[str, str, str]


def work_of(step: Step, arguments: str) -> Work | None:
    """The identity of a step under any name: its kind, its function and its arguments. A lambda has no name."""
    function = step.action.function if isinstance(step.action, Call) else ""
    return None if "<lambda>" in function else (step.kind, function, arguments)


def works_of(step: Step, arguments: Arguments) -> set[Work | None]:
    """The same, as each rule for arguments may have recorded it."""
    return {work_of(step, digest) for digest in (arguments.digest, *arguments.by_first_rule())} - {None}


class Question(msgspec.Struct, frozen=True):
    """A program's request for a step, and the values to compare it with the record."""

    asked: ev.Asked
    arguments: Arguments
    taken: Taken
    scope: Scope
    shown: Callable[[], str]  # the arguments for people
    choice: OnChange | None = None  # what the step itself says is to happen if they are others than on record


class Record:
    """The past of one session, as its program asks for it."""

    def __init__(self, run: Held, on_change: OnChange) -> None:
        self.run = run
        self.finished_top = 0  # steps of the session itself that this run has found or ended
        self._on_change = on_change
        self._known_before = run.session.steps_done
        self._nested_before = run.session.steps_done - run.session.tasks_done
        self._counts_top_only = self._nested_before == 0 and not run.session.steps_from.follows_model
        self._finished = Finished(run.store, run.session.session_id, run.journal.unindexed)
        self._works: dict[str, Work | None] | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether no step was on record when this run of the program began."""
        return self._known_before == 0

    @property
    def is_all_found(self) -> bool:
        """Whether this run of the program has asked for every step that was on record: each that it asks for now, at
        the top of the session, is another one."""
        return self._counts_top_only and self.finished_top == self.run.journal.session.tasks_done

    def is_new(self, step: str, scope: Scope) -> bool:
        """Whether nothing can be on record of it: the session has not ended, began with this run of its program or has
        given it all that was on record, and knows no such step. Then there is nothing to look up, to compare or to
        refuse."""
        session = self.run.journal.session
        records = session.records
        return (
            (self._known_before == 0 or (not scope.path and self.is_all_found))
            and not scope.repeated
            and records is not None
            and step not in records.steps
            and step not in session.in_flight
            and session.state not in TERMINAL
        )

    def find(self, step: str, scope: Scope) -> ev.StepCompleted | None:
        """Its completion; None only where the log proves that there is none."""
        session = self.run.session
        record = session.record(step)
        if record is not None:
            return self._at(record, step) if record.status == "completed" else None
        if step in session.in_flight or (self._known_before == 0 and not scope.repeated):
            return None
        found = self._finished.find(step)
        if found is not None:
            return found
        if self._known_before == 0 or (scope.top and self.finished_top == session.tasks_done):
            return None  # as many as the sealed state knows were found, so this is none of them
        return None if self._finished.prove_absent(step) else self._finished.find_in_log(step)

    def _at(self, record: StepRecord, step: str) -> ev.StepCompleted:
        found = self._finished.at(record.seq, step)
        if found is None:
            raise ChainBroken(f"event {record.seq} is not the completion of step {step}", seq=record.seq)
        return found

    def caught(self, step: str) -> StepRecord | None:
        """The step's failure, if its program caught it and continued; a completed step has none."""
        session = self.run.session
        record = session.record(step)
        if record is None or record.status != "failed":
            return None
        return record if record.handled or session.state is State.COMPLETED else None

    def failure(self, record: StepRecord) -> ev.StepFailed | None:
        """The failure of that record; its settlement stands right behind it."""
        return self._finished.failure_at(record.seq - 1)

    # Compared.

    def is_as_asked(self, question: Question, then: ev.Asked | None, attempt: int) -> bool:
        """Whether what is on record of the step answers what is asked for now; False where it is to be done again."""
        asked, step = question.asked, question.taken.id
        if then == asked or then is None:  # None: its start was damaged, and a person has stated the step's outcome
            return True
        if then.digest_version == 1 and then.arguments in question.arguments.by_first_rule():
            asked = msgspec.structs.replace(asked, arguments=then.arguments)
        what = self._difference(then, asked, question.taken, question.scope)
        if what is None:
            return True
        decided = question.choice or self._on_change
        if decided == "rerun" and not self.run.session.terminal:
            return False
        recorded, now = self._sides(what, question, then, attempt)
        if decided == "keep":
            self._note_kept(step, what, recorded, now)
            return True
        raise NonDeterminism(
            f"step {step} is on record with other {what} than the program asks for now:"
            f" recorded {recorded}, asked for {now}"
            if what != "order"
            else f"the program asks for step {step}, but on record is that it did {recorded} first,"
            " which it has not asked for",
            hint=self._change_hint(),
            step=step,
            what=what,
            recorded=recorded,
            asked=now,
        )

    def _note_kept(self, step: str, what: str, recorded: str, now: str) -> None:
        """A completed session is only read: its log says nothing more."""
        if not self.run.session.terminal:
            note = ev.Noted(what="change_kept", data={"step": step, "of": what, "recorded": recorded, "asked": now})
            self.run.append(note, actor="user", durable=False)

    def _change_hint(self) -> Hint | str:
        if self.run.session.steps_from.follows_model:  # no program was changed: a repair has changed the model's input
            return session_hint(
                self.run.session,
                "The model's input is not the recorded one. Roll its answer, and the steps after it, back: {}, with a"
                " step before it (--dry-run lists them)",
                Rollback("STEP"),
            )
        return (
            "Undo the change in the program; or decide: on_change='keep' takes the recorded result,"
            " on_change='rerun' does the step again; or begin again under another key."
        )

    def _difference(self, then: ev.Asked, asked: ev.Asked, taken: Taken, scope: Scope) -> str | None:
        if then.arguments != asked.arguments:
            return "arguments"
        if then.version != asked.version:
            return "version"
        skipped = taken.ordered and then.after is not None and not scope.asked(then.after)
        return "order" if skipped else None

    def _sides(self, what: str, question: Question, then: ev.Asked, attempt: int) -> tuple[str, str]:
        match what:
            case "arguments":
                now = self.run.world.redactor.text(question.shown())
                return self._shown_then(question.taken.id, attempt), f"({now})"
            case "version":
                return then.version or "none", question.asked.version or "none"
            case _:
                return str(then.after), question.taken.id

    def _shown_then(self, step: str, attempt: int) -> str:
        """The recorded arguments; the whole log is read for them, because the session stops here."""
        text = ""
        for envelope, _, _ in self.run.store.events(self.run.session.session_id):
            event = envelope.event
            if isinstance(event, ev.StepStarted) and (event.step, event.attempt) == (step, attempt):
                text = event.shown
        return f"({text})"

    def refuse_the_same_by_another_name(self, step: Step, question: Question) -> None:
        """A step that was never begun does what another one on record did in its place: it was renamed or moved, or it
        is new and looks like that. Only a person knows, and decides before it is begun; it would be done twice.

        A step that does something else is new in the middle, and simply done.
        """
        session, scope = self.run.session, question.scope
        if (
            self._known_before == 0
            or scope.rerun
            or session.steps_from.follows_model
            or session.record(step.id) is not None
        ):
            return
        skipped = self._skipped(scope)
        if skipped is None or works_of(step, question.arguments).isdisjoint(map(self._works_on_record().get, skipped)):
            return
        passed = skipped[0]
        if (question.choice or self._on_change) in ("insert", "rerun"):
            self.run.append(ev.Noted(what="step_inserted", data={"step": step.id, "before": passed}), actor="user")
            return
        raise NonDeterminism(
            f"the program asks for step {step.id}, which is not on record, where it once did the same as {passed}",
            hint=f"If {passed} was renamed or moved, undo that: {step.id} would do it again. If {step.id} is"
            " new, declare it with on_change='insert', at the step or for the session; or begin again under another"
            " key.",
            step=step.id,
            what="step",
            recorded=passed,
            asked=step.id,
        )

    def _works_on_record(self) -> dict[str, Work | None]:
        """The action of each step, from its start; read once, by a program that was changed."""
        if self._works is None:
            starts = (envelope.event for envelope, _, _ in self.run.store.events(self.run.session.session_id))
            self._works = {
                event.step: work_of(event.definition, event.asked.arguments)
                for event in starts
                if isinstance(event, ev.StepStarted) and event.definition is not None and event.asked is not None
            }
        return self._works

    def _skipped(self, scope: Scope) -> tuple[str, str] | None:
        """The first step on record that had its place before whatever is asked for now, and was not asked for; and what
        stands around it at this place, or itself."""
        at: Scope | None = scope
        while at is not None:
            if not at.top or self._nested_before or self.finished_top != self.run.session.tasks_done:
                on_record = self._finished.in_order(at.path)
                while at.passed < len(on_record):
                    local, step = on_record[at.passed]
                    known = self.run.session.record(step)
                    if not at.asked(local) and (known is None or known.status == "completed"):
                        return step, f"{at.path}{NESTED}{local}" if at.path else local
                    at.passed += 1
            at = at.around
        return None

    def refuse_unasked(self) -> None:
        """At the end: a step on record that the program never asked for was taken out of it, or renamed."""
        if self.finished_top == self.run.session.tasks_done:
            return
        on_record, asked = self.run.session.tasks_done, self.finished_top
        if self._on_change == "keep":
            note = ev.Noted(what="change_kept", data={"of": "steps", "recorded": on_record, "asked": asked})
            self.run.append(note, actor="user", durable=False)
            return
        raise NonDeterminism(
            f"the program has ended, and of {on_record} steps on record it asked for {asked}",
            hint="If a step was removed or renamed, undo that. If a thread inside of a step asked for it, and that step"
            " is on record now, or if it is to be left out: on_change='keep' for the session completes it without. Or"
            " begin again under another key.",
            recorded=on_record,
            asked=asked,
        )

    # Results.

    def pack(self, value: Any) -> Done:
        """A result for the log: in the event, or as a blob where it is large, bytes, or secret."""
        if value is None:
            return Done()
        raw = type(value) is bytes
        data = value if raw else values.encode(value)
        redactor = self.run.world.redactor
        secret = redactor.matches(data.decode("utf-8", "surrogateescape")) if raw else redactor.matches_in(data)
        if not (raw or secret or len(data) > INLINE_BYTES_MAX):
            return Done(result=msgspec.Raw(b'{"v":' + data + b"}"))
        name, blob = self.run.store.keep(data, "sensitive" if secret else "output")
        return Done(result={"blob": name, "as": "bytes" if raw else "json"}, blobs={name: blob})

    def unpack(self, completed: ev.StepCompleted) -> Any:
        stored = completed.result
        if not isinstance(stored, dict):
            return None
        if LOST in stored:
            raise NotStorable(
                f"step {completed.step} has run, but its result could not be stored: {stored[LOST]}",
                hint=self.result_hint(completed.step),
                step=completed.step,
            )
        if "blob" not in stored:
            return values.decode(stored["v"]) if "v" in stored else None  # a commit's has a text of its own
        data = self._blob(stored["blob"], completed.step)
        return data if stored["as"] == "bytes" else values.decode(msgspec.json.decode(data))

    def result_hint(self, step: str) -> Hint:
        text = "Say what it returned: {}; or have it done again: {}."
        return session_hint(self.run.session, text, StateResult(step), Resolve(step, "--retry"))

    def lost(self, step: str) -> ev.StepCompleted | None:
        """The completion of a step whose result could not be stored."""
        completed = self.find(step, Scope(repeated=True))
        lost = completed is not None and isinstance(completed.result, dict) and LOST in completed.result
        return completed if lost else None

    def output(self, completed: ev.StepCompleted) -> str:
        """The output of a command."""
        if completed.output is None or completed.output.blob is None:
            return ""
        return self._blob(completed.output.blob, completed.step).decode("utf-8", "replace")

    def _blob(self, name: str, step: str) -> bytes:
        try:
            return self.run.store.blob(self.run.session.session_id, name)
        except BlobDamaged:
            if not self.run.session.terminal:
                self._refuse_kept_elsewhere(name, step)
                raise
            raise MissingArtifacts(
                f"the result of step {step} held a secret, and was removed when the session ended", step=step
            ) from None
        except OSError as error:
            raise AcodeError(f"the result of step {step} cannot be read: {error}") from error

    def _refuse_kept_elsewhere(self, name: str, step: str) -> None:
        """A result that held a secret does not leave its machine: the machine that took the session over gets this
        error.
        """
        store, session_id = self.run.store, self.run.session.session_id
        if not cursor_of(store, session_id).taken_seq or store.has_blob(session_id, name):
            return
        raise MissingArtifacts(
            f"the result of step {step} held a secret, and stays on the machine where the step ran",
            hint=session_hint(
                self.run.session,
                "Resume the session there. Or roll that step and the steps after it back here, to repeat them: {}, with"
                " the step before it",
                Rollback("STEP"),
            ),
            step=step,
        ) from None
