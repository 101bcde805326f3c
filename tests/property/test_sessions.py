"""Random lives of real sessions: crashes, kills, edits, failures, resolutions, rollbacks; and then the work is done.

Several may want to carry it on at once; the clock jumps, and automatic attempts obey the policy by it.

A crash is a notice at which everything stops, or a real SIGKILL at a system call; sometimes all that was started dies
too. Whoever is asked looks at the ledger of effects, which no part of acode reads, and says the truth.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from acode.engine import session_commands
from acode.engine.preview import rows, verify
from acode.engine.rollback import roll_back
from acode.errors import (
    AcodeError,
    CannotContinue,
    LockForeignProcess,
    NoResumableSession,
    OutcomeUnknown,
    SessionLocked,
    StepStillRunning,
    TerminalState,
)
from acode.events import types as ev
from acode.state import State
from tests.concurrency.together import together
from tests.crash.harness import needs_ptrace
from tests.crash.harness.ptracer import NeverReached, killed
from tests.lives import Killed, Life, end_all_in

NOTE = 'echo "$ACODE_IDEMPOTENCY_KEY" >> "$LEDGER"'
KINDS = {
    "read": "- read: notes.txt",
    "write": "- write: {{path: made{n}.txt, content: made{n}}}",
    "rewrite": "- write: {{path: same.txt, content: version{n}}}",
    "approve": "- approve: Go on?",
    "undeclared": f"- run: {NOTE}",
    "probed": f"""- run: {NOTE}\n        probe: 'grep -q "$ACODE_IDEMPOTENCY_KEY" "$LEDGER"'""",
    "outputs": "- run: echo half > out{n}.txt; " + NOTE + "; echo whole > out{n}.txt\n        outputs: ['out{n}.txt']",
    "idempotent": "- run: " + NOTE + "; echo same > same{n}.txt\n        idempotent: true",
    "flaky": "- run: '[ -e ../failed{n} ] || {{ touch ../failed{n}; exit 1; }}; " + NOTE + "'",
    "undone": "- run: " + NOTE + "\n        undo: " + NOTE,
}
ONCE = ("undeclared", "probed", "flaky", "undone")
RESUMES_MAX = 8
NOTICES = st.integers(0, 12)


class Sessions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.life = Life(Path(tempfile.mkdtemp(prefix="acode-life-")))
        self.life.person.to_gates = "yes"
        self.life.person.to_changes = "continue"
        self.kinds: list[str] = []
        self.edits = 0
        self.ahead = timedelta()
        self.life.clock = lambda: datetime.now(UTC) + self.ahead

    @initialize(kinds=st.lists(st.sampled_from(list(KINDS)), min_size=2, max_size=4))
    def a_plan(self, kinds: list[str]) -> None:
        self.kinds = kinds
        self.life.put("notes.txt", "0")
        steps = "\n".join("      " + KINDS[kind].format(n=number) for number, kind in enumerate(kinds, 1))
        self.text = f"tasks:\n  - title: t\n    steps:\n{steps}\n"

    @property
    def open(self) -> bool:
        return self.state not in (State.COMPLETED, None)

    @property
    def state(self) -> State | None:
        """None: no session has been made."""
        try:
            found = rows(self.life.world())
        except NoResumableSession:
            return None
        if not found:
            return None
        (row,) = found
        assert row.session is not None, row.error
        self.life.id = row.session_id
        return row.session.state

    # What can happen.

    def go(self) -> None:
        """Begin, or carry on."""
        state = self.state
        if state is None:
            self.life.run(self.text)
        elif state is not State.COMPLETED:
            self.life.resume(force=True)

    @rule(notices=NOTICES, all_die=st.booleans())
    def crash(self, notices: int, all_die: bool) -> None:
        """It goes on until so many things were told."""
        told = len(self.life.ears.notices)
        plain = self.life.ears.emit

        def tell(notice: Any) -> None:
            plain(notice)
            if len(self.life.ears.notices) - told > notices:
                raise Killed

        self.life.ears.emit = tell  # type: ignore[method-assign]
        try:
            with contextlib.suppress(Killed, OutcomeUnknown):
                self.go()
        finally:
            self.life.ears.emit = plain  # type: ignore[method-assign]
        if all_die:
            end_all_in(self.life.place)

    @rule(at=st.integers(0, 300), all_die=st.booleans())
    def kill(self, at: int, all_die: bool) -> None:
        """A real SIGKILL at a system call."""

        def work() -> None:
            with contextlib.suppress(OutcomeUnknown):
                self.go()

        with contextlib.suppress(NeverReached):
            killed(work, at)
        if all_die:
            end_all_in(self.life.place)

    @precondition(lambda self: self.open)
    @rule()
    def many_resume(self) -> None:
        """Three want to carry it on at the same moment: one does, or one after another."""

        def work() -> int:
            try:
                self.go()
            except (OutcomeUnknown, CannotContinue, StepStillRunning):
                return 1
            except (SessionLocked, LockForeignProcess):
                return 2
            except TerminalState:
                return 3
            return 0

        assert set(together(work, work, work)) <= {0, 1, 2, 3}

    @rule(seconds=st.sampled_from([-3_600, -1, 0, 9, 30, 61, 121]))
    def time_passes(self, seconds: int) -> None:
        """Also backwards, as clocks that are set do."""
        self.ahead += timedelta(seconds=seconds)

    @precondition(lambda self: self.open)
    @rule()
    def automatic(self) -> None:
        """An attempt that obeys the policy. A refusal takes no step and leaves no other trace than its record."""
        self.life.person.to_gates = None
        before, decided = self.started(), len(self.life.events(ev.ResumeDecision))
        try:
            self.life.resume(actor="system")
        except AcodeError as error:
            assert error.exit_code != 20, "nobody has tampered with anything"
        finally:
            self.life.person.to_gates = "yes"
        decisions = self.life.events(ev.ResumeDecision)[decided:]
        if decisions and not decisions[-1].eligible:
            assert self.started() == before

    def started(self) -> int:
        return len(self.life.events(ev.StepStarted))

    @rule()
    def edit(self) -> None:
        self.edits += 1
        self.life.put("notes.txt", str(self.edits))

    @precondition(lambda self: self.open)
    @rule(to=st.integers(0, 3), notices=st.none() | st.integers(0, 4))
    def take_back(self, to: int, notices: int | None) -> None:
        step = f"t.{to}" if to else None
        if notices is not None:
            self.life.ears.at("step_taken_back", self.life.die)
        with contextlib.suppress(Killed, AcodeError):
            roll_back(self.life.world(), self.life.id, step)
        self.life.ears.forget()

    # What must be true.

    def settle(self) -> None:
        """Somebody looks at the ledger and says what became of each step in flight."""
        with contextlib.suppress(NoResumableSession):
            session = self.life.look().session
            for step, flight in list(session.in_flight.items()):
                answer = "applied" if flight.started.key in self.ledger() else "not_applied"
                with contextlib.suppress(StepStillRunning):
                    session_commands.resolve(self.life.world(), self.life.id, step, answer, note="", force=False)

    def ledger(self) -> list[str]:
        return self.life.ledger.read_text().split() if self.life.ledger.exists() else []

    def finish(self) -> None:
        for _ in range(RESUMES_MAX):
            try:
                self.go()
            except OutcomeUnknown:
                self.settle()
            except CannotContinue:  # a rollback was interrupted: it is finished first
                undoing = self.life.look().session.undoing
                assert undoing is not None
                with contextlib.suppress(StepStillRunning):
                    roll_back(self.life.world(), self.life.id, undoing.to)
            if self.state is State.COMPLETED:
                return
        raise AssertionError(f"not done after {RESUMES_MAX} resumes")

    def teardown(self) -> None:
        try:
            if self.kinds:
                self.finish()
                self.check()
        finally:
            end_all_in(self.life.place)
            shutil.rmtree(self.life.place, ignore_errors=True)

    def check(self) -> None:
        taken_back: Counter[str] = Counter()
        for event in self.life.events(ev.StepsRolledBack):
            taken_back.update(event.steps)
        completions = Counter(event.step for event in self.life.events(ev.StepCompleted))
        keys = Counter(self.ledger())
        assert set(keys.values()) <= {1}, f"the same attempt took effect twice: {keys}"
        effects = Counter(key.split(":")[1] for key in keys)
        for number, kind in enumerate(self.kinds, 1):
            step = f"t.{number}"
            assert completions[step] == 1 + taken_back[step], f"{step} ({kind})"
            if kind in ONCE:
                assert effects[step] == completions[step], f"{step} ({kind}): {effects}"
            if kind == "undone":
                assert effects[f"{step}~undo"] == taken_back[step]
        self.check_files()
        assert verify(self.life.world(), self.life.id)[1].problems == ()

    def check_files(self) -> None:
        expected = {"notes.txt": str(self.edits)}
        for number, kind in enumerate(self.kinds, 1):
            match kind:
                case "write":
                    expected[f"made{number}.txt"] = f"made{number}"
                case "rewrite":
                    expected["same.txt"] = f"version{number}"
                case "outputs":
                    expected[f"out{number}.txt"] = "whole\n"
                case "idempotent":
                    expected[f"same{number}.txt"] = "same\n"
        workspace = self.life.path(".")
        found = {path.name: path.read_text() for path in workspace.iterdir() if path.is_file()}
        found.pop("plan.yml", None)
        assert found == expected


@needs_ptrace
@pytest.mark.req("BP-011c-17", "NFR-040b-11", "FR-040b-50")
@pytest.mark.timeout(300)
class TestSessions(Sessions.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(
        max_examples=20,
        stateful_step_count=6,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@needs_ptrace
@pytest.mark.release
@pytest.mark.timeout(3_600)
class TestManySessions(Sessions.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(
        max_examples=600,
        stateful_step_count=12,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
