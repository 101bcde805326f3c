"""The artifact of an arc phase: what the checkpoint records is what the driver wrote, or the phase has failed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acode.engine.world import Options
from acode.errors import StepFailed
from acode.formats import format_of, locate
from acode.formats.arc import expected_artifact, read
from acode.formats.arc.phases import NEWER_ORDER
from acode.formats.interface import Outcome, Work
from tests.arc import arc, put, put_run
from tests.driver import Acode
from tests.foreign import ARC, ledger, put_arc, put_driver
from tests.worlds import world as a_world

PHASE = "plan_review"
TOLD = f"tmp/arc/{ARC}/plan-review.md"
OLD = f"tmp/arc/{ARC}/plan-review-round-1.md"
ELSEWHERE = f"tmp/arc/{ARC}/named-by-the-driver.md"
FOUND, WRITTEN = b"bytes that nobody recorded\n", b"what the driver wrote\n"
HELD: Any = SimpleNamespace(append=lambda *_, **__: None, warn=lambda _: None)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Why the phase runs again, as what the checkpoint says of it and what lies on disk.


def changed_in_place(root: Path) -> dict[str, Any]:
    put(root, TOLD, FOUND)
    return {"status": "completed", "artifact": TOLD, "artifact_hash": "sha256:" + "0" * 64}


def changed_elsewhere(root: Path) -> dict[str, Any]:
    put(root, OLD, FOUND)
    return {"status": "completed", "artifact": OLD, "artifact_hash": "0" * 64}


def gone(root: Path) -> dict[str, Any]:
    return {"status": "completed", "artifact": OLD, "artifact_hash": "0" * 64}


def turned_into_a_link(root: Path) -> dict[str, Any]:
    put(root, "outside.md", FOUND)
    put(root, OLD, b"").unlink()
    (root / OLD).symlink_to(root / "outside.md")
    return {"status": "completed", "artifact": OLD, "artifact_hash": sha256(FOUND)}


def failed_before(root: Path) -> dict[str, Any]:
    put(root, OLD, FOUND)
    return {"status": "failed", "artifact": OLD, "artifact_hash": sha256(FOUND)}


def never_ran(root: Path) -> dict[str, Any]:
    return {"status": "pending"}


CAUSES = (changed_in_place, changed_elsewhere, gone, turned_into_a_link, failed_before, never_ran)

# What the driver does, and where it wrote, if anywhere.


def writes_where_it_was_told(root: Path, checkpoint: Path) -> str | None:
    put(root, TOLD, WRITTEN)
    return TOLD


def writes_the_same_bytes_again(root: Path, checkpoint: Path) -> str | None:
    put(root, TOLD, FOUND)
    return TOLD


def writes_where_it_stood_before(root: Path, checkpoint: Path) -> str | None:
    (root / OLD).unlink(missing_ok=True)
    put(root, OLD, WRITTEN)
    return None  # it was told another place


def writes_nothing(root: Path, checkpoint: Path) -> str | None:
    return None


def names_its_own_place(root: Path, checkpoint: Path) -> str | None:
    put(root, ELSEWHERE, WRITTEN)
    named(checkpoint, ELSEWHERE)
    return ELSEWHERE


def names_what_was_found(root: Path, checkpoint: Path) -> str | None:
    named(checkpoint, OLD if os.path.lexists(root / OLD) else TOLD)
    return None


DRIVERS = (
    *(writes_where_it_was_told, writes_the_same_bytes_again, writes_where_it_stood_before),
    *(writes_nothing, names_its_own_place, names_what_was_found),
)


def named(checkpoint: Path, artifact: str) -> None:
    value = json.loads(checkpoint.read_text())
    value["phases"][PHASE] |= {"status": "completed", "artifact": artifact}
    checkpoint.write_text(json.dumps(value))


def driven(root: Path, world: Any, act: Callable[[Path, Path], str | None], status: Any = "completed") -> Any:
    """One phase from the look to the record; what the driver wrote, what was told of it, and the entry."""
    (run,) = locate(world.workspace).runs
    checkpoint = Path(run.path)
    with format_of("arc").activate(world, run, Options()) as active:
        piece = active.next(HELD)
        assert isinstance(piece, Work) and piece.name == PHASE
        assert f"Write the phase's artifact to: {TOLD}\n" in piece.prompt
        active.begin(HELD, piece, key=act.__name__, attempt=1)
        began = datetime.now(UTC)
        wrote = act(root, checkpoint)
        outcome = Outcome(key=act.__name__, status=status, started=began, finished=began + timedelta(hours=1))
        told = active.record(HELD, piece.origin, outcome)
        once = checkpoint.read_bytes()
        assert active.record(HELD, piece.origin, outcome) is None and checkpoint.read_bytes() == once
    return wrote, told, read(checkpoint).raw["phases"][PHASE]


@pytest.mark.req("ARC-HASH-02", "ARC-HASH-03")
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("act", DRIVERS)
def test_a_phase_is_recorded_with_the_bytes_that_its_driver_wrote_or_has_failed(
    tmp_path: Path, cause: Callable[[Path], dict[str, Any]], act: Callable[[Path, Path], str | None]
) -> None:
    world = a_world(tmp_path)
    root = world.workspace
    put_run(root, arc({PHASE: cause(root)}))
    wrote, told, entry = driven(root, world, act)
    if cause is failed_before and act is names_what_was_found:
        wrote = OLD  # nobody has rejected these bytes, and the driver vouches for them
    if wrote is None:
        assert isinstance(told, StepFailed) and TOLD in told.message
        assert (entry["status"], entry["artifact"], entry["artifact_hash"]) == ("failed", None, None)
    else:
        assert told is None
        data = (root / wrote).read_bytes()
        assert (entry["status"], entry["artifact"], entry["artifact_hash"]) == ("completed", wrote, sha256(data))
        assert [one["phase"] for one in acode_demotes(world)] == []


def acode_demotes(world: Any) -> list[dict[str, Any]]:
    (run,) = locate(world.workspace).runs
    found: list[dict[str, Any]] = format_of("arc").stand(world, run).extra["demoted"]
    return found


@pytest.mark.parametrize("cause", CAUSES)
def test_a_driver_that_fails_leaves_no_artifact_on_record(
    tmp_path: Path, cause: Callable[[Path], dict[str, Any]]
) -> None:
    world = a_world(tmp_path)
    put_run(world.workspace, arc({PHASE: cause(world.workspace)}))
    _, told, entry = driven(world.workspace, world, writes_where_it_was_told, "failed")
    assert told is None
    assert (entry["status"], entry["artifact"], entry["artifact_hash"]) == ("failed", None, None)


def test_changed_bytes_are_remembered_over_a_repair_without_a_driver(tmp_path: Path) -> None:
    """The look that rejects them and the driver that leaves them may be days apart."""
    world = a_world(tmp_path)
    put_run(world.workspace, arc({PHASE: changed_in_place(world.workspace)}))
    (run,) = locate(world.workspace).runs
    format_of("arc").repair_by_rules(world, run, Options())
    _, told, entry = driven(world.workspace, world, writes_nothing)
    assert isinstance(told, StepFailed) and entry["status"] == "failed"
    wrote, told, entry = driven(world.workspace, world, writes_where_it_was_told)
    assert told is None and (entry["artifact"], entry["artifact_hash"]) == (wrote, sha256(WRITTEN))


@pytest.mark.parametrize("run_id", [ARC, "../../../etc", "a b", "", 7])
def test_every_phase_has_a_place_for_its_artifact_below_the_runs_own_directory(run_id: object) -> None:
    places = {expected_artifact(arc(id=run_id), name, run_id="bad name/..") for name in NEWER_ORDER}
    assert len(places) == len(NEWER_ORDER) - 1, "only mend and verify_mend share one"
    for place in places:
        parts = place.rstrip("/").split("/")
        assert parts[:2] == ["tmp", "arc"] and len(parts) >= 4
        assert all(part.strip(".") and " " not in part for part in parts)


def test_a_driver_without_the_artifact_it_was_told_to_write_fails_the_resume_and_may_try_again(
    acode: Acode, workspace: Path
) -> None:
    put_driver(workspace, "arc")
    put(workspace, TOLD, FOUND)
    put(workspace, "driver.sh", (workspace / "driver.sh").read_text().replace("artifact=$(", "skip=$(")).chmod(0o755)
    checkpoint = put_arc(workspace, phases={PHASE: changed_in_place(workspace)})
    failed = acode("resume", ARC, "--yes", "--json")
    assert failed.exit_code == 1 and failed.lines[-1]["data"]["reason_code"] == "step_failed"
    assert ledger(workspace) == [f"{PHASE} begun", f"{PHASE} done"]
    put_driver(workspace, "arc")
    ended = acode("resume", ARC, "--yes", "--json")
    assert ended.exit_code == 0, ended.stdout
    entry = json.loads(checkpoint.read_text())["phases"][PHASE]
    assert entry["artifact_hash"] == sha256((workspace / TOLD).read_bytes()) != sha256(FOUND)
