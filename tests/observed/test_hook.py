"""What the hook records, denies and tells, driven as agents drive it: real processes, signals and files."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from acode.engine.preview import preview
from acode.engine.world import Options
from acode.events import types as ev
from acode.ui.answers import asked_now
from tests.observed.agents import EVENTS, Place, payload, wait_until
from tests.variants import first_of
from tests.worlds import world

AGENTS = tuple(EVENTS)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def denied(answer: dict[str, Any]) -> str:
    """The reason of a veto, in whatever shape the agent wants it."""
    own = answer.get("hookSpecificOutput", {})
    return str(answer.get("deny") or answer.get("reason") or own.get("permissionDecisionReason") or "")


def told(answer: dict[str, Any]) -> str:
    return str(answer.get("context") or answer.get("hookSpecificOutput", {}).get("additionalContext") or "")


# Recording.


@pytest.mark.parametrize("name", AGENTS)
def test_a_call_is_recorded_before_it_begins_and_when_it_has_ended(place: Place, name: str) -> None:
    with place.agent(name) as agent:
        agent.hook("prompt", prompt="make it so")
        assert agent.begin("echo x >> ledger") == (0, {}, "")
        assert place.types()[-1] == "step_started"
        agent.start_command("echo x >> ledger")
        assert agent.answer()[0] == 0
        assert agent.end("echo x >> ledger") == (0, {}, "")
        assert place.types()[-1] == "step_completed" and place.lines("ledger") == ["x"]
    (row,) = place.rows()
    assert (row["source"], row["title"]) == (name, "make it so")


@pytest.mark.parametrize(
    ("name", "tool"),
    [("claude", "Read"), ("claude", "Task"), ("codex", "update_plan"), ("gemini", "read_file"), ("opencode", "grep")],
)
def test_a_tool_that_only_reads_passes_unrecorded(place: Place, name: str, tool: str) -> None:
    with place.agent(name) as agent:
        assert agent.hook("before", tool=tool, arguments={"file_path": "x"}, call="r") == (0, {}, "")
    assert not (place.workspace / ".agent" / "workspace.db").exists()


def test_a_written_file_is_kept_as_it_was_and_recorded_as_it_is(place: Place) -> None:
    target = place.workspace / "note.txt"
    target.write_text("before\n")
    arguments = {"file_path": os.fspath(target), "content": "after\n"}
    with place.agent() as agent:
        assert agent.hook("before", tool="Write", arguments=arguments, call="w") == (0, {}, "")
        target.write_text("after\n")
        agent.hook("after", tool="Write", arguments=arguments, call="w")
        agent.hook("idle")
    (row,) = place.rows()
    rolled = place.acode("session", "rollback", row["short_id"], "--yes")
    assert rolled.returncode == 0, rolled.stderr
    assert target.read_text() == "before\n"


def test_an_agent_at_work_cannot_be_paused_from_outside_and_one_that_is_gone_can(place: Place) -> None:
    """A pause that nobody obeys must not be reported as one."""
    with place.agent() as agent:
        agent.hook("prompt", prompt="make it so")
        agent.begin("sleep 60")
        (row,) = place.rows()
        refused = place.acode("session", "pause", row["short_id"])
        assert refused.returncode == 16 and "acode observes it and cannot pause it" in refused.stderr
        assert "session_paused" not in place.types()
        assert asked_now(preview(world(place.base), row["session_id"], Options())) == [], "nor does the page offer it"
    paused = place.acode("session", "pause", row["short_id"])
    assert paused.returncode == 0 and "no process runs it" in paused.stdout


# What it prints.


def every_answer(place: Place, name: str) -> list[dict[str, Any]]:
    """Each kind of answer there is: silence, a veto of an unknown outcome and of a repeat, facts, a failure."""
    found = []
    with place.agent(name) as agent:
        agent.hook("prompt")
        agent.begin("echo unknown >> ledger")
        agent.kill()
    with place.agent(name) as agent:
        found.append(agent.hook("prompt"))
        found.append(agent.begin("echo unknown >> ledger"))
        found.append(agent.begin("echo other >> ledger"))
        found.append(agent.end("echo other >> ledger"))
        found.append(agent.hook("idle"))
    return [{"status": status, "out": out, "err": err} for status, out, err in found]


@pytest.mark.parametrize("name", ["claude", "opencode"])
def test_a_hook_never_allows_and_never_rewrites(place: Place, name: str) -> None:
    answers = every_answer(place, name)
    assert any(denied(one["out"]) for one in answers) and any(told(one["out"]) for one in answers)
    for one in answers:
        printed = json.dumps(one["out"])
        assert all(word not in printed for word in ("allow", "updatedInput", "tool_input", "args", "approve"))


def test_a_start_that_cannot_be_recorded_blocks_the_call_in_words(place: Place) -> None:
    with place.agent() as agent:
        agent.perform("true")
        (place.workspace / ".agent" / "workspace.db").unlink()
        status, out, err = agent.begin("echo x >> ledger")
        assert (status, out) == (2, {})
        assert "could not record this call, so it was not run" in err and "is gone" in err
        assert agent.end("echo x >> ledger") == (0, {}, ""), "after a tool nothing is blocked"
        assert agent.hook("prompt")[0] == 0


def test_a_user_may_let_calls_run_unrecorded(place: Place) -> None:
    (place.state / "config.yml").write_text("hooks: {on_error: allow}\n")
    with place.agent() as agent:
        agent.perform("true")
        (place.workspace / ".agent" / "workspace.db").unlink()
        assert agent.begin("echo x >> ledger") == (0, {}, "")


@pytest.mark.parametrize("data", ["", "[]", "no json", '{"hook_event_name": "PreToolUse", "session_id": "s"}'])
def test_a_payload_that_announces_a_tool_and_cannot_be_understood_is_blocked(place: Place, data: str) -> None:
    import subprocess

    ended = subprocess.run([place.doors.hook], input=data, text=True, capture_output=True, env=place.env, check=False)
    assert ended.returncode == 2 and "[ACODE-OBSERVED-002]" in ended.stderr and ended.stdout == ""


def test_events_that_are_nobodys_are_answered_with_silence(place: Place) -> None:
    import subprocess

    qwen = {**payload("gemini", "start", place.workspace), "transcript_path": "/h/.qwen/projects/p/chats/u.jsonl"}
    for told_of in (qwen, {"hook_event_name": "Notification", "session_id": "s", "cwd": "/"}, {"agent": "opencode"}):
        ended = subprocess.run(
            [place.doors.hook], input=json.dumps(told_of), text=True, capture_output=True, env=place.env, check=False
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


# Killed in the middle, and back.


def interrupted(place: Place, line: str, name: str = "claude") -> None:
    """An agent that was killed after its command had its first effect."""
    with place.agent(name) as agent:
        agent.perform("true")  # so that the front is known to be in the way
        assert agent.begin(line) == (0, {}, "")
        agent.start_command(line)
        wait_until(lambda: place.lines("ledger") != [], "the first effect")
        agent.kill()


@pytest.mark.parametrize("name", first_of("claude", "gemini"))  # one that names its calls, and one that does not
def test_a_command_that_outlives_its_agent_is_settled_and_not_repeated(place: Place, name: str) -> None:
    line = "echo x >> ledger; echo said; while [ ! -e go ]; do sleep 0.02; done; echo last words"
    interrupted(place, line, name)
    with place.agent(name) as agent:
        _, answer, _ = agent.hook("prompt")
        assert "still runs" in told(answer)
        (place.workspace / "go").touch()
        wait_until(lambda: any(place.base.rglob("run/*/status")) and ended_twice(place), "the end of the command")
        _, answer, _ = agent.hook("prompt")
        assert "took effect" in told(answer) and "last words" in told(answer)
        _, answer, _ = agent.begin(line)
        assert "ran to its end before you came back" in denied(answer)
        assert place.lines("ledger") == ["x"]
        agent.perform(line)  # whoever asks again was shown the evidence
    assert "repeat_denied" in place.types()
    assert place.lines("ledger") == ["x", "x"]


def ended_twice(place: Place) -> bool:
    return len(list(place.workspace.glob(".agent/run/*/status"))) == 2


def test_a_result_that_the_agent_may_not_have_kept_is_shown_before_its_call_is_repeated(place: Place) -> None:
    """Killed right after its hook had recorded the end: its own transcript may know nothing of the call."""
    with place.agent() as agent:
        agent.perform("echo x >> ledger")
        agent.kill()
    with place.agent() as agent:
        assert "had ended already" in told(agent.hook("start")[1])
        assert "ran to its end before you came back" in denied(agent.begin("echo x >> ledger")[1])
        agent.perform("echo x >> ledger")
        assert agent.begin("echo x >> ledger") == (0, {}, ""), "this process has seen it end"
    assert place.lines("ledger") == ["x", "x"]


def test_a_command_that_was_killed_with_everything_is_asked_of_a_person(place: Place) -> None:
    line = "echo x >> ledger; kill -9 $PPID; kill -9 $$"
    with place.agent() as agent:
        agent.perform("true")
        agent.begin(line)
        agent.start_command(line)
        agent.answer()
        agent.kill()
    with place.agent() as agent:
        _, answer, _ = agent.hook("start")
        assert "nothing shows whether it took effect" in told(answer)
        for _ in range(2):
            assert "acode session resolve" in denied(agent.begin(line)[1])
        assert agent.begin("echo other") == (0, {}, ""), "only the same call waits for the answer"
        step = next(one.step for one in place.history() if isinstance(one, ev.StepSettled))
        (row,) = place.rows()
        assert place.acode("session", "resolve", row["short_id"], step, "--retry").returncode == 0
        assert agent.begin(line) == (0, {}, "")


def test_with_block_everything_waits_for_the_answer(place: Place) -> None:
    (place.state / "config.yml").write_text("hooks: {unknown: block}\n")
    line = "echo x >> ledger; kill -9 $PPID; kill -9 $$"
    with place.agent() as agent:
        agent.begin(line)
        agent.start_command(line)
        agent.answer()
        agent.kill()
    with place.agent() as agent:
        assert "hooks.unknown: block" in denied(agent.begin("echo other")[1])
        assert agent.hook("before", tool="Read", arguments={"file_path": "x"}, call="r") == (0, {}, "")


def test_no_trace_means_not_begun_only_where_the_front_is_known_to_be_in_the_way(place: Place) -> None:
    with place.agent() as agent:
        agent.begin("echo first")
        agent.kill()
    with place.agent() as agent:
        assert "nothing shows" in told(agent.hook("start")[1]), "no command of that process had passed the front"
        agent.perform("true")
        agent.begin("echo second")
        agent.kill()
    with place.agent() as agent:
        assert "never began" in told(agent.hook("start")[1])
        assert agent.begin("echo second") == (0, {}, "")


def test_a_write_in_flight_is_settled_by_the_contents(place: Place) -> None:
    done, open_ = place.workspace / "done.txt", place.workspace / "open.txt"
    with place.agent() as agent:
        for path in (done, open_):
            arguments = {"file_path": os.fspath(path), "content": "new\n"}
            assert agent.hook("before", tool="Write", arguments=arguments, call=path.name) == (0, {}, "")
        done.write_text("new\n")
        agent.kill()
    with place.agent() as agent:
        words = told(agent.hook("start")[1])
        assert "done.txt has the content that was to be written" in words
        assert "open.txt does not exist, as before" in words
    outcomes = [str(one.outcome) for one in place.history() if isinstance(one, ev.StepSettled)]
    assert sorted(outcomes) == ["applied", "not_applied"]


# Liveness, cancels, the background.


def test_a_cancelled_command_of_a_living_agent_is_no_crash(place: Place) -> None:
    line = "echo $$ >> ledger; exec sleep 60"
    with place.agent() as agent:
        agent.begin(line)
        agent.start_command(line)
        wait_until(lambda: place.lines("ledger") != [], "the command")
        os.killpg(os.getpgid(int(place.lines("ledger")[0])), signal.SIGTERM)  # Esc: to the group, and no hook after it
        assert agent.answer()[0] in (-15, 143)
        assert agent.hook("idle") == (0, {}, "")
        assert agent.begin(line) == (0, {}, ""), "its model knows that it was cancelled"
    evidence = [one.evidence for one in place.history() if isinstance(one, ev.StepSettled)]
    assert len(evidence) == 1 and "denied or cancelled" in evidence[0]


def test_a_command_that_the_agent_moved_to_the_background_has_not_ended(place: Place) -> None:
    line = "echo x >> ledger; while [ ! -e go ]; do sleep 0.02; done"
    with place.agent() as agent:
        agent.begin(line)
        agent.start_in_background(line)
        wait_until(lambda: place.lines("ledger") == ["x"], "the command")
        assert agent.end(line) == (0, {}, "")
        assert place.types()[-1] == "step_started", "the hook after the tool came at once, and is not the end"
        (place.workspace / "go").touch()
        wait_until(lambda: any(place.workspace.glob(".agent/run/*/status")), "the end of the command")
        agent.hook("prompt")
    assert "step_completed" in place.types()


def test_a_zombie_is_dead(place: Place) -> None:
    """An agent that has ended and whose parent has not looked yet: what it left is settled."""
    with place.agent() as agent:
        agent.perform("true")
        agent.begin("echo second")
        agent.process.kill()
        os.waitid(os.P_PID, agent.process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        with place.agent() as back:
            assert "never began" in told(back.hook("start")[1])


def test_several_agents_and_parallel_calls_share_a_workspace(place: Place) -> None:
    with place.agent("claude") as one, place.agent("gemini") as other:
        one.begin("echo one >> ledger", call="a")
        one.begin("echo two >> ledger", call="b")
        other.begin("echo three >> ledger")
        for call, line in (("b", "echo two >> ledger"), ("a", "echo one >> ledger")):
            one.start_command(line)
            one.answer()
            one.call = call
            assert one.end(line) == (0, {}, "")
        other.start_command("echo three >> ledger")
        other.answer()
        other.end("echo three >> ledger")
    rows = place.rows()
    assert sorted((row["source"], row["steps_done"]) for row in rows) == [("claude", 2), ("gemini", 1)]
    assert sorted(place.lines("ledger")) == ["one", "three", "two"]


# The session.


def test_a_later_change_of_directory_does_not_move_the_session(place: Place) -> None:
    below, elsewhere = place.workspace / "src", place.base / "elsewhere"
    below.mkdir()
    elsewhere.mkdir()
    with place.agent() as agent:
        agent.hook("start", directory=below)
        agent.hook("before", tool="Bash", arguments={"command": "true"}, call="1", directory=elsewhere)
    assert (place.workspace / ".agent" / "workspace.db").exists()
    assert not (below / ".agent").exists() and not (elsewhere / ".agent").exists()


def test_the_home_directory_gets_a_store_of_its_own(place: Place) -> None:
    home = place.base / "home"
    with place.agent() as agent:
        agent.hook("start", directory=home)
        assert agent.hook("before", tool="Bash", arguments={"command": "true"}, call="1", directory=home) == (0, {}, "")
    assert not (home / ".agent").exists()
    assert len(list((place.state / "agents").glob("*/.agent/workspace.db"))) == 1


def test_the_end_of_the_agents_session_ends_it_and_leaves_no_output_behind(place: Place) -> None:
    with place.agent() as agent:
        agent.perform("echo said")
        assert any(place.workspace.glob(".agent/run/*/output.raw"))
        agent.hook("end")
    assert place.types()[-1] == "session_completed"
    assert not any(place.workspace.glob(".agent/run/*"))


def test_a_running_agent_is_shown_as_running_and_is_not_resumed_beside_itself(place: Place) -> None:
    with place.agent() as agent:
        agent.begin("true")
        refused = place.acode("resume", "--last", "--yes", "--no-launch")
        assert refused.returncode == 16 and "Claude Code, pid" in refused.stderr
    shown = place.acode("resume", "--last", "--yes", "--no-launch")
    assert shown.returncode == 19, shown.stderr
