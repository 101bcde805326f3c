"""Push in the background: one thread with its own connections; no run waits for it.

It listens to the run like any other listener. An event is sent once the engine has said that it is durable, never
before: a shared copy that knew more than the log after a power cut would look like tampering. An error here is noted
for `acode status` and tried again later; the run never sees it. Only one thing stops a run: another machine has taken
the session over. At the end it has a second, and events that were not sent by then stay pending.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal

import msgspec

from acode import forked, seal
from acode.engine.notices import Notice, ResumeStarted, SessionReopened, SessionStart, SyncChanged
from acode.engine.world import Listener, World, short
from acode.errors import AcodeError, LeaseExpired, SyncUnsupported
from acode.log_file import Several
from acode.store import sync_cursor
from acode.store.store import Store
from acode.sync.backoff import Link, after_failure, after_success
from acode.sync.delivery import Delivery, as_error, note_failure
from acode.sync.exchange import Contradiction, Pushed
from acode.sync.ownership import ask_server
from acode.sync.postgres import PostgresLedger, ServerFailure, connect
from acode.sync.protocol import Doubtful
from acode.sync.push_now import far_store

EXIT_S_MAX = 1.0
GIVING_UP_S = 0.15  # of it, for the thread to notice that the time is over
BREATH_S = 0.1  # between two batches of a backlog
OWNERSHIP_S_MAX = 1.0  # how long a resume may wait for the answer that the session is still ours
TICK_S = 0.5
SUSPENDED_S = 2.0  # a thread that did not wake for so long was stopped, and its machine may have lost the session
RENEW_S = 5.0  # so often the lease is confirmed while there is nothing to send
LINGER_S = 0.25  # events of a few steps go in one batch
LEASE_LOOK_S = 0.1
FLEET_EXIT_S_MAX = 20.0

News = Literal["degraded", "restored"]


class Pusher:
    """A listener that remembers how far the log is durable, and the thread that sends it."""

    def __init__(self, world: World, url: str) -> None:
        self._world = world
        self._url = url
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._session_id: str | None = None
        self._durable = 0
        self._pushed = -1  # before the first exchange even a lease is owed
        self._wanted = 0  # somebody waits until the server has the log up to here
        self._others: list[tuple[str, int]] | None = None
        self._link = Link()
        self._refusal: AcodeError | None = None
        self._closing_at: float | None = None
        self._parted = False  # the last exchange of this run was made
        self._tick_at = (world.monotonic(), world.clock())
        self._connecting = False  # which says nothing until it is done, however long it takes
        self._doubt = False  # we were stopped: is the session still ours?
        self._naps = 0  # how often: an answer that was asked for before the last one settles nothing
        self._confirmed_at = world.monotonic()
        self._reason = ""
        self._untold: News | None = None
        self._told: News = "restored"
        self._may_speak = False
        self.speak_to: Listener | None = None
        forked.own(self, Pusher._disown)

    # The run's side.

    def emit(self, notice: Notice) -> None:
        match notice.body:
            case SessionStart(resumed=resumed) | SessionReopened(resumed=resumed):
                self._begin(notice.session_id)
                self._may_speak = not resumed
            case ResumeStarted(sync=sync):  # which holds the state of the sync
                self._may_speak = True
                self._told = "degraded" if sync.status == "degraded" else "restored"
            case SyncChanged():  # our own
                return
        self._emit_changes()

    def durable(self, seq: int) -> None:
        with self._news:
            self._durable = max(self._durable, seq)
            self._news.notify_all()
        self._emit_changes()

    def confirm_ownership(self, store: Store, session_id: str, must: bool) -> str | None:
        """Ask before a session is continued whether it is still ours; returns why there was no answer. An owner
        continues without one.
        """
        why = ask_server(self._world, self._url, store, session_id) if must else None
        self._begin(session_id)
        if must:
            return why
        with self._news:
            self._news.wait_for(lambda: self._pushed >= 0 or self._link.failures > 0 or self._refusal, OWNERSHIP_S_MAX)
            if self._refusal is not None:
                raise self._refusal
            return None if self._pushed >= 0 else self._reason or f"no answer for {OWNERSHIP_S_MAX:g} s"

    def before_act(self, seq: int) -> None:
        """In a fleet: wait until the server has the log up to `seq`, and continue only while the lease runs. The clock
        is asked last, because what follows is the act."""
        lease = self._world.lease
        assert lease is not None
        with self._news:
            self._durable, self._wanted = max(self._durable, seq), max(self._wanted, seq)
            self._news.notify_all()
            while self._pushed < seq and self._refusal is None and not lease.expired():
                self._news.wait(LEASE_LOOK_S)
            refusal = self._refusal
        if refusal is not None:
            raise refusal
        if lease.expired():
            raise self._expired()

    def _expired(self) -> LeaseExpired:
        """The same for all who ask: the run ends at the next boundary."""
        why = f" ({self._reason})" if self._reason else ""
        name = short(self._session_id) if self._session_id is not None else ""
        error = LeaseExpired(f"the lease of session {name} has ended here: it was not renewed in time{why}")
        self._world.stop.give_up(error)
        return error

    def settle_doubt(self) -> None:
        """At a boundary: a process that was stopped asks before it continues. It costs nothing unless that happened."""
        if self._world.lease is not None and self._world.lease.expired():
            self._expired()
            return
        with self._news:
            if self._thread is None or self._refusal is not None:
                return
            if not self._connecting:
                self._pulse()
            if not self._doubt:
                return
            if not self._link.failures:  # offline there is no server to ask, and the work continues
                self._news.notify_all()
                self._news.wait_for(lambda: not self._doubt, OWNERSHIP_S_MAX)
            self._doubt = False

    def _pulse(self) -> None:
        """A sign of life of one of our threads; where it comes too late, we were stopped."""
        if self._slept():
            self._doubt = True
            self._naps += 1
        self._tick_at = (self._world.monotonic(), self._world.clock())

    def _slept(self) -> bool:
        """By the clock that stops with the machine, and by the one that does not."""
        then, at = self._tick_at
        wall_s = (self._world.clock() - at).total_seconds()
        return max(self._world.monotonic() - then, wall_s) > SUSPENDED_S

    def _disown(self) -> None:
        """A forked child has neither the thread nor its connection: there is nothing to wait for."""
        self._news, self._thread = threading.Condition(), None

    def close(self) -> None:
        """Wait a second for the pending events; then the run ends, whatever the server does."""
        with self._news:
            if self._thread is None:
                return
            waits_s = self._exit_s_max()
            self._closing_at = self._world.monotonic() + waits_s - GIVING_UP_S
            self._news.notify_all()
        self._thread.join(waits_s)

    def _exit_s_max(self) -> float:
        """In a fleet the next machine knows only what the server does: as long as the lease lasts."""
        if self._world.lease is None:
            return EXIT_S_MAX
        return max(EXIT_S_MAX, min(FLEET_EXIT_S_MAX, self._world.lease.left_s()))

    def _begin(self, session_id: str) -> None:
        with self._news:
            if self._thread is not None:
                return
            self._session_id = session_id
            self._world.stop.doubt = self.settle_doubt
            self._thread = threading.Thread(target=self._run, name="acode-sync", daemon=True)
        self._thread.start()

    def _emit_changes(self) -> None:
        """The run's own thread emits changes, between its own notices: listeners are not made for two threads."""
        if not self._may_speak:
            return
        news, self._untold = self._untold, None
        if news is None or news == self._told or self.speak_to is None or self._session_id is None:
            return
        self._told = news
        pending = max(0, self._durable - max(self._pushed, 0))
        self.speak_to.emit(
            Notice(
                body=SyncChanged(change=news, pending_events=pending, reason=self._reason or None),
                at=self._world.clock(),
                session_id=self._session_id,
            )
        )

    # The thread's side.

    def _run(self) -> None:
        ledger: PostgresLedger | None = None
        try:
            while self._wait_for_work():
                ledger = self._attempt(ledger)
        finally:
            if ledger is not None:
                ledger.close()
            with contextlib.suppress(AcodeError):
                self._note_end()

    def _wait_for_work(self) -> bool:
        """True: there is something to do now. False: the run is over and nothing more can be done in time."""
        with self._news:
            while True:
                now = self._world.monotonic()
                self._pulse()
                closing = self._closing_at is not None
                owing = self._owing() and self._refusal is None
                if closing and (self._parted or not owing or not self._link.may_try(now) or self._out_of_time()):
                    return False
                if owing and self._link.may_try(now):
                    break
                self._news.wait(min(TICK_S, max(0.0, self._link.retry_at - now)) if owing else TICK_S)
            if self._pushed >= 0 and not closing:
                self._news.wait_for(self._is_hurried, LINGER_S)
        return True

    def _is_hurried(self) -> bool:
        return self._closing_at is not None or self._doubt or self._pushed < self._wanted

    def _owing(self) -> bool:
        parting = self._closing_at is not None and not self._parted
        # A worker renews the leases of all its sessions at once.
        renewing = self._world.lease is None and self._world.monotonic() - self._confirmed_at > RENEW_S
        return (
            parting
            or renewing
            or self._doubt
            or self._pushed < self._durable
            or self._others is None
            or bool(self._others)
        )

    def _out_of_time(self) -> bool:
        return self._closing_at is not None and self._world.monotonic() >= self._closing_at

    def _attempt(self, ledger: PostgresLedger | None) -> PostgresLedger | None:
        """One go; the line that stands afterwards, or None."""
        stood = ledger is not None
        try:
            if ledger is None:
                ledger = self._connected()
            elif self._link.open:
                ledger.ping()
            with self._store() as store:
                self._exchange(Delivery(self._world, store, ledger, breathe=self._breathe))
            return ledger
        except ServerFailure as failure:
            if stood and ledger is not None and (self._doubt or self._slept()):
                ledger.close()  # it may have died while we were stopped: a new one shows whether there is a server
                return self._attempt(None)
            self._failed(failure)
        except SyncUnsupported as error:
            self._failed(ServerFailure(error.message, "permanent"))
        except Contradiction as error:
            self._failed(ServerFailure(str(error), "transient"))
        except AcodeError as error:  # our own database: the run meets the same error, and names it
            self._failed(ServerFailure(error.message, "transient"))
        except Exception as error:  # nothing that happens here may look like silence
            self._failed(ServerFailure(f"{type(error).__name__}: {error}", "permanent"))
        if ledger is not None:
            ledger.close()
        return None

    def _connected(self) -> PostgresLedger:
        with self._news:
            self._connecting = True
        try:
            ledger = connect(self._url, self._glance)
            ledger.far = far_store(self._world)
            return ledger
        finally:
            with self._news:
                self._connecting = False
                self._tick_at = (self._world.monotonic(), self._world.clock())

    def _glance(self) -> bool:
        """Asked often while an answer is waited for: give up?"""
        with self._news:
            self._pulse()
        return self._out_of_time()

    def _exchange(self, delivery: Delivery) -> None:
        assert self._session_id is not None
        session_id = self._session_id
        with self._news:
            through, naps = self._durable, self._naps
        done = delivery.deliver(session_id, through)
        if isinstance(done, Doubtful):  # it does not name the session's owner: the same as no server
            raise ServerFailure(as_error(session_id, done).message, "transient")
        if not isinstance(done, Pushed):
            self._refused(as_error(session_id, done))
            return
        self._succeeded(done.seq, naps)
        if self._others is None:
            self._others = delivery.owing(without=session_id)
        while self._others and not self._out_of_time():
            other, last = self._others[0]
            if isinstance(delivery.deliver(other, last), Pushed):  # a refusal is noted there: that session's matter
                delivery.release(other)
            self._others.pop(0)
        with self._news:
            # The run may have ended while this was under way: its last events go with one more exchange.
            parting = self._closing_at is not None and self._durable <= done.seq
        if parting:
            if sync_cursor.last_seq(delivery.store, session_id) == done.seq:
                delivery.release(session_id)
            self._parted = True

    def _breathe(self) -> None:
        """A long backlog is sent in pieces, so that the steps do not feel it."""
        with self._news:
            self._news.wait_for(lambda: self._closing_at is not None, BREATH_S)

    def _succeeded(self, seq: int, naps: int) -> None:
        with self._news:
            self._link = after_success()
            self._confirmed_at, self._doubt = self._world.monotonic(), self._doubt and naps != self._naps
            self._pushed = max(seq, 0)
            self._reason, self._untold = "", "restored"
            self._news.notify_all()

    def _refused(self, error: AcodeError) -> None:
        with self._news:
            self._refusal, self._doubt = error, False
            self._reason = error.message
            self._world.stop.give_up(error)
            self._news.notify_all()

    def _failed(self, failure: ServerFailure) -> None:
        if self._out_of_time():
            return
        now = self._world.monotonic()
        link = after_failure(self._link, failure.kind, now=now, dice=random.random())
        reason = self._world.redactor.text(failure.reason)
        self._note_failure(reason, link.retry_at - now)
        with self._news:
            self._link, self._reason, self._untold, self._doubt = link, reason, "degraded", False
            self._news.notify_all()

    def _note_failure(self, reason: str, retry_in_s: float) -> None:
        assert self._session_id is not None
        at = self._world.clock()
        with contextlib.suppress(AcodeError), self._store() as store:
            retry_at = at + timedelta(seconds=retry_in_s)
            note_failure(store, self._session_id, self._url, reason=reason, at=at, retry_at=retry_at)

    def _note_end(self) -> None:
        """Nobody is going to try again when this process has ended."""
        assert self._session_id is not None
        if self._link.failures:
            with self._store() as store:
                sync_cursor.change_cursor(store, self._session_id, retry_at=None)

    def _store(self) -> Store:
        """A connection of this thread's own, for a moment: an open one would keep deleted bytes in the WAL."""
        world = self._world
        keyring = seal.load_keyring(world.state_dir, world.env, create=False)
        store = Store(world.agent_dir, keyring, clock=world.clock, new_id=world.new_id)
        store.db.pragma("wal_autocheckpoint", 0)  # moving the WAL is the writer's work, at the writer's time
        return store


@contextlib.contextmanager
def pushing(world: World) -> Iterator[World]:
    """A world whose runs are pushed while they run, if a server is configured; for a command that executes a
    session.
    """
    url = world.config.settings.sync.url
    if url is None:
        yield world
        return
    pusher = Pusher(world, url)
    pusher.speak_to = world.listener
    heard = Several(world.listener, pusher)
    try:
        asks: dict[str, Any] = {"confirm_ownership": pusher.confirm_ownership}
        if world.lease is not None:
            asks["before_act"] = pusher.before_act
        yield msgspec.structs.replace(world, listener=heard, **asks)
    finally:
        pusher.close()
