"""A worker: it takes jobs for its free slots, renews the leases of its sessions, and looks after those of the dead.

`work` tells the story. Nothing here decides about a step; killed anywhere, it leaves leases that end and jobs that
another worker queues again.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from acode import __version__
from acode import lock as locks
from acode.engine.world import World
from acode.errors import AcodeError, FleetUnsupported, SyncDisabled, SyncUnsupported
from acode.fleet.attempt import Attempt, KeyUnavailable, describe_worker
from acode.fleet.health import Health
from acode.fleet.notice import notify_parked
from acode.fleet.places import Places
from acode.fleet.queue import Job, queue_names
from acode.fleet.renewal import Renewal
from acode.fleet.schedule import Again, Outcome, Parked
from acode.fleet.server import FleetServer, Member, opened_fleet
from acode.fleet.start_attempt import AttemptStarter
from acode.fleet.timetable import submit_due
from acode.log_file import log_of
from acode.notify import Alerts
from acode.sync.exchange import Contradiction
from acode.sync.postgres import ServerFailure

POLL_S = 1.0
RETRY_S = 1.0
FORGET_AFTER_LEASES = 20


class Station(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is: its name, what it serves, where it works."""

    name: str
    queues: tuple[str, ...]
    labels: tuple[str, ...]
    slots: int
    root: Path
    lease_s: float


class Worker:
    def __init__(self, world: World, station: Station, say: Callable[[str], None]) -> None:
        self._world = world
        self._station = station
        self._say = say
        self._places = Places(station.root)
        self._running: dict[str, Attempt] = {}
        self._turn = threading.Condition()
        self._draining = False
        self._fatal: AcodeError | None = None
        about: dict[str, Any] = {
            "name": station.name,
            "host": locks.host_name(),
            "queues": list(station.queues),
            "labels": list(station.labels),
            "slots": station.slots,
            "lease_s": station.lease_s,
            "version": __version__,
        }
        self._renewal = Renewal(world, station.lease_s, about, self._heard)
        self._starter = AttemptStarter(world.env)
        self._health = Health(station.root, world.env)
        # A worker has no workspace with a log of its own: what it has to say goes where its other lines go.
        self._alerts = Alerts(world, log_of(world), lambda session, problem: say(f"Session {session[-8:]}: {problem}"))
        self._look_at = 0.0

    def work(self) -> int:
        """Until somebody asks it to end; then its sessions are handed back."""
        before = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        self._renewal.start()
        try:
            while not self._draining:
                try:
                    self._serve()
                except (FleetUnsupported, SyncDisabled, SyncUnsupported):
                    raise  # time cures no setting and installs no package
                except (ServerFailure, Contradiction, AcodeError) as error:
                    self._say(f"The server cannot be used: {self._world.redactor.text(str(error))}; trying again")
                    self._wait_to_retry()
            self._hand_back()
        finally:
            self._renewal.close()
            self._starter.close()
            self._alerts.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._fatal is not None:
            raise self._fatal
        return 0

    # Taking jobs.

    def _serve(self) -> None:
        """On one connection, as long as it lasts."""
        with opened_fleet(self._world, lambda: False) as server:
            if not self._renewal.wait_until_known(self._station.lease_s):
                raise ServerFailure(self._renewal.problem or "no answer", "transient")
            self._hand_back_unheard(server)
            while not self._draining:
                self._look_after_dead(server)
                job = self._next_job(server)
                if job is not None:
                    self._begin(server, job)
                elif self._has_room():
                    server.queue.wait(self._until_look_s())
                else:
                    self._pause(self._until_look_s())

    def _hand_back_unheard(self, server: FleetServer) -> None:
        """The line before this one may have broken between the server's answer and us."""
        worker = self._renewal.worker
        assert worker is not None
        with self._turn:
            known = {attempt.job.id for attempt in self._running.values()}
        for session_id in server.requeue_unheard(worker, known):
            self._say(f"Session {session_id[-8:]} was given to us unheard: it is queued again")

    def _next_job(self, server: FleetServer) -> Job | None:
        worker = self._renewal.worker
        if not self._has_room() or worker is None:
            return None
        paused = server.paused_queues()
        served = [one for one in self._station.queues if one not in paused]
        return server.queue.take(worker, queue_names(served, self._station.labels)) if served else None

    def _begin(self, server: FleetServer, job: Job) -> None:
        worker = self._renewal.worker
        assert worker is not None
        member = server.begin(job, worker)
        if member is None:
            return
        if job.session_id in self._running:  # an older attempt is just ending here
            self._end(job, member, Again(after_s=RETRY_S, why="it is still being handed back"))
            return
        attempt = Attempt(
            *(self._world, self._places, self._renewal, self._starter),
            job=job,
            member=member,
            lease_s=self._station.lease_s,
            holder=describe_worker(self._station.name),
        )
        with self._turn:
            self._running[job.session_id] = attempt
        self._say(f"Session {job.session_id[-8:]} is taken")
        thread = threading.Thread(target=self._attempt, args=(attempt, member), name="acode-attempt", daemon=True)
        thread.start()

    def _has_room(self) -> bool:
        with self._turn:
            return len(self._running) < self._station.slots

    def _look_after_dead(self, server: FleetServer) -> None:
        """Every sixth of a lease, and at the moment when that of a silent one ends."""
        lease_s = self._station.lease_s
        if time.monotonic() < self._look_at:
            return
        found = server.requeue_stalled(lease_s)
        self._look_at = time.monotonic() + min(lease_s / 6, found.next_in_s or lease_s)
        for session_id, outcome in found.moved:
            self._say(f"Session {session_id[-8:]} of a dead worker: {_in_words(outcome)}")
            if isinstance(outcome, Parked):
                notify_parked(self._alerts, server.member(session_id), outcome)
        server.forget_dead_workers(lease_s * FORGET_AFTER_LEASES)
        for session_id in submit_due(self._world, server):
            self._say(f"Session {session_id[-8:]} is submitted by the timetable")

    def _until_look_s(self) -> float:
        return min(POLL_S, max(0.0, self._look_at - time.monotonic()))

    # A slot.

    def _attempt(self, attempt: Attempt, member: Member) -> None:
        outcome: Outcome
        try:
            outcome = attempt.run()
        except KeyUnavailable as missing:
            outcome = Again(after_s=0.0, why=str(missing))
            self._fatal, self._draining = missing.error, True
        except Exception as error:
            outcome = Again(after_s=self._station.lease_s, why=f"{type(error).__name__}: {error}", died=True)
        self._end(attempt.job, member, outcome)
        with self._turn:
            self._running.pop(member.session_id, None)
            in_use = set(self._running)
            self._turn.notify_all()
        self._places.collect(self._world, in_use)

    def _end(self, job: Job, member: Member, outcome: Outcome) -> None:
        """Until the server has it: a job that is never ended would be another worker's as soon as this one dies."""
        while True:
            try:
                with opened_fleet(self._world, lambda: False) as server:
                    ended = server.end(job, job.worker, outcome)
                break
            except (ServerFailure, Contradiction, AcodeError) as error:
                self._say(f"The end of session {member.session_id[-8:]} cannot be recorded yet: {error}")
                if self._draining and not self._renewal.worker:
                    return
                time.sleep(RETRY_S)
        if ended is None:
            self._say(f"Session {member.session_id[-8:]} is another worker's by now")
            return
        self._say(f"Session {member.session_id[-8:]}: {_in_words(ended)}")
        if isinstance(ended, Parked):
            notify_parked(self._alerts, member, ended)

    # The end.

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self._draining = True

    def _heard(self, drain: bool) -> None:
        """From the renewal: a person has asked for the end of this worker, or of some of its sessions."""
        self._health.renewed()
        if drain:
            self._draining = True
        with self._turn:
            wanted = [one for one in self._renewal.cancelled if one in self._running]
            attempts = [self._running[one] for one in wanted]
        for attempt in attempts:
            attempt.stop()

    def _wait_to_retry(self) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._draining, RETRY_S)

    def _pause(self, seconds: float) -> None:
        """Until there is room for another session."""
        with self._turn:
            self._turn.wait_for(lambda: self._draining or len(self._running) < self._station.slots, seconds)

    def _hand_back(self) -> None:
        with self._turn:
            running = list(self._running.values())
        self._health.ends()
        self._say(f"Ending: {len(running)} sessions are handed back")
        for attempt in running:
            attempt.stop()
        with self._turn:
            self._turn.wait_for(lambda: not self._running)
        worker = self._renewal.worker
        self._renewal.close()
        if worker is None:
            return
        try:
            with opened_fleet(self._world) as server:
                server.leave(worker)
        except (ServerFailure, Contradiction, AcodeError) as error:
            self._say(f"The server was not told: {error}")


def _in_words(outcome: Outcome) -> str:
    match outcome:
        case Again(after_s=after_s, why=why):
            when = f"again in {after_s:.0f} s" if after_s else "again at once"
            return f"{when} ({why})"
        case Parked(exit_code=code, why=why):
            return f"parked with {code}: {why}"
        case _:
            return outcome.state
