"""Whoever upgrades types one command: databases that older versions left behind, resumed to their end from outside.

`v7_plan.db` is one of acode 0.1: `make_v2.py`, executed in its source, killed in the middle of a command.
"""

from __future__ import annotations

import shutil

import pytest

from acode.seal import SECRET_VARIABLE
from acode.store import schema
from tests.driver import Acode, Ended
from tests.golden.test_golden_sessions import GREETED, HERE, SECRET, raw

PLANS = ["v2", "v3", "v7_plan"]


class Upgraded:
    """A workspace in which an older acode was killed; `upgraded("resume")` is typed there."""

    def __init__(self, acode: Acode, version: str) -> None:
        self.acode = acode
        self.env = {SECRET_VARIABLE: SECRET}
        agent_dir = acode.workspace / ".agent"
        agent_dir.mkdir(mode=0o700)
        shutil.copyfile(HERE / f"{version}.db", agent_dir / "workspace.db")
        (agent_dir / "workspace.db").chmod(0o600)
        for name, content in {**GREETED, "go": ""}.items():
            (acode.workspace / name).write_text(content)
            (acode.workspace / name).chmod(0o644)

    def __call__(self, *arguments: str) -> Ended:
        return self.acode(*arguments, env=self.env)


def test_the_golden_plan_of_0_1_really_is_in_its_formats() -> None:
    assert {(version, row["v"]) for version, row in raw("v7_plan")} == {(7, 2)}
    assert schema.VERSION > 7, "0.1 refuses the whole workspace by this number once a newer acode has written there"


@pytest.mark.req("REGR-011c-01", "NFR-011c-010", "INV-011c-02")
@pytest.mark.parametrize("version", PLANS)
def test_a_plan_that_an_older_acode_began_is_resumed_from_the_command_line(acode: Acode, version: str) -> None:
    upgraded = Upgraded(acode, version)
    before = (acode.workspace / ".agent" / "workspace.db").read_bytes()
    for look in (["session", "list"], ["status"], ["explain"], ["resume", "--dry-run"], ["session", "verify"]):
        assert upgraded(*look).exit_code == 0, look
    assert (acode.workspace / ".agent" / "workspace.db").read_bytes() == before, "a look leaves it to the older acode"

    running = acode.process("resume", "--last", "--yes", env=upgraded.env)
    ended = running.finish()
    assert ended.exit_code == 0 and "Resume completed" in ended.stderr, ended.stderr
    assert (acode.workspace / "done.txt").read_text() == "done\n"
    assert (acode.workspace / "end.txt").read_text() == "end\n"
    assert upgraded("session", "verify").exit_code == 0
    history = upgraded("session", "history").stdout
    assert history.count("approval_granted") == 1, "who has answered is not asked again"


def test_nobody_is_warned_of_a_configuration_that_only_the_upgrade_has_changed(acode: Acode) -> None:
    shown = Upgraded(acode, "v7_plan")("resume", "--dry-run")
    assert shown.exit_code == 0 and "configuration has changed" not in shown.stdout + shown.stderr
