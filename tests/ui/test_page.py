"""The page in a real browser: every view, every button, two windows, hostile text, ten thousand steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.cli.plans import GATE, THREE_TASKS, save
from tests.driver import Acode
from tests.ui.conftest import Served, accessible

Serve = Callable[..., Served]

# Titles with control characters are refused by the reader of plans; what a command prints is refused by nobody.
HOSTILE = r"""
title: <script>alert('title')</script>
tasks:
  - title: <img src=x onerror=alert('task')>
    steps:
      - run: |
          head -c 1000000 /dev/zero | tr '\\0' A
          printf '\\n\\033]52;c;eA==\\007\\342\\200\\256</pre><script>alert(1)</script>\\n'
        id: shout
        title: '" onmouseover=alert(2) x="'
      - run: "false"
""".replace("\\\\", "\\")


def history(acode: Acode, kind: str) -> list[dict[str, object]]:
    return [one for one in acode("session", "history", "--json").json if one["type"] == kind]


def open_session(served: Served, **how: object) -> Page:
    page = served.window(**how)  # type: ignore[arg-type]
    page.locator(".card a, .sessions a").first.click()
    page.wait_for_selector("#steps")
    page.wait_for_load_state()  # without its script the page works too, in other ways
    return page


@pytest.fixture
def at_gate(acode: Acode, workspace: Path) -> str:
    acode("run", save(workspace, GATE))
    return str(acode("session", "list", "--json").json[0]["session_id"])


def test_the_list_shows_what_needs_somebody_first(acode: Acode, workspace: Path, at_gate: str, serve: Serve) -> None:
    acode("run", "--new", save(workspace, "title: Done already\ntasks: [{title: t, steps: [{run: 'true'}]}]", "b.yml"))
    page = serve().window()
    expect(page.get_by_role("heading", name="Needs you")).to_be_visible()
    expect(page.locator(".card")).to_contain_text("approve")
    expect(page.locator(".sessions tbody tr")).to_have_count(1)
    expect(page.locator(".sessions tbody tr")).to_contain_text("Done already")
    page.get_by_role("searchbox").fill("already")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".card")).to_have_count(0)
    expect(page.locator(".sessions tbody tr")).to_have_count(1)


def test_a_gate_approved_on_the_page_is_recorded_as_such_and_the_plan_ends(
    acode: Acode, at_gate: str, serve: Serve
) -> None:
    page = open_session(serve())
    page.get_by_label("Note for the record").first.fill("looked at it")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".trail")).to_contain_text("approved")
    (granted,) = history(acode, "approval_granted")
    assert granted["actor"] == "user"
    assert granted["data"]["via"] == "ui"  # type: ignore[index]
    assert granted["data"]["note"] == "looked at it"  # type: ignore[index]
    assert acode("resume", "--last", "--yes").exit_code == 0


def test_a_gate_denied_on_the_page_pauses_the_session(acode: Acode, at_gate: str, serve: Serve) -> None:
    page = open_session(serve())
    page.get_by_role("button", name="Deny").click()
    expect(page.locator(".badge").first).to_contain_text("needs you: approve")  # a resume asks again
    assert history(acode, "approval_denied")[0]["data"]["via"] == "ui"  # type: ignore[index]


def test_two_windows_follow_each_other_and_the_command_line(acode: Acode, at_gate: str, serve: Serve) -> None:
    served = serve()
    first, second = open_session(served), open_session(served)
    first.get_by_role("button", name="Approve").click()
    expect(second.locator(".trail")).to_contain_text("approved")
    assert acode("resume", "--last", "--yes").exit_code == 0
    for window in (first, second):
        expect(window.locator(".badge").first).to_contain_text("completed")
        assert window.problems == []  # type: ignore[attr-defined]


def test_an_unknown_outcome_is_settled_on_the_page_with_the_output_in_view(
    acode: Acode, workspace: Path, serve: Serve
) -> None:
    plan = "title: Pay\ntasks: [{title: t, steps: [{run: 'echo paying 42; sleep 60', id: pay}, {run: 'true'}]}]"
    running = acode.process("run", save(workspace, plan))
    running.wait_for_line("│ paying 42")  # what it printed, not the line that announces it
    running.kill_everything()
    acode("resume", "--last", "--yes")
    page = open_session(serve())
    form = page.locator("form.unknown")
    expect(form).to_contain_text("paying 42")
    form.get_by_role("button", name="It happened").click()
    expect(page.locator(".trail")).to_contain_text("took effect")
    settled = history(acode, "step_settled")[-1]
    assert (settled["data"]["outcome"], settled["data"]["via"]) == ("applied", "ui")  # type: ignore[index]


def test_a_running_session_is_paused_and_a_stopped_one_cancelled_on_the_page(
    acode: Acode, workspace: Path, serve: Serve
) -> None:
    go = workspace / "go"
    command = f"until test -e {go}; do sleep 0.05; done"
    plan = f"title: Slow\ntasks: [{{title: t, steps: [{{run: '{command}'}}, {{run: 'true'}}]}}]"
    running = acode.process("run", save(workspace, plan))
    running.wait_for_line("Step 1")
    page = open_session(serve())
    page.get_by_role("button", name="Pause").click()
    running.wait_for_line("Pausing")
    go.touch()
    assert running.finish().exit_code == 130
    page.get_by_text("End this session").click()
    page.get_by_role("button", name="Cancel the session").click()
    expect(page.locator(".badge").first).to_contain_text("cancelled")
    assert history(acode, "session_cancelled")[0]["data"]["via"] == "ui"  # type: ignore[index]


def test_an_answer_somebody_else_has_given_is_not_recorded_a_second_time(
    acode: Acode, at_gate: str, serve: Serve
) -> None:
    served = serve()
    page = open_session(served)
    page.route("**/live*", lambda route: route.abort())  # this window hears of nothing
    page.reload()
    acode("session", "approve", at_gate)
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("heading", name="Nothing was changed")).to_be_visible()
    assert history(acode, "approval_denied") == []


def test_read_only_shows_everything_and_offers_no_answer(acode: Acode, at_gate: str, serve: Serve) -> None:
    page = open_session(serve("--read-only"))
    expect(page.locator("#needs")).to_contain_text("waits at a gate")
    expect(page.locator("form")).to_have_count(0)


def test_hostile_titles_and_output_stay_text(acode: Acode, workspace: Path, serve: Serve) -> None:
    acode("run", save(workspace, HOSTILE))
    served = serve()
    page = open_session(served)
    alerts: list[str] = []
    page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    page.locator("a[data-drawer]").first.click()
    output = page.locator("dialog #output")
    expect(output).to_contain_text("<script>alert(1)</script>")
    assert "\x1b" not in page.content()
    assert "\u202e" not in page.content()
    assert alerts == []
    assert page.problems == []  # type: ignore[attr-defined]
    assert len(page.content()) < 150_000


@pytest.fixture
def long_session(acode: Acode, workspace: Path) -> int:
    """Ten thousand steps, done and recorded by the library, which needs no process for each."""
    import acode as library

    with library.session("long", workspace=workspace) as session:
        for number in range(10_000):
            session.step(f"step-{number}", int, number, idempotent=True)
    return 10_000


@pytest.mark.timeout(600)  # ten thousand steps are recorded first, each with a sync of its own
def test_of_ten_thousand_steps_a_few_hundred_rows_stand_in_the_page(long_session: int, serve: Serve) -> None:
    served = serve()
    page = open_session(served)
    assert page.locator("#steps [data-number]").count() <= 300
    assert len(page.content()) < 150_000
    page.locator("#steps").evaluate("box => { box.scrollTop = box.scrollHeight }")
    expect(page.locator("#steps")).to_contain_text(f"step-{long_session - 1}")
    assert page.locator("#steps [data-number]").count() <= 300
    page.locator("#steps").evaluate("box => { box.scrollTop = 0 }")
    expect(page.locator("#steps")).to_contain_text("step-0")
    assert page.problems == []  # type: ignore[attr-defined]


@pytest.mark.usefixtures("at_gate")
def test_every_view_has_no_accessibility_violation_in_light_and_dark(acode: Acode, serve: Serve, axe: str) -> None:
    acode("run", save(acode.workspace, THREE_TASKS, "three.yml"))
    page = serve().window(bypass_csp=True)
    accessible(page, axe, "list")
    page.locator(".card a").first.click()
    page.wait_for_selector("#steps")
    page.wait_for_load_state()
    accessible(page, axe, "session")
    page.locator("a[data-drawer]").first.click()
    page.wait_for_selector("dialog[open]")
    accessible(page, axe, "step")
    page.keyboard.press("Escape")
    for name in ("Resume preview", "Audit"):
        page.get_by_role("link", name=name).click()
        accessible(page, axe, name)
        page.go_back()


def test_the_page_is_used_with_the_keyboard_alone_at_400_pixels(acode: Acode, at_gate: str, serve: Serve) -> None:
    page = serve().window(width=400)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#steps")
    page.wait_for_load_state()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    assert re.search("step", page.evaluate("document.activeElement.getAttribute('href')") or "")
