"""Async steps, retries, time-outs, decorators, entry points and undo: how a program may be written."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pytest

import acode
from acode.errors import CannotContinue, MissingArtifacts, NotStorable, StepTimeout, Usage
from tests.library.counted import Counted, Stop, interrupted
from tests.library.programs import Place
from tests.variants import first_of

# Async.


def test_async_functions_are_steps_and_run_once(place: Place) -> None:
    calls: list[int] = []

    async def fetch(n: int) -> int:
        await asyncio.sleep(0)
        calls.append(n)
        return n * 2

    async def program(stops: bool) -> list[int]:
        async with acode.session("k") as s:
            first = await s.step("first", fetch, 1)
            rest = await asyncio.gather(*(s.step(f"fetch-{n}", fetch, n) for n in range(5)))
            if stops:
                raise Stop
            return [first, *rest]

    with pytest.raises(Stop):
        asyncio.run(program(True))
    assert asyncio.run(program(False)) == [2, 0, 2, 4, 6, 8]
    assert sorted(calls) == [0, 1, 1, 2, 3, 4]


def test_a_task_that_a_function_has_started_is_not_taken_for_its_end(place: Place) -> None:
    async def program() -> None:
        async with acode.session("k") as s:
            s.step("start", lambda: asyncio.ensure_future(asyncio.sleep(0)))

    with pytest.raises(NotStorable):
        asyncio.run(program())
    with pytest.raises(acode.OutcomeUnknown), acode.session("k"):
        pass


def test_a_cancelled_async_step_is_open_like_a_killed_one(place: Place) -> None:
    acting: list[asyncio.Event] = []

    async def forever() -> None:
        acting[0].set()
        await asyncio.Event().wait()

    async def program() -> None:
        async with acode.session("k") as s:
            await s.step("a", forever)

    async def cancelled() -> None:
        acting.append(asyncio.Event())
        task = asyncio.create_task(program())
        await acting[0].wait()
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    with pytest.raises(acode.OutcomeUnknown), acode.session("k"):
        pass


# Retries and time.


def test_a_transient_failure_is_tried_again_and_a_permanent_one_is_not(place: Place) -> None:
    flaky = Counted(ConnectionError("one"), ConnectionError("two"), "there")
    broken = Counted(KeyError("permanent"), "never")
    retry = acode.Retry(attempts=3, on=(ConnectionError,))
    with acode.session("k") as s:
        assert s.step("flaky", flaky, idempotent=True, retry=retry) == "there"
        with pytest.raises(KeyError):
            s.step("broken", broken, idempotent=True, retry=retry)
    assert (len(flaky.calls), len(broken.calls)) == (3, 1)


def test_the_count_of_failures_survives_a_resume(place: Place) -> None:
    work = Counted(*[ConnectionError(str(n)) for n in range(9)])
    retry = acode.Retry(attempts=2, on=(ConnectionError,))
    with pytest.raises(ConnectionError, match="1"), acode.session("k") as s:
        s.step("a", work, idempotent=True, retry=retry)
    with pytest.raises(ConnectionError, match="2"), acode.session("k") as s:
        s.step("a", work, idempotent=True, retry=retry)
    assert len(work.calls) == 3  # a person's resume is one more try, and no more than that


def test_a_step_that_may_not_be_repeated_is_not_retried_after_just_any_failure(place: Place) -> None:
    with pytest.raises(Usage, match="not idempotent"), acode.session("k") as s:
        s.step("a", Counted(), retry=3)
    refused = Counted(ConnectionRefusedError(), "sent")
    with acode.session("k") as s:
        retry = acode.Retry(attempts=2, on=(ConnectionRefusedError,))
        assert s.step("send", refused, retry=retry) == "sent"


def test_waiting_grows_with_each_failure_up_to_a_limit() -> None:
    retry = acode.Retry(attempts=9, backoff_s=1, factor=3, backoff_max_s=5)
    assert [retry.wait_s(failures) for failures in (1, 2, 3)] == [1, 3, 5]


def test_a_function_that_runs_out_of_time_is_open_unless_it_may_be_repeated(place: Place) -> None:
    release = threading.Event()
    with pytest.raises(StepTimeout), acode.session("k") as s:
        s.step("a", release.wait, timeout=0.05)
    release.set()
    with pytest.raises(acode.OutcomeUnknown), acode.session("k"):
        pass
    slow_once = Counted("done")

    def slow() -> str:
        if not slow_once.calls:
            slow_once()
            time.sleep(0.3)
        return str(slow_once())

    with acode.session("other") as s:
        assert s.step("a", slow, timeout=0.1, idempotent=True, retry=2) == "done"


@pytest.mark.parametrize("in_branch", [False, True])
def test_a_thread_that_ran_out_of_time_is_given_no_more_steps(place: Place, in_branch: bool) -> None:
    goes_on, ended = threading.Event(), threading.Event()
    refused: list[Exception] = []
    work = Counted("done")
    attempts: list[int] = []

    def inner(s: acode.Session) -> object:
        with s.branch("b") if in_branch else contextlib.nullcontext():
            attempts.append(1)
            if len(attempts) > 1:
                return s.step("inner", work, 2)
            goes_on.wait()
            try:
                s.step("inner", work, 1)
            except Exception as error:
                refused.append(error)
            finally:
                ended.set()
        return None

    with acode.session("k") as s:
        assert s.step("outer", inner, s, idempotent=True, retry=2, timeout=1.0) == "done"
        goes_on.set()
        assert ended.wait(10)
        s.step("last", work, 3)
    assert isinstance(refused[0], StepTimeout) and "outer" in str(refused[0])
    assert work.calls == [(2,), (3,)]


def test_an_async_function_that_runs_out_of_time_is_stopped(place: Place) -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("stopped")

    async def program() -> None:
        async with acode.session("k") as s:
            await s.step("a", slow, timeout=0.05)

    with pytest.raises(StepTimeout):
        asyncio.run(program())
    assert ended == ["stopped"]


# Decorators.

CALLS: list[Any] = []


@acode.step(idempotent=True)
def double(n: int, *, plus: int = 0) -> int:
    CALLS.append(n)
    return 2 * n + plus


@acode.durable(key="sum-{n}")
def total(n: int) -> int:
    found = sum(double(k, plus=1) for k in range(n))
    if not acode.current().resumed:
        raise Stop
    return found


def test_decorated_functions_are_steps_inside_a_session_and_functions_outside(place: Place) -> None:
    CALLS.clear()
    assert double(4) == 8
    CALLS.clear()
    with pytest.raises(Stop):
        total(3)
    assert total(3) == 9  # the session knows the three steps
    assert total(3) == 9  # it is complete: nothing is called
    assert CALLS == [0, 1, 2]
    with pytest.raises(Usage, match="no open session"):
        acode.current()


TAKEN: list[str] = []


@acode.durable(key="job-{n}")
def bill(n: int, currency: str = "EUR") -> str:
    TAKEN.append(f"bill {n} {currency}")
    if n == 2 and len(TAKEN) == 1:
        raise Stop
    return f"billed {n}"


@acode.durable(key="job-{n}")
def mail(n: int) -> str:
    TAKEN.append(f"mail {n}")
    return f"mailed {n}"


def report(day: str) -> str:
    TAKEN.append(day)
    return f"report of {day}"


def test_a_key_gives_no_function_what_another_one_returned(place: Place) -> None:
    TAKEN.clear()
    assert bill(1) == "billed 1"
    for _ in range(4):  # a call that is refused is no attempt of the session
        with pytest.raises(acode.NonDeterminism) as caught:
            mail(1)
    assert caught.value.details["recorded"].endswith(":bill") and caught.value.details["asked"].endswith(":mail")
    assert TAKEN == ["bill 1 EUR"]


def test_a_key_gives_no_arguments_what_was_returned_for_others(place: Place) -> None:
    TAKEN.clear()
    nightly = acode.durable(key="nightly")(report)
    assert nightly("mon") == "report of mon"
    with pytest.raises(acode.NonDeterminism) as caught:
        nightly("tue")
    assert (caught.value.details["recorded"], caught.value.details["asked"]) == ("('mon')", "('tue')")
    assert acode.durable(key="nightly", on_change="keep")(report)("tue") == "report of mon"
    assert acode.durable(key="nightly", on_completed="new")(report)("tue") == "report of tue"
    assert TAKEN == ["mon", "tue"]


def test_the_same_arguments_by_place_name_or_default_are_the_same_call(place: Place) -> None:
    TAKEN.clear()
    with pytest.raises(Stop):
        bill(2)
    for _ in range(4):
        with pytest.raises(acode.NonDeterminism, match="arguments"):
            bill(2, "USD")
    assert bill(n=2, currency="EUR") == bill(2, "EUR") == bill(2) == "billed 2"
    assert TAKEN == ["bill 2 EUR", "bill 2 EUR"]


def test_a_decorated_step_in_a_thread_without_a_session_is_refused_not_run_in_silence(place: Place) -> None:
    caught: list[BaseException] = []

    def lost() -> None:
        try:
            double(1)
        except BaseException as error:
            caught.append(error)

    with acode.session("k"):
        thread = threading.Thread(target=lost)
        thread.start()
        thread.join()
    assert isinstance(caught[0], Usage)


PROGRAM = """
@acode.step
def work(n):
    note("work", n)
    return n

@acode.durable(key="nightly-{day}")
def nightly(day):
    found = [work(n) for n in range(3)]
    if acode.current().approve("Publish?"):
        found.append(work(99))
    if not Path("mended").exists():
        raise RuntimeError("not mended")
    tell(found=found)
    return found

if __name__ == "__main__":
    nightly("monday")
"""


def test_acode_resume_calls_the_program_again(place: Place) -> None:
    first = place.run(PROGRAM)
    assert first.status == 1 and "InputRequired" in first.errors
    (row,) = place.json("session", "list")
    assert (row["title"], row["state"], row["steps_done"]) == ("nightly-monday", "AWAITING_APPROVAL", 3)
    name = row["short_id"]
    assert place.acode("session", "approve", name).returncode == 0
    failed = place.acode("resume", name)
    assert failed.returncode == 1 and "not mended" in failed.stderr, failed.stderr
    assert "To resume: acode resume" in failed.stderr
    Path("mended").touch()
    done = place.acode("resume", name)
    assert done.returncode == 0, done.stderr
    assert '{"found": [0, 1, 2, 99]}' in done.stdout
    assert place.effects() == ["work 0", "work 1", "work 2", "work 99"]
    assert place.json("session", "verify", name)["ok"]


@pytest.mark.release
def test_acode_resume_says_how_to_go_on_where_no_entry_point_is_on_record(place: Place) -> None:
    interrupted("k", lambda s: s.step("a", Counted()))
    (row,) = place.json("session", "list")
    refused = place.json("resume", row["short_id"])
    assert refused["error"]["code"] == CannotContinue.code and "key k" in refused["error"]["hint"]
    assert "To resume" not in place.acode("resume", row["short_id"]).stderr
    assert place.json("explain", row["short_id"])["next_action"].startswith("run the program again")


# Undo.

TRIP = """
def book(what):
    note("book", what)
    return {"id": what}

def cancel(booking):
    note("cancel", booking["id"])

def trip():
    with acode.session("trip") as s:
        s.step("hotel", book, "hotel", undo=cancel)
        s.write("itinerary.txt", "hotel\\n")
        s.step("flight", book, "flight", undo=cancel)
        s.run("echo paid >> paid", undo="echo refunded >> paid")
        if "fails" in sys.argv:
            raise RuntimeError("the card was refused")

if __name__ == "__main__":
    if "undo" in sys.argv:
        tell(taken_back=acode.rollback("trip").steps)
    else:
        trip()
"""


@pytest.mark.parametrize("by", first_of("the command line", "the program"))
def test_undo_runs_in_reverse_order_and_the_steps_are_pending_again(place: Place, by: str) -> None:
    assert place.run(TRIP, "fails").status == 1
    (row,) = place.json("session", "list")
    if by == "the program":
        undone = place.run(TRIP, "undo")
        assert undone.told == [{"taken_back": ["run-echo-paid-paid", "flight", "write-itinerary-txt", "hotel"]}]
    else:
        preview = place.json("session", "rollback", row["short_id"], "--dry-run")
        assert [one["way"] for one in preview["steps"]] == ["undo", "undo", "files", "undo"]
        done = place.acode("session", "rollback", row["short_id"], "--yes")
        assert done.returncode == 0, done.stderr
    assert place.effects() == ["book hotel", "book flight", "cancel flight", "cancel hotel"]
    assert not Path("itinerary.txt").exists() and Path("paid").read_text() == "paid\nrefunded\n"
    assert place.json("status", row["short_id"])["steps_done"] == 0
    assert place.run(TRIP).status == 0
    assert place.effects()[-2:] == ["book hotel", "book flight"]


@pytest.mark.release
def test_a_rollback_to_a_step_keeps_what_ended_before_it(place: Place) -> None:
    assert place.run(TRIP, "fails").status == 1
    (row,) = place.json("session", "list")
    assert place.acode("session", "rollback", row["short_id"], "--to", "hotel", "--yes").returncode == 0
    assert place.effects() == ["book hotel", "book flight", "cancel flight"]
    assert place.run(TRIP).status == 0
    assert place.effects()[3:] == ["book flight"]


@pytest.mark.parametrize(("answer", "cancelled"), first_of(("applied", 1), ("retry", 2)))
def test_what_became_of_an_undo_that_was_cut_off_is_said_and_the_rollback_goes_on(
    place: Place, answer: Literal["applied", "retry"], cancelled: int
) -> None:
    cut_off = TRIP.replace('note("cancel", booking["id"])', 'note("cancel", booking["id"]); os._exit(9)')
    assert place.run(TRIP, "fails").status == 1
    assert place.run(cut_off, "undo").status == 9
    (row,) = place.json("session", "list")
    refused = place.acode("session", "rollback", row["short_id"], "--yes")
    assert refused.returncode == 19 and f"session resolve {row['short_id']} flight" in refused.stderr
    acode.resolve("trip", "flight", answer)
    assert place.run(TRIP, "undo").status == 0
    assert place.effects().count("cancel flight") == cancelled and place.effects()[-1] == "cancel hotel"


@pytest.mark.release
def test_an_undo_that_could_not_be_called_leaves_nothing_open(place: Place) -> None:
    assert place.run(TRIP, "fails").status == 1
    (row,) = place.json("session", "list")
    place.program(TRIP.replace("def cancel(", "def call_off(").replace("undo=cancel", "undo=call_off"))
    refused = place.acode("session", "rollback", row["short_id"], "--to", "write-itinerary-txt", "--yes")
    assert refused.returncode == CannotContinue.exit_code and "cancel" in refused.stderr
    assert place.run(TRIP).status == 0  # what was taken back is done again; the flight is still booked
    assert place.effects() == ["book hotel", "book flight"]


SECRET_UNDO = """
with acode.session("k") as s:
    undo = "PGPASSWORD=s3cr3ts3cr3tq rm provisioned"
    s.run("DB_PASSWORD=hunter2hunter2x touch provisioned", name="provision", undo=undo)
    s.step("call", len, "four", undo="PGPASSWORD=s3cr3ts3cr3tq touch called-off")
    raise RuntimeError("later")
"""


@pytest.mark.parametrize("kept", first_of(True, False))
def test_an_undo_with_a_secret_is_run_as_declared_or_nothing_is_taken_back(place: Place, kept: bool) -> None:
    assert place.run(SECRET_UNDO).status == 1
    (row,) = place.json("session", "list")
    shown = place.acode("session", "history", row["short_id"], "--json").stdout
    preview = place.json("session", "rollback", row["short_id"], "--dry-run")
    assert [one["way"] for one in preview["steps"]] == ["undo", "undo"]
    assert not any(secret in shown + str(preview) for secret in ("hunter2hunter2x", "s3cr3ts3cr3tq"))
    if not kept:
        for blob in Path(".agent/blobs/sensitive").rglob("*"):
            if blob.is_file():
                blob.unlink()
    done = place.acode("session", "rollback", row["short_id"], "--yes")
    assert done.returncode == (0 if kept else MissingArtifacts.exit_code), done.stderr
    assert Path("provisioned").exists() is not kept and Path("called-off").exists() is kept
    assert place.json("status", row["short_id"])["steps_done"] == (0 if kept else 2)


BOOKING = """
import asyncio

async def book(what):
    note("book", what)
    return what

async def cancel(what):
    await asyncio.sleep(0)
    note("cancel", what)
    if "refused" in os.environ:
        raise ConnectionError("the hotel does not answer")

async def trip():
    async with acode.session("trip") as s:
        await s.step("hotel", book, "hotel", undo=cancel)
        raise RuntimeError("the card was refused")

async def undo():
    tell(taken_back=acode.rollback("trip").steps)

if __name__ == "__main__":
    if "undo" in sys.argv:
        asyncio.run(undo())
    else:
        asyncio.run(trip())
"""


@pytest.mark.parametrize("by", first_of("the command line", "a program with a loop of its own"))
def test_an_async_undo_has_run_to_its_end_before_it_is_recorded(place: Place, by: str) -> None:
    assert place.run(BOOKING).status == 1
    (row,) = place.json("session", "list")
    if by == "the command line":
        assert place.acode("session", "rollback", row["short_id"], "--yes").returncode == 0
    else:
        assert place.run(BOOKING, "undo").told == [{"taken_back": ["hotel"]}]
    assert place.effects() == ["book hotel", "cancel hotel"]
    assert place.json("status", row["short_id"])["steps_done"] == 0


@pytest.mark.release
def test_an_async_undo_that_fails_takes_nothing_back(place: Place) -> None:
    assert place.run(BOOKING).status == 1
    refused = place.run(BOOKING, "undo", refused="yes")
    assert refused.status == 1 and "the hotel does not answer" in refused.errors
    (row,) = place.json("session", "list")
    assert place.json("status", row["short_id"])["steps_done"] == 1


def test_an_undo_that_no_later_process_could_find_is_refused_before_the_step_runs(place: Place) -> None:
    work = Counted()
    with pytest.raises(Usage, match="undo"), acode.session("k") as s:
        s.step("a", work, undo=lambda result: None)
    assert work.calls == []


def test_a_server_that_cannot_be_reached_stops_no_program(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACODE_POSTGRES_URL", "postgresql://nobody@127.0.0.1:1/none")
    work = Counted("done")
    for _ in range(2):
        with acode.session("k") as s:
            assert s.step("a", work) == "done"
    assert len(work.calls) == 1


def test_a_step_that_ends_while_a_stop_is_asked_for_is_recorded_and_the_next_is_not_begun(place: Place) -> None:
    later = Counted("later")
    with pytest.raises(KeyboardInterrupt), acode.session("k") as s:

        def send() -> str:
            s._run.world.stop.press("SIGINT")
            return "sent"

        assert s.step("send", send) == "sent"
        s.step("later", later)
    assert later.calls == []
    with acode.session("k") as s:
        assert s.step("send", Counted("again")) == "sent" and s.found == 1
        assert s.step("later", later) == "later"
