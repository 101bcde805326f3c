"""The queue engine behind its eight methods: what acode relies on, the same for every implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from acode.fleet.procrastinate_queue import ProcrastinateQueue
from acode.fleet.queue import Job, NewJob, Queue, queue_name, queue_names
from acode.fleet.server import opened_fleet
from tests.fleets import Fleet

ENGINES: dict[str, Callable[[psycopg.Connection[Any]], Queue]] = {"procrastinate": ProcrastinateQueue}


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest, database: str) -> Iterator[tuple[Queue, psycopg.Connection[Any]]]:
    with psycopg.connect(database, autocommit=True) as connection:
        queue = ENGINES[request.param](connection)
        queue.prepare()
        queue.prepare()  # a second worker finds the tables
        yield queue, connection


def job(name: str, **fields: Any) -> NewJob:
    return NewJob(**{"session_id": name, "queue": "default"} | fields)


def names(*jobs: Job | None) -> list[str | None]:
    return [one.session_id if one is not None else None for one in jobs]


def test_jobs_are_taken_by_priority_then_in_order_each_by_one_worker(engine: Any) -> None:
    queue, _ = engine
    for name, priority in (("a", 0), ("b", 0), ("c", 5)):
        queue.put(job(name, priority=priority))
    one, two = queue.beat(None), queue.beat(None)
    taken = [queue.take(worker, ["default"]) for worker in (one, two, one, two)]
    assert names(*taken) == ["c", "a", "b", None]
    assert [found.worker for found in taken[:3]] == [one, two, one]


def test_of_one_session_one_job_waits_and_one_is_done_at_a_time(engine: Any) -> None:
    queue, _ = engine
    assert queue.put(job("a")) == queue.put(job("a"))
    worker = queue.beat(None)
    first = queue.take(worker, ["default"])
    queue.put(job("a"))
    assert queue.take(worker, ["default"]) is None
    assert queue.finish(first.id, worker)
    assert names(queue.take(worker, ["default"])) == ["a"]


def test_a_job_is_not_taken_before_it_is_due_nor_from_another_queue(engine: Any) -> None:
    queue, _ = engine
    now = datetime.now(UTC)
    queue.put(job("later", due_at=now + timedelta(hours=1)))
    queue.put(job("other", queue="other"))
    queue.put(job("due", due_at=now - timedelta(seconds=1)))
    worker = queue.beat(None)
    assert names(queue.take(worker, ["default"]), queue.take(worker, ["default"])) == ["due", None]


def test_only_the_worker_that_has_a_job_finishes_it(engine: Any) -> None:
    queue, _ = engine
    late, other = queue.beat(None), queue.beat(None)
    queue.put(job("a"))
    taken = queue.take(late, ["default"])
    assert not queue.finish(taken.id, other), "it is another's"
    assert not queue.finish(taken.id, None), "it waits no more"
    assert queue.finish(taken.id, late)
    assert not queue.finish(taken.id, late), "a late finish finds nothing"


def test_what_a_transaction_put_or_finished_is_undone_with_it(engine: Any) -> None:
    queue, connection = engine
    worker = queue.beat(None)
    queue.put(job("a"))
    taken = queue.take(worker, ["default"])
    with pytest.raises(ZeroDivisionError), connection.transaction():
        queue.finish(taken.id, worker)
        queue.put(job("b"))
        raise ZeroDivisionError
    assert queue.take(worker, ["default"]) is None
    assert queue.finish(taken.id, worker)


def test_jobs_of_workers_that_are_not_heard_of_are_stalled_and_no_others(engine: Any) -> None:
    queue, connection = engine
    dead, alive = queue.beat(None), queue.beat(None)
    queue.put(job("a"))
    queue.put(job("b"))
    queue.put(job("c"))
    queue.take(dead, ["default"])
    queue.take(alive, ["default"])
    connection.execute("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")
    assert queue.beat(alive) == alive
    assert names(*queue.stalled(60)) == ["a"]
    queue.leave(dead)
    assert names(*queue.stalled(60)) == ["a"], "one that was forgotten is dead too"
    assert queue.beat(dead) != dead, "and comes back as another"


def test_a_waiting_worker_is_woken_by_a_new_job(engine: Any, database: str) -> None:
    queue, connection = engine
    queue.wait(0)
    with psycopg.connect(database, autocommit=True) as other:
        ENGINES["procrastinate"](other).put(job("a"))
    queue.wait(60)  # the test's own limit would end it if nothing woke it
    assert names(queue.take(queue.beat(None), ["default"])) == ["a"]
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_worker_serves_every_set_of_its_labels_and_no_more() -> None:
    assert queue_name("q", ["b", "a"]) == "q+a+b"
    assert sorted(queue_names(["q"], ["b", "a"])) == ["q", "q+a", "q+a+b", "q+b"]


def test_a_session_given_in_an_answer_that_never_came_is_queued_again_by_its_worker(fleet: Fleet) -> None:
    """The line broke behind the commit: the worker lives, so nobody else would take its job for a dead one's."""
    session_id = fleet.submit('title: x\ntasks:\n  - title: A\n    steps:\n      - run: "true"\n')
    with opened_fleet(fleet.laptop.world()) as server:
        worker, other = server.queue.beat(None), server.queue.beat(None)
        taken = server.queue.take(worker, ["default"])
        assert taken is not None and server.queue.take(other, ["default"]) is None
        assert server.requeue_unheard(other, set()) == [], "it is another's"
        assert server.requeue_unheard(worker, {taken.id}) == [], "it is being worked on"
        assert server.requeue_unheard(worker, set()) == [session_id]
        assert server.begin(taken, worker) is None, "the job of before is nobody's"
        again = server.queue.take(other, ["default"])
        assert again is not None and server.begin(again, other) is not None
        assert server.requeue_unheard(other, set()) == [session_id], "nor was the answer to its beginning heard"
