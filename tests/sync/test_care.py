"""Two machines and the commands that mend, take back and collect: what the shared copy has, and what it never gets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from acode.events import decode
from acode.events import types as ev
from tests.machines import Machine, assert_level, lease, shared_log, url_of
from tests.variants import first_of

NOBODY = "postgresql://127.0.0.1:1/x"
GATED = """
title: Change and ask
tasks:
  - title: Change
    steps:
      - write: {path: kept.txt, content: "changed\\n"}
      - write: {path: made.txt, content: "made\\n"}
      - approve: Go on?
      - write: {path: end.txt, content: "end\\n"}
"""
DONE = """
title: Done
tasks:
  - title: Write
    steps:
      - write: {path: a.txt, content: "a\\n"}
"""


# Taking steps back elsewhere.


@pytest.fixture
def taken_over(machines: tuple[Machine, Machine]) -> str:
    """One changed a file that stood there before and made another; two has taken the session over, with both files."""
    one, two = machines
    (one.workspace / "kept.txt").write_text("as it was\n")
    session_id = one.run(GATED)
    for name in ("kept.txt", "made.txt"):
        shutil.copy2(one.workspace / name, two.workspace / name)
    assert two("resume", session_id, "--remote", "--yes").exit_code == 10
    return session_id


def test_what_stood_there_before_is_not_here_so_nothing_at_all_is_taken_back(
    machines: tuple[Machine, Machine], database: str, taken_over: str
) -> None:
    _, two = machines
    before = two.log(taken_over)
    shown = two("session", "rollback", taken_over, "--dry-run")
    assert shown.exit_code == 0 and "what stood in kept.txt before is on the machine that ran it" in shown.stderr
    (first, second) = two("session", "rollback", taken_over, "--dry-run", "--json").json["steps"]
    assert (first["missing"], second["missing"]) == ([], ["kept.txt"])
    refused = two("session", "rollback", taken_over, "--yes", "--json")
    assert refused.exit_code != 0 and refused.json["error"]["details"]["missing"] == {"change.1": ["kept.txt"]}
    assert "nothing was changed" in refused.json["error"]["message"]
    assert (two.workspace / "kept.txt").read_text() == "changed\n" and (two.workspace / "made.txt").exists()
    assert two.log(taken_over) == before
    assert_level(two, database, taken_over)


def test_up_to_where_nothing_is_missing_steps_are_taken_back_elsewhere(
    machines: tuple[Machine, Machine], database: str, taken_over: str
) -> None:
    _, two = machines
    assert two("session", "rollback", taken_over, "--to", "change.1", "--yes").exit_code == 0
    assert not (two.workspace / "made.txt").exists() and (two.workspace / "kept.txt").read_text() == "changed\n"
    assert_level(two, database, taken_over)


@pytest.mark.parametrize("text", ["as it was\n", "as I want it\n"])
def test_whoever_puts_the_file_back_by_hand_can_take_all_steps_back(
    machines: tuple[Machine, Machine], database: str, taken_over: str, text: str
) -> None:
    one, two = machines
    mode = (one.workspace / "kept.txt").stat().st_mode
    (two.workspace / "kept.txt").write_text(text)
    (two.workspace / "kept.txt").chmod(mode)
    assert two("session", "rollback", taken_over, "--yes").exit_code == 0
    assert (two.workspace / "kept.txt").read_text() == text and not (two.workspace / "made.txt").exists()
    assert_level(two, database, taken_over)


def building(place: Path, *, waits: bool) -> str:
    """A plan whose command tells what it finds at its output, and succeeds only where it may."""
    wait = f"touch {place}/begun; while [ ! -e {place}/go ]; do sleep 0.02; done; " if waits else ""
    return f"""
title: Build
tasks:
  - title: Build
    steps:
      - run: "cat out.txt >> {place}/found; echo half > out.txt; {wait}test -e {place}/may && echo all > out.txt"
        outputs: [out.txt]
"""


def test_a_command_in_flight_elsewhere_is_unknown_and_nothing_of_it_is_put_back_here(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    """Its outputs stood there before; what they were is there, and so is what it has made of them."""
    one, two = machines
    (one.workspace / "out.txt").write_text("of one\n")
    running = one.process("run", one.plan(building(tmp_path, waits=True)), "--json")
    session_id = running.wait_for_line('"session_start"').partition('"session_id":"')[2][:36]
    while not (tmp_path / "begun").exists():
        running.wait_for_line('"step_started"')
    running.kill_everything()
    assert one("sync", "now").exit_code == 0
    (two.workspace / "out.txt").write_text("of two\n")
    ended = two("resume", session_id, "--remote", "--yes", "--force", "--json")
    assert ended.exit_code == 19 and (two.workspace / "out.txt").read_text() == "of two\n"
    assert "begun on another machine" in ended.stdout
    assert two("session", "resolve", session_id, "build.1", "--retry").exit_code == 0
    for name in ("go", "may"):
        (tmp_path / name).touch()
    assert two("resume", session_id).exit_code == 0 and (two.workspace / "out.txt").read_text() == "all\n"
    assert (tmp_path / "found").read_text() == "of one\nof two\n"


def leaving(place: Path) -> str:
    """A finished step with an output, and a command in flight that declares none and may be run again."""
    return f"""
title: Build and test
tasks:
  - title: Build
    steps:
      - run: "echo built > out.txt"
        outputs: [out.txt]
      - run: "touch {place}/begun; while [ ! -e {place}/go ]; do sleep 0.02; done; echo tested >> {place}/found"
        idempotent: true
"""


@pytest.mark.parametrize("found", first_of("nothing", "another"))
def test_a_command_in_flight_elsewhere_excuses_no_file_that_is_missing_or_another_here(
    machines: tuple[Machine, Machine], tmp_path: Path, found: str
) -> None:
    one, two = machines
    running = one.process("run", one.plan(leaving(tmp_path)), "--json")
    session_id = running.wait_for_line('"session_start"').partition('"session_id":"')[2][:36]
    while not (tmp_path / "begun").exists():
        running.wait_for_line('"step_started"')
    running.kill_everything()
    assert one("sync", "now").exit_code == 0
    (tmp_path / "go").touch()
    if found == "another":
        (two.workspace / "out.txt").write_text("of two\n")
    taken = two("resume", session_id, "--remote", "--yes", "--force", "--auto")
    assert taken.exit_code == 75, "it has just crashed there, and an automatic attempt waits"
    refused = two("resume", session_id, "--json")
    assert refused.exit_code == 17 and "out.txt" in refused.stdout
    assert not (tmp_path / "found").exists(), "the next step runs only in the workspace that the session left"
    shown = two("explain", session_id)
    assert "out.txt" in shown.stdout and "files as the session left them" not in shown.stdout


def test_what_a_failed_command_left_elsewhere_is_not_put_back_here(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    one, two = machines
    (one.workspace / "out.txt").write_text("of one\n")
    session_id = one.run(building(tmp_path, waits=False))
    assert lease(database, session_id)[1] is None
    (two.workspace / "out.txt").write_text("of two\n")
    (tmp_path / "may").touch()
    taken = two("resume", session_id, "--remote", "--yes", "--changed-files", "continue")
    assert taken.exit_code == 0, taken.stderr
    assert "the failed attempt of step build.1 ran on another machine" in taken.stderr
    assert (tmp_path / "found").read_text() == "of one\nof two\n"
    assert_level(two, database, session_id)


# Repairing.


def test_a_repair_is_pushed_like_any_other_word(machines: tuple[Machine, Machine], database: str) -> None:
    one, _ = machines
    session_id = one.run(GATED)
    with one.store(look_only=False) as store:
        store.db.execute("DELETE FROM checkpoints WHERE seq > 1")
    assert one("session", "repair", session_id, "--yes").exit_code == 0
    assert isinstance(decode(one.log(session_id)[-1][1], session_id, 0).event, ev.Quarantined)
    assert_level(one, database, session_id)
    assert lease(database, session_id)[1] is None


def test_a_session_that_another_machine_has_is_not_repaired_here(
    machines: tuple[Machine, Machine], database: str
) -> None:
    one, two = machines
    session_id = one.run(GATED)
    assert two("resume", session_id, "--remote", "--yes").exit_code == 10
    with one.store(look_only=False) as store:
        store.db.execute("DELETE FROM checkpoints WHERE seq > 1")
    before = one.log(session_id)
    refused = one("session", "repair", session_id, "--yes", "--json")
    assert refused.exit_code == 16, refused.stdout
    assert one.log(session_id) == before
    assert_level(two, database, session_id)


# Collecting.


def test_what_the_server_does_not_have_is_not_collected_unasked(
    machines: tuple[Machine, Machine], database: str
) -> None:
    one, _ = machines
    one.connect(NOBODY)
    session_id = one.run(DONE)
    kept = one("session", "gc", "--older-than", "0", "--yes")
    assert kept.exit_code == 0 and f"{session_id[-8:]}: {len(one.log(session_id))} events are not in" in kept.stderr
    assert "acode sync now" in kept.stderr
    plan = one("session", "gc", "--older-than", "0", "--dry-run", "--json").json
    assert plan["sessions"] == [] and len(plan["kept"]) == 1
    one.connect(url_of(database))
    assert one("sync", "now").exit_code == 0
    log = one.log(session_id)
    assert one("session", "gc", "--older-than", "0", "--yes", "--json").json["sessions"] == [session_id]
    assert shared_log(database, session_id) == log, "what was collected here is still there"
    assert one("pull", session_id).exit_code == 0 and one.log(session_id) == log


def test_a_person_may_let_go_what_was_never_pushed(machines: tuple[Machine, Machine]) -> None:
    one, _ = machines
    one.connect(NOBODY)
    session_id = one.run(DONE)
    done = one("session", "gc", "--older-than", "0", "--yes", "--unpushed", "--json").json
    assert done["sessions"] == [session_id] and done["kept"] == []


def test_a_copy_owes_nothing_and_is_collected(machines: tuple[Machine, Machine], database: str) -> None:
    one, two = machines
    session_id = one.run(DONE)
    assert two("pull", session_id, "--yes").exit_code == 0
    assert two("session", "gc", "--older-than", "0", "--yes", "--json").json["sessions"] == [session_id]
    assert_level(one, database, session_id)


# Losing the database.


def test_a_session_whose_database_is_gone_comes_back_from_the_shared_copy(
    machines: tuple[Machine, Machine], database: str
) -> None:
    one, _ = machines
    session_id = one.run(GATED)
    shutil.rmtree(one.workspace / ".agent")
    lost = one("resume", session_id)
    assert lost.exit_code == 20 and "acode pull" in lost.stderr
    assert one("resume", session_id, "--remote").exit_code == 10
    assert one("session", "verify", session_id).exit_code == 0
    one("session", "approve", session_id)
    assert one("resume", session_id).exit_code == 0 and (one.workspace / "end.txt").exists()
    assert_level(one, database, session_id)


@pytest.mark.req("FR-011c-053")
def test_what_was_done_and_never_pushed_is_not_repeated_unasked_when_the_database_is_gone(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    """The anchor outlives the database: it knows of events that the shared copy has not."""
    one, _ = machines
    plan = GATED.replace("write: {path: end.txt", f"run: echo ran >> {tmp_path}/marks\n      - write: {{path: end.txt")
    session_id = one.run(plan + "      - approve: And now?\n")
    one.connect(NOBODY)
    one("session", "approve", session_id, "--offline", "--reason", "on a train")
    assert one("resume", session_id).exit_code == 10 and (tmp_path / "marks").read_text() == "ran\n"
    shutil.rmtree(one.workspace / ".agent")
    one.connect(url_of(database))
    pulled = one("pull", session_id, "--json")
    assert pulled.exit_code == 0 and pulled.json["lost"] > 0 and "never pushed" in pulled.stderr
    refused = one("resume", session_id, "--remote", "--json")
    assert refused.exit_code == 20 and "--accept-rollback" in refused.stdout, refused
    assert one("session", "repair", session_id, "--accept-rollback", "--yes").exit_code == 0
    one("session", "approve", session_id)
    assert one("resume", session_id).exit_code == 19, "whether the command ran, a person must say"
    assert (tmp_path / "marks").read_text() == "ran\n"
    assert_level(one, database, session_id)
