"""What a session needs is said in the same words by the list, the status, the explanation, the report and the page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from acode.attention import IN_WORDS
from acode.cli.ui import world_of
from acode.ui.guards import Guards
from acode.ui.places import Places
from acode.ui.server import Server
from tests.cli.plans import GATE, save
from tests.driver import Acode

CUT_OFF = "title: Cut\ntasks: [{title: t, steps: [{run: 'echo begun; sleep 60', idempotent: true}]}]"
OUT_OF_TIME = "title: Late\ntasks: [{title: t, steps: [{run: sleep 60, timeout: 0.1}]}]"
FAILS = "title: Fails\ntasks: [{title: t, steps: [{run: 'exit 3', idempotent: true}]}]"
WRITES = "title: Made\ntasks: [{title: t, steps: [{write: {path: made.txt, content: ours}}, {run: 'exit 3'}]}]"
IMPATIENT = {"ACODE_RESUME_MAX_RESUME_ATTEMPTS": "1", "ACODE_RESUME_COOLDOWN_SECONDS_TOOL_FAILURE": "0"}
PORT = 4711


class Page:
    """The page's own application, asked in this process by somebody who has its cookie."""

    def __init__(self, workspace: Path) -> None:
        guards = Guards(PORT, read_only=False)
        cookie = guards.exchange(guards.token)
        self.headers = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"cookie", f"acode-{PORT}={cookie}".encode())]
        places = Places(world_of(workspace), [], world_of)
        self.here = places.here
        self.app = Server(places, guards).app

    def __call__(self, path: str) -> str:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": self.headers}
        asyncio.run(self.app({**scope, "http_version": "1.1", "scheme": "http", "root_path": ""}, receive, send))
        assert sent[0]["status"] == 200, sent
        return b"".join(one.get("body", b"") for one in sent).decode()


def begin(acode: Acode, plan: str, name: str) -> str:
    """A session in a state of its own; its id."""
    acode("run", save(acode.workspace, plan, f"{name}.yml"))
    return str(acode("session", "list", "--json").json[0]["short_id"])


def approve(acode: Acode) -> str:
    return begin(acode, GATE, "gate")


def resolve(acode: Acode) -> str:
    return begin(acode, OUT_OF_TIME, "late")


def escalated(acode: Acode) -> str:
    session = begin(acode, FAILS, "fails")
    for _ in range(2):
        acode("resume", session, "--auto", env=IMPATIENT)
    return session


def changed_files(acode: Acode) -> str:
    session = begin(acode, WRITES, "writes")
    save(acode.workspace, "theirs", "made.txt")
    assert acode("resume", session, "--yes").exit_code == 17
    return session


def crashed(acode: Acode) -> str:
    running = acode.process("run", save(acode.workspace, CUT_OFF, "cut.yml"))
    running.wait_for_line("│ begun")
    running.kill_everything()
    return str(acode("session", "list", "--json").json[0]["short_id"])


# By the word for programs. `parked` is a state of the fleet's own lists, and in tests/fleet.
REACHED = {one.__name__: one for one in (approve, resolve, escalated, changed_files, crashed)}


def test_every_need_is_reached_here() -> None:
    assert {*REACHED, "parked"} == set(IN_WORDS)


@pytest.mark.parametrize("attention", REACHED)
def test_list_status_explain_report_and_page_say_what_a_session_needs_in_the_same_words(
    acode: Acode, workspace: Path, attention: str
) -> None:
    session = REACHED[attention](acode)
    (row,) = acode("session", "list", "--json").json
    looks = [
        acode(*words, session, "--json").json["attention"] for words in (["status"], ["explain"], ["session", "show"])
    ]
    assert [row["attention"], *looks] == [attention] * 4
    words = IN_WORDS[attention]  # type: ignore[index]
    page = Page(workspace)
    for where, text in {
        "list": acode("session", "list").stdout,
        "status": acode("status", session).stdout,
        "explain": acode("explain", session).stdout,
        "report": acode("session", "report", session).stdout,
        "list on the page": page("/"),
        "session on the page": page(f"/w/{page.here}/s/{row['session_id']}"),
    }.items():
        assert words in text, where
    assert "Needs you" in page("/") and not re.search(r"\b(EXECUTING|PAUSED)\b", acode("session", "list").stdout)
