"""A server of the shared copy in memory, for simulations: answers are lost or slow, and it keeps its own time."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from acode.sync.exchange import Batch
from acode.sync.far_store import FarStore
from acode.sync.postgres import About, ServerFailure, SharedSession
from acode.sync.protocol import Remote

URL = "postgresql://server/shared"
LOST = 0.06  # that the answer to an exchange is lost, before or after its commit
Row = tuple[int, bytes, bytes]


@dataclass
class Rows:
    """One session on the server."""

    remote: Remote
    lease_generation: int = 0
    events: list[Row] = field(default_factory=list)
    checkpoints: list[Row] = field(default_factory=list)
    snapshots: list[Row] = field(default_factory=list)


class Server:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.sessions: dict[str, Rows] = {}
        self.clock_s = 1.0
        self.started_s = 0.0
        self.line = "fine"  # or slow: nothing is heard of what was done; or away
        self.sure = False
        self.saved: dict[str, Rows] | None = None

    def connect(self, url: str, give_up: Callable[[], bool]) -> Ledger:
        if self.line == "away" and not self.sure:
            raise ServerFailure("Connection refused", "transient")
        return Ledger(self)

    def tick(self) -> None:
        """The time that one half of an exchange takes."""
        self.clock_s += 0.5

    @contextlib.contextmanager
    def reliable(self) -> Iterator[None]:
        self.sure = True
        try:
            yield
        finally:
            self.sure = False

    def maybe_break(self, *, after: bool) -> None:
        odds = 0.5 if self.line == "slow" and after else LOST
        if not self.sure and self.dice.random() < odds:
            raise ServerFailure("no answer", "transient")


class Ledger:
    """A line to the server: what `PostgresLedger` has, for as much as the simulation needs."""

    url = URL
    far: FarStore | None = None

    def __init__(self, server: Server) -> None:
        self.server = server
        self._work: dict[str, Rows] | None = None

    def close(self) -> None:
        pass

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.server.maybe_break(after=False)
        self.server.tick()
        self._work = copy.deepcopy(self.server.sessions)
        try:
            yield
            self.server.sessions = self._work
        finally:
            self._work = None
        self.server.tick()
        self.server.maybe_break(after=True)

    def rows(self) -> dict[str, Rows]:
        return self._work if self._work is not None else self.server.sessions

    def clock(self) -> float:
        return self.server.clock_s

    clock_s = clock

    def look(self, session_id: str) -> Remote | None:
        found = self.rows().get(session_id)
        if found is None:
            return None
        remote, now_s = found.remote, self.server.clock_s
        return msgspec.structs.replace(
            remote,
            lease_s=remote.lease_s if found.lease_generation == remote.generation else None,
            age_s=now_s - remote.renewed_s,
            up_s=now_s - self.server.started_s,
        )

    def code_at(self, session_id: str, seq: int) -> bytes | None:
        found = self.rows().get(session_id)
        return found.events[seq - 1][2] if found is not None and 1 <= seq <= len(found.events) else None

    def put(self, session_id: str, remote: Remote, *, new: bool, renewed: bool = True) -> None:
        found = self.rows().get(session_id)
        assert new is (found is None)
        before_s = found.remote.renewed_s if found is not None else 0.0
        remote = msgspec.structs.replace(remote, renewed_s=self.server.clock_s if renewed else before_s)
        if found is None:
            self.rows()[session_id] = Rows(remote)
            return
        if remote.lease_s is not None:
            found.lease_generation = remote.generation
        found.remote = msgspec.structs.replace(remote, lease_s=remote.lease_s or found.remote.lease_s)

    def append(self, session_id: str, batch: Batch) -> int:
        found = self.rows()[session_id]
        new = [(seq, body, mac) for seq, _, body, mac in batch.events if seq > len(found.events)]
        assert [row[0] for row in new] == list(range(len(found.events) + 1, len(found.events) + 1 + len(new)))
        found.events += new
        found.checkpoints += batch.checkpoints
        found.snapshots += batch.snapshots
        return len(new)

    def describe(self, session_id: str, about: About, *, node: str, generation: int) -> None:
        pass

    def describe_refill(self, session_id: str, about: About, *, seq: int) -> None:
        pass

    def named_by(self, text: str) -> list[str]:
        return [one for one in self.rows() if text in one]

    def sessions(self, only: Sequence[str] | None = None) -> list[SharedSession]:
        plain = dict.fromkeys(SharedSession.__struct_fields__, "") | {"steps_done": 0, "steps_total": 0}
        return [
            SharedSession(
                **{
                    **plain,
                    "session_id": one,
                    "owner": rows.remote.owner,
                    "generation": rows.remote.generation,
                    "seq": rows.remote.seq,
                }
            )
            for one, rows in self.rows().items()
            if only is None or one in only
        ]

    def _span(self, name: str, session_id: str, after: int, through: int) -> list[Row]:
        rows: list[Row] = getattr(self.rows()[session_id], name)
        return [row for row in rows if after < row[0] <= through]

    def events(self, session_id: str, after: int, through: int) -> list[Row]:
        return self._span("events", session_id, after, through)

    def checkpoints(self, session_id: str, after: int, through: int) -> list[Row]:
        return self._span("checkpoints", session_id, after, through)

    def snapshots(self, session_id: str, after: int, through: int) -> list[Row]:
        return self._span("snapshots", session_id, after, through)

    def lacks(self, session_id: str, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        return []

    def blobs(self, session_id: str) -> list[tuple[str, str]]:
        return []
