"""What follows from how an attempt ended: the policy as a schedule."""

from __future__ import annotations

from pathlib import Path

import pytest

from acode.fleet.health import Health
from acode.fleet.schedule import Again, End, Over, Parked, after_deaths, outcome_of
from acode.lease_file import deadline_of, read_deadline, renew_every_s, stop_s, write_deadline
from acode.steps import keeper_limits
from acode.steps.keeper_limits import Limits
from acode.sync.protocol import Fenced, Keep, Remote, Take, decide_take


def outcome(code: int | None, **fields: object) -> object:
    return outcome_of(End(exit_code=code, **fields), lease_s=60)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [2, 3, 10, 12, 13, 17, 18, 19, 20, 130])
def test_what_needs_a_person_is_parked(code: int) -> None:
    found = outcome(code, state="PAUSED", message="why")
    assert found == Parked(exit_code=code, why="why")


def test_waits_become_times() -> None:
    assert outcome(75, retry_after_s=41, message="m") == Again(after_s=41, why="m")
    assert outcome(16, message="m") == Again(after_s=60, why="m"), "at the end of the lease"
    assert outcome(16, message="m", doubted=True) == Parked(exit_code=16, why="m"), "no time cures a restored server"
    assert outcome(1, error_code="ACODE-STEP-001", message="m") == Again(after_s=30, why="m")
    assert outcome(1, error_code="ACODE-STEP-002", message="m") == Again(after_s=120, why="m")
    assert outcome(143) == Again(after_s=0.0, why="its worker was asked to end")
    assert outcome(None, signal="SIGKILL") == Again(after_s=60, why="its process was killed by SIGKILL", died=True)


def test_a_session_that_has_ended_is_over_whatever_its_exit_status() -> None:
    assert outcome(0, state="COMPLETED") == Over(state="done", exit_code=0)
    assert outcome(1, state="FAILED", message="m") == Over(state="failed", exit_code=1, why="m")
    assert outcome(15, state="CANCELLED") == Over(state="cancelled", exit_code=15)


def test_a_full_disk_parks_the_session() -> None:
    assert outcome(1, error_code="ACODE-DB-005", message="m") == Parked(
        exit_code=17, why="m", error_code="ACODE-DB-005"
    )


def test_the_third_death_in_a_row_parks() -> None:
    again = Again(after_s=0, why="w", died=True)
    assert after_deaths(again, 2) is again
    assert isinstance(found := after_deaths(again, 3), Parked) and found.exit_code == 18
    waits = Again(after_s=9, why="cool-down")
    assert after_deaths(waits, 3) is waits


# The lease.


def held(**fields: object) -> Remote:
    return Remote(**{"generation": 4, "owner": "b", "seq": 9, "head": b"", "holder": "worker b"} | fields)  # type: ignore[arg-type]


def test_a_lease_is_taken_over_only_when_it_has_ended_and_the_server_was_up_for_longer() -> None:
    over = held(lease_s=3.0, age_s=3.1, up_s=100.0)
    assert decide_take("a", over, force=False, take_over=True) == Take(
        generation=5, forced_from="worker b", expired=True
    )
    assert isinstance(decide_take("a", over, force=False), Fenced), "nobody asked for it"
    runs = held(lease_s=3.0, age_s=2.9, up_s=100.0)
    assert isinstance(decide_take("a", runs, force=False, take_over=True), Fenced)
    restarted = held(lease_s=3.0, age_s=500.0, up_s=2.0)
    assert isinstance(decide_take("a", restarted, force=False, take_over=True), Fenced)
    assert restarted.ends_in_s() == pytest.approx(1.0)
    assert decide_take("b", runs, force=False, take_over=True) == Keep(generation=4)


def test_outside_a_fleet_a_lease_never_ends() -> None:
    old = held(age_s=1e9, up_s=1e9)
    assert old.ends_in_s() is None
    assert isinstance(decide_take("a", old, force=False, take_over=True), Fenced)


@pytest.mark.parametrize("lease_s", [3.0, 10.0, 60.0, 3600.0])
def test_commands_are_gone_before_their_lease_is(lease_s: float) -> None:
    asked = 1000.0
    assert deadline_of(asked, lease_s) + stop_s(lease_s) < asked + lease_s
    assert deadline_of(asked, lease_s) > asked + 3 * renew_every_s(lease_s), "two lost renewals stop nothing"
    assert stop_s(lease_s) == min(5.0, lease_s / 3)


def test_a_host_that_was_suspended_past_its_lease_stops_its_command_on_waking(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock = f"{tmp_path}/lease", [5000.0]
    monkeypatch.setattr(keeper_limits, "boot_clock_s", lambda: clock[0])
    write_deadline(path, 5002.0)
    limits = Limits(None, {"path": path, "stop_s": 1.0})
    assert (limits.passed(), limits.kill_after_s) == (None, 1.0) and 0 < limits.pause_s() <= 0.5
    write_deadline(path, 5010.0)
    clock[0] += 5
    assert limits.passed() is None, "it was renewed meanwhile"
    clock[0] += 3600  # the other clocks have not moved
    assert limits.passed() == "lease" and limits.pause_s() == 0


def test_a_lease_file_that_is_gone_or_damaged_leaves_no_time(tmp_path: object) -> None:
    assert read_deadline(f"{tmp_path}/none") == 0
    with open(f"{tmp_path}/bad", "w") as file:
        file.write("soon")
    assert read_deadline(f"{tmp_path}/bad") == 0
    assert Limits(None, {"path": f"{tmp_path}/bad", "stop_s": 1.0}).passed() == "lease"


def test_a_worker_tells_systemd_that_it_is_ready_and_lives(tmp_path: object) -> None:
    import socket

    address = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(address)
        health = Health(Path(str(tmp_path)), {"NOTIFY_SOCKET": address})
        health.renewed()
        health.renewed()
        health.ends()
        assert [heard.recv(64) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]
    assert (Path(str(tmp_path)) / "alive").exists()
