"""All orders in which two or three processes can meet at one session's lock, log and anchor, killed or asleep.

An owner that sleeps is one that is not chosen for a while, so every order with a broken lock in it is also one in which
the fenced owner wakes up later. What must hold is judged at each commit and at the end of each order; see `stage.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acode import lock
from acode.disk import file_lock
from acode.engine import held_session
from acode.engine.held_session import Held
from acode.engine.world import World
from acode.events import types as ev
from acode.store.journal import Blob, Journal
from acode.workspace import Root
from tests.concurrency import lives
from tests.concurrency.conductor import Sweep, sweep
from tests.concurrency.lives import Life
from tests.concurrency.stage import LockStage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LockStage]:
    for patience in ("GLANCES_S_MAX", "BRIEF_S_MAX"):  # each further try is the same round again
        monkeypatch.setattr(lock, patience, lock.GLANCE_S)
    made = LockStage(tmp_path, monkeypatch, wait_s=lock.WAIT_STEP_S)
    yield made
    made.close()


def swept(stage: LockStage, *played: Life, deaths: int, runs_max: int = 10_000_000, stop_early: bool = False) -> Sweep:
    stage.hire(len(played))
    works = tuple(stage.bound(life) for life in played)
    found = sweep(stage.conductor, works, deaths=deaths, runs_max=runs_max, stop_early=stop_early)
    names = " x ".join(life.__name__ for life in played)
    print(
        f"{names}, {deaths} deaths: {found.runs} runs of {found.operations} operations, {found.states} states,"
        f" {found.schedules} schedules, {found.endings} endings {'' if found.complete else '(a part)'} {found.outcomes}"
    )
    return found


def clean(found: Sweep) -> Sweep:
    assert found.problems == {}
    assert found.complete
    return found


# Two processes, in the gate.


@pytest.mark.req("NFR-040b-19", "NFR-011c-011", "THREAT-011c-06")
def test_two_that_want_the_same_session_never_write_at_once_in_any_order(stage: LockStage) -> None:
    """Killed at each of their operations: the release sweep."""
    found = clean(swept(stage, lives.notes, lives.notes, deaths=0))
    assert found.schedules > 1_000_000
    assert {"worked | worked", "worked | refused", "refused | worked"} <= set(found.outcomes)


@pytest.mark.req("THREAT-011c-06", "NFR-011c-011")
def test_an_owner_whose_lock_was_broken_never_writes_again_in_any_order(stage: LockStage) -> None:
    """It slept through the breaking at each of its operations; killed at each of theirs: the release sweep."""
    found = clean(swept(stage, lives.notes, lives.breaks, deaths=0))
    assert {"worked | broke", "fenced | broke", "worked | found it free"} <= set(found.outcomes)


@pytest.mark.release
def test_looking_beside_a_writer_is_never_alarmed_in_any_order(stage: LockStage) -> None:
    """What was heard outside the database is read first: a log that is read after it cannot be behind it."""
    clean(swept(stage, lives.notes, lives.looks_on, deaths=1))


@pytest.mark.release
def test_a_full_disk_lets_no_fenced_owner_note_its_pause_in_any_order(stage: LockStage) -> None:
    """The log is opened anew with the generation the lock was taken for, never with the one that stands there now."""
    found = clean(swept(stage, lives.runs_out_of_disk, lives.breaks, deaths=0))
    assert {"paused | broke", "stopped | broke"} <= set(found.outcomes)


def test_a_new_session_belongs_to_whoever_began_it_in_any_order(stage: LockStage) -> None:
    """Its lock is held before its first event can be seen, so that nobody who looks for work takes it away."""
    found = clean(swept(stage, lives.begins, lives.takes_the_newest, deaths=0))
    assert {"began | took the old one", "began | refused", "began | took the new one"} <= set(found.outcomes)


# Three, longer stays, and kills where they meet: the release sweep.

MEETINGS: list[tuple[tuple[Life, ...], int]] = [
    ((lives.notes, lives.notes), 1),
    ((lives.notes, lives.breaks), 1),
    ((lives.begins, lives.takes_the_newest), 1),
    ((lives.works, lives.works), 2),
    ((lives.works, lives.breaks), 2),
    ((lives.works, lives.asks_to_break), 2),
    ((lives.waits, lives.works), 2),
    ((lives.breaks, lives.breaks), 2),
    ((lives.runs_out_of_disk, lives.breaks), 2),
    ((lives.notes, lives.breaks, lives.notes), 1),
    ((lives.notes, lives.breaks, lives.breaks), 1),
    ((lives.notes, lives.breaks, lives.looks_on), 0),
    ((lives.notes, lives.notes, lives.notes), 1),
    ((lives.waits, lives.notes, lives.breaks), 0),
]
PLAYED = [played for played, _ in MEETINGS]
RUNS_MAX = 15_000  # with three processes a part of the states; it is said which


@pytest.mark.release
@pytest.mark.parametrize(
    ("played", "deaths"),
    MEETINGS,
    ids=lambda one: "-".join(life.__name__ for life in one) if one in PLAYED else str(one),
)
def test_no_meeting_of_processes_breaks_the_log(stage: LockStage, played: tuple[Life, ...], deaths: int) -> None:
    found = swept(stage, *played, deaths=deaths, runs_max=RUNS_MAX)
    assert found.problems == {}
    assert found.schedules > 1_000_000 or found.complete


# Teeth: the sweep reports each of these.


def looking_then_taking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock as a note in a file: whoever finds no living owner's name takes it."""

    def take(fd: int, *, shared: bool = False) -> bool:
        holder = lock._read_holder(fd)
        return holder is None or holder.released or not lock.alive(holder)

    monkeypatch.setattr(file_lock, "try_lock", take)


def no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "_fence", lambda self, *arguments: None)


def deleting_the_file_on_release(monkeypatch: pytest.MonkeyPatch) -> None:
    release = lock.Lock.release

    def deleting(held: lock.Lock) -> None:
        with contextlib.suppress(FileNotFoundError):
            lock.os.unlink(held.path)
        release(held)

    monkeypatch.setattr(lock.Lock, "release", deleting)


def acknowledging_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    append = held_session.Held.append

    def hasty(run: held_session.Held, *events: object, **options: object) -> object:
        run.world.listener.durable(run.session.seq + len(events))
        return append(run, *events, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(held_session.Held, "append", hasty)


def anchoring_without_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: whoever slept between its commit and its anchor sets its successor's anchor back."""
    monkeypatch.setattr(Journal, "while_ours", lambda journal: contextlib.nullcontext())


def showing_before_locking(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: the first event of a new session is written, and then its lock is taken."""

    @contextlib.contextmanager
    def created(world: World, event: ev.SessionCreated, *others: ev.Known, blobs: dict[str, Blob]) -> Iterator[Held]:
        with held_session.opened(world, look_only=False, create=True) as store, Root(world.workspace) as root:
            session_id = world.new_id()
            journal = store.create(session_id)
            journal.append(event, *others, actor="user", blobs=blobs)
            taken, _ = lock.acquire(
                world.agent_dir / "locks", session_id, lambda: store.generation(session_id), now=world.clock
            )
            try:
                in_hand = Held(world, store, journal, root, taken)
                in_hand.acknowledge(at_once=True)
                yield in_hand
            finally:
                taken.release()

    monkeypatch.setattr(held_session, "created", created)


def numbering_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose turn it is, and so the next number, is found out when an event arrives, before the transaction begins."""
    fence, append = Journal._fence, Journal.append
    asked: set[Journal] = set()

    def early(journal: Journal, *events: Any, **options: Any) -> Any:
        if journal._exists:
            journal.refuse_if_fenced()
        asked.add(journal)
        try:
            return append(journal, *events, **options)
        finally:
            asked.discard(journal)

    def not_again(journal: Journal, *arguments: Any) -> None:
        if journal not in asked:
            fence(journal, *arguments)

    monkeypatch.setattr(Journal, "append", early)
    monkeypatch.setattr(Journal, "_fence", not_again)


Planted = tuple[Callable[[pytest.MonkeyPatch], None], tuple[Life, ...], int, str]
PLANTED: list[Planted] = [
    (looking_then_taking, (lives.notes, lives.notes), 0, "two processes own"),
    (deleting_the_file_on_release, (lives.notes_twice, lives.notes), 0, "two processes own"),
    (no_fence, (lives.notes, lives.breaks), 0, "appends without owning"),
    (numbering_on_arrival, (lives.notes, lives.breaks_unsaid), 0, "appends without owning"),
    (showing_before_locking, (lives.begins, lives.takes_the_newest), 0, "appends without owning"),
    (anchoring_without_a_fence, (lives.notes, lives.breaks_and_notes), 0, "the anchor went back"),
    (acknowledging_before_the_commit, (lives.notes,), 1, "acknowledged is lost"),
]


SLOW = (deleting_the_file_on_release, no_fence, anchoring_without_a_fence)  # reported as surely, and later


@pytest.mark.parametrize(
    "planted",
    [pytest.param(one, marks=pytest.mark.release) if one[0] in SLOW else one for one in PLANTED],
    ids=lambda planted: planted[0].__name__,
)
def test_a_planted_fault_of_the_lock_is_reported(
    stage: LockStage, monkeypatch: pytest.MonkeyPatch, planted: Planted
) -> None:
    plant, played, deaths, report = planted
    plant(monkeypatch)
    found = swept(stage, *played, deaths=deaths, runs_max=20_000, stop_early=True)
    assert any(report in problem for problem in found.problems), found.problems
