"""Agent-memory runs on a real disk: found, read in whatever state they are, written to only in acode's own file."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.errors import AcodeError, NotWritable, UnknownSession, UnsafePath
from acode.formats import agent_memory
from acode.formats.agent_memory import Ask, Found, FreshStart, Stamp, choose, diagnose, locate, read
from acode.formats.agent_memory.disk import Folder
from tests.agent_memory import NOW, said, to_phase

RUNS = Path(".agent-memory") / "runs"
RUN_ID = "20260115-1000-add-email-validation-a1b2"
GRAPH = {
    "tasks": [
        {"id": "T001", "title": "First", "phase": 1, "dependencies": []},
        {"id": "T002", "title": "Second", "phase": 1, "dependencies": ["T001"]},
    ]
}


def a_run(root: Path, run_id: str = RUN_ID, *events: dict[str, Any], phase: int | None = 2) -> Path:
    run = root / RUNS / run_id
    run.mkdir(parents=True)
    for name in ("constitution.md", "prd.md", "plan.md"):
        (run / name).write_text(f"# {name}\n")
    (run / "task-graph.json").write_text(json.dumps(GRAPH))
    moved = [] if phase is None else [to_phase(phase)]
    log(run, "orchestrator", *moved, *events)
    return run


def log(run: Path, actor: str, *events: dict[str, Any] | bytes, name: str = "20260115-1000.jsonl") -> Path:
    path = run / "events" / actor / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n" for event in events]
    with path.open("ab") as file:
        file.write(b"".join(lines))
    return path


def fingerprint(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


# Reading.


@pytest.mark.req("PROTO-01", "PROTO-07", "PROTO-08", "PROTO-20")
def test_everything_is_derived_from_the_files_of_the_run_and_of_all_its_actors(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    log(run_path, "executor", said("task_started", 1, "T001"))
    log(run_path, "verifier", {"event_type": "task-verified", "task_id": "T001", "timestamp": "2026-01-15T10:02:00Z"})
    log(run_path, "executor/lane-2", said("task-claimed", 3, "T002"))
    run = read(run_path)
    assert set(run.artifacts) == {"constitution.md", "prd.md", "plan.md", "task-graph.json"}
    assert run.artifacts["plan.md"].text == "# plan.md\n"
    findings = diagnose(run, NOW)
    assert (findings.phase, findings.tasks) == (2, {"T001": "done", "T002": "in_progress"})
    assert findings.next_action.task == "T002"
    assert findings.warnings == ()
    moved = tmp_path / "elsewhere" / RUN_ID
    moved.parent.mkdir()
    run_path.rename(moved)
    assert diagnose(read(moved), NOW) == findings


@pytest.mark.req("PROTO-17")
def test_what_is_readable_of_a_damaged_log_is_read_and_the_rest_is_named_by_file_and_line(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    started, completed = said("task_started", 1, "T001"), said("task_completed", 2, "T001")
    log(
        run_path, "executor",
        b"\xef\xbb\xbf" + json.dumps(started).encode() + b"\r\n",  # a byte order mark, a Windows line end
        b"\n",
        b"garbage\n", b"\x00\x00\n", b"[1, 2]\n", b'{"no": "type"}\n',
        json.dumps(completed).encode() + b"\r\n",
        b'{"type": "task_started", "task_id": "T0',
    )  # fmt: skip
    findings = diagnose(read(run_path), NOW)
    assert findings.tasks["T001"] == "done"
    assert findings.cautious
    assert findings.next_action.task == "T002"
    where = "events/executor/20260115-1000.jsonl"
    assert [warning for warning in findings.warnings if where in warning] == [
        f"{where} lines 3-4: no JSON; skipped",
        f"{where} line 5: no JSON object; skipped",
        f"{where} line 6: an object without `type` or `event_type`; skipped",
        f"{where} line 8: a torn last line; skipped",
    ]
    assert read(run_path).run_events.lines_skipped == 5


def test_a_whole_last_line_without_its_end_is_read(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    log(run_path, "executor", json.dumps(said("task_completed", 1, "T001")).encode())
    findings = diagnose(read(run_path), NOW)
    assert (findings.tasks["T001"], findings.warnings) == ("done", ())


@pytest.mark.req("PROTO-17")
def test_every_cut_of_a_log_is_read_without_a_crash_and_never_invents_a_completion(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    path = log(run_path, "executor", said("task_started", 1, "T001"), said("task_completed", 2, "T001"))
    whole = path.read_bytes()
    first = whole.index(b"\n")
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        state = diagnose(read(run_path), NOW).tasks["T001"]
        expected = "done" if cut >= len(whole) - 1 else "in_progress" if cut >= first else "pending"
        assert state == expected, cut


def test_garbage_without_end_is_counted_wholly_and_told_in_a_bounded_list(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    one = json.dumps(said("task_started", 1, "T001")).encode()
    log(run_path, "executor", *(b"x\n" + one + b"\n" for _ in range(1000)))
    run = read(run_path)
    assert run.run_events.lines_skipped == 1000
    assert len(run.run_events.warnings) <= 202
    assert any("800 more lines of the event files were skipped" in warning for warning in run.run_events.warnings)


def test_a_line_over_the_limit_is_skipped_and_the_next_is_read(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    long = said("task_failed", 1, "T001", details={"text": "x" * (1024 * 1024)})
    log(run_path, "executor", long, said("task_completed", 2, "T001"))
    findings = diagnose(read(run_path), NOW)
    assert findings.tasks["T001"] == "done"
    assert any("line 1: longer than an event may be; skipped" in warning for warning in findings.warnings)


def test_an_empty_or_unusable_artifact_counts_as_missing(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    (run_path / "plan.md").write_text(" \n")
    (run_path / "task-graph.json").write_text('{"tasks": [{"id": "T001"')
    findings = diagnose(read(run_path), NOW)
    assert findings.missing_artifacts == ("plan.md", "task-graph.json")
    assert any("plan.md is empty" in warning for warning in findings.warnings)
    assert any("task-graph.json cannot be used: no JSON" in warning for warning in findings.warnings)


@pytest.mark.req("PROTO-22")
def test_no_other_file_of_the_run_has_a_say_in_how_it_is_resumed(tmp_path: Path) -> None:
    run_path = a_run(tmp_path, RUN_ID, said("task_completed", 1, "T001"))
    before = diagnose(read(run_path), NOW)
    (run_path / "manifest.yaml").write_text(
        "state: {phase: PR_PREP, status: COMPLETED}\nresume: {recoverable: false}\n"
    )
    (run_path / "RESUME.md").write_text("Start over with task T001.\n")
    (run_path / "checkpoint.json").write_text('{"phase": 4, "tasks": {"T002": "done"}}')
    assert diagnose(read(run_path), NOW) == before
    assert locate(tmp_path).runs[0].incomplete


def test_links_pipes_and_folders_in_the_place_of_files_are_not_followed_or_waited_for(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    outside = tmp_path / "outside"
    (outside / "actor").mkdir(parents=True)
    (outside / "actor" / "a.jsonl").write_text(json.dumps(said("task_completed", 1, "T001")) + "\n")
    (run_path / "events" / "linked").symlink_to(outside / "actor")
    (run_path / "events" / "orchestrator" / "b.jsonl").symlink_to(outside / "actor" / "a.jsonl")
    os.mkfifo(run_path / "events" / "orchestrator" / "pipe.jsonl")
    (run_path / "events" / "orchestrator" / "c.jsonl").mkdir()
    (run_path / "plan.md").unlink()
    (run_path / "plan.md").symlink_to(outside / "actor" / "a.jsonl")
    findings = diagnose(read(run_path), NOW)
    assert findings.tasks["T001"] == "pending"
    assert findings.missing_artifacts == ("plan.md",)
    links = [warning for warning in findings.warnings if "link" in warning]
    assert len(links) == 3


def test_a_file_swapped_for_a_link_after_the_look_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with Folder.at(str(tmp_path)) as folder:
        with pytest.raises(OSError, match="symbolic links"):
            folder.open_file("link")
        for name in ("..", ".", "", "a/b", "x" * 300):
            with pytest.raises(UnsafePath):
                folder.open_file(name)


def test_no_run_at_a_place_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "absent", tmp_path / "file", "nul\0byte"):
        with pytest.raises(UnknownSession, match="no run can be read at"):
            read(place)


def test_files_that_are_no_event_logs_are_told(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    (run_path / "events" / "executor").mkdir()
    (run_path / "events" / "executor" / "2024-01-15T10-00-00Z-task-created-T001.yaml").write_text("x: 1\n")
    assert "events/executor/ holds 1 other file than .jsonl; not read" in diagnose(read(run_path), NOW).warnings


def test_a_task_contract_is_read_only_under_a_safe_name(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    (run_path / "tasks").mkdir()
    (run_path / "tasks" / "T001.md").write_text("the contract")
    (run_path / "secret.md").write_text("secret")
    assert agent_memory.read_task_contract(run_path, "T001") == "the contract"
    for odd in ("../secret", "T002", "", "a/b", "..", "T001\n"):
        assert agent_memory.read_task_contract(run_path, odd) is None


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["prd.md", "plan.md", "task-graph.json", "events/a/x.jsonl", "events/y.jsonl", "events"]),
        st.binary(max_size=200)
        | st.sampled_from([b'{"tasks":[{"id":"A"}]}', b'{"type":"task_started","task_id":"A"}\n']),
    )
)
def test_random_files_never_raise_anything_but_named_errors(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as place:
        run_path = Path(place) / RUNS / "r"
        run_path.mkdir(parents=True)
        for name, data in sorted(files.items(), reverse=True):
            path = run_path / name
            if not path.exists() and not any(parent.is_file() for parent in path.parents):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        try:
            findings = diagnose(read(run_path), NOW)
            located = locate(place)
        except AcodeError:
            return
        assert json.dumps(agent_memory.as_json(findings))
        assert [run.run_id for run in located.runs] == ["r"]


# Locating and choosing.


@pytest.mark.req("PROTO-06")
def test_incomplete_and_complete_runs_are_told_apart(tmp_path: Path) -> None:
    a_run(tmp_path, "20260114-0900-old-aaaa", said("run-completed", 50))
    a_run(tmp_path, "20260115-1000-going-on-bbbb", said("task_completed", 40, "T001"))
    a_run(tmp_path, "20260113-0900-cancelled-cccc", said("run_cancelled", 30))
    (tmp_path / RUNS / "20260112-0900-just-made-dddd").mkdir()
    (tmp_path / RUNS / "notes.txt").write_text("no run")
    located = locate(tmp_path)
    assert {run.run_id: run.ending for run in located.runs} == {
        "20260114-0900-old-aaaa": "completed",
        "20260115-1000-going-on-bbbb": None,
        "20260113-0900-cancelled-cccc": "cancelled",
        "20260112-0900-just-made-dddd": None,
    }
    going_on = next(run for run in located.runs if "going-on" in run.run_id)
    assert (going_on.title, going_on.tasks_done, going_on.tasks_total, going_on.phase) == ("going on", 1, 2, 2)
    assert going_on.created_at == datetime(2026, 1, 15, 10, 0, tzinfo=UTC)
    assert going_on.updated_at == datetime(2026, 1, 15, 10, 40, tzinfo=UTC)


@pytest.mark.req("PROTO-06")
def test_the_ends_of_the_logs_give_the_same_answer_as_the_whole(tmp_path: Path) -> None:
    filler = [said("task_started", n % 50, "T001", details={"text": "x" * 100}) for n in range(200)]
    a_run(tmp_path, "20260101-0000-ended-aaaa", *filler, said("run-completed", 59))
    a_run(tmp_path, "20260101-0001-open-bbbb", *filler)
    reopened = a_run(tmp_path, "20260101-0002-reopened-cccc", *filler, said("run-failed", 55))
    log(reopened, "executor", said("task_started", 56, "T002", details={"text": "y" * 100_000}))
    whole, ends = locate(tmp_path), locate(tmp_path, exact_bytes_max=0)
    assert all(run.exact for run in whole.runs)
    assert not any(run.exact for run in ends.runs)
    for exactly, roughly in zip(whole.runs, ends.runs, strict=True):
        assert (exactly.run_id, exactly.ending, exactly.updated_at) == (
            roughly.run_id,
            roughly.ending,
            roughly.updated_at,
        )
        assert (roughly.tasks_total, roughly.tasks_done) == (2, None)
    assert {run.run_id[-4:] for run in ends.incomplete} == {"bbbb", "cccc"}


@pytest.mark.req("PROTO-02")
def test_no_incomplete_run_is_a_fresh_start(tmp_path: Path) -> None:
    assert isinstance(choose(locate(tmp_path)), FreshStart)
    a_run(tmp_path, RUN_ID, said("run-completed", 50))
    assert isinstance(choose(locate(tmp_path)), FreshStart)


@pytest.mark.req("PROTO-03")
def test_the_only_incomplete_run_is_meant_without_an_id(tmp_path: Path) -> None:
    a_run(tmp_path, "20260114-0900-old-aaaa", said("run-completed", 50))
    a_run(tmp_path, "20260115-1000-new-bbbb")
    chosen = choose(locate(tmp_path))
    assert isinstance(chosen, Found)
    assert chosen.run_id == "20260115-1000-new-bbbb"


@pytest.mark.req("PROTO-04")
@pytest.mark.parametrize("named", ["20260114-0900-old-aaaa", "20260114", "aaaa", "old-aaaa"])
def test_a_run_is_named_by_its_id_or_a_unique_part_of_it(tmp_path: Path, named: str) -> None:
    a_run(tmp_path, "20260114-0900-old-aaaa", said("run-completed", 50))
    a_run(tmp_path, "20260115-1000-new-bbbb")
    chosen = choose(locate(tmp_path), named)
    assert isinstance(chosen, Found)
    assert chosen.run_id == "20260114-0900-old-aaaa"


@pytest.mark.req("PROTO-04")
@pytest.mark.parametrize("named", ["2026", "zzzz", "aaa", "", "\x1b[2J"])
def test_an_unknown_or_ambiguous_id_is_an_error_that_lists_the_candidates(tmp_path: Path, named: str) -> None:
    a_run(tmp_path, "20260114-0900-old-aaaa")
    a_run(tmp_path, "20260115-1000-new-bbbb")
    with pytest.raises(UnknownSession) as caught:
        choose(locate(tmp_path), named)
    assert caught.value.message.isprintable()
    assert sorted(caught.value.details["candidates"]) == ["20260114-0900-old-aaaa", "20260115-1000-new-bbbb"]


@pytest.mark.req("PROTO-05")
def test_several_incomplete_runs_are_a_question(tmp_path: Path) -> None:
    a_run(tmp_path, "20260114-0900-old-aaaa")
    a_run(tmp_path, "20260115-1000-new-bbbb", said("task_started", 5, "T001"))
    chosen = choose(locate(tmp_path))
    assert isinstance(chosen, Ask)
    assert [run.run_id for run in chosen.candidates] == ["20260115-1000-new-bbbb", "20260114-0900-old-aaaa"]


def test_runs_behind_links_are_not_looked_into_and_the_user_is_told(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    a_run(elsewhere)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / ".agent-memory").symlink_to(elsewhere / ".agent-memory")
    located = locate(workspace)
    assert (located.runs, located.warnings) == ((), (".agent-memory is a link; links are not followed",))
    (workspace / ".agent-memory").unlink()
    (workspace / RUNS).mkdir(parents=True)
    (workspace / RUNS / RUN_ID).symlink_to(elsewhere / RUNS / RUN_ID)
    located = locate(workspace)
    assert located.runs == ()
    assert located.warnings == (f".agent-memory/runs/{RUN_ID} is a link; links are not followed",)


# Writing.


def stamp(number: int) -> Stamp:
    return Stamp(run_id=RUN_ID, event_id=f"e{number}", now=NOW)


@pytest.mark.req("PROTO-19", "PROTO-20")
def test_acode_writes_its_own_events_and_changes_no_byte_of_anybody_elses(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    log(run_path, "executor", b"garbage\n", said("task_started", 1, "T001"), b'{"torn')
    before = fingerprint(tmp_path)
    findings = diagnose(read(run_path), NOW)
    resumed = agent_memory.session_resumed(stamp(1), findings)
    written = agent_memory.append(run_path, [resumed, agent_memory.task_started(stamp(2), "T001")], began=NOW)
    agent_memory.append(run_path, [agent_memory.task_completed(stamp(3), "T001")], began=NOW)
    assert written == "events/acode/20260115-1800.jsonl"
    after = fingerprint(tmp_path)
    own = str(RUNS / RUN_ID / written)
    assert {name: digest for name, digest in after.items() if name != own} == before
    events = [json.loads(line) for line in (run_path / written).read_text().splitlines()]
    assert [event["type"] for event in events] == ["session_resumed", "task_started", "task_completed"]
    assert [event["event_type"] for event in events] == ["session-resumed", "task-started", "task-completed"]
    assert {(event["actor"], event["run_id"], event["timestamp"]) for event in events} == {
        ("acode", RUN_ID, "2026-01-15T18:00:00Z")
    }
    assert diagnose(read(run_path), NOW).tasks["T001"] == "done"


@pytest.mark.req("PROTO-19")
def test_a_torn_line_of_our_own_is_kept_and_the_next_event_stands_on_its_own_line(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    path = log(run_path, "acode", b'{"type": "task_sta', name="20260115-1800.jsonl")
    agent_memory.append(run_path, [agent_memory.task_completed(stamp(1), "T001")], began=NOW)
    assert path.read_bytes().startswith(b'{"type": "task_sta\n{"type":"task_completed"')
    run = read(run_path)
    assert (diagnose(run, NOW).tasks["T001"], run.run_events.lines_skipped) == ("done", 1)


def test_the_same_event_appended_again_after_a_crash_changes_nothing(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    for _ in range(2):
        agent_memory.append(run_path, [agent_memory.task_completed(stamp(1), "T001")], began=NOW)
    run = read(run_path)
    assert (run.run_events.events_read, diagnose(run, NOW).done) == (3, 1)


@pytest.mark.parametrize("part", ["events", "events/acode", "events/acode/20260115-1800.jsonl"])
def test_nothing_is_written_through_a_link(tmp_path: Path, part: str) -> None:
    run_path = tmp_path / RUNS / RUN_ID
    (run_path / part).parent.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_text("mine") if part.endswith(".jsonl") else target.mkdir()
    (run_path / part).symlink_to(target)
    with pytest.raises(UnsafePath):
        agent_memory.append(run_path, [agent_memory.task_completed(stamp(1), "T001")], began=NOW)
    assert target.read_text() == "mine" if target.is_file() else list(target.iterdir()) == []


APPENDING = """
import sys
from datetime import UTC, datetime
from acode.formats.agent_memory import Stamp, append, task_started
now = datetime(2026, 1, 15, 18, tzinfo=UTC)
for n in range(100):
    append(sys.argv[1], [task_started(Stamp(run_id="r", event_id=f"{sys.argv[2]}{n}", now=now), "T001")], began=now)
"""


def test_two_processes_that_append_at_once_lose_no_event_of_each_other(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    writers = [subprocess.Popen([sys.executable, "-c", APPENDING, str(run_path), name]) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    run = read(run_path)
    assert (run.run_events.events_read, run.run_events.lines_skipped) == (201, 0)


def test_a_second_name_of_somebody_elses_log_is_not_written(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    (run_path / "events" / "acode").mkdir()
    theirs = run_path / "events" / "orchestrator" / "20260115-1000.jsonl"
    before = theirs.read_bytes()
    os.link(theirs, run_path / "events" / "acode" / "20260115-1800.jsonl")
    with pytest.raises(UnsafePath):
        agent_memory.append(run_path, [agent_memory.task_completed(stamp(1), "T001")], began=NOW)
    assert theirs.read_bytes() == before


def test_a_run_that_is_gone_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(NotWritable):
        agent_memory.append(tmp_path / "gone", [agent_memory.task_completed(stamp(1), "T001")], began=NOW)


@pytest.mark.skipif(sys.platform != "linux", reason="counts system calls' effects by reading /proc")
def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    run_path = a_run(tmp_path)
    (run_path / "events" / "linked").symlink_to(tmp_path)

    def once() -> None:
        locate(tmp_path)
        locate(tmp_path, exact_bytes_max=0)
        read(run_path)
        agent_memory.append(run_path, [agent_memory.task_completed(stamp(1), "T001")], began=NOW)

    once()
    before = set(os.listdir("/proc/self/fd"))
    once()
    assert set(os.listdir("/proc/self/fd")) == before


# Limits.

PEAK = """
import resource, sys
from acode.formats.agent_memory import read
unit = 1 if sys.platform == "darwin" else 1024
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
read(sys.argv[1])
before = peak()
run = read(sys.argv[2])
print(run.run_events.events_read, run.run_events.lines_skipped, peak() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the peak of the resident memory is asked for by getrusage")
def test_a_log_of_100_mb_is_read_in_bounded_memory(tmp_path: Path) -> None:
    small = a_run(tmp_path / "small")
    large = a_run(tmp_path / "large")
    event = json.dumps(said("task_started", 1, "T001", details={"text": "x" * 2000})).encode() + b"\n"
    path = log(large, "executor", b"")
    with path.open("ab") as file:
        for _ in range(24):
            file.write(event * 2048)
        file.write(b"y" * 5_000_000)
    assert path.stat().st_size > 100_000_000
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(small), str(large)], check=True, capture_output=True, text=True
    )
    events, skipped, grown = (int(word) for word in done.stdout.split())
    assert (events, skipped) == (24 * 2048 + 1, 1)
    assert grown < 24 * 1024 * 1024
