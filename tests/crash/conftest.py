"""What every sweep needs: a place in memory, a prepared case, and a way to tell its numbers at the end of the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acode.steps import git_locks
from tests.crash.case import Case, Prepared, prepared
from tests.crash.grounds_agent import SCRIPT
from tests.crash.harness.snapshots import fast_directory
from tests.crash.outside import Database, Model, database_on, model_with
from tests.crash.place import Place
from tests.crash.sweeps import Tally
from tests.lives import end_all_in
from tests.postgres import Server

Prepare = Callable[[Case], Prepared]
Tell = Callable[[str, Tally], None]
# The names that a disk may lose: the gate takes the disk that keeps fewer of them.
METADATA = pytest.mark.parametrize("metadata", [pytest.param("ordered", marks=pytest.mark.release), "strict"])


@pytest.fixture
def memory() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory


@pytest.fixture
def database(postgres_server: Server) -> Iterator[Database]:
    with database_on(postgres_server) as made:
        yield made


@pytest.fixture
def model(memory: Path) -> Iterator[Model]:
    with model_with(SCRIPT, memory / "model", memory / "place" / "asked") as made:
        yield made


@pytest.fixture(autouse=True)
def soon_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who holds a lock of git's lives on in a sweep: what acode cannot remove it may name at once."""
    monkeypatch.setattr(git_locks, "LOCK_WAIT_S", 0.3)


@pytest.fixture
def prepare(memory: Path, request: pytest.FixtureRequest) -> Iterator[Prepare]:
    """Lays one ground after the other, always at the same place; what lies outside is started when a case wants it."""
    root = memory / "place"

    def lay(case: Case) -> Prepared:
        end_all_in(root)
        shutil.rmtree(root, ignore_errors=True)
        place = Place(root)
        if case.outside:
            place.outside = request.getfixturevalue(case.outside)
        return prepared(case, place)

    yield lay
    end_all_in(root)


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """The numbers of a sweep stand in the last lines of the test run, whoever of the workers made them."""

    def numbers(name: str, tally: Tally) -> None:
        record_property("sweep", f"{name}: {tally}")
        record_property("figures", tally.figures)
        print(f"{name}: {tally}")

    return numbers
