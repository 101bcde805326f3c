"""Killed programs: no step runs twice without a recorded decision, none is left out, and evidence is used."""

from __future__ import annotations

import random
import re
import signal
from collections import Counter
from typing import Any, Literal

import pytest

import acode
from acode.engine.preview import preview, resumable
from acode.engine.world import Options
from acode.errors import StepStillRunning, Usage
from acode.library.world import world_of
from acode.plan import Action
from tests.library.programs import Ended, Place
from tests.variants import first_of

# A program that kills itself where the environment says: before, inside or after the effect of a step.
KILLS = """
import signal

def die(where):
    if os.environ.get("DIE") == where:
        os.kill(os.getpid(), signal.SIGKILL)

def work(n):
    die(f"before-{n}")
    note("step", n)
    die(f"after-{n}")
    return {"n": n, "text": "x" * 100}
"""

ONE = (
    KILLS
    + """
def was_sent(key):
    answer = json.loads(os.environ.get("PROBE", "null"))
    return (answer, {"n": 2}) if answer == "applied" else answer

with acode.session("k", probes={"probed": was_sent}) as s:
    first = s.step("first", work, 1)
    s.step(os.environ.get("NAME", "send"), work, 2, idempotent="IDEMPOTENT" in os.environ)
    last = s.step("last", work, 3)
    tell(last=last["n"], key=s.id)
"""
)


def killed(ended: Ended) -> bool:
    return ended.status == -signal.SIGKILL


@pytest.mark.parametrize("where", first_of("before-2", "after-2"))
def test_a_killed_step_that_may_not_be_repeated_waits_for_a_person(place: Place, where: str) -> None:
    assert killed(place.run(ONE, DIE=where))
    for _ in range(2):
        refused = place.run(ONE)
        assert refused.status == 1 and "OutcomeUnknown" in refused.errors
    (row,) = place.json("session", "list")
    explained = place.json("explain", row["short_id"])
    assert [(one["step"], one["outcome"], one["action"]) for one in explained["in_flight"]] == [
        ("send", "unknown", "ask")
    ]
    assert explained["needs_human"] and "resolve" in explained["next_action"]
    happened = where == "after-2"
    answer = "--applied" if happened else "--not-applied"
    assert place.acode("session", "resolve", row["short_id"], "send", answer, "--note", "looked").returncode == 0
    assert place.run(ONE).told[0]["last"] == 3
    assert Counter(place.effects()) == {"step 1": 1, "step 2": 1, "step 3": 1}
    settled = [event for event in place.json("session", "history", row["short_id"]) if event["type"] == "step_settled"]
    assert [(event["actor"], event["data"]["outcome"]) for event in settled][-1] == (
        "user",
        "applied" if happened else "not_applied",
    )


@pytest.mark.release
def test_a_traceback_says_which_call_settles_the_step(place: Place) -> None:
    """A program is told what to call; the command line, of the same session, what to type."""
    assert killed(place.run(ONE, DIE="after-2"))
    refused = place.run(ONE)
    hint = next(line for line in refused.errors.splitlines() if line.startswith("hint: "))
    assert "acode.resolve('k', 'send', 'applied')" in hint and hint.endswith("run the program again (its key is 'k')")
    assert "acode session" not in hint and "acode resume" not in hint
    (row,) = place.json("session", "list")
    assert place.json("explain", row["short_id"])["next_action"].startswith("acode session resolve ")
    acode.resolve("k", "send", "applied")
    assert place.run(ONE).status == 0


def test_a_person_may_accept_a_repeat_in_code(place: Place) -> None:
    assert killed(place.run(ONE, DIE="after-2"))
    with pytest.raises(Usage, match="is not open"):
        acode.resolve("k", "first", "retry")
    acode.resolve("k", "send", "retry", note="mails are cheap")
    assert place.run(ONE).status == 0
    assert Counter(place.effects()) == {"step 1": 1, "step 2": 2, "step 3": 1}


def test_a_killed_step_that_may_be_repeated_is_repeated(place: Place) -> None:
    assert killed(place.run(ONE, DIE="after-2", IDEMPOTENT="1"))
    assert place.run(ONE, IDEMPOTENT="1").status == 0
    assert Counter(place.effects()) == {"step 1": 1, "step 2": 2, "step 3": 1}


@pytest.mark.parametrize(("said", "times"), first_of(("applied", 1), ("not_applied", 2)))
def test_a_programs_probe_settles_what_was_killed(place: Place, said: str, times: int) -> None:
    assert killed(place.run(ONE, DIE="after-2", NAME="probed"))
    assert place.run(ONE, NAME="probed").status == 1, "a probe that does not know settles nothing"
    done = place.run(ONE, NAME="probed", PROBE=f'"{said}"')
    assert done.status == 0, done.errors
    assert Counter(place.effects())["step 2"] == times


COMMAND = """
if not Path("pid").exists():
    Path("pid").write_text(str(os.getpid()))
with acode.session("k") as s:
    s.run("echo ran >> $LEDGER; kill -9 $(cat pid); sleep 0.2", name="command")
    s.write("end.txt", "end\\n")
"""


def test_the_keeper_knows_how_a_command_ended_after_its_program_was_killed(place: Place) -> None:
    assert killed(place.run(COMMAND))
    second = place.run(COMMAND)
    assert second.status == 0, second.errors
    assert place.effects() == ["ran"] and (place.workspace / "end.txt").read_text() == "end\n"


OUTLIVES = """
import signal, threading, time

def die_when_it_runs():
    while not Path("began").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

if "DIE" in os.environ:
    threading.Thread(target=die_when_it_runs, daemon=True).start()
with acode.session("k") as s:
    s.run("touch began; until test -e go; do sleep 0.05; done; echo ran >> $LEDGER", name="job")
"""


@pytest.mark.parametrize("answer", first_of("applied", "not_applied", "retry"))
def test_nobody_says_what_became_of_a_command_that_still_runs(
    place: Place, answer: Literal["applied", "not_applied", "retry"]
) -> None:
    assert killed(place.run(OUTLIVES, DIE="yes"))
    with pytest.raises(StepStillRunning, match="job"):
        acode.resolve("k", "job", answer)
    (place.workspace / "go").touch()
    assert place.run(OUTLIVES).status == 0
    assert place.effects() == ["ran"]


DEPLOYS = """
os.environ["PROGRAM"] = str(os.getpid())  # of its own environment: the values of env= are compared
with acode.session("k") as s:
    s.run(
        os.environ["COMMAND"] + '; kill -9 $PROGRAM $PPID $$',
        name="deploy",
        probe=os.environ["PROBE"],
        outputs=["deploy.log"],
        env={"API_TOKEN": "tok-93a1f06be2"},
    )
"""


@pytest.mark.parametrize("kept", first_of(True, False))
def test_a_command_with_a_secret_is_settled_by_its_own_probe_or_by_a_person(place: Place, kept: bool) -> None:
    words = {
        "COMMAND": "DB_PASSWORD=hunter2hunter2x sh -c 'echo ran >> $LEDGER'; echo log > deploy.log",
        "PROBE": "test $API_TOKEN = tok-93a1f06be2 && grep -q ran $LEDGER",
    }
    assert killed(place.run(DEPLOYS, **words))
    (row,) = place.json("session", "list")
    if kept:
        assert place.run(DEPLOYS, **words).status == 0
    else:
        for blob in place.workspace.glob(".agent/blobs/sensitive/**/*"):
            if blob.is_file():
                blob.unlink()
        assert "acode.errors.OutcomeUnknown" in place.run(DEPLOYS, **words).errors
    assert place.effects() == ["ran"]
    assert "hunter2hunter2x" not in place.acode("session", "history", row["short_id"], "--json").stdout


STEPS, KILLS_WANTED = 120, 20
LONG = (
    KILLS
    + f"""
def both(n):
    return [s.step("inner", work, n), s.step("inner", work, 1000 + n)]

with acode.session("long") as s:
    for n in range({STEPS}):
        match n % 4:
            case 0: s.step("send", work, n)
            case 1: s.step("fetch", work, n, idempotent=True)
            case 2: s.write(f"out/{{n}}.txt", f"{{n}}\\n")
            case 3: s.step("outer", both, n, idempotent=True)
    tell(found=s.found)
"""
)


@pytest.mark.release
def test_twenty_kills_over_120_steps_repeat_nothing_without_a_decision_and_leave_nothing_out(place: Place) -> None:
    """The ledger is the truth: every effect exactly once, but for those declared repeatable, or settled by a person."""
    chance = random.Random(9)
    effects = [n for n in range(STEPS) if n % 4 != 2]
    decided: Counter[int] = Counter()
    kills, last = 0, 0
    while kills < KILLS_WANTED:
        step = effects[min(len(effects) - 1, last + chance.randrange(1, 4))]
        last = effects.index(step)
        where = chance.choice(["before", "after"])
        ended = place.run(LONG, DIE=f"{where}-{step}")
        if not killed(ended):
            assert "OutcomeUnknown" in ended.errors, ended.errors
            ended = place.run(LONG, DIE=f"{where}-{step}")
        kills += 1
        settle(step, happened=where == "after", decided=decided)
    done = place.run(LONG)
    assert done.status == 0, done.errors
    assert kills == KILLS_WANTED
    judge(place, decided)


def settle(step: int, *, happened: bool, decided: Counter[int]) -> None:
    """What acode cannot know, the person who looks into the ledger does."""
    world = world_of(".")
    (row,) = resumable(world)
    found = preview(world, row.session_id, Options(actor="system"))
    assert found.survey is not None
    for one in found.survey.continuation.in_flight:
        if one.action is not Action.ASK:
            decided[step] += happened  # it is declared repeatable: that is the decision
            continue
        acode.resolve("long", one.step, "applied" if happened else "not_applied", result={"n": step})


def judge(place: Place, decided: Counter[int]) -> None:
    counts = Counter(int(re.fullmatch(r"step (\d+)", line)[1]) for line in place.effects())  # type: ignore[index]
    wanted = {n for n in range(STEPS) if n % 4 != 2} | {1000 + n for n in range(STEPS) if n % 4 == 3}
    assert wanted - counts.keys() == set(), "missing"
    repeated = {n: count - 1 for n, count in counts.items() if count > 1}
    assert all(n % 4 == 1 and count <= decided[n] for n, count in repeated.items()), repeated
    for n in range(2, STEPS, 4):
        assert (place.workspace / "out" / f"{n}.txt").read_text() == f"{n}\n"


def test_looking_at_a_programs_session_works_as_for_any_other(place: Place) -> None:
    assert killed(place.run(ONE, DIE="after-2"))
    (row,) = place.json("session", "list")
    name = row["short_id"]
    assert (row["title"], row["state"], row["steps_done"], row["steps_total"]) == ("k", "EXECUTING", 1, 2)
    for command in (["status", name], ["explain", name], ["session", "show", name], ["session", "history", name]):
        shown = place.acode(*command)
        assert shown.returncode == 0, (command, shown.stderr)
        assert shown.stdout
    verified: Any = place.json("session", "verify", name)
    assert verified["ok"] and verified["checkpoints"] >= 2
    dry = place.json("resume", name, "--dry-run")
    assert dry["scenario"] == "mid_operation" and dry["remaining_steps"] == ["send"]
