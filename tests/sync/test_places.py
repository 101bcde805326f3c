"""One session in many places, as a simulation with one seed: no step is done twice without a person's decision.

The places are real workspaces with real databases, and the product's own functions decide in them: `held`, which asks
`refuse_copy` and `ensure_ours`; the delivery; `bring`; `deliver_now`. Only the server is in memory: answers are lost or
slow, its state is put back to a backup, ends of logs are cut off by somebody without the key. Workspaces are copied
and moved. A machine is taken to notice a restore if it pushed anything after the backup, so each has a witness.
"""

from __future__ import annotations

import contextlib
import copy
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acode import seal
from acode.engine.held_session import created, held
from acode.engine.workspace_store import opened
from acode.errors import AcodeError, CopiedWorkspace, LeaseLost, LogRolledBack
from acode.events import decode
from acode.events import types as ev
from acode.state import State
from acode.store import sync_cursor
from acode.store.store import Store
from acode.sync import ownership
from acode.sync import push_now as sync_now
from acode.sync.delivery import Delivery, as_error
from acode.sync.exchange import Contradiction, Pushed
from acode.sync.postgres import ServerFailure
from acode.sync.protocol import Doubtful
from acode.sync.take_over import bring
from tests.builders import OWNER
from tests.simulated_server import URL, Server
from tests.worlds import world

SECRET = "one secret for all machines of a test"
SEEDS_IN_GATE = 16
SEEDS_IN_SWEEP = 3_000
TURNS = 40
PLACES_MAX = 5


class Place:
    """A workspace of a user, who may have several on one machine."""

    def __init__(self, server: Server, home: Path, workspace: Path) -> None:
        self.server = server
        self.home = home
        self.move_to(workspace)
        self.witness = ""

    def move_to(self, workspace: Path) -> None:
        workspace.mkdir(exist_ok=True)
        env = {"ACODE_POSTGRES_URL": URL, seal.SECRET_VARIABLE: SECRET, "PATH": "/nonexistent"}
        made = world(self.home, env=env)
        self.world = msgspec.structs.replace(made, workspace=workspace, confirm_ownership=self.confirm)

    def confirm(self, store: Store, session_id: str, must: bool) -> str | None:
        """As the pusher does it, without its thread."""
        if must:
            return ownership.ask_server(self.world, URL, store, session_id)
        try:
            ledger: Any = self.server.connect(URL, lambda: False)
            done = Delivery(self.world, store, ledger).deliver(session_id, sync_cursor.last_seq(store, session_id))
        except (ServerFailure, Contradiction) as failure:
            return str(failure)
        if isinstance(done, Doubtful):
            return as_error(session_id, done).message
        if not isinstance(done, Pushed):
            raise as_error(session_id, done)
        return None

    def begin(self, title: str) -> str:
        event = ev.SessionCreated(title=title, task=title, owner=OWNER, acode_version="0")
        with created(self.world, event, ev.SessionPaused(reason="user"), blobs={}) as run:
            return run.session.session_id

    def push(self, session_id: str) -> None:
        """The end of a run: what is owed, then the lease."""
        with contextlib.suppress(ServerFailure, Contradiction), opened(self.world, look_only=False) as store:
            ledger: Any = self.server.connect(URL, lambda: False)
            delivery = Delivery(self.world, store, ledger)
            last = sync_cursor.last_seq(store, session_id)
            if isinstance(delivery.deliver(session_id, last), Pushed) and session_id != self.witness:
                delivery.release(session_id)

    def bear_witness(self) -> None:
        if not self.witness:
            self.witness = self.begin("witness")
        with held(self.world, self.witness) as run:
            run.append(ev.Noted(what="still here"))
        self.push(self.witness)

    def steps(self, session_id: str) -> int:
        """How many steps are done, as far as the log here says."""
        with opened(self.world, look_only=True) as store:
            if session_id not in store.session_ids():
                return 0
            return sum(is_step(body) for _, body, _ in store.rows(session_id))

    def last_seq(self, session_id: str) -> int:
        with opened(self.world, look_only=True) as store:
            return sync_cursor.last_seq(store, session_id) if session_id in store.session_ids() else 0

    def standing(self, session_id: str) -> str:
        with opened(self.world, look_only=True) as store:
            known = session_id in store.session_ids()
            return sync_cursor.cursor_of(store, session_id).standing if known else "none"


def is_step(body: bytes) -> bool:
    event = decode(body, "", 0).event
    return isinstance(event, ev.Noted) and event.what == "a step"


class Simulation:
    def __init__(self, seed: int, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.dice = random.Random(seed)
        self.directory = directory
        self.server = Server(self.dice)
        for module in (ownership, sync_now):
            patch.setattr(module, "connect", self.server.connect)
        self.done = 0  # steps, in truth
        self.excused = False
        self.seen: Counter[str] = Counter()
        self.places: list[Place] = []
        with self.server.reliable():
            for name in ("one", "two"):
                (directory / name).mkdir()
                place = Place(self.server, directory / name, directory / name / "workspace")
                place.bear_witness()
                self.places.append(place)
            self.session_id = self.places[0].begin("shared")
            self.places[0].push(self.session_id)

    def run(self) -> Counter[str]:
        acts = {
            self.work: 10,
            self.take_over: 8,
            self.push_all: 3,
            self.change_line: 2,
            self.copy: 1,
            self.move: 1,
            self.back_up: 2,
            self.restore: 2,
            self.cut: 1,
        }
        for _ in range(TURNS):
            if self.excused:
                break
            act = self.dice.choices(list(acts), list(acts.values()))[0]
            try:
                act(self.dice.choice(self.places))
            except (LeaseLost, CopiedWorkspace, LogRolledBack) as error:
                self.seen[type(error).__name__] += 1
            except AcodeError as error:
                self.seen[error.code] += 1
        return self.seen

    def work(self, place: Place) -> None:
        """The next step, as far as this place knows; a person who may know better says so, and only the truth."""
        there = place.world
        if self.dice.random() < 0.3 and self.nobody_else_has_it(place):
            there = msgspec.structs.replace(there, offline="nobody else has it")
        with held(there, self.session_id) as run:
            known = sum(is_step(body) for _, body, _ in run.store.rows(self.session_id))
            assert known == self.done, f"step {known + 1} is done again: {self.done} were done"
            self.done += 1
            self.seen["worked"] += 1
            if run.session.state is State.PAUSED:
                run.append(ev.SessionExecuting(reason="resume"))
            run.append(ev.Noted(what="a step"))
            if self.dice.random() < 0.8:
                run.append(ev.SessionPaused(reason="user"))
        if there.offline is not None:
            self.settle_offline(place)
        elif self.dice.random() < 0.8:
            place.push(self.session_id)

    def settle_offline(self, place: Place) -> None:
        """Until the server hears of it, others may take the session over: that is what the person has decided."""
        with self.server.reliable():
            place.push(self.session_id)
        rows = self.server.sessions.get(self.session_id)
        self.excused = rows is None or sum(is_step(body) for _, body, _ in rows.events) < self.done

    def nobody_else_has_it(self, place: Place) -> bool:
        others = [one.standing(self.session_id) for one in self.places if one is not place]
        return place.steps(self.session_id) == self.done and "owner" not in others

    def take_over(self, place: Place) -> None:
        bring(place.world, self.session_id, own=self.dice.random() < 0.8)
        self.seen["brought"] += 1

    def push_all(self, place: Place) -> None:
        sync_now.deliver_now(place.world, None)

    def change_line(self, place: Place) -> None:
        self.server.line = self.dice.choice(["fine", "fine", "slow", "away"])

    def copy(self, place: Place) -> None:
        if len(self.places) < PLACES_MAX:
            path = place.home / f"copy{len(self.places)}"
            shutil.copytree(place.world.workspace, path)
            self.places.append(Place(self.server, place.home, path))
            self.seen["copied"] += 1

    def move(self, place: Place) -> None:
        path = place.home / f"moved{self.dice.random()}"
        place.world.workspace.rename(path)
        place.move_to(path)
        self.seen["moved"] += 1

    def back_up(self, place: Place) -> None:
        self.server.saved = copy.deepcopy(self.server.sessions)

    def restore(self, place: Place) -> None:
        if self.server.saved is None:
            return
        with self.server.reliable():
            for one in self.places:
                with contextlib.suppress(AcodeError):  # where its own was moved away, a copy has no say
                    one.bear_witness()
        self.server.sessions = copy.deepcopy(self.server.saved)
        self.server.line = "fine"
        self.seen["restored"] += 1

    def cut(self, place: Place) -> None:
        """Lease and signed end stay: what a server that lies about those can do is a limit that is stated."""
        rows = self.server.sessions.get(self.session_id)
        if rows is None or len(rows.events) < 3:
            return
        ends = [one.last_seq(self.session_id) for one in self.places]  # where somebody would not miss anything
        wanted = [seq for seq in ends if 2 <= seq < len(rows.events)]
        seq = self.dice.choice(wanted) if wanted else self.dice.randrange(2, len(rows.events))
        rows.events, mac = rows.events[:seq], rows.events[seq - 1][2]
        rows.checkpoints = [row for row in rows.checkpoints if row[0] <= seq]
        rows.snapshots = [row for row in rows.snapshots if row[0] <= seq]
        rows.remote = msgspec.structs.replace(rows.remote, seq=seq, head=mac)
        self.seen["cut"] += 1


def simulate(seed: int, directory: Path) -> Counter[str]:
    directory.mkdir()
    try:
        with pytest.MonkeyPatch.context() as patch:
            return Simulation(seed, directory, patch).run()
    finally:
        shutil.rmtree(directory)


@pytest.mark.req("FR-011c-055")
def test_wherever_a_session_is_continued_no_step_is_done_twice(tmp_path: Path) -> None:
    seen = sum((simulate(seed, tmp_path / str(seed)) for seed in range(SEEDS_IN_GATE)), Counter[str]())
    for what in ("worked", "brought", "copied", "moved", "restored", "cut"):
        assert seen[what] >= SEEDS_IN_GATE // 2, f"{what}: too few to have tested anything: {seen}"
    for refusal in ("LeaseLost", "CopiedWorkspace", "LogRolledBack"):
        assert seen[refusal] >= SEEDS_IN_GATE // 4, f"{refusal}: too few to have tested anything: {seen}"


@pytest.mark.req("FR-011c-055")
def test_a_machine_that_was_told_of_another_owner_repeats_nothing_after_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shortest history of seed 18: the backup is older than the take-over that the first machine was told of."""
    places = Simulation(0, tmp_path, monkeypatch)
    one, two = places.places
    with places.server.reliable():
        places.back_up(one)
        bring(two.world, places.session_id, own=True)
        with pytest.raises(LeaseLost, match="taken over"):
            places.work(one)
        places.work(two)
        places.restore(one)
        places.push_all(one)
        assert one.standing(places.session_id) == "fenced"
        with pytest.raises(LeaseLost, match="restored"):
            places.work(one)
        places.push_all(two)
        decided = msgspec.structs.replace(one.world, offline="the other has pushed all of it again")
        bring(decided, places.session_id, own=True)
        places.work(one)
    assert places.done == one.steps(places.session_id) == 2


@pytest.mark.release
def test_wherever_a_session_is_continued_no_step_is_done_twice_over_many_seeds(tmp_path: Path) -> None:
    for seed in range(SEEDS_IN_SWEEP):
        simulate(seed, tmp_path / str(seed))
