"""The pictures of the page in the guide, from a real `acode ui` in a real browser: `python3 dev.py picture page`.

With a directory as its argument they are written there, as a test of the release does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).resolve().parent
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-lcd-text"]
DEPLOY = """
title: Release 4.2 of the shop
tasks:
  - id: build
    title: Build
    steps:
      - {id: compile, run: "sleep 0.6; echo 214 modules compiled", idempotent: true, title: Compile}
      - {id: test, run: "echo 1,204 tests; test -e .ran || { touch .ran; sleep 0.4; exit 1; }", title: Run the tests}
      - {id: notes, write: {path: notes.txt, content: "Release 4.2\\n- checkout is faster\\n- fewer e-mails\\n"}}
  - id: ship
    title: Ship
    needs: [build]
    steps:
      - {id: upload, run: "sleep 0.5; echo uploaded shop-4.2.tar.gz", idempotent: true, title: Upload the archive}
      - {id: ask, approve: "Roll 4.2 out to all customers?"}
      - {id: roll-out, run: "./roll-out --version 4.2 --all", title: Roll out}
      - {id: announce, run: "./announce 4.2", title: Tell the customers}
"""
OTHERS = {
    "nightly": "title: Nightly load\ntasks: [{title: Load, steps: [{run: 'sleep 0.2; echo 18,204 rows'}]}]",
    "backup": "title: Back up the orders\ntasks: [{title: Copy, steps: [{run: 'true'}, {run: 'sleep 0.1'}]}]",
}


def main(into: Path) -> int:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.stderr.write("no Chromium is installed (on Debian the package chromium)\n")
        return 1
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place) / "shop"
        workspace.mkdir()
        os.environ |= {"HOME": place, "ACODE_HOME": f"{place}/state"}
        make_sessions(workspace)
        command = [sys.executable, "-m", "acode", "-C", str(workspace), "ui", "--no-open", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served, sync_playwright() as playwright:
            assert served.stdout is not None
            address = json.loads(served.stdout.readline())["address"]
            browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
            take(browser, address, into)
            browser.close()
            served.terminate()
    return 0


def make_sessions(workspace: Path) -> None:
    for name, text in {**OTHERS, "release": DEPLOY}.items():
        plan = workspace / f"{name}.yml"
        plan.write_text(text, encoding="utf-8")
        acode(workspace, "run", "--new", plan)
    acode(workspace, "resume", "--last", "--yes")  # the tests failed once


def acode(workspace: Path, *words: str | Path) -> None:
    command = [sys.executable, "-m", "acode", "-C", str(workspace), *map(str, words)]
    subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)


def take(browser: Browser, address: str, into: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page = context.new_page()
    page.goto(address)
    picture(page, into / "page-list.png")
    page.locator(".card a").first.click()
    page.wait_for_selector("#steps")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.locator("#needs").evaluate("box => box.scrollIntoView()")
        picture(page, into / f"page-session-{scheme}.png")
    page.emulate_media(color_scheme="light")
    page.locator("[href$='id=build.notes']").click()
    page.wait_for_selector("dialog .diff")
    picture(page, into / "page-step.png")
    context.close()


def picture(page: Page, path: Path) -> None:
    page.screenshot(path=path, animations="disabled", caret="hide")
    sys.stdout.write(f"{path.name}: {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
