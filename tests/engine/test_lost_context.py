"""A session whose plan snapshot is gone has lost its context: classified, explained, and not executed."""

from __future__ import annotations

import shutil

import pytest

from tests.driver import Acode

PLAN = """
title: Lost
tasks:
  - title: t
    steps:
      - write: {path: a.txt, content: "password: 'correct-horse-battery-staple'"}
      - approve: go?
      - run: touch ran
"""


@pytest.mark.req("POL-CLASS-03", "POL-CODE-05", "POL-ELIG-03", "POL-INT-02")
def test_a_lost_plan_snapshot_is_a_context_reset_and_nothing_is_executed(acode: Acode) -> None:
    (acode.workspace / "plan.yml").write_text(PLAN)
    assert acode("run", "plan.yml").exit_code == 10
    session = acode("session", "list", "--json").json[0]["session_id"]
    acode("session", "approve", session)
    shutil.rmtree(acode.workspace / ".agent/blobs/sensitive")
    look = acode("resume", "--dry-run", session, "--json").json
    assert look["interruption_class"] == "context_reset"
    assert look["decision"]["reason_code"] == "resume_missing_runtime_artifacts"
    for attempt in (("resume", session), ("resume", session, "--auto"), ("resume", session, "--force")):
        refused = acode(*attempt, "--json")
        assert refused.exit_code == 17
        assert refused.lines[-1]["data"]["error"]["code"] == "ACODE-RESUME-014"
    assert "plan snapshot" in acode("explain", session).stdout
    assert not (acode.workspace / "ran").exists()
    assert acode("session", "abandon", session).exit_code == 0
