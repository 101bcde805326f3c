"""The resident saves time and decides nothing: it dies with its agent, and hooks do without it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from acode.hook_entry import ask_resident
from tests.observed.agents import Place, wait_until


def residents(place: Place) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if b"hook_entry" in line and os.fsencode(place.doors.directory) in line:
            found.append(int(name))
    return found


def test_it_serves_the_hooks_of_its_agent_and_ends_with_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.agent() as agent:
        agent.hook("start")
        wait_until(lambda: len(residents(place)) == 1, "the resident")
        (resident,) = residents(place)
        agent.perform("echo x >> ledger")
        # The processes that it forked for the two payloads may still be ending.
        wait_until(lambda: residents(place) == [resident], "the same resident, alone")
        agent.kill()
        wait_until(lambda: residents(place) == [], "its end")
    assert place.types()[-1] == "step_completed"


def test_a_hook_whose_resident_was_killed_records_by_itself(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.agent() as agent:
        agent.hook("start")
        wait_until(lambda: len(residents(place)) == 1, "the resident")
        for pid in residents(place):
            os.kill(pid, signal.SIGKILL)
        assert agent.begin("true") == (0, {}, "")
    assert place.types()[-1] == "step_started"


@pytest.mark.parametrize("answer", [b"", b"0 5 0 0\nhal", b"no numbers\n", b"0 0 0\n"])
def test_half_an_answer_is_none(tmp_path: Path, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket
    import threading

    from acode import hook_entry

    path = tmp_path / "resident"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1_000_000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setattr(hook_entry, "resident_name", lambda: "resident")
        assert ask_resident(os.fspath(tmp_path), b"{}") is None
        thread.join()
