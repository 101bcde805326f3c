"""Many steps of one program at once: they share commits and syncs, and each keeps every promise of a step alone."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

import acode
from acode.engine.preview import rows, verify
from acode.engine.workspace_store import opened
from acode.events import types as ev
from tests.crash.harness import needs_ptrace
from tests.crash.harness.power import PowerCut, Search, power_cuts
from tests.crash.harness.recording import Recording, record
from tests.crash.harness.snapshots import fast_directory
from tests.library.programs import Place
from tests.worlds import world

AT_ONCE = 32
KEY = "job"
WAIT_S_MAX = 30.0
Tell = Callable[[str], object]


class SlowDisk:
    """Syncs of the log wait until they may end."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.takes_s = 0.0
        self.may_end = threading.Event()
        self.may_end.set()
        self._right = os.fdatasync
        patch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.syncs += 1
        time.sleep(self.takes_s)
        assert self.may_end.wait(WAIT_S_MAX), "the event loop was blocked, or nobody let the disk go on"
        self._right(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch)


def log(place: Place) -> list[Any]:
    with opened(world(place.path), look_only=True) as store:
        (session_id,) = store.session_ids()
        return [envelope.event for envelope, _, _ in store.events(session_id)]


def completed_at(s: acode.Session, step: str) -> int | None:
    """The completion as somebody else sees it."""
    other = apsw.Connection(str(s._run.database))
    try:
        row = other.execute("SELECT max(seq) FROM events WHERE instr(body, ?)", (f'"step_completed","step":"{step}"',))
        found: int | None = row.get
        return found
    finally:
        other.close()


# The order.


@pytest.mark.parametrize("idempotent", [False, True], ids=["not idempotent", "idempotent"])
def test_a_task_acts_behind_the_sync_of_its_start_and_returns_behind_the_commit_of_its_end(
    place: Place, disk: SlowDisk, idempotent: bool
) -> None:
    wrong: list[str] = []

    async def program() -> None:
        async with acode.session(KEY) as s:

            async def act(n: int) -> int:
                started = s._run.session.in_flight[f"w-{n}"].seq
                reached = s._run.journal.committed.seq if idempotent else s._run.journal.durable_seq
                wrong.extend([f"w-{n} acts too early"] if started > reached else [])
                await asyncio.sleep(0)
                return n

            async def one(n: int) -> None:
                assert await s.step(f"w-{n}", act, n, idempotent=idempotent) == n
                seq = completed_at(s, f"w-{n}")
                wrong.extend([f"w-{n} is told too early"] if seq is None else [])
                can_be_lost = idempotent and seq is not None and seq > s._run.journal.durable_seq
                wrong.extend([f"w-{n} can be lost"] if can_be_lost else [])

            disk.syncs = 0
            await asyncio.gather(*(one(n) for n in range(AT_ONCE)))

    asyncio.run(program())
    assert wrong == []
    assert disk.syncs < AT_ONCE, "one sync serves many steps"


def test_a_thread_acts_behind_the_sync_of_its_start_and_returns_behind_the_commit_of_its_end(
    place: Place, disk: SlowDisk
) -> None:
    wrong: list[str] = []
    with acode.session(KEY) as s, ThreadPoolExecutor(8) as pool:

        def act(n: int) -> int:
            early = s._run.session.in_flight[f"w-{n}"].seq > s._run.journal.durable_seq
            wrong.extend([f"w-{n} acts too early"] if early else [])
            return n

        def one(n: int) -> None:
            assert s.step(f"w-{n}", act, n) == n
            wrong.extend([f"w-{n} is told too early"] if completed_at(s, f"w-{n}") is None else [])

        disk.syncs = 0
        list(pool.map(one, range(AT_ONCE)))
        assert disk.syncs <= AT_ONCE, "one sync for a step at most"
    assert wrong == []


def test_the_event_loop_goes_on_while_the_disk_works(place: Place, disk: SlowDisk) -> None:
    async def act() -> int:
        return 1

    async def program() -> None:
        async with acode.session(KEY) as s:
            disk.may_end.clear()

            async def let_go() -> None:
                for _ in range(20):
                    await asyncio.sleep(0.001)
                disk.may_end.set()

            given, _ = await asyncio.gather(s.step("a", act), let_go())
            assert given == 1

    asyncio.run(program())


def test_a_task_that_is_alone_waits_in_place(place: Place) -> None:
    threads: set[threading.Thread] = set()
    before = set(threading.enumerate())

    async def act() -> None:
        threads.update(threading.enumerate())

    async def program() -> None:
        async with acode.session(KEY) as s:
            for _ in range(5):
                await s.step("a", act)

    asyncio.run(program())
    assert "acode-sync" not in {one.name for one in threads - before}


def test_an_anchor_says_no_more_than_what_is_on_the_disk(place: Place) -> None:
    with acode.session(KEY) as s:
        run = s._run
        reached = run.journal.durable
        run.record(ev.Noted(what="not yet on the disk"), durable=False)
        run.anchor(durable=True)
        anchors = [path.read_text() for path in (place.path / "state").rglob("*") if path.is_file()]
        assert any(reached.head.hex() in text for text in anchors)
        assert not any(run.journal.head.hex() in text for text in anchors)
    with acode.session(KEY, on_completed="return"):
        pass


# Cancelled, forked, failed.


def test_a_task_cancelled_while_its_start_is_written_has_not_acted_and_that_is_on_record(
    place: Place, disk: SlowDisk
) -> None:
    acted: list[str] = []

    async def act() -> str:
        acted.append("it")
        return "done"

    async def program(*, cancels: bool) -> None:
        async with acode.session(KEY) as s:
            disk.may_end.clear() if cancels else None
            task = asyncio.create_task(s.step("a", act))
            if cancels:
                while "a" not in s._run.session.in_flight:
                    await asyncio.sleep(0)
                task.cancel()
                disk.may_end.set()
            await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(program(cancels=True))
    assert acted == []
    settled = [event for event in log(place) if isinstance(event, ev.StepSettled)]
    assert [(one.step, one.outcome) for one in settled] == [("a", ev.Settled.NOT_APPLIED)]
    asyncio.run(program(cancels=False))
    assert acted == ["it"]


def test_a_task_cancelled_while_its_end_is_written_has_ended(place: Place) -> None:
    acted: list[str] = []

    async def act(s: acode.Session) -> str:
        acted.append("it")
        asyncio.get_running_loop().call_soon(tasks[0].cancel)
        return "done"

    tasks: list[asyncio.Task[Any]] = []

    async def program() -> None:
        async with acode.session(KEY) as s:
            other = asyncio.create_task(asyncio.sleep(0.01))  # so that it is not alone
            tasks.append(asyncio.create_task(s.step("a", act_of(s))))
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            await other

    def act_of(s: acode.Session) -> Callable[[], Any]:
        async def a() -> str:
            return await act(s)

        return a

    asyncio.run(program())
    assert acted == ["it"]
    with opened(world(place.path), look_only=True) as store:
        (session_id,) = store.session_ids()
        session = store.load(session_id).session
    assert str(session.state) == "COMPLETED" and session.steps_done == 1


def test_a_child_forked_while_steps_share_a_sync_disturbs_nobody(place: Place) -> None:
    async def act(n: int) -> int:
        if n % 8 == 0:
            child = os.fork()
            if child == 0:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        await asyncio.sleep(0)
        return n

    async def program() -> None:
        async with acode.session(KEY) as s:
            found = await asyncio.gather(*(s.step(f"w-{n}", act, n) for n in range(AT_ONCE)))
            assert found == list(range(AT_ONCE))

    asyncio.run(program())


def test_a_disk_that_fails_is_told_to_every_task_that_waits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    acted: list[int] = []

    async def act(n: int) -> None:
        acted.append(n)

    def broken(descriptor: int) -> None:
        raise OSError(5, "the disk is gone")

    async def program() -> list[Any]:
        async with acode.session(KEY) as s:
            monkeypatch.setattr(os, "fdatasync", broken)
            return await asyncio.gather(*(s.step(f"w-{n}", act, n) for n in range(AT_ONCE)), return_exceptions=True)

    with pytest.raises(acode.AcodeError):
        found = asyncio.run(program())
        assert all(isinstance(one, acode.AcodeError) for one in found)
    assert acted == []


# Kills.


async def many(tell: Tell, workspace: Path, *, at_once: int = AT_ONCE, steps: int = AT_ONCE) -> None:
    """Steps of tasks, most of them idempotent; the effect of each is told to the world at once."""

    async def act(n: int) -> int:
        tell(f"did w-{n}")
        await asyncio.sleep(0.001 * (n % 3))
        return n

    async with acode.session(KEY, workspace=workspace, force="it was killed") as s:
        numbers = iter(range(steps))

        async def worker() -> None:
            for n in numbers:
                assert await s.step(f"w-{n}", act, n, idempotent=is_idempotent(n)) == n
                tell(f"got w-{n}")

        await asyncio.gather(*(worker() for _ in range(at_once)))


def is_idempotent(n: int) -> bool:
    return n % 4 != 0


def threads(tell: Tell, workspace: Path, *, at_once: int = AT_ONCE, steps: int = AT_ONCE) -> None:
    def act(n: int) -> int:
        tell(f"did w-{n}")
        return n

    def one(n: int) -> None:
        assert s.step(f"w-{n}", act, n, idempotent=is_idempotent(n)) == n
        tell(f"got w-{n}")

    with (
        acode.session(KEY, workspace=workspace, force="it was killed") as s,
        ThreadPoolExecutor(at_once) as pool,
    ):
        list(pool.map(one, range(steps)))


def tasks(tell: Tell, workspace: Path, **how: int) -> None:
    asyncio.run(many(tell, workspace, **how))


def answered(workspace: Path, heard: Callable[[], list[str]], unknown: acode.OutcomeUnknown) -> None:
    """A person says of a step what really happened."""
    step = str(unknown.details["step"])
    number = int(step.partition("-")[2])
    assert not is_idempotent(number), f"a person was asked about {step}, which may be repeated"
    happened = f"did {step}" in heard()
    answer, result = ("applied", number) if happened else ("not_applied", None)
    acode.resolve(KEY, step, answer, result=result, workspace=workspace)  # type: ignore[arg-type]


def kills(place: Place, program: Callable[..., None], *, count: int, seed: int) -> None:
    chance = random.Random(seed)

    def heard() -> list[str]:
        return place.ledger.read_text().splitlines() if place.ledger.exists() else []

    def live(dies_after: int | None) -> int:
        """One life, killed behind so many words to the world; its end."""
        child = os.fork()
        if child == 0:
            told = 0
            lock = threading.Lock()
            descriptor = os.open(place.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

            def tell(line: str) -> None:
                nonlocal told
                with lock:
                    os.write(descriptor, f"{line}\n".encode())
                    told += 1
                    if told == dies_after:
                        os.kill(os.getpid(), signal.SIGKILL)

            status = 70
            try:
                program(tell, place.workspace)
                status = 0
            except acode.OutcomeUnknown as unknown:
                answered(place.workspace, heard, unknown)
                status = 3
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    for _ in range(count):
        live(chance.randrange(1, AT_ONCE + 8))
    for _ in range(4 * AT_ONCE):
        if (status := live(None)) == 0:
            break
        assert status == 3, "it goes on, or asks a person"
    else:
        raise AssertionError("it does not end")
    done = Counter(line for line in heard() if line.startswith("did"))
    assert done.keys() == {f"did w-{n}" for n in range(AT_ONCE)}
    assert {line: count for line, count in done.items() if count > 1 and not is_idempotent(int(line[6:]))} == {}
    the_world = world(place.path)
    for row in rows(the_world):
        assert verify(the_world, row.session_id)[1].problems == ()


@pytest.mark.parametrize("program", [tasks, threads])
def test_a_program_killed_with_many_steps_in_flight_repeats_none_unasked(
    place: Place, program: Callable[..., None]
) -> None:
    kills(place, program, count=3, seed=20)


@pytest.mark.release
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("program", [tasks, threads])
def test_a_program_killed_often_with_many_steps_in_flight_repeats_none_unasked(
    place: Place, program: Callable[..., None], seed: int
) -> None:
    kills(place, program, count=2, seed=seed)


# Power cuts.


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Any:
    with fast_directory() as directory:
        monkeypatch.setenv("ACODE_HOME", os.fspath(directory / "place" / "state"))
        monkeypatch.setenv("HOME", os.fspath(directory))
        yield directory / "place"


def recorded(place: Path) -> Recording:
    shutil.rmtree(place, ignore_errors=True)
    (place / "workspace").mkdir(parents=True)
    heard = place.parent / "heard"
    heard.unlink(missing_ok=True)

    def work() -> None:
        descriptor = os.open(heard, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        tasks(lambda line: os.write(descriptor, f"{line}\n".encode()), place / "workspace")

    return record(work, place, heard=heard)


def wrong_after(place: Path, cut: PowerCut) -> list[str]:
    """What the state after this cut, and the runs that begin there, do not keep of the promise."""
    cut.disk.put(place)
    (place / "workspace").mkdir(parents=True, exist_ok=True)
    before, after = cut.heard.decode().splitlines(), list[str]()
    for _ in range(2 * AT_ONCE):
        try:
            tasks(after.append, place / "workspace")
            break
        except acode.OutcomeUnknown as unknown:
            answered(place / "workspace", lambda: before + after, unknown)
        except acode.AcodeError as error:
            return [f"{type(error).__name__}: {error}"]
    else:
        return ["it does not end"]
    done, again = Counter(before + after), Counter(after)
    wrong = [f"w-{n} did not happen" for n in range(AT_ONCE) if not done[f"did w-{n}"]]
    wrong += [f"w-{n} happened twice" for n in range(0, AT_ONCE, 4) if done[f"did w-{n}"] > 1]
    given = {line.partition(" ")[2] for line in before if line.startswith("got")}
    wrong += [
        f"w-{n} was given, and is done again"
        for n in range(AT_ONCE)
        if is_idempotent(n) and f"w-{n}" in given and again[f"did w-{n}"]
    ]
    return wrong


SMALL = Search(sector_bytes=4096, exhaustive_pieces_max=1, random_choices=1, name_choices_max=1, every_op=2)


@needs_ptrace
@pytest.mark.timeout(600)
@pytest.mark.req("NFR-011c-005")
def test_after_a_power_cut_with_many_steps_in_flight_none_is_repeated_unasked(apart: Path) -> None:
    seen = 0
    for cut in power_cuts(recorded(apart), replace(SMALL, every_state=150)):
        assert wrong_after(apart, cut) == [], f"cut after operation {cut.after}, {cut.op.kind} {cut.op.path}"
        seen += 1
    assert seen > 5


@needs_ptrace
@pytest.mark.release
@pytest.mark.timeout(3600)
def test_after_any_power_cut_with_many_steps_in_flight_none_is_repeated_unasked(apart: Path) -> None:
    for cut in power_cuts(recorded(apart), replace(SMALL, random_choices=2, every_state=4)):
        assert wrong_after(apart, cut) == [], f"cut after operation {cut.after}, {cut.op.kind} {cut.op.path}"


# A pause.

PAUSED = """
import asyncio

declared = {"retry": acode.Retry(attempts=2, on=(KeyError,))} if "declared" in sys.argv else {}

async def program():
    async with acode.session("job") as s:
        asked = [asyncio.Event() for _ in range(3)]

        async def act(n):
            note("begun", n)
            asked[n].set()
            await asyncio.gather(*(one.wait() for one in asked))
            if n == 0:
                s._run.world.stop.press("SIGINT")  # as a request to pause does
            await asyncio.sleep(n / 10)
            if n == 2:
                await s.step("inner", act, 3)
            note("ended", n)

        async def one(n):
            await s.step(f"first-{n}", act, n, **declared)
            await s.step(f"second-{n}", act, n, **declared)

        await asyncio.gather(*(one(n) for n in range(3)))

try:
    asyncio.run(program())
except KeyboardInterrupt:
    os._exit(130)
"""


@pytest.mark.parametrize("declared", ["plain", "declared"])
def test_a_pause_lets_the_steps_of_all_tasks_end_and_no_other_begin(place: Place, declared: str) -> None:
    """One that waits to ask for a step inside of itself cannot end, and is not waited for."""
    ended = place.run(PAUSED, declared)
    assert ended.status == 130, ended.errors
    assert place.effects() == ["begun 0", "begun 1", "begun 2", "ended 0", "ended 1"]
    *_, last = log(place)
    assert isinstance(last, ev.SessionPaused) and (last.reason, last.interruption) == ("user", None)
    with opened(world(place.path), look_only=True) as store:
        session = store.load(store.session_ids()[-1]).session
    assert set(session.in_flight) == {"first-2"}
