"""One attempt to move a session on: take its lease, make its workspace, let a child resume it, give the lease back.

The child is `acode resume --auto`: it records its own decision and obeys the policy like everywhere. This process only
holds the lease, and turns the child's end into what follows.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from acode import lock as locks
from acode.engine.session_commands import end as end_session
from acode.engine.workspace_store import opened
from acode.engine.world import StopSwitch, World
from acode.errors import AcodeError, DiskFull, HistoryDiverged, KeyMissing, KeyUnusable, LeaseLost, SyncFailed
from acode.fleet.furnish import furnish
from acode.fleet.places import Places
from acode.fleet.queue import Job
from acode.fleet.renewal import Renewal
from acode.fleet.repairs import with_repair
from acode.fleet.schedule import DRAINED, FILES_MISSING, HELD, Again, End, Outcome, Over, Parked, outcome_of
from acode.fleet.server import Held, Member
from acode.fleet.start_attempt import AttemptProcess, AttemptStarter
from acode.lease_file import LEASE_VARIABLE, Lease, boot_clock_s
from acode.steps.keeper_notes import alive_lock_held
from acode.store import sync_cursor
from acode.sync.delivery import Delivery
from acode.sync.outbox import node_of
from acode.sync.push_now import connected
from acode.sync.pusher import pushing
from acode.sync.take_over import Brought, bring

LINE_BYTES_MAX = 4 * 1_048_576


class KeyUnavailable(Exception):
    """The worker has not the key of the fleet: it can move no session on."""

    def __init__(self, error: AcodeError) -> None:
        super().__init__(error.message)
        self.error = error


class Attempt:
    """A session in a slot of a worker."""

    def __init__(
        self,
        world: World,
        places: Places,
        renewal: Renewal,
        starter: AttemptStarter,
        *,
        job: Job,
        member: Member,
        lease_s: float,
        holder: str,
    ) -> None:
        self.job = job
        self._member = member
        self._places = places
        self._renewal = renewal
        self._starter = starter
        self._session_id = member.session_id
        self._lease = Lease(places.lease_file(member.session_id), lease_s, holder)
        self._turn = threading.Lock()
        self._child: AttemptProcess | None = None
        self._stopping = False
        self._world = msgspec.structs.replace(
            world,
            workspace=places.workspace(member.session_id),
            lease=self._lease,
            offline=job.force,
            stop=StopSwitch(world.monotonic, 0.0),
        )

    def run(self) -> Outcome:
        """From the lease to what follows; an error of the session or its place parks it, one of the server does not."""
        try:
            try:
                brought = self._take()
            except HistoryDiverged:  # left here by a worker that was taken over meanwhile
                self._places.set_aside(self._world, self._session_id)
                self._places.workspace(self._session_id)
                brought = self._take()
            if brought.lost:
                self._places.set_aside(self._world, self._session_id)
                self._places.workspace(self._session_id)
                brought = self._take()
            outcome = self._continue(brought)
        except (KeyMissing, KeyUnusable) as error:
            raise KeyUnavailable(error) from error
        except AcodeError as error:
            outcome = self._refused(error)
        finally:
            self._renewal.let_go(self._session_id)
        if isinstance(outcome, Parked):
            outcome = with_repair(outcome, workspace=os.fspath(self._world.workspace), worker=self._lease.holder)
        return outcome

    def stop(self) -> None:
        """The worker is to end: the child pauses after its step, or stops its command when the grace is over."""
        with self._turn:
            self._stopping = True
            if self._child is not None:
                self._child.ask_to_end()

    # The lease.

    def _take(self) -> Brought:
        asked_at_s = boot_clock_s()
        brought = bring(self._world, self._session_id, own=True, take_over=True)
        if brought.owned:
            node = node_of(self._world.state_dir, self._world.workspace)
            held = Held(session_id=self._session_id, node=node, generation=brought.generation)
            self._renewal.hold(held, self._lease, asked_at_s)
        return brought

    def _refused(self, error: AcodeError) -> Outcome:
        """Why the session could not even be begun here."""
        if isinstance(error, SyncFailed):
            return Again(after_s=1.0, why=error.message)
        if isinstance(error, LeaseLost) or error.exit_code == HELD:
            ends_in_s = error.details.get("lease_ends_in_s", self._lease.seconds)
            if ends_in_s is None or "given_back_at" in error.details:
                return Parked(exit_code=HELD, why=error.message, next_action=error.hint)
            return Again(after_s=max(float(ends_in_s), 0.1), why=error.message)
        if error.exit_code == 1 and not isinstance(error, DiskFull):  # the machine's: another one may do better
            return Again(after_s=self._lease.seconds, why=error.message, died=True)
        code = FILES_MISSING if isinstance(error, DiskFull) else error.exit_code
        return Parked(exit_code=code, why=error.message, next_action=error.hint, error_code=error.code)

    def _give_back(self) -> None:
        """Where nothing of it lives here any more and the server has all of it; else the lease comes to its end."""
        if commands_live(self._world.agent_dir):
            return
        with connected(self._world) as ledger, opened(self._world, look_only=False) as store:
            delivery = Delivery(self._world, store, ledger)
            last = sync_cursor.last_seq(store, self._session_id)
            if sync_cursor.cursor_of(store, self._session_id).standing == "owner":
                sync_cursor.make_durable(store)
                delivery.deliver(self._session_id, last)
                delivery.release(self._session_id, anyway=True)

    # The work.

    def _continue(self, brought: Brought) -> Outcome:
        if brought.ended:
            return self._as_it_ended()
        furnish(self._world, self._session_id, self._member.source)
        end = self._resume()
        if self._member.session_id in self._renewal.cancelled and end.state not in ("COMPLETED", "FAILED", "CANCELLED"):
            return self._cancel(self._renewal.cancelled[self._session_id])
        cooldown_s = self._world.limits.cooldown_s
        outcome = outcome_of(end, lease_s=self._lease.seconds, cooldown_s=dict(cooldown_s))
        self._give_back()
        return outcome

    def _as_it_ended(self) -> Outcome:
        with opened(self._world, look_only=True) as store:
            state = str(store.peek(self._session_id)[0].state)
        return outcome_of(End(exit_code=0, state=state), lease_s=self._lease.seconds)

    def _cancel(self, reason: str) -> Outcome:
        with pushing(self._world) as world:
            end_session(world, self._session_id, cancelled=True, reason=reason)
        return Over(state="cancelled", exit_code=15, why=reason)

    def _resume(self) -> End:
        world, job = self._world, self.job
        words = ["resume", self._session_id]
        if job.by == "system":
            words.append("--auto")
        if job.force is not None:
            words += ["--force", "--offline", "--reason", job.force]
        words = ["-C", os.fspath(world.workspace), "--json", "--no-input", *words]
        env = {**world.env, LEASE_VARIABLE: f"{self._lease.path} {self._lease.seconds} {self._lease.holder}"}
        with self._turn:
            if self._stopping:
                return End(exit_code=DRAINED)
            self._child = self._starter.start(words, env)
        last = last_line(self._child)
        code = self._child.wait()
        if code == -signal.SIGTERM and self._stopping:  # it had not come far enough to hear it
            code = DRAINED
        return end_of(code, last)


def last_line(child: AttemptProcess) -> bytes:
    """All others are in the log already."""
    last = b""
    with child.said as said:
        while line := said.readline(LINE_BYTES_MAX):
            last = line
    return last


def end_of(code: int | None, last: bytes) -> End:
    """How the child ended, and what it said about that."""
    try:
        said: Any = json.loads(last)
        data: dict[str, Any] = said.get("data", said) if isinstance(said, dict) else {}
    except ValueError:
        data = {}
    error = data.get("error") or {}
    killed_by = -code if code is not None and code < 0 else None
    return End(
        exit_code=code if killed_by is None else None,
        signal=signal.Signals(killed_by).name if killed_by in set(signal.Signals) else None,
        state=str(data.get("state") or ""),
        error_code=str(error.get("code") or ""),
        message=str(error.get("message") or ""),
        next_action=str(data.get("next_action") or error.get("hint") or ""),
        retry_after_s=data.get("retry_after_seconds"),
        doubted="given_back_at" in (error.get("details") or {}),
    )


def commands_live(agent_dir: Path) -> bool:
    """Whether a keeper still has a command: killed alone, a child leaves it behind until the lease ends."""
    return any(alive_lock_held(one) for one in (agent_dir / "run").glob("*") if one.is_dir())


def describe_worker(name: str) -> str:
    return f"worker {name} on {locks.host_name()}"


Notify = Callable[[Member, Parked], None]
