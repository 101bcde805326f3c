"""Beginning a plan beside a session that cannot be trusted: it may have done the work, so a person decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.driver import Acode
from tests.tampering import SPAN, Attack

PLAN = """
title: Twice
tasks:
  - title: Work
    steps:
      - run: echo done >> ledger.txt
      - approve: go on?
"""
OTHER = PLAN.replace("Twice", "Other").replace("ledger", "other")


def damage_later(attack: Attack) -> None:
    attack.edit(attack.last(), '"at":', '"at": ')


def damage_first(attack: Attack) -> None:
    attack.edit(1, '"task":"Twice"', '"task":"Never"')


def remove_all(attack: Attack) -> None:
    for table in ("events", "checkpoints"):
        attack.delete(0, SPAN - 1, table=table)
    attack.sql("DELETE FROM sessions")


def lose_checkpoints(attack: Attack) -> None:
    attack.sql("DELETE FROM checkpoints")


DAMAGES = [damage_later, damage_first, remove_all, lose_checkpoints]


@pytest.fixture
def begun(acode: Acode, workspace: Path) -> str:
    (workspace / "plan.yml").write_text(PLAN)
    (workspace / "other.yml").write_text(OTHER)
    assert acode("run", "plan.yml").exit_code == 10
    found: str = acode("session", "list", "--json").json[0]["session_id"]
    return found


@pytest.mark.parametrize("words", [["run"], ["run", "--auto"], ["supervise"]], ids=" ".join)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_plan_is_not_begun_beside_its_damaged_session(
    acode: Acode, workspace: Path, begun: str, damage: Callable[[Attack], None], words: list[str]
) -> None:
    damage(Attack(workspace))
    refused = acode(*words, "plan.yml")
    assert refused.exit_code == 20
    assert "acode session repair" in refused.stderr
    if damage is not damage_later:  # an event at a checkpoint is read where the session itself is: by its resume
        assert f"acode session repair {begun[-8:]}" in refused.stderr and "acode run --new PLAN" in refused.stderr
    assert (workspace / "ledger.txt").read_text() == "done\n"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_person_may_begin_it_anew_and_then_that_one_is_meant(
    acode: Acode, workspace: Path, begun: str, damage: Callable[[Attack], None]
) -> None:
    damage(Attack(workspace))
    assert acode("run", "--new", "plan.yml").exit_code == 10
    assert (workspace / "ledger.txt").read_text() == "done\ndone\n"
    again = acode("run", "plan.yml", "--json")
    assert again.exit_code == 10 and again.json["error"]["details"]["session_id"] != begun


def test_a_damaged_session_of_another_plan_is_in_nobodys_way(acode: Acode, workspace: Path, begun: str) -> None:
    damage_later(Attack(workspace))
    assert acode("run", "other.yml").exit_code == 10


def test_what_may_be_of_any_plan_is_in_the_way_of_all(acode: Acode, workspace: Path, begun: str) -> None:
    damage_first(Attack(workspace))
    assert acode("run", "other.yml").exit_code == 20
    assert not (workspace / "other.txt").exists()


def test_a_damaged_session_that_had_ended_is_in_nobodys_way(acode: Acode, workspace: Path, begun: str) -> None:
    acode("session", "approve", begun[-8:])
    assert acode("resume", begun).exit_code == 0
    damage_later(Attack(workspace))
    assert acode("run", "plan.yml").exit_code == 10
    assert (workspace / "ledger.txt").read_text() == "done\ndone\n"
