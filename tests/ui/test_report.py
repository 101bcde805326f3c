"""The report: one file, no script, everything escaped and redacted, and nothing from a log that is not whole."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.plans import GATE, THREE_TASKS, save
from tests.driver import Acode
from tests.tampering import Attack
from tests.ui.conftest import accessible
from tests.ui.test_page import HOSTILE


@pytest.fixture
def report(acode: Acode, workspace: Path) -> Path:
    acode("run", save(workspace, THREE_TASKS))
    acode("resume", "--last", "--yes")
    ended = acode("session", "report", "-o", "report.html")
    assert ended.exit_code == 0
    return workspace / "report.html"


def test_the_report_opens_offline_and_tells_steps_attempts_decisions_and_audit(report: Path, browser: Browser) -> None:
    page = browser.new_context(offline=True).new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(f"file://{report}")
    for heading in ("What it needs", "Steps", "Decisions", "Audit"):
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(page.locator(".trail")).to_contain_text("Resume started")
    expect(page.locator("#audit")).to_contain_text("whole")
    assert page.locator("svg rect.bar.failed").count() >= 1
    assert problems == []


def test_the_report_has_no_accessibility_violation_in_light_and_dark(report: Path, browser: Browser, axe: str) -> None:
    page = browser.new_context(offline=True, bypass_csp=True).new_page()
    page.goto(f"file://{report}")
    accessible(page, axe)


def test_the_report_shows_changes_in_files_without_secrets_and_the_anchor(acode: Acode, workspace: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    save(workspace, "first\nsecond\n", "notes.txt")
    content = f"first\\n<b>third</b>\\n{secret}\\n"
    steps = f'[{{write: {{path: notes.txt, content: "{content}"}}}}, {{approve: Enough?}}]'
    acode("run", save(workspace, f"title: Change\ntasks: [{{title: t, steps: {steps}}}]"))
    text = acode("session", "report").stdout
    files = text[text.index('id="files"') : text.index("Decisions")]
    assert '<span class="removed">-second\n</span>' in files
    assert '<span class="added">+&lt;b&gt;third&lt;/b&gt;\n</span>' in files
    assert secret not in text
    last = acode("session", "verify", "--json").json
    audit = text[text.index('id="audit"') :]
    assert f"event {last['events']}, code " in audit


def test_the_report_needs_nothing_outside_and_runs_nothing(report: Path) -> None:
    text = report.read_text()
    assert "<script" not in text
    assert not re.search(r"(?:src|href)=", text)
    assert "default-src 'none'" in unescape(text)


def test_hostile_text_stays_text_in_the_report(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, HOSTILE))
    text = acode("session", "report").stdout
    assert "<script" not in text
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "&lt;script&gt;" in text


def test_no_secret_stands_in_the_report(acode: Acode, workspace: Path) -> None:
    plan = """
title: Token
tasks: [{title: t, steps: [{run: 'echo "the value is $API_VALUE"; false', secret_env: [API_VALUE]}]}]
"""
    acode("run", save(workspace, plan), env={"API_VALUE": "hunter2-hunter2"})
    text = acode("session", "report", env={"API_VALUE": "hunter2-hunter2"}).stdout
    assert "the value is" in text
    assert "hunter2" not in text


def test_of_a_tampered_log_no_report_is_made(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, GATE))
    Attack(workspace).edit(1, "Deploy", "Destroy")
    ended = acode("session", "report")
    assert ended.exit_code == 20
    assert "<html" not in ended.stdout


def test_a_report_of_no_session_names_the_workspace(acode: Acode) -> None:
    ended = acode("session", "report")
    assert ended.exit_code == 14
