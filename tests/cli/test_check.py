"""acode check: every error at once, and a table of settlements that agrees with what a resume does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.plans import save
from tests.driver import Acode

# acode itself, killed for real as soon as the start of the step is on record.
KILLED_AT_START = """
import os, signal, sys
from acode.cli import follow_run, main
emit = follow_run.Follower.emit
def killed(self, notice):
    emit(self, notice)
    if notice.body.event == 'step_started' and notice.step == 't.victim':
        os.kill(os.getpid(), signal.SIGKILL)
follow_run.Follower.emit = killed
sys.exit(main())
"""
WAITS = "printf %sready now; echo; while [ ! -e go.txt ]; do sleep 0.05; done"
COMMANDS = {
    "nothing declared": "",
    "idempotent": "idempotent: true",
    "outputs": "outputs: [out.txt]",
    "probe": "probe: test -f never.txt",
    "probe and outputs": "{probe: test -f never.txt, outputs: [out.txt]}",
}
OWN_EVIDENCE = {
    "read": "read: in.txt",
    "write": "write: {path: out.txt, content: new}",
    "sql": "sql: {database: app.db, file: make.sql}",
    "commit": "commit: {message: made, paths: [in.txt]}",
}
SETTINGS = {
    "unknown outcomes are repeated": ("nothing declared", "unknown_outcome: retry"),
    "nothing is rolled back": ("outputs", "in_progress_strategy: retry"),
    "a person decides": ("idempotent", "in_progress_strategy: prompt"),
}


def plan_of(step: str) -> str:
    return f"title: t\ntasks:\n  - id: t\n    steps:\n      - {step}\n        id: victim\n"


def command_step(declared: str) -> str:
    entries = declared.strip("{}").split(", ") if declared else []
    return "\n        ".join([f"run: {WAITS}", *entries])


def predicted(acode: Acode) -> str:
    (step,) = acode("check", "plan.yml", "--json").json["steps"]
    return str(step["action"])


def settled(acode: Acode) -> str:
    (flight,) = acode("resume", "--last", "--dry-run", "--json").json["in_flight"]
    return str(flight["action"])


@pytest.fixture
def grounds(acode: Acode) -> Path:
    workspace = acode.workspace
    (workspace / "in.txt").write_text("in\n")
    (workspace / "make.sql").write_text("CREATE TABLE t (a);\n")
    return workspace


@pytest.mark.parametrize("declared", COMMANDS)
def test_a_command_is_settled_as_the_check_has_said(acode: Acode, grounds: Path, declared: str) -> None:
    save(grounds, plan_of(command_step(COMMANDS[declared])))
    expected = predicted(acode)
    running = acode.process("run", "plan.yml")
    running.wait_for_line("nowready")
    running.kill_everything()
    assert settled(acode) == expected


@pytest.mark.parametrize("kind", OWN_EVIDENCE)
def test_a_step_with_its_own_evidence_is_settled_as_the_check_has_said(acode: Acode, grounds: Path, kind: str) -> None:
    if kind == "commit":
        subprocess.run(["git", "init", "-q", "."], cwd=grounds, check=True)
    save(grounds, plan_of(OWN_EVIDENCE[kind]))
    expected = predicted(acode)
    ended = acode.process("run", "plan.yml", program=("-c", KILLED_AT_START)).finish()
    assert ended.exit_code == -9
    assert settled(acode) == expected == "retry"


@pytest.mark.parametrize("case", SETTINGS)
def test_the_settings_in_force_decide_what_the_check_says(acode: Acode, grounds: Path, case: str) -> None:
    declared, setting = SETTINGS[case]
    (grounds / ".agent").mkdir(exist_ok=True)
    save(grounds, plan_of(command_step(COMMANDS[declared])))
    before = predicted(acode)
    save(grounds / ".agent", f"resume: {{{setting}}}\n", "config.yml")
    expected = predicted(acode)
    running = acode.process("run", "plan.yml")
    running.wait_for_line("nowready")
    running.kill_everything()
    assert settled(acode) == expected != before


def test_a_gate_is_asked_again_as_the_check_has_said(acode: Acode, grounds: Path) -> None:
    save(grounds, plan_of("approve: Go?"))
    assert predicted(acode) == "ask"
    assert acode("run", "plan.yml").exit_code == 10
    assert acode("resume", "--last", "--dry-run", "--json").json["needs_human"] is True


def test_the_table_names_the_way_and_the_reason_of_every_step(acode: Acode, grounds: Path) -> None:
    steps = ["read: in.txt", f"run: {WAITS}", "run: make\n        outputs: [a]", "run: x\n        idempotent: true"]
    save(grounds, "tasks:\n  - id: t\n    steps:\n" + "".join(f"      - {step}\n" for step in steps))
    shown = acode("check", "plan.yml")
    assert shown.exit_code == 0
    rows = [line.split("  ") for line in shown.stdout.splitlines()]
    assert [tuple(filter(None, map(str.strip, row))) for row in rows] == [
        ("STEP", "IF THE MACHINE GOES DOWN IN IT", "BECAUSE"),
        ("t.1", "repeated", "a read changes nothing"),
        ("t.2", "asked", "no idempotent, no outputs and no probe"),
        ("t.3", "rolled back and repeated", "its outputs are its only effects"),
        ("t.4", "repeated", "it is declared idempotent"),
    ]
    assert "1 step would need a person" in shown.stderr


WRONG = """\
version: 2
tasks:
  - id: t
    steps:
      - read: nowhere.txt
      - sql: {database: app.db, file: missing.sql}
      - sql: {database: app.db, file: vacuum.sql}
      - run: make
        cwd: no/such
        outputs: [made.txt]
      - run: make
        cwd: link
        outputs: [made.txt]
      - commit: {message: m}
      - rum: x
"""


def test_all_errors_of_a_plan_and_of_what_it_names_are_reported_at_once(acode: Acode, grounds: Path) -> None:
    (grounds / "vacuum.sql").write_text("VACUUM;\n")
    os.symlink(grounds.parent, grounds / "link")
    save(grounds, WRONG)
    ended = acode("check", "plan.yml", env={"GIT_CEILING_DIRECTORIES": str(grounds.parent)})
    assert ended.exit_code == 2
    errors = [line for line in ended.stdout.splitlines() if not line.startswith("  ")]
    assert [line.split(": ", 2)[0] for line in errors] == [
        "plan.yml:1:10", "plan.yml:5:15", "plan.yml:6:39", "plan.yml:7:39", "plan.yml:9:14", "plan.yml:12:14",
        "plan.yml:14:17", "plan.yml:15:9",
    ]  # fmt: skip
    assert "missing.sql does not exist" in errors[2]
    assert "cannot be applied exactly once" in errors[3]
    assert "leads out of the workspace" in errors[5]
    assert "no working tree of a git repository" in errors[6]
    assert "8 errors" in ended.stderr
    told = acode("check", "plan.yml", "--json", env={"GIT_CEILING_DIRECTORIES": str(grounds.parent)})
    assert told.exit_code == 2 and told.json["ok"] is False
    assert [(one["line"], one["column"]) for one in told.json["errors"]][:2] == [(1, 10), (5, 15)]


def test_a_file_that_an_earlier_step_makes_is_not_missing(acode: Acode, grounds: Path) -> None:
    steps = [
        "write: {path: sub/new.sql, content: ''}",
        "sql: {database: app.db, file: sub/new.sql}",
        "run: make\n        cwd: sub\n        outputs: [built/**]",
        "read: built/a.txt",
    ]
    save(grounds, "tasks:\n  - id: t\n    steps:\n" + "".join(f"      - {step}\n" for step in steps))
    told = acode("check", "plan.yml", "--json")
    assert (told.exit_code, told.json["errors"], told.json["warnings"]) == (0, [], [])


def test_a_file_that_an_undeclared_command_may_make_is_a_warning(acode: Acode, grounds: Path) -> None:
    save(grounds, "tasks:\n  - id: t\n    steps:\n      - run: make\n      - read: made.txt\n")
    told = acode("check", "plan.yml", "--json")
    assert (told.exit_code, told.json["errors"]) == (0, [])
    assert [one["line"] for one in told.json["warnings"]] == [5]


def test_a_check_changes_nothing_and_runs_nothing(acode: Acode, grounds: Path) -> None:
    save(grounds, plan_of("run: touch ran.txt\n        probe: touch probed.txt"))
    before = sorted(path.relative_to(grounds) for path in grounds.rglob("*"))
    assert acode("check", "plan.yml").exit_code == 0
    assert sorted(path.relative_to(grounds) for path in grounds.rglob("*")) == before


def test_a_plan_is_checked_from_stdin_and_a_missing_file_is_refused(acode: Acode, grounds: Path) -> None:
    ended = acode("check", "-", stdin="tasks: []\n")
    assert ended.exit_code == 2 and ended.stdout.startswith("<stdin>:1:8: tasks: expected at least one task")
    assert acode("check", "nowhere.yml").exit_code == 2
    save(grounds, "x" * 300_000, "huge.yml")
    assert "is larger than" in acode("check", "huge.yml").stdout


def test_a_run_tells_all_errors_and_its_json_the_first_one(acode: Acode, grounds: Path) -> None:
    save(grounds, "titel: x\ntasks:\n- id: t\n  steps: [{rum: x}, {run: ''}]\n")
    ended = acode("run", "plan.yml")
    assert ended.exit_code == 2
    lines = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert [line.split(": ")[1] for line in lines] == ["plan.yml:1:1", "plan.yml:4:12", "plan.yml:4:27"]
    error = acode("run", "plan.yml", "--json").json["error"]
    assert error["message"].startswith("plan.yml:1:1: unknown key") and error["details"] == {
        "path": "plan.yml", "line": 1, "column": 1
    }  # fmt: skip


# Tasks at the same time.


def parallel(*tasks: str) -> str:
    return "title: t\nparallel: 2\ntasks:\n" + "".join(f"  - {one}\n" for one in tasks)


def warnings_of(acode: Acode, grounds: Path, text: str) -> list[str]:
    checked = acode("check", str(save(grounds, text)), "--json")
    assert checked.exit_code == 0, checked.stdout
    return [one["message"] for one in checked.json["warnings"]]


@pytest.mark.parametrize(
    "other", ["write: {path: out.txt, content: b}", "{run: x, outputs: [out.txt]}", "{run: x, outputs: ['*.txt']}"]
)
def test_two_tasks_that_change_one_path_at_the_same_time_are_a_warning(acode: Acode, grounds: Path, other: str) -> None:
    first = "{id: a, steps: [{write: {path: out.txt, content: a}}]}"
    step = other if other.startswith("{") else f"{{{other}}}"
    beside, after = f"{{id: b, needs: [], steps: [{step}]}}", f"{{id: b, needs: [a], steps: [{step}]}}"
    (told,) = warnings_of(acode, grounds, parallel(first, beside))
    assert "a.1 and b.1 both change out.txt, and may run at the same time" in told
    assert not any("both change" in one for one in warnings_of(acode, grounds, parallel(first, after)))


def test_parallel_without_two_independent_tasks_is_a_warning(acode: Acode, grounds: Path) -> None:
    tasks = "{id: a, steps: [{read: in.txt}]}", "{id: b, steps: [{read: in.txt}]}"
    (told,) = warnings_of(acode, grounds, parallel(*tasks))
    assert "parallel: 2 has no effect" in told


def test_a_file_that_only_a_task_beside_it_makes_is_missing(acode: Acode, grounds: Path) -> None:
    makes = "{id: a, steps: [{write: {path: new.txt, content: a}}]}"
    text = parallel(makes, "{id: b, needs: [], steps: [{read: new.txt}]}")
    checked = acode("check", str(save(grounds, text)), "--json")
    assert checked.exit_code == 2 and "new.txt does not exist" in checked.json["errors"][0]["message"]
    assert warnings_of(acode, grounds, text.replace("needs: []", "needs: [a]")) != []
