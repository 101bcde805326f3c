"""Equal bytes are one file for all sessions: whoever lets go of it takes it from nobody who is about to name it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from acode.engine.create import creation, run_plan
from acode.engine.gc import collect, plan_gc
from acode.engine.held_session import created as session_created
from acode.engine.workspace_store import opened
from acode.errors import BlobDamaged
from acode.store import removal
from acode.store.store import Store
from tests.builders import completed, created, did, finished, started
from tests.stores import Place, begun, say
from tests.worlds import plan_file, world

LARGE = b"what stood there before\n" * 5_000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "workspace" / ".agent")
    yield made
    made.close()


def files(agent_dir: Path) -> list[Path]:
    return [path for path in (agent_dir / "blobs").rglob("*") if path.is_file()]


def ended_with(store: Store, data: bytes) -> str:
    """A session that keeps these bytes as a pre-image and has ended; they are still there."""
    journal = begun(store, created("a"))
    name, blob = store.keep(data, "sensitive")
    journal.append(started("a"), blobs={name: blob})
    return journal.session.session_id


def test_a_session_that_ends_leaves_what_another_has_stored_and_not_named_yet(place: Place) -> None:
    """The other one stands between storing a pre-image and the start that names it."""
    ours, theirs = place.open(), place.open()
    ending = ended_with(ours, LARGE)
    journal = begun(theirs, created("b"))
    name, blob = theirs.keep(LARGE, "sensitive")
    ours.forget_preimages(ending)
    journal.append(started("b"), blobs={name: blob})
    assert theirs.blob(journal.session.session_id, name) == LARGE
    assert theirs.verify(journal.session.session_id).problems == ()


def test_a_collection_leaves_what_another_session_has_stored_and_not_named_yet(tmp_path: Path) -> None:
    there = world(tmp_path)
    printing = "version: 1\ntitle: x\ntasks: [{id: a, steps: [{run: 'yes x | head -c 100000'}]}]\n"
    run_plan(there, plan_file(printing))
    with opened(there, look_only=False) as theirs:
        journal = begun(theirs, created("b"))
        name, blob = theirs.keep(b"x\n" * 50_000, "output")
        (waiting,) = (path for path in files(there.agent_dir) if path.name != name)
        young_s = time.time() + 31 * 86_400
        os.utime(waiting, (young_s, young_s))
        at = msgspec.structs.replace(there, clock=lambda: datetime.now(UTC) + timedelta(days=31))
        assert len(collect(at, plan_gc(at)).sessions) == 1 and files(there.agent_dir) == [waiting]
        journal.append(started("b"), blobs={name: blob})
        assert theirs.blob(journal.session.session_id, name) == b"x\n" * 50_000


def test_a_secret_plan_is_there_although_another_session_with_the_same_one_ended_meanwhile(tmp_path: Path) -> None:
    there = world(tmp_path)
    secret = f"token=ghp_{'a1B2c3D4e5F6' * 3}"
    text = f"version: 1\ntitle: x\ntasks: [{{id: a, steps: [{{write: {{path: a.txt, content: '{secret}'}}}}]}}]\n"
    plan = plan_file(text)
    event, blobs = creation(there, plan)
    assert event.plan_sensitive
    assert run_plan(there, plan).exit_code == 0, "it ends, and its plan goes with it"
    with session_created(there, event, blobs=blobs) as run:
        assert run.store.load(run.session.session_id).session.plan == plan.plan


def test_whoever_names_a_blob_waits_for_whoever_is_removing_it(place: Place) -> None:
    """The look whether anybody names it and the removal are one, for everybody else."""
    ours, theirs = place.open(), place.open()
    ending = ended_with(ours, LARGE)
    journal = begun(theirs, created("b"))
    name, blob = theirs.keep(LARGE, "sensitive")
    order: list[str] = []
    removing = threading.Event()
    right = ours.blobs.remove

    def slowly(sha256: str) -> bool:
        removing.set()
        naming.join(0.3)
        order.append("removed")
        return right(sha256)

    def say_it() -> None:
        removing.wait()
        journal.append(started("b"), blobs={name: blob})
        order.append("named")

    naming = threading.Thread(target=say_it)
    ours.blobs.remove = slowly  # type: ignore[method-assign]
    naming.start()
    ours.forget_preimages(ending)
    naming.join()
    assert order == ["removed", "named"]
    assert theirs.blob(journal.session.session_id, name) == LARGE


def test_a_file_that_another_session_names_outlives_the_end_of_this_one(place: Place) -> None:
    store = place.open()
    one, other = ended_with(store, LARGE), ended_with(store, LARGE)
    store.forget_preimages(one)
    assert store.blob(other, store.blob_names(other)[0]) == LARGE
    store.forget_preimages(other)
    assert files(place.agent_dir) == []


def test_many_files_go_with_the_end_although_only_some_go_at_a_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "FILES_AT_ONCE_MAX", 3)
    store = place.open()
    journal = begun(store, created("a"))
    kept = [store.keep(f"secret {number}".encode(), "sensitive") for number in range(10)]
    journal.append(started("a"), blobs=dict(kept))
    assert len(files(place.agent_dir)) == 10
    store.forget_preimages(journal.session.session_id)
    assert files(place.agent_dir) == [] and store.blob_names(journal.session.session_id) == []


def test_a_session_whose_end_was_cut_off_while_its_files_went_is_whole_and_the_rest_goes_later(place: Place) -> None:
    """Killed inside the transaction: the files are gone, and the rows that knew of them are back."""
    store = place.open()
    journal = begun(store, created("a"))
    name, blob = store.keep(LARGE, "sensitive")
    journal.append(started("a"), blobs={name: blob})
    session_id = journal.session.session_id
    store.blobs.remove(name)
    assert [one.code for one in store.verify(session_id).problems] == [BlobDamaged.code], "while it may be needed"
    say(journal, completed("a"), finished())
    assert store.verify(session_id).problems == ()
    assert removal.holds_preimages(store, session_id), "so the next command that meets it finishes it"
    store.forget_preimages(session_id)
    assert store.blob_names(session_id) == []


@pytest.mark.req("THREAT-011c-04")
def test_what_a_killed_process_had_stored_for_a_start_it_never_said_goes_with_the_end(place: Place) -> None:
    store = place.open()
    journal = begun(store, created("a"))
    session_id = journal.session.session_id
    store.close()  # a forked process opens no database that its parent has open
    child = os.fork()
    if child == 0:
        mine = place.open()
        mine.journal(mine.load(session_id), 1)
        mine.keep(LARGE, "sensitive")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(files(place.agent_dir)) == 1
    store = place.open()
    journal = store.journal(store.load(session_id), 1)
    say(journal, did("a"), finished())
    store.forget_preimages(session_id)
    assert files(place.agent_dir) == []


def test_a_row_never_names_what_is_not_there(place: Place) -> None:
    store = place.open()
    journal = begun(store, created("a"))
    session_id = journal.session.session_id
    with pytest.raises(BlobDamaged, match="gone"):
        journal.append(started("a"), blobs={"0" * 64: ("sensitive", None)})
    assert store.blob_names(session_id) == [] and store.load(session_id).session.in_flight == {}


def test_what_was_stored_and_never_named_goes_when_the_store_is_closed(place: Place) -> None:
    store = place.open()
    begun(store, created("a"))
    store.keep(LARGE, "sensitive")
    place.close()
    assert files(place.agent_dir) == []
