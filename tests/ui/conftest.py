"""A real browser in front of a real `acode ui`."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.driver import WAIT_S_MAX, Acode, Running

expect.set_options(timeout=WAIT_S_MAX * 1000)  # a busy machine is no failure; a condition that holds ends the wait

# As root a browser has no sandbox of its own; the others keep it from looking for its maker's servers.
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
    # The list below its address bar is a page of its own for each window, and costs more than the page under test.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: as long as it is open, an event loop counts as running, and other tests start their own."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed (on Debian the package chromium)")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield found
        found.close()


@dataclass
class Served:
    """One `acode ui` process, and windows that are let in by its token."""

    process: Running
    address: str  # with the token
    browser: Browser
    context: BrowserContext | None = None

    @property
    def base(self) -> str:
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    def window(self, path: str = "/", *, scheme: str = "light", width: int = 1200, bypass_csp: bool = False) -> Page:
        """A window; the first one spends the token, the others have its cookie."""
        cookies = self.context.storage_state()["cookies"] if self.context is not None else []
        context = self.browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": 900},
            bypass_csp=bypass_csp,
        )
        context.add_cookies(cookies)  # type: ignore[arg-type]
        page = context.new_page()
        page.set_default_timeout(WAIT_S_MAX * 1000)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.problems = problems  # type: ignore[attr-defined]
        page.goto(self.address if self.context is None else self.base + path)
        if self.context is None:
            self.context = context
            if path != "/":
                page.goto(self.base + path)
        return page

    def cookie(self) -> str:
        if self.context is None:
            self.window()
        assert self.context is not None
        return "; ".join(f"{one['name']}={one['value']}" for one in self.context.cookies())

    def request(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, dict[str, str], str]:
        """By hand, as another program or page would ask; names of headers have underscores here."""
        connection = http.client.HTTPConnection(urlsplit(self.base).netloc, timeout=WAIT_S_MAX)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if method == "POST":
            given.setdefault("Content-Type", "application/x-www-form-urlencoded")
        connection.request(method, path, body or None, given)
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found


@pytest.fixture
def serve(acode: Acode, browser: Browser) -> Iterator[object]:
    contexts: list[Served] = []

    def start(*arguments: str, env: Mapping[str, str] | None = None) -> Served:
        process = acode.process("ui", "--no-open", "--json", *arguments, env=env)
        address = json.loads(process.wait_for_line("address"))["address"]
        contexts.append(Served(process, address, browser))
        return contexts[-1]

    yield start
    for context in browser.contexts:
        context.close()


def accessible(page: Page, axe: str, view: str = "") -> None:
    """No violation that axe-core knows, in light and in dark colors; the window was opened with `bypass_csp`."""
    page.evaluate(axe)
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        found = page.evaluate("axe.run()")["violations"]
        told = [(one["id"], one["nodes"][0]["html"]) for one in found]
        assert not found, f"{view} in {scheme}: {json.dumps(told, indent=1)}"


@pytest.fixture
def axe() -> str:
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
