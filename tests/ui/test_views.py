"""Every view beside the list and the session: conversation, other agents, a step with its files, the shared server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.agent.test_agent_commands import SCRIPT
from tests.agent.town import GOAL, Town
from tests.agent.town import served as model_served
from tests.cli.plans import save
from tests.driver import Acode
from tests.machines import Machine, url_of
from tests.observed.test_inspect import HOSTILE, SECRET
from tests.transcripts import DIED, Prompt, Run, write_session
from tests.ui.conftest import Served, accessible
from tests.ui.test_page import open_session

Serve = Callable[..., Served]

CHANGING = """
title: Change
tasks:
  - title: t
    steps:
      - write: {path: notes.txt, content: "first\\nsecond\\n"}
        id: make
      - write: {path: notes.txt, content: "first\\n<b>third</b>\\n"}
        id: change
      - run: test -e ready || { touch ready; exit 1; }
        id: stumble
      - approve: Enough?
"""


def test_the_conversation_of_an_agent_is_shown_with_its_calls_and_tokens(
    acode: Acode, tmp_path: Path, serve: Serve, axe: str
) -> None:
    with model_served(SCRIPT, tmp_path / "model") as (url, ledger):
        town = Town(acode, url, ledger)
        acode.process("run", GOAL, "--approve-plan", env=town.env).finish()  # in this process the browser has its loop
    page = open_session(serve(), bypass_csp=True)
    page.get_by_role("link", name="Conversation").click()
    turns = page.locator(".turns > li")
    expect(turns.first).to_contain_text("tokens read")
    expect(page.locator(".turns")).to_contain_text("write_file")
    expect(page.locator(".turns")).to_contain_text("Begun.")
    (talk,) = [acode("session", "show", "--json").json["conversation"]]
    expect(page.locator(".facts")).to_contain_text(f"{talk['input_tokens']:,}")
    assert turns.count() == talk["requests"]
    accessible(page, axe)


def test_a_step_shows_its_files_and_every_attempt(acode: Acode, workspace: Path, serve: Serve, axe: str) -> None:
    acode("run", save(workspace, CHANGING))
    acode("resume", "--last", "--yes")
    page = open_session(serve(), bypass_csp=True)
    assert page.locator("[href$='id=t.stumble'] rect.bar").count() == 2
    page.locator("[href$='id=t.change']").click()
    diff = page.locator("dialog .diff")
    expect(diff.locator(".removed").last).to_have_text("-second\n")
    expect(diff.locator(".added").last).to_have_text("+<b>third</b>\n")
    accessible(page, axe)
    page.keyboard.press("Escape")
    page.locator("[href$='id=t.stumble']").click()
    expect(page.locator("dialog .attempts > li")).to_have_count(2)
    expect(page.locator("dialog .attempts > li").first).to_contain_text("failed")


def test_dead_sessions_of_other_agents_are_shown_with_what_was_in_flight(
    acode: Acode, home: Path, tmp_path: Path, serve: Serve, axe: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write_session("claude", home, project, DIED)
    write_session("codex", home, project, [Prompt(f"{HOSTILE} use {SECRET}"), Run("c1", f"curl {SECRET} <script>")])
    page = serve().window(bypass_csp=True)
    page.get_by_role("link", name="Other agents").click()
    cards = page.locator(".card")
    expect(cards).to_have_count(2)
    dead = cards.filter(has_text="Claude").first
    expect(dead).to_contain_text("In flight")
    expect(dead.locator("code.command")).to_contain_text("claude --resume")
    assert SECRET not in page.content()
    assert "\x1b" not in page.content() and "\u202e" not in page.content()
    accessible(page, axe)


def test_sessions_of_the_shared_server_stand_in_the_list_and_are_found_by_the_filter(
    acode: Acode, tmp_path: Path, database: str, serve: Serve
) -> None:
    elsewhere = Machine(tmp_path / "elsewhere", url_of(database))
    elsewhere.run("title: Nightly <load>\ntasks: [{title: t, steps: [{write: {path: a, content: b}}]}]")
    page = serve(env={**elsewhere.env, "ACODE_HOME": str(tmp_path / "state")}).window()
    rows = page.locator("h2:has-text('On the shared server') + table tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("Nightly <load>")
    page.get_by_role("searchbox").fill("no such session")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(0)


def test_a_server_that_does_not_answer_hides_no_session_of_this_machine(
    acode: Acode, workspace: Path, serve: Serve
) -> None:
    acode("run", save(workspace, "title: Here\ntasks: [{title: t, steps: [{run: 'true'}]}]"))
    page = serve(env={"ACODE_POSTGRES_URL": "postgresql://127.0.0.1:1/x"}).window()
    expect(page.locator(".sessions")).to_contain_text("Here")
    expect(page.locator(".notice")).to_contain_text("The shared server")


@pytest.mark.parametrize("path", ["", "?to=99999999", "?to=-1", "?to=x"])
def test_a_session_without_a_model_has_an_empty_conversation(
    acode: Acode, workspace: Path, serve: Serve, path: str
) -> None:
    acode("run", save(workspace, "title: Here\ntasks: [{title: t, steps: [{run: 'true'}]}]"))
    served = serve()
    page = open_session(served)
    address = page.url.removeprefix(served.base)
    status, _, body = served.request("GET", f"{address}/conversation{path}", Cookie=served.cookie())
    assert status == 200 and "No request was answered here." in body
