"""sql and commit steps, killed for real at every system call that changes something: one effect in the end.

After each kill the step is settled as a resume would settle it, and only if the evidence says that it did not happen
it is tried again under the next key. Killing at random would miss the few calls that matter; this misses none.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from acode.events import types as ev
from acode.events.definition import Commit, Sql, Step
from acode.plan import Outcome
from acode.steps.interface import Done
from acode.steps.run import wait_for_end
from tests.crash.harness import needs_ptrace
from tests.crash.harness.power import Metadata, Search, power_cuts
from tests.crash.harness.ptracer import Stop, changes_something, killed, stops_of
from tests.crash.harness.recording import record
from tests.crash.harness.snapshots import fast_directory
from tests.sites import Bench
from tests.variants import first_of

pytestmark = needs_ptrace

SQL = Step(id="main.1", action=Sql(file="change.sql", database="app.db"), timeout_s=30.0)
COMMIT = Step(id="main.1", action=Commit(message="Change", paths=("a", "new")), timeout_s=30.0)


@pytest.fixture
def ground() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory


class Trial:
    """Fresh ground for one kill, and what must hold after it."""

    def __init__(self, ground: Path, step: Step, lay_out: Callable[[Path], None]) -> None:
        self._ground = ground
        self._step = step
        self._lay_out = lay_out
        self._number = 0

    def fresh(self) -> tuple[Bench, ev.StepStarted]:
        self._number += 1
        workspace = self._ground / str(self._number)
        workspace.mkdir()
        self._lay_out(workspace)
        bench = Bench(workspace, self._ground / "state")
        return bench, bench.start(self._step)

    def in_workspace(self, stop: Stop) -> bool:
        """Calls about the user's files; what acode's own log does is swept elsewhere."""
        if not changes_something(stop):
            return False
        path = stop.path()
        return path.startswith(str(self._ground)) and "/.agent/workspace.db" not in path

    def stops(self) -> list[Stop]:
        bench, started = self.fresh()
        found = stops_of(lambda: bench.execute(self._step, started) and None, wanted=self.in_workspace)
        bench.close()
        return found

    def kill(self, at: int) -> tuple[Bench, Outcome]:
        """Killed, settled, and tried again where that is what the evidence says."""
        bench, started = self.fresh()
        killed(lambda: bench.execute(self._step, started) and None, at, wanted=self.in_workspace)
        found = bench.look(self._step, started)
        if found.still_running:
            assert wait_for_end(self._step, bench.site(), started)
            found = bench.look(self._step, started)
        if found.outcome is Outcome.APPLIED:
            bench.adopt(self._step, started)
        else:
            assert found.outcome is Outcome.NOT_APPLIED, found.evidence
            assert isinstance(bench.run(self._step, 2), Done)
        return bench, found.outcome


def migration(workspace: Path, *, wal: bool) -> None:
    text = "CREATE TABLE rows (n INTEGER); INSERT INTO rows VALUES (1), (2); CREATE INDEX by_n ON rows (n);"
    (workspace / "change.sql").write_text(text)
    database = apsw.Connection(str(workspace / "app.db"))
    database.execute(f"PRAGMA journal_mode={'WAL' if wal else 'DELETE'}; CREATE TABLE theirs (n)")
    database.close()


@pytest.mark.req("FR-011c-053")
@pytest.mark.parametrize("wal", first_of(True, False))
def test_a_migration_killed_at_any_call_is_applied_once(ground: Path, wal: bool) -> None:
    trial = Trial(ground, SQL, lambda workspace: migration(workspace, wal=wal))
    outcomes: list[Outcome] = []
    for number in range(len(trial.stops())):
        bench, outcome = trial.kill(number)
        outcomes.append(outcome)
        database = apsw.Connection(str(bench.workspace / "app.db"))
        assert list(database.execute("SELECT n FROM rows ORDER BY n")) == [(1,), (2,)]
        keys = [row[0].rsplit(":", 1)[1] for row in database.execute("SELECT key FROM acode_applied")]
        assert keys == ["1" if outcome is Outcome.APPLIED else "2"]
        assert database.pragma("integrity_check") == "ok"
        database.close()
        bench.close()
    assert {Outcome.APPLIED, Outcome.NOT_APPLIED} == set(outcomes), "kills on both sides of the commit"
    assert outcomes == sorted(outcomes, key=lambda one: one is Outcome.APPLIED), "one moment decides"


def seen_in(database: Path) -> tuple[int, int]:
    """Rows and keys, as whoever opens it after the power came back would see them."""
    if not database.exists():
        return 0, 0
    opened = apsw.Connection(str(database))
    try:
        tables = {row[0] for row in opened.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        counts = [
            opened.execute(f"SELECT count(*) FROM {name}").fetchone()[0] if name in tables else 0
            for name in ("rows", "acode_applied")
        ]
        return counts[0], counts[1]
    finally:
        opened.close()


@pytest.mark.parametrize("metadata", ["ordered", "strict"])
@pytest.mark.parametrize("journal", first_of("DELETE", "new file", "WAL"))
def test_a_power_cut_takes_statements_and_key_together_or_not_at_all(
    ground: Path, metadata: Metadata, journal: str
) -> None:
    workspace, again, heard = ground / "workspace", ground / "again", ground / "heard"
    workspace.mkdir()
    migration(workspace, wal=journal == "WAL")
    if journal == "new file":
        (workspace / "app.db").unlink()
    bench = Bench(workspace, ground / "state")
    started = bench.start(SQL)

    def work() -> None:
        assert isinstance(bench.execute(SQL, started), Done)
        heard.write_text("done")

    search = Search(metadata=metadata, exhaustive_pieces_max=3, random_choices=1, name_choices_max=8)
    found: set[tuple[int, int]] = set()
    told = 0
    for cut in power_cuts(record(work, workspace, heard=heard), search):
        cut.disk.put(again)
        state = seen_in(again / "app.db")
        found.add(state)
        told += bool(cut.heard)
        assert not cut.heard or state == (2, 1), f"acode was told, and the power cut after {cut.op} took it back"
    bench.close()
    assert found == {(0, 0), (2, 1)} and told


def git(place: Path, *arguments: str) -> str:
    who = {"GIT_AUTHOR_NAME": "You", "GIT_AUTHOR_EMAIL": "you@example.org"}
    env = {**os.environ, **who, "GIT_COMMITTER_NAME": "You", "GIT_COMMITTER_EMAIL": "you@example.org"}
    return subprocess.run(["git", *arguments], cwd=place, env=env, capture_output=True, text=True, check=True).stdout


def dirty_repository(workspace: Path) -> None:
    """A change, a new file, and somebody else's staged work."""
    git(workspace, "init", "-q", "-b", "main")
    for name, value in (("user.name", "You"), ("user.email", "you@example.org"), ("gc.auto", "0")):
        git(workspace, "config", name, value)
    for name in ("a", "b"):
        (workspace / name).write_text("one\n")
    git(workspace, "add", "a", "b")
    git(workspace, "commit", "-qm", "first")
    (workspace / "b").write_text("staged by somebody\n")
    git(workspace, "add", "b")
    (workspace / "a").write_text("changed\n")
    (workspace / "new").write_text("new\n")


@pytest.mark.req("FR-011c-054")
@pytest.mark.parametrize("every", first_of(3, 1))
def test_a_commit_killed_at_any_call_is_made_once(ground: Path, every: int) -> None:
    """acode is killed; the git that it started lives on, as it would."""
    trial = Trial(ground, COMMIT, dirty_repository)
    outcomes: set[Outcome] = set()
    for number in range(0, len(trial.stops()), every):
        bench, outcome = trial.kill(number)
        outcomes.add(outcome)
        place = bench.workspace
        assert git(place, "log", "--format=%s").split() == ["Change", "first"]
        assert git(place, "show", "--format=", "--name-status", "--no-renames").split() == ["M", "a", "A", "new"]
        assert git(place, "status", "--porcelain") == "M  b\n"
        left = {path.name for path in (place / ".git").iterdir()}
        assert not {name for name in left if name.endswith(".lock") or name.startswith("index.")}
        bench.close()
    assert outcomes == {Outcome.APPLIED, Outcome.NOT_APPLIED}
