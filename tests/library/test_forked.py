"""A session belongs to the process that opened it: a forked child can do nothing with it, and nothing to it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import acode
from acode.errors import SessionLocked, StoreUnusable, Usage
from acode.library.deferred_steps import DeferredSteps
from tests.library.counted import Counted, Stop
from tests.library.programs import Place
from tests.variants import first_of

Act = Callable[[], object]


def in_child(act: Act) -> int:
    """The exit status of a forked child that does it: 0, or 1 where it raised."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return ended(pid)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Fork:
    """Forks once; the child leaves whatever block it stands in, and ends right behind it."""

    def __init__(self) -> None:
        self.child: int | None = None
        self.status: int | None = None

    def __call__(self) -> bool:
        """Whether this is the child; the parent has waited for it then."""
        if self.child is not None:
            return False
        self.child = os.fork()
        if self.child:
            self.status = ended(self.child)
        return self.child == 0

    def behind(self) -> None:
        if self.child == 0:
            os._exit(0)


def left(fork: Fork, work: Counted) -> None:
    with acode.session("k") as s:
        s.step("a", work)
        if not fork():
            s.step("b", work)


def left_by_an_exception(fork: Fork, work: Counted) -> None:
    with acode.session("k") as s:
        s.step("a", work)
        if fork():
            raise Stop
        s.step("b", work)


def left_after_a_refusal(fork: Fork, work: Counted) -> None:
    with acode.session("k") as s:
        s.step("a", work)
        if fork():
            with pytest.raises(Usage):
                s.step("in-child", work)
        else:
            s.step("b", work)


def left_async(fork: Fork, work: Counted) -> None:
    async def program() -> None:
        async with acode.session("k") as s:
            s.step("a", work)
            if not fork():
                s.step("b", work)

    asyncio.run(program())


def left_from_inside_a_step(fork: Fork, work: Counted) -> None:
    def act() -> Any:
        return work() if not fork() else None

    with acode.session("k") as s:
        s.step("a", act)
        s.step("b", work)


def left_from_inside_a_step_that_fails(fork: Fork, work: Counted) -> None:
    def act() -> Any:
        if fork():
            raise Stop
        return work()

    with acode.session("k") as s:
        s.step("a", act, retry=acode.Retry(attempts=3, on=(Stop,)))
        s.step("b", work)


def left_from_a_durable_function(fork: Fork, work: Counted) -> None:
    @acode.durable(key="k")
    def program() -> None:
        acode.current().step("a", work)
        if not fork():
            acode.current().step("b", work)

    program()


LEFT = [
    left,
    left_by_an_exception,
    left_after_a_refusal,
    left_async,
    left_from_inside_a_step,
    left_from_inside_a_step_that_fails,
    left_from_a_durable_function,
]


@pytest.mark.parametrize("way", first_of(*LEFT), ids=lambda way: way.__name__)
def test_a_forked_child_that_leaves_the_block_ends_nothing_of_its_parents_session(
    place: Place, way: Callable[[Fork, Counted], None]
) -> None:
    fork, work = Fork(), Counted(1, 2)
    try:
        way(fork, work)
    finally:
        fork.behind()
    assert fork.status == 0 and len(work.calls) == 2
    way(fork, work)
    assert len(work.calls) == 2
    [session] = place.json("session", "list")
    assert session["state"] == "COMPLETED"
    kinds = [event["type"] for event in place.json("session", "history", session["session_id"])]
    assert kinds.count("session_completed") == 1 and "session_paused" not in kinds
    assert place.acode("session", "verify", session["session_id"]).returncode == 0


def test_no_operation_of_a_session_is_possible_in_a_forked_child(place: Place) -> None:
    work = Counted()
    with acode.session("k") as s:
        first, second = s.begin("first"), s.begin("second")
        bench = DeferredSteps(s)
        acts: list[Act] = [
            lambda: s.step("a", work),
            lambda: asyncio.run(s.do("a", asyncio.sleep, (0,), {}, acode.library.declarations.PLAIN)),
            acode.step(name="decorated")(work),
            lambda: s.begin("a"),
            lambda: s.complete(first, 7),
            lambda: s.complete(first, b"bytes stand in a file of their own"),
            lambda: s.fail(second, ValueError("no")),
            lambda: s.write("a.txt", "a"),
            lambda: s.run("true"),
            lambda: s.approve("Go on?"),
            lambda: s.branch("b").__enter__(),
            lambda: s.recall("a"),
            lambda: bench.offer("a", []),
            lambda: bench.knows("a"),
            lambda: bench.complete(first, 7),
        ]
        s._run.turn.acquire()  # as if another thread of the parent were writing: no such thread is in the child
        for number, act in enumerate(acts):

            def refused(act: Act = act) -> None:
                with pytest.raises(Usage, match=f"belongs to process {os.getppid()}"):
                    act()

            assert in_child(refused) == 0, f"operation {number}"
        s._run.turn.release()
        s.complete(first, 7)
        s.complete(second, 8)
    assert work.calls == [] and not Path("a.txt").exists()
    assert list(Path(".agent/blobs").rglob("*-*")) == []


def test_a_child_of_multiprocessing_is_refused_and_its_parent_goes_on(place: Place) -> None:
    work = Counted(7)
    with acode.session("k") as s:
        child = multiprocessing.get_context("fork").Process(target=s.step, args=("a", work))
        child.start()
        child.join(30)
        assert child.exitcode == 1
        assert s.step("a", work) == 7


def test_the_lock_stays_with_the_parent_after_its_child_has_left_the_block(place: Place) -> None:
    fork = Fork()
    with acode.session("k") as s:
        assert s._run.lock is not None
        touched = s._run.lock.path.stat().st_mtime_ns
        if not fork():
            with pytest.raises(SessionLocked), acode.session("k"):
                pass
            assert s._run.lock.path.stat().st_mtime_ns == touched
    fork.behind()


def test_a_child_that_outlives_its_killed_parent_does_not_keep_the_session_locked(place: Place) -> None:
    program = """
with acode.session("k") as s:
    s.step("a", note, "a")
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print("forked", flush=True)
    os.kill(os.getpid(), 9)
"""
    with place.start(program) as process:
        assert process.stdout is not None and process.stdout.readline() == "forked\n"
        process.wait(30)
        assert process.returncode == -signal.SIGKILL
        with acode.session("k") as s:
            s.step("a", print, "a")
            assert s.found == 1
        assert process.stdin is not None
        process.stdin.close()


def test_a_child_that_runs_to_the_end_of_the_interpreter_leaves_the_database_as_it_is(place: Place) -> None:
    """The connection is not closed by its end either: SQLite would take back, or throw away, what the parent writes."""
    done = place.run("""
with acode.session("k") as s:
    s.step("a", note, "a")
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert os.path.exists(".agent/workspace.db-wal")
        s.step("b", note, "b")
if child:
    with acode.session("k") as s:
        s.step("a", note, "a")
        s.step("b", note, "b")
        tell(found=s.found)
""")
    assert (done.status, done.told, place.effects()) == (0, [{"found": 2}], ["a", "b"]), done.errors


def test_a_child_opens_no_database_that_its_parent_had_open(place: Place, tmp_path: Path) -> None:
    """SQLite would take the parent's locks for the child's own; what the child commits is lost when the parent ends."""
    (tmp_path / "elsewhere").mkdir()

    def begin_anew(workspace: str) -> None:
        with acode.session("other", workspace) as s:
            s.step("a", str)

    def refused() -> None:
        with pytest.raises(StoreUnusable, match="forked") as caught:
            begin_anew(".")
        assert "spawn" in str(caught.value.hint)

    with acode.session("k") as s:
        s.step("a", str)
        assert in_child(refused) == 0
        assert in_child(lambda: begin_anew(str(tmp_path / "elsewhere"))) == 0
    assert in_child(lambda: begin_anew(".")) == 0


def test_a_thread_that_writes_while_the_process_forks_is_not_disturbed(place: Place) -> None:
    stop, count = threading.Event(), 0
    with acode.session("k") as s:

        def write() -> None:
            nonlocal count
            while not stop.is_set():
                s.step("w", str, idempotent=True)
                count += 1

        writer = threading.Thread(target=write)
        writer.start()
        statuses = [in_child(lambda: acode.current().__class__) for _ in range(10)]
        stop.set()
        writer.join()
    assert set(statuses) == {0}
    with acode.session("k") as s:
        for _ in range(count):
            s.step("w", str, idempotent=True)
        assert s.found == count > 0


def test_a_child_does_not_wait_for_the_server_nor_speak_to_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACODE_POSTGRES_URL", "postgresql://nobody@127.0.0.1:1/none")
    fork = Fork()
    try:
        with acode.session("k") as s:
            if not fork():
                s.step("a", str)
    finally:
        fork.behind()
    assert fork.status == 0
    with acode.session("k") as s:
        s.step("a", str)
        assert s.found == 1
