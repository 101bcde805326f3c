"""A command opens the store once: each opening verifies the schema and reads the keys, and costs what a short command
costs altogether."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.driver import Acode

PLAN = """\
version: 1
title: two steps and a gate
tasks:
  - id: t
    steps:
      - run: "true"
      - approve: "Go?"
      - run: exit 3
"""


class Openings:
    """The databases that this process has opened, by their paths."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def __call__(self, connection: apsw.Connection) -> None:
        if connection.filename:  # the others are in memory
            self.paths.append(Path(connection.filename))

    def of(self, acode: Acode, *words: str, exit_code: int) -> int:
        """How often the command opens the workspace's store."""
        self.paths.clear()
        ended = acode(*words)
        assert ended.exit_code == exit_code, ended.stderr
        assert {path.name for path in self.paths} == {"workspace.db"}
        return len(self.paths)


@pytest.fixture
def openings() -> Iterator[Openings]:
    seen = Openings()
    apsw.connection_hooks.append(seen)
    yield seen
    apsw.connection_hooks.remove(seen)


@pytest.fixture
def session(acode: Acode) -> str:
    """One that waits at a gate, and fails behind it."""
    (acode.workspace / "plan.yml").write_text(PLAN, encoding="utf-8")
    acode("run", "plan.yml")
    return str(acode("session", "list", "--json").json[0]["session_id"])


def test_a_run_opens_the_store_once(acode: Acode, openings: Openings) -> None:
    (acode.workspace / "plan.yml").write_text(PLAN, encoding="utf-8")
    assert openings.of(acode, "run", "plan.yml", exit_code=10) == 1
    assert openings.of(acode, "run", "--new", "plan.yml", exit_code=10) == 1


def test_a_run_beside_other_sessions_only_looks_until_it_is_known_that_none_is_of_its_plan(
    acode: Acode, session: str, openings: Openings
) -> None:
    """A run that is refused or asked about creates no key and upgrades no database."""
    assert openings.of(acode, "run", "plan.yml", exit_code=10) == 1
    (acode.workspace / "other.yml").write_text(PLAN.replace("true", "echo other"), encoding="utf-8")
    assert openings.of(acode, "run", "other.yml", exit_code=10) == 2


@pytest.mark.parametrize(
    "words", [("status",), ("explain",), ("session", "show"), ("resume", "--dry-run")], ids=" ".join
)
@pytest.mark.parametrize("named", [True, False], ids=["named", "most recent"])
def test_a_look_opens_the_store_once(
    acode: Acode, session: str, openings: Openings, words: tuple[str, ...], named: bool
) -> None:
    assert openings.of(acode, *words, *([session] if named else []), exit_code=0) == 1


def test_an_answer_and_a_resume_open_the_store_once(acode: Acode, session: str, openings: Openings) -> None:
    assert openings.of(acode, "session", "approve", session, exit_code=0) == 1
    assert openings.of(acode, "resume", session, exit_code=1) == 1
    assert openings.of(acode, "session", "resolve", session, "t.3", "--applied", exit_code=0) == 1
    assert openings.of(acode, "resume", session, exit_code=0) == 1


def test_a_resume_without_an_id_only_looks_until_the_session_is_chosen(
    acode: Acode, session: str, openings: Openings
) -> None:
    """A choice that is not made creates no key and upgrades no database: the second opening is for writing."""
    assert openings.of(acode, "resume", exit_code=10) == 1
    assert openings.of(acode, "resume", "--last", exit_code=10) == 2
