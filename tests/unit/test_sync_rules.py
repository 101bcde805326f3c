"""The rules of the shared copy, case by case: who may write, who is refused, and when to try again."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from acode.store.sync_cursor import Standing
from acode.sync.backoff import FAILURES_TO_OPEN, PERMANENT_RETRY_S, RETRY_S_MAX, Link, after_failure, after_success
from acode.sync.protocol import (
    Behind,
    Bring,
    Diverged,
    Doubtful,
    Fenced,
    Keep,
    Mine,
    Remote,
    RolledBack,
    Take,
    UpToDate,
    Write,
    common_seq,
    decide,
    decide_pull,
    decide_take,
    lost_by_server,
    may_release,
)

ME = Mine(node="me", generation=2, seq=10)


HEAD = b"h" * 32


def remote(owner: str | None, *, seq: int = 10, generation: int = 2, last: str | None = None) -> Remote:
    holder = f"{owner} there"
    return Remote(generation=generation, owner=owner, seq=seq, head=HEAD, holder=holder, last=last)


def test_an_unknown_session_is_begun_under_a_new_generation() -> None:
    assert decide(ME, None, fits=True) == Write(generation=3, after=0, new=True)


@pytest.mark.req("FR-011c-055")
@pytest.mark.parametrize("fits", [False, True])
@pytest.mark.parametrize("seq", [5, 10, 15])
@pytest.mark.parametrize("generation", [1, 2, 3])
def test_whoever_finds_another_owner_is_fenced_whatever_else_is_true(fits: bool, seq: int, generation: int) -> None:
    found = decide(ME, remote("you", seq=seq, generation=generation), fits=fits)
    assert found == Fenced(holder="you there", generation=generation)


def test_an_owner_writes_on_where_the_server_stands_and_the_generation_never_falls() -> None:
    assert decide(ME, remote("me", seq=7), fits=True) == Write(generation=2, after=7, new=False)
    assert decide(ME, remote("me", seq=7, generation=5), fits=True) == Write(generation=5, after=7, new=False)
    assert decide(ME, remote("me", seq=7, generation=1), fits=True) == Write(generation=2, after=7, new=False)


def test_a_lease_that_was_given_back_is_taken_with_a_higher_generation() -> None:
    assert decide(ME, remote(None, generation=4), fits=True) == Write(generation=5, after=10, new=True)


def test_other_codes_are_another_history_and_more_events_are_not_ours_to_write_over() -> None:
    assert isinstance(decide(ME, remote("me"), fits=False), Diverged)
    assert isinstance(decide(ME, remote(None), fits=False), Diverged)
    assert decide(ME, remote("me", seq=12), fits=True) == RolledBack(seq=12)


@pytest.mark.parametrize("generation", [1, 2, 3, 9])
def test_more_events_there_are_a_rollback_for_the_last_holder_and_news_for_anybody_else(generation: int) -> None:
    """Whatever generation we remember: an older database remembers an older one, and a copy a foreign one."""
    mine = remote(None, seq=12, generation=generation, last="me")
    assert decide(ME, mine, fits=True) == RolledBack(seq=12)
    yours = remote(None, seq=12, generation=generation, last="you")
    assert decide(ME, yours, fits=True) == Behind(seq=12, generation=generation)


def test_where_an_older_client_noted_no_holder_the_generation_tells() -> None:
    assert decide(ME, remote(None, seq=12), fits=True) == RolledBack(seq=12)
    assert decide(ME, remote(None, seq=12, generation=3), fits=True) == Behind(seq=12, generation=3)


@pytest.mark.req("FR-011c-055")
@pytest.mark.parametrize("standing", ["released", "fenced", "diverged", "copy"])
def test_only_an_owner_writes_on_a_server_that_was_found_restored(standing: Standing) -> None:
    mine = msgspec.structs.replace(ME, standing=standing, doubted_since_s=7.0)
    assert decide(mine, remote(None), fits=True) == Doubtful(seq=10, pushed=0)
    since = msgspec.structs.replace(remote(None), renewed_s=8.0)
    assert isinstance(decide(mine, since, fits=True), Write), "somebody has held it there since"
    owner = msgspec.structs.replace(mine, standing="owner")
    assert isinstance(decide(owner, remote(None), fits=True), Write)
    assert isinstance(decide(msgspec.structs.replace(owner, copied=True), remote(None), fits=True), Doubtful)


@pytest.mark.req("FR-011c-055")
@pytest.mark.parametrize("standing", ["fenced", "diverged"])
def test_a_server_with_an_older_lease_than_the_one_that_refused_us_gets_nothing(standing: Standing) -> None:
    mine = msgspec.structs.replace(ME, standing=standing, pushed=10, whole=True)
    for found in (remote(None, generation=1), remote(None, generation=1, seq=7), None):
        assert lost_by_server(mine, found)
        assert decide(mine, found, fits=True) == Doubtful(seq=found.seq if found else 0, pushed=10, lost=True)
    assert not lost_by_server(mine, remote(None, seq=7)), "its holder may have set aside what we pushed"


def test_a_take_over_never_lets_the_generation_fall() -> None:
    assert decide_take("me", remote(None), force=False, known=6) == Take(generation=7)
    assert decide_take("me", remote("you"), force=True, known=6) == Take(generation=7, forced_from="you there")


@pytest.mark.req("FR-011c-055")
def test_a_take_over_is_free_when_given_back_and_forced_otherwise() -> None:
    assert decide_take("me", remote(None), force=False) == Take(generation=3)
    assert decide_take("me", remote("me"), force=True) == Keep(generation=2)
    assert decide_take("me", remote("you"), force=False) == Fenced(holder="you there", generation=2)
    assert decide_take("me", remote("you"), force=True) == Take(generation=3, forced_from="you there")


@pytest.mark.parametrize(
    ("owner", "generation", "seq"), [("you", 2, 10), (None, 2, 10), ("me", 3, 10), ("me", 2, 9), ("me", 2, 11)]
)
def test_nobody_gives_back_what_is_not_theirs_or_not_all_there(owner: str | None, generation: int, seq: int) -> None:
    assert may_release(ME, remote("me"), head=HEAD)
    assert not may_release(ME, remote(owner, seq=seq, generation=generation), head=HEAD)
    assert not may_release(ME, remote("me"), head=b"x" * 32), "as many events, but others"


@pytest.mark.parametrize(("force", "keep_ahead"), list(itertools.product([False, True], repeat=2)))
def test_what_comes_down_continues_the_common_past(force: bool, keep_ahead: bool) -> None:
    def plan(here: int, there: int, common: int) -> object:
        return decide_pull(here, remote(None, seq=there), common=common, force=force, keep_ahead=keep_ahead)

    assert plan(0, 10, 0) == Bring(after=0)
    assert plan(4, 10, 4) == Bring(after=4)
    assert plan(10, 10, 10) == UpToDate()
    ahead = Bring(after=10, aside=2) if force and not keep_ahead else UpToDate()
    assert plan(12, 10, 10) == ahead
    parted = plan(12, 10, 8)
    assert (parted == Bring(after=8, aside=4)) if force else isinstance(parted, Diverged)


@pytest.mark.parametrize("last", [0, 1, 2, 7, 8, 1000])
def test_the_common_past_is_found_by_halving(last: int) -> None:
    for common in {0, 1, last // 2, max(0, last - 1), last}:
        if common <= last:
            asked: list[int] = []
            assert (
                common_seq(last, lambda seq, common=common, asked=asked: asked.append(seq) or seq <= common) == common
            )
            assert len(asked) <= 11


def test_back_off_grows_to_a_limit_opens_the_breaker_and_is_forgotten_by_success() -> None:
    link, waits = Link(), []
    for _ in range(12):
        link = after_failure(link, "transient", now=100.0, dice=0.999999)
        waits.append(link.retry_at - 100.0)
        assert link.open is (link.failures >= FAILURES_TO_OPEN)
    assert waits == sorted(waits) and waits[-1] == pytest.approx(RETRY_S_MAX, rel=0.01)
    assert [round(wait) for wait in waits[:4]] == [1, 2, 4, 8]
    least = after_failure(Link(), "transient", now=0.0, dice=0.0).retry_at
    assert 0 < least < waits[0], "two that failed together come back apart"
    assert after_success() == Link() and Link().may_try(0.0)


def test_what_will_not_mend_itself_is_tried_rarely_from_the_first_time_on() -> None:
    link = after_failure(Link(), "permanent", now=0.0, dice=0.5)
    assert link.open and link.retry_at >= PERMANENT_RETRY_S / 2
    assert not link.may_try(link.retry_at - 0.1) and link.may_try(link.retry_at)
