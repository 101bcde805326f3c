"""Databases of every version ever shipped: opened by today's code they migrate, verify, fold and are carried on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import acode
from acode.engine.preview import preview, rows, verify
from acode.engine.resume import resume
from acode.engine.world import Options, World
from acode.events import ENVELOPE_VERSION, parse_key
from acode.events import types as ev
from acode.plan import Action
from acode.resume_point import Scenario
from acode.seal import SECRET_VARIABLE, load_keyring
from acode.state import Session, State, fold
from acode.store import checkpoints as ck
from acode.store import schema, session_index, sync_cursor
from acode.store.store import Store
from tests.golden.make_v7 import ENDED, KILLED
from tests.worlds import world

HERE = Path(__file__).resolve().parent / "sessions"
SECRET = "the secret of the golden databases"
WRITING = "01940000-0000-7000-8000-000000000001"
RUNNING = "01940000-0000-7000-8000-000000000002"


def opened(place: Path, version: str, files: dict[str, str]) -> World:
    """A workspace with a golden database and the files that its session had written."""
    env = {"PATH": os.environ["PATH"], "HOME": str(place), SECRET_VARIABLE: SECRET}
    made = world(place, env=env)
    made.agent_dir.mkdir(mode=0o700)
    shutil.copyfile(HERE / f"{version}.db", made.agent_dir / "workspace.db")
    (made.agent_dir / "workspace.db").chmod(0o600)
    for name, content in files.items():
        (made.workspace / name).write_text(content)
        (made.workspace / name).chmod(0o644)
    return made


def reading(made: World) -> Store:
    keyring = load_keyring(made.state_dir, made.env, create=False)
    return Store(made.agent_dir, keyring, clock=made.clock, new_id=made.new_id, look_only=True)


def bodies(made: World, session_id: str) -> list[tuple[int, bytes, bytes]]:
    with reading(made) as store:
        return list(store.rows(session_id))


def contents(made: World) -> dict[str, str]:
    return {path.name: path.read_text() for path in made.workspace.iterdir() if path.is_file()}


def raw(version: str) -> Iterator[tuple[int, dict[str, Any]]]:
    db = apsw.Connection(
        f"file:{HERE / version}.db?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    for table in ("events", "checkpoints"):
        for body in db.execute(f"SELECT body FROM {table}"):
            yield int(db.pragma("user_version")), json.loads(body[0])
    db.close()


GREETED = {"greeting.txt": "hello\n"}
JOINED = {"greeting.txt": "hello\n", "second.txt": "two\n", "joined.txt": "hello\ntwo\n"}


def test_the_golden_database_really_is_of_version_1_in_every_format() -> None:
    rows = list(raw("v1"))
    assert {version for version, _ in rows} == {1} and {row["v"] for _, row in rows} == {1}
    assert all("event" not in row for _, row in rows)
    keys = [row["key"] for _, row in rows if "key" in row]
    assert keys and all("#" in key and parse_key(key) is not None for key in keys)
    assert (ENVELOPE_VERSION, ck.CHECKPOINT_VERSION, schema.VERSION) == (3, 4, 8), "make a golden file of the last one"


@pytest.mark.req("REGR-011c-01", "REGR-011c-02", "BP-011c-10")
@pytest.mark.parametrize("session_id", [WRITING, RUNNING])
def test_a_version_1_session_folds_to_todays_state_from_its_checkpoint_as_from_its_log(
    tmp_path: Path, session_id: str
) -> None:
    made = opened(tmp_path, "v1", {})
    with reading(made) as store:
        loaded = store.load(session_id)
        everything = fold(envelope for envelope, _, _ in store.events(session_id))
        assert loaded.session == everything
        peeked, checkpoint = store.peek(session_id)
        assert (peeked.seq, peeked.steps_done, list(peeked.in_flight)) == (7, 1, list(everything.in_flight))
        assert peeked == ck.small(everything)
        assert (checkpoint.v, checkpoint.id, checkpoint.seq) == (2, 1, 5)
        assert store.verify(session_id).problems == ()
    assert everything.state is State.EXECUTING
    assert everything.last_lifecycle is not None and everything.last_lifecycle.type == "step_started"


def test_looking_at_a_version_1_database_does_not_change_a_byte_of_it(tmp_path: Path) -> None:
    made = opened(tmp_path, "v1", GREETED)
    found = preview(made, WRITING, Options())
    assert found.survey is not None and found.survey.scenario is Scenario.MID_WRITE
    assert found.survey.continuation.skipped_steps == ("prepare.1",)
    assert (made.agent_dir / "workspace.db").read_bytes() == (HERE / "v1.db").read_bytes()


@pytest.mark.req("REGR-011c-01", "REGR-011c-02", "NFR-011c-010", "INV-011c-02")
@pytest.mark.parametrize("was_applied", [False, True], ids=["the write had not happened", "the write had happened"])
def test_a_version_1_session_killed_in_a_write_is_carried_on_to_its_end(tmp_path: Path, was_applied: bool) -> None:
    made = opened(tmp_path, "v1", {**GREETED, **({"second.txt": "two\n"} if was_applied else {})})
    before = bodies(made, WRITING)
    found = preview(made, WRITING, Options())
    assert found.survey is not None
    assert [one.action for one in found.survey.continuation.in_flight] == [Action.SKIP if was_applied else Action.RETRY]
    result = resume(made, WRITING, Options())
    assert (result.state, result.exit_code, result.skipped_steps) == (State.COMPLETED, 0, 2 if was_applied else 1)
    assert contents(made) == JOINED
    assert bodies(made, WRITING)[: len(before)] == before, "what was written stays as it was written"
    assert verify(made, WRITING)[1].problems == ()


@pytest.mark.req("REGR-011c-03", "FR-011c-032")
def test_a_step_begun_under_an_old_key_is_settled_by_it_and_goes_on_under_a_new_one(tmp_path: Path) -> None:
    made = opened(tmp_path, "v1", {"counted.txt": "1\n"})
    result = resume(made, RUNNING, Options())
    assert (result.state, result.exit_code) == (State.COMPLETED, 0)
    assert contents(made)["key.txt"] == f"{RUNNING}:count.2:2\n"
    with reading(made) as store:
        keys = [one.event.key for one, _, _ in store.events(RUNNING) if isinstance(one.event, ev.StepStarted)]
    assert keys[1:] == [f"{RUNNING}/count.2#1", f"{RUNNING}:count.2:2"]
    assert [parse_key(key) for key in keys[1:]] == [(RUNNING, "count.2", 1), (RUNNING, "count.2", 2)]


def test_the_other_session_of_the_database_is_left_alone(tmp_path: Path) -> None:
    made = opened(tmp_path, "v1", {**GREETED, "counted.txt": "1\n"})
    before = bodies(made, RUNNING)
    resume(made, WRITING, Options())
    assert bodies(made, RUNNING) == before
    assert resume(made, RUNNING, Options()).exit_code == 0


# Version 2.


def the_session(made: World) -> Session:
    with reading(made) as store:
        (session_id,) = store.session_ids()
        return store.load(session_id).session


@pytest.mark.req("REGR-011c-01", "REGR-011c-02", "BP-011c-10")
def test_a_version_2_session_folds_from_its_snapshot_as_from_its_log(tmp_path: Path) -> None:
    made = opened(tmp_path, "v2", {})
    session = the_session(made)
    with reading(made) as store:
        loaded = store.load(session.session_id)
        assert loaded.checkpoint.snapshot is not None
        assert loaded.session == fold(envelope for envelope, _, _ in store.events(session.session_id))
        assert store.verify(session.session_id).problems == ()
    assert session.records is not None and session.records.approvals["prepare.2"].granted
    assert list(session.in_flight) == ["finish.1"]


@pytest.mark.req("REGR-011c-01", "NFR-011c-010")
def test_a_version_2_session_killed_in_a_command_is_carried_on_to_its_end(tmp_path: Path) -> None:
    made = opened(tmp_path, "v2", {**GREETED, "go": ""})
    session_id = the_session(made).session_id
    before = bodies(made, session_id)
    result = resume(made, session_id, Options())
    assert (result.state, result.exit_code, result.skipped_steps) == (State.COMPLETED, 0, 3)
    assert contents(made)["end.txt"] == "end\n" and contents(made)["done.txt"] == "done\n"
    assert bodies(made, session_id)[: len(before)] == before
    assert verify(made, session_id)[1].problems == ()


# Version 3.


@pytest.mark.req("REGR-011c-01", "NFR-011c-010")
def test_a_version_3_session_is_carried_on_and_remembers_its_shared_copy(tmp_path: Path) -> None:
    made = opened(tmp_path, "v3", {**GREETED, "go": ""})
    session = the_session(made)
    with reading(made) as store:
        cursor = sync_cursor.cursor_of(store, session.session_id)
        assert (cursor.pushed_seq, cursor.generation, cursor.standing) == (5, 2, "owner")
        assert cursor.reason == "Connection refused" and cursor.attempted_at is not None
        assert store.verify(session.session_id).problems == ()
    result = resume(made, session.session_id, Options())
    assert (result.state, result.exit_code, result.skipped_steps) == (State.COMPLETED, 0, 3)
    assert contents(made)["end.txt"] == "end\n"


# Version 7.


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = opened(tmp_path, "v7", {})
    for name, value in {"HOME": str(tmp_path), "ACODE_HOME": str(made.state_dir), SECRET_VARIABLE: SECRET}.items():
        monkeypatch.setenv(name, value)
    return made


def test_the_sessions_of_a_version_7_database_are_listed_and_found_by_key_as_before(programs: World) -> None:
    before = (programs.agent_dir / "workspace.db").read_bytes()
    killed, ended = rows(programs)
    assert killed.session is not None and ended.session is not None
    assert (killed.session.title, ended.session.title, ended.session.state) == (KILLED, ENDED, State.COMPLETED)
    with reading(programs) as store:
        assert session_index.sessions_of_key(store, ENDED) == [ended.session_id]
        assert [hint.session_id for hint in session_index.ended(store)] == [ended.session_id]
        assert [hint.session_id for hint in session_index.unfinished(store)] == [killed.session_id]
    assert (programs.agent_dir / "workspace.db").read_bytes() == before


@pytest.mark.req("REGR-011c-01", "NFR-011c-010")
def test_programs_of_a_version_7_database_return_their_results_and_are_carried_on(programs: World) -> None:
    done = list[str]()
    with acode.session(ENDED, workspace=programs.workspace) as session:
        assert session.step("fetch", lambda: done.append("fetch again")) == 1
    with acode.session(KILLED, workspace=programs.workspace) as session:
        assert session.step("fetch", lambda: done.append("fetch again")) == 2
        session.step("send", lambda: done.append("send"), idempotent=True)
    assert done == ["send"]
    assert [verify(programs, one.session_id)[1].problems for one in rows(programs)] == [(), ()]


# Version 8.


@pytest.fixture
def lean_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = opened(tmp_path, "v8", {})
    for name, value in {"HOME": str(tmp_path), "ACODE_HOME": str(made.state_dir), SECRET_VARIABLE: SECRET}.items():
        monkeypatch.setenv(name, value)
    return made


def test_the_golden_database_really_is_of_version_8_in_every_format() -> None:
    found = list(raw("v8"))
    assert {version for version, _ in found} == {8}
    assert {row["v"] for _, row in found if "event" in row} == {3}
    assert {row["v"] for _, row in found if "event" not in row} == {4}


def test_a_version_8_session_folds_from_its_snapshot_as_from_its_log(lean_programs: World) -> None:
    with reading(lean_programs) as store:
        for session_id in store.session_ids():
            loaded = store.load(session_id)
            assert loaded.checkpoint is not None and loaded.checkpoint.snapshot is not None
            assert loaded.session == fold(envelope for envelope, _, _ in store.events(session_id))
            assert store.verify(session_id).problems == ()


@pytest.mark.req("REGR-011c-01", "NFR-011c-010")
def test_programs_of_a_version_8_database_return_their_results_and_are_carried_on(lean_programs: World) -> None:
    done = list[str]()

    def paid(number: int) -> str:
        done.append(f"paid {number} again")
        return ""

    with acode.session(ENDED, workspace=lean_programs.workspace) as session:
        assert [session.step("pay", paid, one) for one in range(60)] == [f"{one} {'x' * 1_000}" for one in range(60)]
    with acode.session(KILLED, workspace=lean_programs.workspace) as session:
        assert [session.step("pay", paid, one) for one in range(60)] == [f"{one} {'x' * 1_000}" for one in range(60)]
        assert [session.step(f"part-{one}", paid, one)[0] for one in range(5)] == list("01234")
        session.run("true", idempotent=True)
        session.step("send", lambda: done.append("send"), idempotent=True)
    assert done == ["send"]
    assert [verify(lean_programs, one.session_id)[1].problems for one in rows(lean_programs)] == [(), ()]
