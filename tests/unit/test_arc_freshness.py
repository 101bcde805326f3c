"""Is the plan still about this repository: asked again when it should be, and answered as the format's gate answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from acode.errors import ChangedFiles
from acode.formats.arc import raise_refusal, repair
from acode.formats.arc.facts import Drift, TextFile
from acode.formats.arc.freshness import identifiers, plan_head, recheck, references, signals_of
from tests.arc import CONFIG_DIR, NOW, OWN_PID, arc, diagnosed

SHA = "0123456789abcdef0123456789abcdef01234567"
TEXT = "Change `src/parser.py` and `Parser.parse_line`, see [notes](docs/notes.md). Not `null`, not `../x/y`.\n"


def plan(sha: str | None = SHA, extra: str = "branch: main\n", text: str = TEXT) -> TextFile:
    head = "" if sha is None else f"git_sha: {sha}\n"
    return TextFile(data=f"---\ntitle: t\n{head}{extra}---\n{text}".encode())


def drift(**known: Any) -> Drift:
    usual: dict[str, Any] = {"sha_reachable": True, "commits_since": 0, "changed_since": frozenset()}
    usual |= {"identifiers_lost": (), "current_branch": "main", "committed_at": NOW.timestamp()}
    return Drift(**{**usual, **known})


MOVED_ON = drift(
    commits_since=500,
    changed_since=frozenset({"src/parser.py", "docs/notes.md"}),
    identifiers_lost=("Parser.parse_line",),
    current_branch="other",
    committed_at=(NOW - timedelta(days=100)).timestamp(),
)


@pytest.mark.req("ARC-FRESH-01")
def test_another_commit_in_the_plan_is_checked_again_and_the_same_one_is_not() -> None:
    assert recheck(arc(freshness={"git_sha": SHA}), plan(), drift(), NOW).result is None
    for before in (None, {"git_sha": "f" * 40}, {"score": 1.0}, "odd"):
        result = recheck(arc(freshness=before), plan(), drift(), NOW).result
        assert result is not None
        assert (result["git_sha"], result["status"], result["score"]) == (SHA, "PASS", 1.0)


@pytest.mark.req("ARC-FRESH-02")
@pytest.mark.parametrize(
    "data", [b"no head\n", b"---\ngit_sha: a\n", b"---\na: [1\n---\n", b"---\n- a\n---\n", b"\xff", b""]
)
def test_a_plan_with_a_malformed_head_is_skipped_with_a_warning(data: bytes) -> None:
    found = recheck(arc(freshness={"git_sha": "f" * 40}), TextFile(data=data), drift(), NOW)
    assert found.result is None
    assert len(found.warnings) == 1


@pytest.mark.parametrize("sha", ["ABCDEF1", "12345", "HEAD", "0123456; rm -rf x"])
def test_a_commit_id_of_another_shape_is_never_handed_to_git(sha: str) -> None:
    found = recheck(arc(), plan(f"'{sha}'"), drift(), NOW)
    assert found.result is None
    assert len(found.warnings) == 1


def test_a_plan_without_a_commit_is_skipped_in_silence_and_so_is_a_run_that_said_so() -> None:
    assert recheck(arc(), plan(None), drift(), NOW).warnings == ()
    assert recheck(arc(flags={"skip_freshness": True}), plan(), drift(), NOW).result is None


def test_a_commit_id_of_digits_stays_text() -> None:
    found = plan_head(plan("0123456"))
    assert found is not None
    assert found.git_sha == "0123456"


@pytest.mark.req("ARC-FRESH-03")
def test_an_override_is_preserved_and_not_asked_for_again() -> None:
    value = arc(freshness={"git_sha": "f" * 40, "status": "STALE-OVERRIDE"})
    found = diagnosed(value, plan=plan(), drift=MOVED_ON)
    assert found.refusals == ()
    assert found.freshness.result is not None
    assert found.freshness.result["status"] == "STALE-OVERRIDE"


@pytest.mark.req("ARC-FRESH-04", "ARC-FRESH-05")
def test_the_new_result_is_stored_in_the_migrated_checkpoint() -> None:
    """Schema 1 has no freshness at all: the check would find nothing to compare with before the migrations."""
    value = {**arc({"audit": {"status": "pending"}}), "schema_version": 1}
    found = diagnosed(value, plan=plan(), drift=drift(commits_since=40))
    after = repair(value, found, now=NOW, own_pid=OWN_PID, config_dir=CONFIG_DIR)
    assert after["schema_version"] == 19
    assert after["freshness"]["signals"]["commit_distance"] == {"raw": 40, "normalized": 0.4}
    assert after["freshness"]["score"] == 0.9
    assert after["freshness"]["checked_at"] == "2026-03-01T12:00:00.000Z"


def test_a_stale_plan_needs_a_person_whose_acceptance_is_recorded() -> None:
    value = arc()
    found = diagnosed(value, plan=plan(), drift=MOVED_ON)
    (refusal,) = found.refusals
    with pytest.raises(ChangedFiles, match="stale") as refused:
        raise_refusal(refusal)
    assert refused.value.exit_code == 17
    after = repair(value, found, now=NOW, own_pid=OWN_PID, config_dir=CONFIG_DIR, accept_stale=True)
    assert after["freshness"]["status"] == "STALE-OVERRIDE"


def test_the_five_signals_weigh_what_the_format_says() -> None:
    head = plan_head(plan())
    assert head is not None
    signals = signals_of(head, MOVED_ON, references(plan()), identifiers(plan()), NOW)
    assert {name: signal["normalized"] for name, signal in signals.items()} == {
        "commit_distance": 1.0,
        "file_drift": 1.0,
        "identifier_loss": 1.0,
        "branch_divergence": 0.5,
        "time_decay": 1.0,
    }
    result = recheck(arc(), plan(), MOVED_ON, NOW).result
    assert result is not None
    assert result["score"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("known", "signal", "expected"),
    [
        ({"sha_reachable": False, "commits_since": None}, "commit_distance", 1.0),
        ({"commits_since": None}, "commit_distance", 1.0),
        ({"identifiers_lost": None}, "identifier_loss", 0.5),
        ({"current_branch": None}, "branch_divergence", 0.0),
        ({"committed_at": (NOW - timedelta(days=31)).timestamp()}, "time_decay", 0.3),
        ({"committed_at": (NOW - timedelta(days=61)).timestamp()}, "time_decay", 0.6),
        ({"committed_at": (NOW - timedelta(days=30)).timestamp()}, "time_decay", 0.0),
    ],
)
def test_a_signal_without_an_answer_is_not_taken_for_fresh(known: Any, signal: str, expected: float) -> None:
    result = recheck(arc(), plan(), drift(**known), NOW).result
    assert result is not None
    assert result["signals"][signal]["normalized"] == expected


def test_a_malformed_date_counts_half_when_the_commit_is_gone() -> None:
    unreachable = drift(sha_reachable=False, commits_since=None, committed_at=None)
    result = recheck(arc(), plan(extra="date: soon\n"), unreachable, NOW).result
    assert result is not None
    assert result["signals"]["time_decay"]["normalized"] == 0.5


def test_a_plan_names_files_and_code_and_nothing_that_leaves_the_workspace() -> None:
    assert references(plan()) == ["src/parser.py", "docs/notes.md"]
    assert identifiers(plan()) == ["Parser.parse_line"]


def test_without_git_the_freshness_is_left_alone_and_said_to_be_unchecked() -> None:
    found = recheck(arc(), plan(), None, NOW)
    assert found.result is None
    assert any("git" in warning for warning in found.warnings)
