"""Each kind of step, killed for real at its boundaries: acode alone, acode with all it started, the keeper, twice.

Where there is evidence the effect happens exactly once. Where there is none the step is unknown, nobody repeats it,
and the person who looks is believed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from acode.command_notes import process_started
from acode.disk import file_lock
from acode.engine import session_commands
from acode.engine.create import run_plan
from acode.engine.preview import rows
from acode.engine.resume import resume
from acode.engine.world import Options, World
from acode.errors import NoResumableSession, OutcomeUnknown
from acode.events.definition import Run, Step
from acode.plan import Outcome
from acode.redact import redactor
from acode.steps import keeper, keeper_notes
from acode.steps import run as commands
from tests.crash.harness import needs_ptrace
from tests.crash.harness.ptracer import NeverReached, killed, stops_of
from tests.crash.harness.snapshots import fast_directory
from tests.crash.oracle import files_in
from tests.crash.place import Place
from tests.crash.sweeps import STOPS_THAT_VARY
from tests.lives import Person, end_all_in, until
from tests.sites import Bench
from tests.worlds import plan_file, world

pytestmark = [needs_ptrace, pytest.mark.timeout(600)]

NOTE = 'echo "$ACODE_IDEMPOTENCY_KEY" >> "$LEDGER"'
END = "- write: {path: end.txt, content: end}"
STEPS = {
    "read": "- read: in.txt",
    "write": "- write: {path: in.txt, content: out}",
    "approve": "- approve: Go on?",
    "undeclared": f"- run: {NOTE}",
    "outputs": f"- run: echo half > out.txt; {NOTE}; echo whole > out.txt\n        outputs: [out.txt]",
    "probed": f"""- run: {NOTE}\n        probe: 'grep -q ":t.1:" "$LEDGER"'""",
    "idempotent": f"- run: {NOTE}; echo same > out.txt\n        idempotent: true",
}
ONCE = ("undeclared", "probed")  # as often as evidence or a person can make sure of


@dataclass(frozen=True)
class Trial:
    """One plan with one step of the kind in question, on fresh ground for each kill."""

    place: Path
    kind: str

    def fresh(self) -> None:
        end_all_in(self.place)
        shutil.rmtree(self.place, ignore_errors=True)
        (self.place / "workspace").mkdir(parents=True)
        (self.place / "workspace" / "in.txt").write_text("in\n")

    def world(self) -> World:
        person = Person()
        person.to_gates = "yes"
        env = {"PATH": os.environ["PATH"], "HOME": str(self.place), "LEDGER": str(self.place / "ledger")}
        return world(self.place, env=env, answers=person)

    def run(self) -> None:
        plan = f"tasks:\n  - title: t\n    steps:\n      {STEPS[self.kind]}\n      {END}\n"
        run_plan(self.world(), plan_file(plan))

    def unfinished(self) -> str | None:
        try:
            found = rows(self.world())
        except NoResumableSession:
            return None
        assert all(row.error is None for row in found), found
        return next((row.session_id for row in found if row.session and not row.session.terminal), None)

    def resume(self) -> None:
        """Once, if there is something to resume; whoever is asked has nothing to say."""
        session = self.unfinished()
        if session is not None:
            with contextlib.suppress(OutcomeUnknown):
                resume(self.world(), session, Options(force=True))

    def finish(self) -> bool:
        """To the end; True if a person had to look at what became of the step, and said so."""
        asked = False
        for _ in range(4):
            session = self.unfinished()
            if session is None:
                return asked
            try:
                resume(self.world(), session, Options(force=True))
            except OutcomeUnknown as unknown:
                assert unknown.exit_code == 19
                asked = True
                answer = "applied" if Place(self.place).effects()["t.1"] else "not_applied"
                session_commands.resolve(self.world(), session, "t.1", answer, note="looked", force=False)
        raise AssertionError("four resumes were not enough")

    def check(self, expected: dict[str, bytes], asked: bool, *, evidence: bool, where: str) -> None:
        if not (self.place / "workspace" / "end.txt").exists():
            assert rows(self.world()) == [] and Place(self.place).effects() == {}, f"{where}: nothing was begun"
            return
        assert dict(files_in(self.place / "workspace")) == expected, where
        if self.kind in ONCE or (evidence and self.kind == "outputs"):
            assert Place(self.place).effects()["t.1"] == 1, (
                f"{where}: it took effect {Place(self.place).effects()['t.1']} times"
            )
        if evidence or self.kind != "undeclared":
            assert not asked, f"{where}: a person was asked although there was evidence"


@pytest.fixture
def ground() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory / "place"


def undisturbed(trial: Trial) -> tuple[dict[str, bytes], int]:
    trial.fresh()
    stops = len(stops_of(trial.run))
    return dict(files_in(trial.place / "workspace")), stops


def spread(stops: int, wanted: int) -> list[int]:
    """So many of the stops, from the first to the last."""
    count = min(wanted, stops)
    return sorted({round(number * (stops - 1) / (count - 1)) for number in range(count)})


def sweep(trial: Trial, wanted: int, *, keeper_too: bool) -> None:
    expected, stops = undisturbed(trial)
    for at in spread(stops, wanted):
        trial.fresh()
        try:
            killed(trial.run, at)
        except NeverReached:
            if trial.kind in SLOW and at > stops - STOPS_THAT_VARY:
                break  # how often it looks after its command depends on how long that takes
            trial.fresh()
            if at >= len(stops_of(trial.run)):
                break  # it had more when they were counted: how often a file is looked at depends on the clock
            raise
        if keeper_too:
            end_all_in(trial.place)
        asked = trial.finish()
        trial.check(expected, asked, evidence=not keeper_too, where=f"{trial.kind}, kill {at} of {stops}")


QUICK = ("read", "write", "approve")
SLOW = ("undeclared", "outputs", "probed", "idempotent")


@pytest.mark.req("NFR-040b-11", "POL-GOAL-01", "FR-040b-35")
@pytest.mark.parametrize("kind", STEPS)
def test_acode_killed_at_the_boundaries_of_a_step(ground: Path, kind: str) -> None:
    sweep(Trial(ground, kind), 8 if kind in QUICK else 5, keeper_too=False)


@pytest.mark.parametrize("kind", SLOW)
def test_acode_and_all_it_started_killed_at_the_boundaries_of_a_command(ground: Path, kind: str) -> None:
    sweep(Trial(ground, kind), 5, keeper_too=True)


@pytest.mark.release
@pytest.mark.parametrize("keeper_too", [False, True])
@pytest.mark.parametrize("kind", STEPS)
def test_killed_at_every_boundary_of_every_kind(ground: Path, kind: str, keeper_too: bool) -> None:
    sweep(Trial(ground, kind), 10_000, keeper_too=keeper_too)


@pytest.mark.req("NFR-011c-006", "NFR-011c-007")
@pytest.mark.parametrize("kind", ["write", "outputs", "undeclared"])
def test_killed_again_and_again_while_it_is_settled_and_rolled_back(ground: Path, kind: str) -> None:
    """In the middle of the step, then in the middle of the resume, and of the resume after that."""
    trial = Trial(ground, kind)
    expected, stops = undisturbed(trial)

    def to_the_middle() -> None:
        trial.fresh()
        killed(trial.run, round(stops * 0.6))
        end_all_in(trial.place)

    to_the_middle()
    recovery = len(stops_of(trial.resume))
    for at in spread(recovery, 4):
        to_the_middle()
        killed(trial.resume, at)
        end_all_in(trial.place)
        with contextlib.suppress(NeverReached):  # the second recovery may have less to do, and then it has ended
            killed(trial.resume, (recovery - at) // 2)
        end_all_in(trial.place)
        asked = trial.finish()
        trial.check(expected, asked, evidence=False, where=f"{kind}, killed twice, first at {at} of {recovery}")


# The keeper itself.


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "workspace").mkdir()
    made = Bench(tmp_path / "workspace", tmp_path / "state", env={"LEDGER": str(tmp_path / "ledger")})
    yield made
    made.close()


STEP = Step(id="main.a", action=Run(command='echo done >> "$LEDGER"'), timeout_s=30.0)


def keep(bench: Bench, directory: Path, started: object, step: Step = STEP) -> None:
    """What the program of the keeper does, in a process that can be killed at a system call."""
    alive = os.open(directory / "alive", os.O_RDWR | os.O_CREAT, 0o600)
    assert file_lock.try_lock(alive)
    os.chdir(bench.workspace)
    os.environ.update(commands.command_env(step, bench.site(), started))  # type: ignore[arg-type]
    request = commands._request(step, bench.site(), directory)
    keeper.keep(request, redactor([]).stream())


def settle_down(directory: Path) -> None:
    deadline = time.monotonic() + 10.0
    while keeper_notes.still_running(directory, keeper_notes.read_mark(directory)) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_keeper_killed_anywhere_never_lets_a_command_pass_for_one_that_was_never_started(bench: Bench) -> None:
    effects = Path(bench.env["LEDGER"])
    seen: set[Outcome] = set()

    def attempt(number: int) -> tuple[object, Path]:
        effects.unlink(missing_ok=True)
        started = bench.start(STEP, number)
        directory = keeper_notes.run_directory(bench.agent_dir, started.key)
        directory.mkdir(parents=True)
        return started, directory

    started, directory = attempt(1)
    stops = len(stops_of(lambda: keep(bench, directory, started)))
    assert bench.look(STEP, started).outcome is Outcome.APPLIED  # type: ignore[arg-type]
    for at in range(stops):
        started, directory = attempt(at + 2)
        killed(lambda d=directory, s=started: keep(bench, d, s), at)  # type: ignore[misc]
        settle_down(directory)
        found = bench.look(STEP, started)  # type: ignore[arg-type]
        ran = effects.exists()
        seen.add(found.outcome)
        if found.outcome is Outcome.NOT_APPLIED:
            assert not ran, f"killed at {at} of {stops}: {found.evidence}, but it has run"
        elif found.outcome is Outcome.APPLIED:
            assert ran
    assert seen == {Outcome.NOT_APPLIED, Outcome.UNKNOWN, Outcome.APPLIED}, "every stage was hit"


def test_whoever_of_the_group_ignores_the_request_to_end_is_killed(bench: Bench) -> None:
    command = "(trap '' TERM; echo $$ > pid; exec sh -c 'echo $$ > stubborn; sleep 60') & wait"
    step = Step(id="main.b", action=Run(command=command), timeout_s=0.2)
    started = bench.start(step)
    directory = keeper_notes.run_directory(bench.agent_dir, started.key)
    directory.mkdir(parents=True)

    def work() -> None:
        keeper.KILL_AFTER_S = 0.3
        keep(bench, directory, started, step)

    stops_of(work)
    stubborn = int((bench.workspace / "stubborn").read_text())
    until(lambda: process_started(stubborn) is None)  # dead, or never fetched; a kill takes a moment
    status = keeper_notes.read_status(directory)
    assert status is not None and status.stopped == "timeout"
