"""Every command in the README and the documentation: executed, or named with the reason why it is not."""

from __future__ import annotations

import ast
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from acode.cli.app import root
from dev import ROOT
from tests.cli.plans import GATE, save
from tests.documented_commands import TREATED, Elsewhere, Executed, Parsed, commands_of, pages, treatment_of
from tests.driver import Acode, Ended
from tests.foreign import put_arc, put_memory
from tests.machines import Machine, url_of
from tests.terminals import Terminal, ended, terminal

__all__ = ["terminal"]

NAMES = [page.relative_to(ROOT).as_posix() for page in pages()]
COMMANDS = [(name, command) for name, page in zip(NAMES, pages(), strict=True) for command in commands_of(page)]
SHELL_SIGNS = re.compile(r"[|&;<>()$`*]|^\w+=")
WELL = "title: Well\ntasks: [{title: t, steps: [{run: 'true', idempotent: true}]}]\n"
DEPLOY = """\
title: Release
tasks:
  - id: build
    steps: [{write: {path: built.txt, content: "built\\n"}}]
  - id: ship
    steps:
      - run: echo begun; test -e ../go || sleep 600
        id: deploy
"""


class Scene:
    """A reader's machine: a workspace in which the commands of one page make sense."""

    def __init__(self, call: Callable[..., Ended], workspace: Path, env: dict[str, str] | None = None) -> None:
        self.call = call
        self.workspace = workspace
        self.env = env or {}
        self.named: dict[str, str] = {}  # what the page calls it, and what it is called here
        self.before: dict[str, Callable[[], None]] = {}

    def execute(self, command: str) -> Ended:
        for shown, real in self.named.items():
            command = command.replace(shown, real)
        if command.startswith("acode ") and not SHELL_SIGNS.search(command):
            return self.call(*shlex.split(command)[1:])
        line = command.removeprefix("*/10 * * * * ")  # cron's own part
        programs = self.workspace.parent / "programs"
        if not programs.exists():
            programs.mkdir()
            program = programs / "acode"
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m acode "$@"\n')
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        env = {**os.environ, **self.env, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=self.workspace, env=env, check=False, text=True, capture_output=True
        )
        return Ended(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def last_session(self) -> str:
        return str(self.call("session", "list", "--all", "--json").json[0]["short_id"])


# The scenes, each by the page that it belongs to.


def readme(acode: Acode, scene: Scene) -> None:
    (plan,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    save(scene.workspace, plan.replace("make dist", "mkdir -p dist && echo 2.4 > dist/version"), "release.yml")
    save(scene.workspace, "#!/bin/sh\ncp dist/version deployed\n", "deploy.sh").chmod(0o755)
    (scene.workspace / "migrations").mkdir()
    save(scene.workspace / "migrations", "CREATE TABLE migrated (n INTEGER);\n", "003.sql")
    os.environ["DATABASE_URL"] = "app.db"
    scene.before["acode resume"] = lambda: agree(scene)


def agree(scene: Scene) -> None:
    assert scene.call("session", "approve", scene.last_session()).exit_code == 0


def completed(acode: Acode, scene: Scene) -> None:
    assert acode("run", save(scene.workspace, WELL)).exit_code == 0
    scene.named = dict.fromkeys(("04eb5521", " ID "), scene.last_session()) | {" ID ": f" {scene.last_session()} "}


def corrected(acode: Acode, scene: Scene) -> None:
    wrong = WELL.replace("'true'", "'exit 3'")
    assert acode("run", save(scene.workspace, wrong)).exit_code == 1
    save(scene.workspace, WELL)
    scene.named = {"abe95e86": scene.last_session()}


def killed(acode: Acode, scene: Scene) -> None:
    """A step whose outcome nobody knows; each answer gets one of its own."""
    kill_in_deploy(acode, scene)
    resolve = "acode session resolve abe95e86 ship.deploy"
    for command in (f"{resolve} --not-applied", f"{resolve} --retry"):
        scene.before[command] = lambda: kill_in_deploy(acode, scene)
    scene.before["acode resume abe95e86"] = (scene.workspace.parent / "go").touch


def kill_in_deploy(acode: Acode, scene: Scene) -> None:
    running = acode.process("run", "--new", save(scene.workspace, DEPLOY))
    running.wait_for_line("│ begun")
    running.kill_everything()
    (line,) = [one for one in acode("session", "list", "--json").json if one["attention"] in ("crashed", "resolve")][:1]
    scene.named = {"abe95e86": line["short_id"]}


def foreign(acode: Acode, scene: Scene) -> None:
    put_arc(scene.workspace)
    put_memory(scene.workspace, approved=False)


def ready_plan(acode: Acode, scene: Scene) -> None:
    save(scene.workspace, WELL)
    scene.named = {"/data": os.fspath(scene.workspace), "/home/you/job": os.fspath(scene.workspace)}


def shared(acode: Acode, scene: Scene) -> None:
    save(scene.workspace, GATE)
    known = (name for name in commands_of(ROOT / "docs/guide/shared-history.md") if "47db5f53" in name)
    for command in known:
        scene.before[command] = lambda: scene.named.update({"47db5f53": scene.last_session()})


def nothing(acode: Acode, scene: Scene) -> None:
    """The page's commands need nothing."""


SCENES: dict[str, Callable[[Acode, Scene], None]] = {
    "README.md": readme,
    "docs/guide/foreign-runs.md": foreign,
    "docs/guide/install.md": nothing,
    "docs/guide/observed-agents.md": nothing,
    "docs/guide/page.md": completed,
    "docs/guide/plans.md": corrected,
    "docs/guide/recipes.md": ready_plan,
    "docs/guide/shared-history.md": shared,
    "docs/guide/when-it-stops.md": killed,
    "docs/reference/keys.md": completed,
}


@pytest.fixture
def scene(request: pytest.FixtureRequest, acode: Acode, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("DATABASE_URL", "")
    if request.node.callspec.params["page"] != "docs/guide/shared-history.md":
        return Scene(acode, acode.workspace)
    place = acode.workspace.parent / "machine"
    machine = Machine(place, url_of(request.getfixturevalue("database")), secret=None)
    return Scene(machine, machine.workspace, machine.env)


@pytest.mark.parametrize("page", SCENES)
def test_the_commands_of_a_page_do_what_it_says(page: str, acode: Acode, scene: Scene, terminal: Terminal) -> None:
    SCENES[page](acode, scene)
    for command in commands_of(ROOT / page):
        how = treatment_of(page, command)
        if not isinstance(how, Executed):
            continue
        scene.before.get(command, str)()
        if how.answer is not None:
            question, answer = how.answer
            child = terminal(*shlex.split(command)[1:])
            child.expect_exact(question)
            child.sendline(answer)
            assert ended(child) == how.status, command
            continue
        done = scene.execute(command)
        assert done.exit_code == how.status, f"{command}\n{done.stdout}{done.stderr}"


# The table.


def test_every_command_is_executed_or_named_with_the_reason_why_not() -> None:
    wrong = {f"{page}: {command}": problem_with(page, command) for page, command in COMMANDS}
    assert len(wrong) > 100
    assert {line: problem for line, problem in wrong.items() if problem is not None} == {}


def problem_with(page: str, command: str) -> str | None:
    match treatment_of(page, command):
        case None:
            return "in no row of tests/documented_commands.py"
        case Executed() if page not in SCENES:
            return "its page has no scene"
        case Elsewhere(test=named) if not is_a_test(named):
            return f"there is no test {named}"
        case Parsed(reason=""):
            return "no reason is given"
    return complaint(command)


def test_no_row_of_the_table_is_left_over() -> None:
    assert {(page, command) for page, rows in TREATED.items() for command in rows} - set(COMMANDS) == set()
    assert set(SCENES) <= set(NAMES)


def test_a_command_that_nobody_has_seen_is_found() -> None:
    assert problem_with("README.md", "acode resume --auto") == "in no row of tests/documented_commands.py"
    assert complaint("acode resume --nosuch") is not None and complaint("acode session mend ID") is not None
    assert complaint("python3 dev.py nosuch") is not None
    assert not is_a_test("tests/test_documented_commands.py::test_of_another_name")


def is_a_test(named: str) -> bool:
    path, _, function = named.partition("::")
    if not (ROOT / path).is_file():
        return False
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    return any(isinstance(one, ast.FunctionDef) and one.name == function for one in body)


def complaint(command: str) -> str | None:
    """What is wrong with the words of an acode or dev.py command in this line, as far as parsing can tell."""
    if found := re.search(r"^(?:\w+=\S+ )?python3 dev\.py (\w+)", command):
        known = f'"{found[1]}": {found[1]}' in (ROOT / "dev.py").read_text(encoding="utf-8")
        return None if known else f"dev.py has no {found[1]}"
    found = re.search(r"(?:^|&& |; )(?:\w+=\S+ )?acode ([^;>)]+)", command)
    if found is None:
        return None
    try:
        parse(shlex.split(found[1]))
    except click.ClickException as problem:
        said = problem.format_message()
        return None if "No such file" in said or "does not exist" in said else said  # a file of the reader's
    return None


def parse(words: list[str]) -> None:
    """As the command line does, without executing anything."""
    name, command, context = "acode", root(), None
    while command is not None:
        context = command.make_context(name, words, parent=context)
        words = [*getattr(context, "_protected_args", ()), *context.args]
        if not isinstance(command, click.Group) or not words:
            return
        name, command, words = command.resolve_command(context, words)  # type: ignore[assignment]
