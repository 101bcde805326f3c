"""The workspace of a session travels: its source, what steps wrote, and the outputs of commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from acode.events import types as ev
from acode.sync import far_store
from acode.sync.far_store import FarStore
from tests.fleets import Fleet


def building(fleet: Fleet) -> str:
    """Its first command makes a file, the second is cut off while it changes that file and makes another."""
    wait = f"while [ ! -e {fleet.place}/go ]; do sleep 0.1; done"
    return f"""
title: Build
tasks:
  - title: Build
    steps:
      - write: {{path: in.txt, content: "in\\n"}}
      - run: "mkdir -p out; cat in.txt > out/one; echo one >> {fleet.ledger}"
        outputs: [out/]
      - run: "echo two >> {fleet.ledger}; echo more >> out/one; echo half > out/two; {wait}; cat in.txt >> out/two"
        outputs: [out/]
      - run: "cat out/one out/two >> {fleet.ledger}"
"""


def test_a_step_with_outputs_in_flight_on_a_dead_machine_is_repeated_on_its_files_without_a_person(
    fleet: Fleet,
) -> None:
    session_id = fleet.submit(building(fleet))
    worker = fleet.host("one", hasty=True).work()
    fleet.until(lambda: fleet.lines() == ["one", "two"])
    worker.kill_everything()
    (fleet.place / "go").touch()
    fleet.host("two", hasty=True).work()
    row = fleet.wait(session_id, "done", "parked")
    assert row["state"] == "done", row
    assert fleet.lines() == ["one", "two", "two", "in", "more", "half", "in"]
    settled = [one.outcome for one in fleet.events(session_id, ev.StepSettled) if one.step == "build.3"]
    assert ev.Settled.ROLLED_BACK in settled
    fleet.assert_each_repeat_was_decided(session_id, "two", "build.3")


def large(fleet: Fleet) -> str:
    """Its first command leaves more than the database takes."""
    wait = f"while [ ! -e {fleet.place}/go ]; do sleep 0.1; done"
    return f"""
title: Large
tasks:
  - title: Build
    steps:
      - run: "head -c 20000000 /dev/zero > large"
        outputs: [large]
      - run: "echo two >> {fleet.ledger}; {wait}; wc -c < large >> {fleet.ledger}"
        idempotent: true
"""


@pytest.mark.release
def test_what_is_too_large_to_travel_is_named_and_the_session_is_parked(fleet: Fleet) -> None:
    session_id = fleet.submit(large(fleet))
    worker = fleet.host("one", hasty=True).work()
    fleet.until(lambda: fleet.lines() == ["two"])
    worker.kill_everything()
    fleet.host("two", hasty=True).work()
    parked = fleet.wait(session_id, "parked")
    assert parked["ended_with"] == 17 and "large" in parked["reason"]


@pytest.mark.release
def test_what_is_too_large_for_the_database_travels_by_the_store(fleet: Fleet) -> None:
    url = f"file://{fleet.place / 'store'}"
    session_id = fleet.submit(large(fleet))
    worker = fleet.host("one", ACODE_FLEET_STORE=url, hasty=True).work()
    fleet.until(lambda: fleet.lines() == ["two"])
    worker.kill_everything()
    (fleet.place / "go").touch()
    fleet.host("two", ACODE_FLEET_STORE=url, hasty=True).work()
    assert fleet.wait(session_id, "done", "parked")["state"] == "done"
    assert fleet.lines() == ["two", "two", "20000000"]
    ((size,),) = fleet.ask("SELECT coalesce(max(octet_length(data)), 0) FROM acode_blob_parts")
    assert size < 1_000_000, "it is in the store, and not in the database"


def test_a_workspace_is_made_from_a_directory_or_from_a_commit(fleet: Fleet) -> None:
    plan = f'title: x\ntasks:\n  - title: A\n    steps:\n      - run: "cat src/a.txt >> {fleet.ledger}"\n'
    place = fleet.place / "project"
    (place / "src").mkdir(parents=True)
    (place / "src" / "a.txt").write_text("uploaded\n")
    uploaded = fleet.submit(plan, "--source", place)
    fleet.host("one").work()
    fleet.wait(uploaded, "done")
    (place / "src" / "a.txt").write_text("committed\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=place, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=place, check=True, capture_output=True, text=True)
    committed = fleet.submit(plan, "--source", f"git+file://{place}@{head.stdout.strip()}")
    fleet.wait(committed, "done")
    assert fleet.lines() == ["uploaded", "committed"]
    missing = fleet.submit(plan, "--source", f"git+file://{fleet.place}/nowhere@{head.stdout.strip()}")
    parked = fleet.wait(missing, "parked")
    assert parked["ended_with"] == 17 and "git fetch" in parked["reason"]


def test_a_directory_with_a_secret_and_a_branch_in_place_of_a_commit_are_refused(fleet: Fleet) -> None:
    place = fleet.place / "project"
    place.mkdir()
    (place / "token").write_text("ghp_abcdefghijklmnopqrstuvwxyz0123456789\n")
    plan = fleet.laptop.plan('title: x\ntasks:\n  - title: A\n    steps:\n      - run: "true"\n')
    refused = fleet.laptop("submit", plan, "--source", place, "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (17, "ACODE-SYNC-005")
    assert fleet.laptop("submit", plan, "--source", "git+https://host.example/x@main").exit_code == 2


def test_a_file_in_the_store_that_was_changed_is_refused(tmp_path: Path) -> None:
    store = FarStore(f"file://{tmp_path}")
    data = b"content"
    name = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    store.put(name, data)
    assert store.get(name) == data
    (tmp_path / name[:2] / name).write_bytes(b"other")
    with pytest.raises(far_store.SourceUnavailable):
        store.get(name)
