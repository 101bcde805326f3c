"""The fleet on the page: the same look as `acode fleet status`, behind the same guards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from acode.fleet.schedule import Parked
from acode.fleet.server import opened_fleet
from tests.driver import Acode
from tests.machines import Machine, url_of
from tests.ui.conftest import Served, accessible

Serve = Callable[..., Served]
PLAN = "title: {title}\ntasks:\n  - title: Work\n    steps:\n      - approve: Go on?\n"
WORKER: dict[str, Any] = {
    "name": "build-1",
    "host": "here",
    "queues": ["default"],
    "labels": ["linux"],
    "slots": 4,
    "lease_s": 60.0,
    "version": "0",
}


def submit(machine: Machine, title: str) -> str:
    ended = machine("submit", machine.plan(PLAN.format(title=title)), "--json")
    assert ended.exit_code == 0, ended
    return str(ended.json["session_id"])


def test_queues_workers_and_those_who_need_somebody_are_shown_with_the_command_to_type(
    acode: Acode, serve: Serve, tmp_path: Path, database: str, axe: str
) -> None:
    laptop = Machine(tmp_path / "laptop", url_of(database))
    parked = submit(laptop, "Deploy <b>now</b>")
    with opened_fleet(laptop.world()) as server:
        worker = server.renew(None, [], WORKER).worker
        job = server.queue.take(worker, ["default"])
        assert job is not None and server.begin(job, worker) is not None
        server.end(job, worker, Parked(exit_code=10, why="step work.1 needs an approval"))
    queued = submit(laptop, "Later")
    assert laptop("fleet", "pause", "default").exit_code == 0
    served = serve(env=laptop.env)
    assert served.request("GET", "/fleet")[0] == 403, "the same guards as every page"
    page = served.window(bypass_csp=True)
    page.get_by_role("link", name="Fleet").click()
    expect(page.get_by_role("heading", name="Fleet", exact=True)).to_be_visible()
    told = laptop("fleet", "status", "--json").json
    shown = ", ".join(f"{number} {state}" for state, number in told["counts"].items())
    expect(page.locator("#counts")).to_have_text(shown)
    card = page.locator(".card")
    expect(card).to_have_count(1)
    for text in ("Deploy <b>now</b>", "10: step work.1 needs an approval", f"acode session approve {parked[-8:]}"):
        expect(card).to_contain_text(text)
    assert "paused queues: default" in page.locator("main").inner_text().lower()
    tables = page.locator("table.sessions")
    for text in (queued[-8:], "queued", "Later"):
        expect(tables.first).to_contain_text(text)
    for text in ("build-1", "alive", "0/4", "linux"):
        expect(tables.last).to_contain_text(text)
    accessible(page, axe)
    assert page.problems == []  # type: ignore[attr-defined]


def test_without_a_server_there_is_no_fleet_to_look_at(acode: Acode, serve: Serve) -> None:
    served = serve()
    assert served.window().get_by_role("link", name="Fleet").count() == 0
    assert served.request("GET", "/fleet", Cookie=served.cookie())[0] == 404
