"""Ids as they are shown: what is copied from a list names the session everywhere, also when it is cut short."""

from __future__ import annotations

import pytest

from tests.cli.plans import GATE, THREE_TASKS, save
from tests.driver import Acode

LOOKS = (
    ("status",),
    ("explain",),
    ("resume", "--dry-run"),
    ("session", "show"),
    ("session", "history"),
    ("session", "verify"),
)
ACTS = (
    ("session", "checkpoint"),
    ("session", "approve"),
    ("session", "deny"),
    ("session", "pause"),
    ("session", "unlock"),
    ("session", "abandon"),
)


def waiting(acode: Acode) -> str:
    save(acode.workspace, GATE)
    assert acode("run", "plan.yml").exit_code == 10
    save(acode.workspace, THREE_TASKS, "other.yml")
    assert acode("run", "other.yml").exit_code == 1
    return str(next(row["short_id"] for row in acode("session", "list", "--json").json if row["title"] == "Deploy it"))


def test_the_beginning_of_the_short_id_names_a_session_for_every_look(acode: Acode) -> None:
    short = waiting(acode)
    for words in LOOKS:
        by_part, in_full = (acode(*words, name, "--json") for name in (short[:5], short))
        assert by_part.exit_code == in_full.exit_code == 0, (words, by_part.stderr)
        if isinstance(in_full.json, dict) and "session_id" in in_full.json:
            assert by_part.json["session_id"] == in_full.json["session_id"]


@pytest.mark.parametrize("words", ACTS, ids=" ".join)
def test_the_beginning_of_the_short_id_names_a_session_for_every_act(acode: Acode, words: tuple[str, ...]) -> None:
    short = waiting(acode)
    ended = acode(*words, short[:5])
    assert "no session" not in ended.stderr and ended.exit_code not in (2, 14), ended
    state = {row["short_id"]: row for row in acode("session", "list", "--json", "--all").json}[short]["state"]
    assert words[1] != "abandon" or state == "FAILED"


def test_a_beginning_that_fits_several_sessions_lists_them_and_does_nothing(acode: Acode) -> None:
    waiting(acode)
    rows = acode("session", "list", "--json").json
    common = rows[0]["session_id"][:4]  # the ids of one minute begin alike
    ended = acode("session", "abandon", common)
    assert ended.exit_code == 14
    assert all(row["short_id"] in ended.stderr for row in rows)
    assert [row["state"] for row in acode("session", "list", "--json").json] == [row["state"] for row in rows]
