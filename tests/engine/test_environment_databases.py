"""A database that does not know of a finished step is doubted, unless a command of the plan may be the reason."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from acode.engine.environment import Report
from acode.errors import EnvironmentInvalid
from tests.lives import Life


def stopped(tmp_path: Path, between: str, after: str) -> Life:
    """One step has changed the database; a gate stands before what is left."""
    life = Life(tmp_path)
    life.put("1.sql", "CREATE TABLE t (n integer);")
    life.put("2.sql", "INSERT INTO t VALUES (1);")
    steps = [
        "{sql: {database: app.db, file: 1.sql}}",
        between,
        "{approve: ok?}",
        "{run: test -e door, idempotent: true}",
        after,
    ]
    life.run(f"tasks: [{{title: t, steps: [{', '.join(filter(None, steps))}]}}]")
    life.person.to_gates = "yes"
    life.put("door", "")
    return life


def with_another(life: Life) -> None:
    life.path("app.db").unlink(missing_ok=True)
    old = apsw.Connection(str(life.path("app.db")))
    old.execute("CREATE TABLE t (n integer)")
    old.close()


def environment(life: Life) -> Report:
    report = life.look().environment
    assert report is not None
    return report


AGAIN = "{sql: {database: app.db, file: 2.sql}}"
ELSEWHERE = "{sql: {database: other.db, file: 1.sql}}"


@pytest.mark.req("FR-040b-18")
@pytest.mark.parametrize("after", ["", ELSEWHERE])
@pytest.mark.parametrize("another", [False, True])
def test_a_plan_that_removes_or_replaces_its_own_database_goes_on(tmp_path: Path, after: str, another: bool) -> None:
    life = stopped(tmp_path, "{run: rm app.db}", after)
    if another:
        with_another(life)
    (warning,) = environment(life).warnings
    words = "app.db does not record step t.1" if another else "app.db is gone, and what step t.1 did to it"
    assert words in warning.message and "a command of the plan" in warning.message
    assert life.resume().exit_code == 0


@pytest.mark.req("FR-040b-18")
def test_an_older_copy_does_not_get_the_next_change_whatever_ran_in_between(tmp_path: Path) -> None:
    life = stopped(tmp_path, "{run: 'true'}", AGAIN)
    with_another(life)
    with pytest.raises(EnvironmentInvalid, match=r"does not record step t\.1 any more"):
        life.resume()


@pytest.mark.req("FR-040b-18")
def test_a_database_that_no_command_can_have_removed_is_missed(tmp_path: Path) -> None:
    life = stopped(tmp_path, "", "")
    life.path("app.db").unlink()
    with pytest.raises(EnvironmentInvalid, match=r"app\.db is gone, and what step t\.1 did to it"):
        life.resume()
