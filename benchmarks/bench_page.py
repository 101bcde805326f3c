"""The page in a real browser: first content, rows, size, commit to screen, and the cost of doing nothing.

Sessions of 10, 1,000 and 10,000 steps, and a workspace with 1,000 sessions. `acode ui` runs as a process of its own;
Chromium is the system's. First content is measured in the browser, from the request to the first paint that holds text,
and at the server, as the time of the whole answer. The processor time of doing nothing is that of the server while one
window follows a session.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

import acode
from benchmarks.places import place

STEPS = (10, 1_000, 10_000)
SESSIONS = 1_000
ROUNDS = 7
IDLE_S = 20.0
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
# From the start of the navigation to the first paint with text in it, as the browser tells it.
FIRST_CONTENT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
ANSWERED = "performance.getEntriesByType('navigation')[0].responseEnd"
ROWS = "document.querySelectorAll('#steps [data-number], .card, .sessions tbody tr').length"
# The moment at which the page shows a given event, by the clock of this machine.
SEEN = """wanted => new Promise(done => {
  const seq = () => Number(document.getElementById('live').dataset.seq);
  const look = () => seq() >= wanted ? done(Date.now()) : setTimeout(look, 2);
  look();
})"""


def measure() -> dict[str, Any]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return {"skipped": "no Chromium is installed"}
    found: dict[str, Any] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        for steps in STEPS:
            with place() as path:
                set_home(path)
                found[f"{steps:_}_steps"] = of_session(browser, path / "workspace", steps)
        with place() as path:
            set_home(path)
            for number in range(SESSIONS):
                with acode.session(f"session {number}", workspace=path / "workspace") as session:
                    make_steps(session, 2)
            with served(path / "workspace") as (address, process):
                found[f"{SESSIONS:_}_sessions"] = of_list(browser, address, process)
        browser.close()
    return found


def set_home(path: Path) -> None:
    os.environ.update(HOME=str(path), ACODE_HOME=str(path / "state"))


def make_steps(session: acode.Session, count: int) -> None:
    for number in range(count):
        session.step(f"step-{number}", int, number, idempotent=True)


@contextmanager
def served(workspace: Path) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "acode", "-C", str(workspace), "ui", "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"], psutil.Process(process.pid)
        finally:
            process.terminate()


def let_in(browser: Browser, address: str) -> tuple[BrowserContext, Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto(address)
    return context, page


def of_session(browser: Browser, workspace: Path, steps: int) -> dict[str, Any]:
    """Of a session that runs: it is held by this process, and so shows a sign of life every few seconds."""
    with acode.session("long", workspace=workspace) as session:
        make_steps(session, steps)
        with served(workspace) as (address, process):
            context, page = let_in(browser, address)
            page.locator(".sessions a, .card a").first.click()
            page.wait_for_selector("#steps")
            found = loads(page, page.url, process)
            found["commit_to_screen_ms"] = commits(page, session)
            found["idle_cpu_percent"] = idle(process)
            context.close()
    return found


def of_list(browser: Browser, address: str, process: psutil.Process) -> dict[str, Any]:
    context, page = let_in(browser, address)
    found = loads(page, page.url, process)
    found["idle_cpu_percent"] = idle(process)
    context.close()
    return found


def loads(page: Page, address: str, process: psutil.Process) -> dict[str, Any]:
    painted, answered, rows, size, before = [], [], 0, 0, 0.0
    for number in range(ROUNDS + 1):  # the first one loads what the server needs
        page.goto(address)
        while page.evaluate(FIRST_CONTENT) is None:  # a wait in the page would need eval, which its policy forbids
            page.wait_for_timeout(20)
        if not number:
            before = cpu_s(process)
        else:
            painted.append(page.evaluate(FIRST_CONTENT))
            answered.append(page.evaluate(ANSWERED))
        rows, size = page.evaluate(ROWS), len(page.content())
    return {
        "first_content_ms": round(statistics.median(painted), 1),
        "answered_ms": round(statistics.median(answered), 1),
        "server_cpu_ms": round((cpu_s(process) - before) * 1000 / ROUNDS, 1),
        "rows": rows,
        "page_kb": round(size / 1000, 1),
    }


def idle(process: psutil.Process) -> float:
    time.sleep(2.0)  # what the page asks for when it is opened
    before, began = cpu_s(process), time.monotonic()
    time.sleep(IDLE_S)
    return round(100 * (cpu_s(process) - before) / (time.monotonic() - began), 2)


def cpu_s(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def commits(page: Page, session: acode.Session) -> dict[str, float]:
    """From the return of a step, which is committed then, to the moment at which the page shows its event."""
    waits = []
    for number in range(ROUNDS * 3):
        time.sleep(0.35 + (number % 7) * 0.03)  # at every phase of the watch
        session.step(f"live-{number}", int, number, idempotent=True)
        committed = time.time() * 1000
        waits.append(page.evaluate(SEEN, session._run.session.seq) - committed)
    return {"median": round(statistics.median(waits), 1), "max": round(max(waits), 1)}


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
