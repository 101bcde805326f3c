"""What the benchmarks say must be what they measured: their arithmetic, their counting and their pictures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from benchmarks import against
from benchmarks.peers import kills
from benchmarks.peers.faults.verdict import Verdict, counted, undecided
from benchmarks.peers.figures import nearest, quartiles, ratios, summary
from benchmarks.peers.syncs import syncs_between
from benchmarks.plots import Bar, bars, labels_apart, lines


def test_a_slow_moment_that_both_had_does_not_change_their_ratio() -> None:
    calm = ratios([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    busy = ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0])
    assert calm["median"] == busy["median"] == 2.0


def test_an_earlier_version_is_held_against_this_one_turn_by_turn() -> None:
    calm = [{"now": (0.002, 0.001), "then": (0.004, 0.003)}] * 4
    busy = [*calm, {"now": (0.2, 0.001), "then": (0.4, 0.003)}]
    for turns in (calm, busy):
        found = against.ratios(turns, "now", "then")
        assert (found["wall"], found["cpu"]) == (0.5, 0.333)


def test_the_cost_of_a_step_and_steps_per_second_are_of_the_same_turn() -> None:
    found = summary([0.001, 0.002, 0.004])
    assert (found["ms_per_step"], found["steps_per_second"], found["turns"]) == (2.0, 500.0, 3)
    assert quartiles([5.0]) == [5.0, 5.0]


def test_the_nearest_peer_is_the_one_that_acode_outruns_least() -> None:
    figures = {name: {"acode_is_faster": {"median": times}} for name, times in (("a", 4.0), ("b", 2.5), ("c", 9.0))}
    assert nearest(figures, ["a", "b", "not measured"]) == {"peer": "b", "acode_is_faster": 2.5, "cost_of_acode": 0.4}
    assert nearest(figures, []) is None


def test_syncs_count_once_each_and_only_between_the_first_step_and_the_last(tmp_path: Path) -> None:
    (tmp_path / "syncs").write_text(
        "11 99.500000 fdatasync(3) = 0\n"
        "11 100.100000 fdatasync(3 <unfinished ...>\n"
        "12 100.200000 fsync(4) = 0\n"
        "11 100.300000 <... fdatasync resumed>) = 0\n"
        "11 100.400000 --- SIGCHLD {si_signo=SIGCHLD} ---\n"
        "11 101.500000 fsync(3) = 0\n"
    )
    (tmp_path / "syncs-of-server").write_text("7 100.900000 fdatasync(9) = 0\n")
    assert syncs_between(tmp_path, 100.0, 101.0) == 3


def test_the_ledger_tells_what_happened_twice_and_what_never_did(tmp_path: Path) -> None:
    numbers = [0, 1, 1, 1, 2, 2, *range(4, kills.STEPS)]
    (tmp_path / "ledger").write_text("".join(f"{number}\n" for number in numbers))
    assert kills.counted(tmp_path / "ledger") == {"duplicates": 3, "steps_repeated": 2, "missing": 1}


def test_everybody_is_killed_at_the_same_moments() -> None:
    moments = kills.drawn(kills.SEED)
    assert moments == kills.drawn(kills.SEED)
    assert len(moments) == kills.KILLS
    assert all(0 < kill.lines < kills.STEPS - 1 and 0 <= kill.after_s <= kills.AFTER_S_MAX for kill in moments)


def test_sixteen_at_once_are_killed_as_often_as_one_by_one() -> None:
    moments = kills.drawn(kills.SEED, kills.STEPS_AT_ONCE)
    assert len(moments) == kills.KILLS and max(kill.lines for kill in moments) < kills.STEPS_AT_ONCE - 1
    assert {kills.steps_of(one) for one in kills.SIXTEEN} == {kills.STEPS_AT_ONCE}
    assert {one.at_once for one in kills.SIXTEEN} == {kills.AT_ONCE}


def test_a_verdict_tells_what_is_missing_repeated_undecided_and_hung() -> None:
    assert counted("0\n1\n1\n3\n", [0, [1, 2], "ask", 3]) == (1, 1)
    assert undecided(1, {}) is None
    assert undecided(1, {"repeated_with_a_decision": 1, "repeated_without_a_decision": 0}) == 0
    assert undecided(2, {"repeated_with_a_decision": 1, "repeated_without_a_decision": 0}) == 1
    good = Verdict(lost=0, repeated=0, undecided=0, ended="completed", asked=1)
    assert good.broken == [] and good.shown == "once; a person was asked"
    decided = Verdict(lost=0, repeated=1, undecided=0, ended="completed")
    assert decided.broken == [] and decided.shown == "1 repeated, decided on record"
    for bad in (
        Verdict(lost=1, repeated=0, undecided=0, ended="completed"),
        Verdict(lost=0, repeated=1, undecided=1, ended="completed"),
        Verdict(lost=5, repeated=0, undecided=0, ended="hung"),
    ):
        assert bad.broken != []
    refused = Verdict(lost=2, repeated=0, undecided=0, ended="refused", text="Escalated")
    assert refused.broken == [] and refused.shown == "refused: Escalated"


def test_names_of_lines_do_not_cover_each_other_and_keep_their_order() -> None:
    placed = labels_apart({"low": 103.0, "high": 100.0, "far": 300.0}, gap=16)
    assert placed == {"high": 100.0, "low": 116.0, "far": 300.0}


def test_pictures_are_well_formed_whatever_a_contender_is_called() -> None:
    rows = [Bar(name="a <b> & c", value=0.0), Bar(name="d", value=7.0, low=6.0, high=8.0)]
    drawn = bars("Steps & more", "note", rows)
    drawn_lines = lines("t", "n", {"x & y": [(100.0, 3.0), (10_000.0, 40.0)], "one": [(100.0, 5.0)]}, "steps", "ms")
    for picture in (drawn, drawn_lines):
        assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert "a &lt;b&gt; &amp; c" in drawn
