"""One session with rows of two versions: begun by acode 0.1, continued by this one, shared, and continued elsewhere.

The other way round, an older acode beside a newer one, is played with rows that are newer than this one's.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import psycopg
import pytest

import acode
from acode.events import ENVELOPE_VERSION
from acode.store import session_index
from tests.golden.make_v7 import KILLED
from tests.golden.test_golden_sessions import HERE, SECRET
from tests.machines import Machine, Rows, assert_level, shared_log, url_of


def versions(log: Rows) -> list[int]:
    return [json.loads(body)["v"] for _, body, _ in log]


def with_a_database_of_0_1(machine: Machine) -> Machine:
    """As 0.1 left it: every row of version 2, a program killed in its second step."""
    agent_dir = machine.workspace / ".agent"
    agent_dir.mkdir(mode=0o700)
    shutil.copyfile(HERE / "v7.db", agent_dir / "workspace.db")
    (agent_dir / "workspace.db").chmod(0o600)
    return machine


def run_program(machine: Machine, patch: pytest.MonkeyPatch, *, fails: bool) -> list[str]:
    """The program of the golden database, with one step more; what was done and not taken from the record."""
    for name, value in machine.env.items():
        patch.setenv(name, value)
    done = list[str]()

    def send() -> str:
        done.append("send")
        return "sent"

    def report() -> str:
        if fails:
            raise ConnectionRefusedError("nobody is there")
        done.append("report")
        return "reported"

    with acode.session(KILLED, workspace=machine.workspace) as session:
        assert session.step("fetch", lambda: done.append("fetch")) == 2
        assert session.step("send", send, idempotent=True) == "sent"
        assert session.step("report", report) == "reported"
    return done


@pytest.mark.req("REGR-011c-01", "NFR-011c-010")
def test_a_session_with_rows_of_two_versions_is_shared_and_continued_on_a_fresh_machine(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = with_a_database_of_0_1(Machine(tmp_path / "old", url_of(database), secret=SECRET))
    assert old("sync", "now").exit_code == 0
    with old.store() as store:
        (session_id,) = session_index.sessions_of_key(store, KILLED)
    begun = shared_log(database, session_id)
    assert set(versions(begun)) == {2}, "what a machine of 0.1 has pushed"

    with pytest.raises(ConnectionRefusedError):
        run_program(old, monkeypatch, fails=True)
    assert old("sync", "now").exit_code == 0
    assert_level(old, database, session_id)
    mixed = shared_log(database, session_id)
    assert mixed[: len(begun)] == begun and set(versions(mixed[len(begun) :])) == {3}

    fresh = Machine(tmp_path / "fresh", url_of(database), secret=SECRET)
    assert fresh("pull", session_id).exit_code == 0
    assert fresh.log(session_id) == mixed
    assert fresh("session", "verify", session_id).exit_code == 0
    taken = fresh("resume", session_id, "--remote", "--yes")
    assert taken.exit_code == 1 and "Run the program again: with the key hourly" in taken.stderr
    assert run_program(fresh, monkeypatch, fails=False) == ["report"], "nothing that was done is done again"
    assert fresh("sync", "now").exit_code == 0
    assert_level(fresh, database, session_id)
    assert fresh.log(session_id)[: len(mixed)] == mixed
    assert fresh("session", "verify", session_id).exit_code == 0


PLAN = """
title: Two files
tasks:
  - title: Write them
    steps:
      - write: {path: a.txt, content: "a\\n"}
      - write: {path: b.txt, content: "b\\n"}
"""
NEWER = """
UPDATE acode_events SET body = convert_to(replace(convert_from(body, 'UTF8'), %s, %s), 'UTF8') WHERE seq > %s
"""


def test_a_session_that_a_newer_acode_continued_is_refused_with_the_hint_to_upgrade(
    tmp_path: Path, database: str
) -> None:
    """As the machines of a fleet are upgraded one by one. Nobody is told that the shared copy was tampered with."""
    first = Machine(tmp_path / "first", url_of(database))
    session_id = first.run(PLAN)
    assert first("sync", "now").exit_code == 0
    versions_now = f'"v":{ENVELOPE_VERSION}', f'"v":{ENVELOPE_VERSION + 1}'
    with psycopg.connect(database) as connection:
        connection.execute(NEWER, (*versions_now, 4))

    second = Machine(tmp_path / "second", url_of(database))
    assert session_id[-8:] in second("session", "list", "--remote").stdout, "the list needs no rows"
    for command in (["pull", session_id], ["resume", session_id, "--remote", "--yes"]):
        refused = second(*command)
        assert refused.exit_code == 20 and "was continued by a newer acode, nothing was brought here" in refused.stderr
        assert "[ACODE-DB-003]" in refused.stderr and "hint: Upgrade acode." in refused.stderr
        assert "Somebody has changed" not in refused.stderr
    assert "No sessions here" in second("session", "list", "--all").stderr
    other = second.run(PLAN)
    assert second("sync", "now").exit_code == 0
    assert_level(second, database, other)
