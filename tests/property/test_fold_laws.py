"""Laws of the fold, over random walks that the engine could take."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import uuid_utils.compat as uuids
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acode import seal
from acode.errors import AcodeError
from acode.events import Envelope, decode, encode
from acode.events import types as ev
from acode.plan import Finding, Outcome, Strategy, continue_plan
from acode.policy import Facts, Limits, decide
from acode.resume_point import classify, detect_scenario, find_resume_point
from acode.state import Session, State, advance, fold
from acode.store import checkpoints as ck
from acode.store.store import Store
from tests.builders import START, decided, envelope
from tests.walks import Walk, walk

patient = settings(deadline=None)  # how long an example takes says something about the machine, not about the law
KEYRING = seal.Keyring(current="k", keys={"k": b"k" * 32})


@st.composite
def walks(draw: st.DrawFn, moves: int = 40) -> Walk:
    dice = random.Random(draw(st.integers(0, 2**32 - 1)))
    return walk(dice.choice, draw(st.integers(0, moves) | st.just(moves)))


def test_walks_lead_everywhere() -> None:
    """Laws over walks say little if the walks do: every event type and every state is met."""
    ways = [walk(random.Random(seed).choice, 40) for seed in range(300)]
    met = {type(one.event) for way in ways for one in way.envelopes}
    assert {*get_args(ev.Known), ev.Unknown} - met == set()
    assert {fold(way.envelopes[:cut]).state for way in ways for cut in (1, 2, len(way.envelopes))} == set(State)
    assert max(len(way.envelopes) for way in ways) > 60


def counters(session: Session) -> Session:
    """The part of a session that a small checkpoint carries on alone.

    How often a step in flight failed before is known from the step records, which a small checkpoint leaves out.
    """
    flights = {step: msgspec.structs.replace(one, failures=0) for step, one in session.in_flight.items()}
    return msgspec.structs.replace(ck.small(session), in_flight=flights)


def with_flights(way: Walk, stored: Session) -> Session:
    """A stored session with the steps in flight that it names by position, from the walk's own events."""
    named = {step: ck.begun_in(way.envelopes[seq - 1], step) for step, seq in stored.in_flight_at.items()}
    found = {step: flight for step, flight in named.items() if flight is not None}
    assert found.keys() == stored.in_flight_at.keys()
    return msgspec.structs.replace(stored, in_flight={**stored.in_flight, **found}, in_flight_at={})


@pytest.mark.req("FR-011c-036", "NFR-040b-14")
@patient
@given(walks())
def test_any_cut_of_the_log_folds_to_the_same_session(way: Walk) -> None:
    whole = fold(way.envelopes)
    for cut in range(1, len(way.envelopes) + 1):
        assert fold(way.envelopes[cut:], start=fold(way.envelopes[:cut])) == whole


@patient
@given(walks(moves=15), st.data())
def test_any_two_cuts_fold_to_the_same_session(way: Walk, data: st.DataObject) -> None:
    one = data.draw(st.integers(1, len(way.envelopes)))
    two = data.draw(st.integers(one, len(way.envelopes)))
    log = way.envelopes
    assert fold(log[two:], start=fold(log[one:two], start=fold(log[:one]))) == fold(log)


@patient
@given(walks())
def test_a_snapshot_at_any_cut_carries_the_whole_session(way: Walk) -> None:
    whole = msgspec.structs.replace(fold(way.envelopes), created=None, plan=None)
    for cut in range(1, len(way.envelopes) + 1):
        body = ck.encode_snapshot(fold(way.envelopes[:cut]))
        ref = ck.SnapshotRef(seq=cut, sha256=hashlib.sha256(body).hexdigest(), head="", size=len(body))
        assert fold(way.envelopes[cut:], start=with_flights(way, ck.open_snapshot(ref, body))) == whole


@patient
@given(walks())
def test_a_small_checkpoint_at_any_cut_carries_position_and_counters(way: Walk) -> None:
    whole = counters(fold(way.envelopes))
    for cut in range(1, len(way.envelopes) + 1):
        head = fold(way.envelopes[:cut])
        made = ck.Checkpoint(
            v=ck.CHECKPOINT_VERSION,
            id=0,
            session_id=head.session_id,
            seq=cut,
            head="",
            key_id="k",
            at=head.updated_at,
            session=ck.by_position(ck.small(head)),
        )
        body, mac = ck.encode_checkpoint(made, KEYRING)
        opened = ck.open_checkpoint(head.session_id, cut, body, mac, KEYRING)
        assert counters(fold(way.envelopes[cut:], start=with_flights(way, opened.session))) == whole


@patient
@given(walks())
def test_a_small_checkpoint_does_not_move_with_its_session(way: Walk) -> None:
    """The journal folds on in place; what it has sealed stays what it was."""
    session = fold(way.envelopes[:1])
    for one in way.envelopes[1:]:
        before = ck.small(session)
        sealed = msgspec.json.encode(before)
        session = advance(session, one)
        assert msgspec.json.encode(before) == sealed


@patient
@given(walks())
def test_bytes_and_back_change_nothing(way: Walk) -> None:
    known = [one for one in way.envelopes if not isinstance(one.event, ev.Unknown)]
    assert [decode(encode(one), one.session_id, one.seq) for one in known] == known


def answers(session: Session) -> dict[str, Any]:
    """Everything that is decided from a session alone; a plan that changed was the same one here."""
    assert session.created is not None
    session = msgspec.structs.replace(session, plan=session.created.plan)
    found: dict[str, Any] = {"point": find_resume_point(session)}
    try:
        found["scenario"] = detect_scenario(session)
    except AcodeError as error:
        return {**found, "error": error.code}
    interruption = classify(session)
    flights = {step: Finding(outcome=Outcome.UNKNOWN, evidence="e") for step in session.in_flight}
    found["class"] = interruption
    found["way"] = continue_plan(session, flights, strategy=Strategy.ROLLBACK, retry_unknown=False)
    for actor in ("user", "system"):
        for later in (0, 29, 30, 60, 119, 120):
            now = interruption.at + timedelta(seconds=later)
            found[f"{actor} {later}"] = decide(session, interruption, Limits(), now=now, actor=actor, facts=Facts())
    return found


@pytest.mark.req("FR-040b-11", "FR-040b-12")
@patient
@given(walks())
def test_the_same_log_gives_the_same_point_scenario_and_decision(way: Walk) -> None:
    again = [
        decode(encode(one), one.session_id, one.seq) if not isinstance(one.event, ev.Unknown) else one
        for one in way.envelopes
    ]
    assert answers(fold(way.envelopes)) == answers(fold(again))


def appended(log: list[Envelope], event: Any) -> list[Envelope]:
    return [*log, envelope(event, len(log) + 1, log[-1].at + timedelta(seconds=7))]


def without_position(session: Session) -> Session:
    return msgspec.structs.replace(session, seq=0, updated_at=START, last_event_id="")


@patient
@given(walks())
def test_an_ignorable_unknown_event_changes_nothing_but_the_position(way: Walk) -> None:
    after = fold(appended(way.envelopes, ev.Unknown(type="weather", ignorable=True)))
    assert without_position(after) == without_position(fold(way.envelopes))
    assert after.seq == len(way.envelopes) + 1


@patient
@given(walks(), st.integers(1, 5))
def test_a_refused_decision_changes_no_later_decision(way: Walk, times: int) -> None:
    log = way.envelopes
    for _ in range(times):
        log = appended(log, decided(False))
    before, after = answers(fold(way.envelopes)), answers(fold(log))
    for found in (before, after):
        for key, value in found.items():
            if hasattr(value, "rules"):  # the position is told in a rule's reason, and is no decision
                found[key] = msgspec.structs.replace(value, rules=())
    assert before == after


# Order, with the journal that makes it.


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    agent_dir = tmp_path_factory.mktemp("agent")
    with Store(Path(agent_dir), KEYRING, clock=lambda: datetime.now(UTC), new_id=lambda: str(uuids.uuid7())) as made:
        yield made


@pytest.mark.req("FR-011c-034", "FR-011c-035", "BP-011c-04")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(way=walks(moves=12), steps=st.lists(st.sampled_from([-86_400.0, -1.0, 0.0, 1e-6, 5.0]), min_size=1))
def test_time_and_id_give_the_order_of_the_log_whatever_the_clock_does(
    store: Store, way: Walk, steps: list[float]
) -> None:
    ticks = iter(steps * 200)
    now = [START]

    def clock() -> datetime:
        now[0] += timedelta(seconds=next(ticks))
        return now[0]

    store.clock = clock
    journal = store.create()
    for events, actor in way.transactions:
        known = [event for event in events if not isinstance(event, ev.Unknown)]
        if known:
            journal.append(*known, actor=actor, durable=False)
    log = [one for one, _, _ in store.events(journal.session.session_id)]
    assert sorted(log, key=lambda one: (one.at, one.event_id)) == log
    assert [one.seq for one in log] == list(range(1, len(log) + 1))
    assert fold(log) == journal.session
