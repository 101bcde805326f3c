"""stdout is data, stderr is talk: colours, signs, closed pipes, flags in both places, and errors nobody expected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.plans import GATE, THREE_TASKS, save
from tests.driver import Acode, Ended
from tests.variants import first_of


def command(*words: str, env: dict[str, str] | None = None, cwd: Path) -> Ended:
    """A real process, because encodings and closed pipes belong to one."""
    answer = subprocess.run(
        [sys.executable, "-m", "acode", *words],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Ended(exit_code=answer.returncode, stdout=answer.stdout.decode(), stderr=answer.stderr.decode())


@pytest.mark.parametrize(
    "words", [["--json", "status"], ["status", "--json"], ["session", "--json", "list"], ["--json", "session", "list"]]
)
def test_flags_count_before_and_after_the_command(acode: Acode, workspace: Path, words: list[str]) -> None:
    acode("run", save(workspace, THREE_TASKS))
    assert acode(*words).json
    elsewhere = workspace.parent
    assert acode("-C", str(workspace), *words, cwd=elsewhere).json
    assert acode(*words, "-C", str(workspace), cwd=elsewhere).json


def test_colours_are_used_only_where_they_are_wanted(acode: Acode, workspace: Path) -> None:
    plan = save(workspace, THREE_TASKS)
    assert "\x1b[" not in acode("run", plan).stderr
    assert "\x1b[31m" in acode("run", plan, "--new", env={"FORCE_COLOR": "1"}).stderr
    assert "\x1b[" not in acode("run", plan, "--new", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stderr
    assert "\x1b[" in acode("explain", env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b[" not in acode("explain", env={"FORCE_COLOR": "0"}).stdout


def test_an_ascii_terminal_gets_plain_signs_and_no_crash(workspace: Path) -> None:
    save(workspace, THREE_TASKS.replace("Add input validation", "Prüfung “neu”"))
    env = {"PYTHONIOENCODING": "ascii"}
    ended = command("run", "plan.yml", env=env, cwd=workspace)
    assert ended.exit_code == 1
    assert "  ok Task 1, Step 1: Write notes.txt" in ended.stderr
    assert "  x Task 2, Step 3" in ended.stderr
    assert 'Pr\\xfcfung "neu"' in ended.stderr
    assert command("explain", env=env, cwd=workspace).exit_code == 0
    assert json.loads(command("status", "--json", env=env, cwd=workspace).stdout)["title"]


def test_a_reader_that_has_gone_does_not_stop_the_work(workspace: Path) -> None:
    (workspace / "go.txt").write_text("go\n")
    save(workspace, THREE_TASKS)
    line = f"{sys.executable} -m acode run plan.yml --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    answer = subprocess.run(["bash", "-c", line], cwd=workspace, capture_output=True, text=True, check=False)
    first, status = answer.stdout.splitlines()
    assert json.loads(first)["event"] == "session_start"
    assert (status, answer.stderr) == ("0", "")
    assert (workspace / "end.txt").exists()


@pytest.mark.parametrize("words", first_of("session history --json", "session list --json", "explain", "config show"))
def test_a_closed_pipe_is_quiet(workspace: Path, words: str) -> None:
    save(workspace, THREE_TASKS)
    command("run", "plan.yml", cwd=workspace)
    line = f"{sys.executable} -m acode {words} | true; echo ${{PIPESTATUS[0]}}"
    answer = subprocess.run(["bash", "-c", line], cwd=workspace, capture_output=True, text=True, check=False)
    assert (answer.stdout, answer.stderr) == ("0\n", "")


def test_closed_streams_do_not_stop_the_work(workspace: Path) -> None:
    (workspace / "go.txt").write_text("go\n")
    save(workspace, THREE_TASKS)
    line = f"{sys.executable} -m acode run plan.yml >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], cwd=workspace, check=False).returncode == 0
    assert (workspace / "end.txt").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_json_lines_that_cannot_be_written_do_not_stop_the_work(workspace: Path) -> None:
    save(workspace, THREE_TASKS)
    (workspace / "go.txt").write_text("go\n")
    line = f"{sys.executable} -m acode run --json plan.yml > /dev/full"
    answer = subprocess.run(["bash", "-c", line], cwd=workspace, capture_output=True, text=True, check=False)
    assert answer.returncode == 1 and "the output cannot be written" in answer.stderr
    assert (workspace / "end.txt").exists()
    assert '"COMPLETED"' in command("session", "list", "--json", cwd=workspace).stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_data_that_cannot_be_written_is_an_error(workspace: Path) -> None:
    save(workspace, THREE_TASKS)
    command("run", "plan.yml", cwd=workspace)
    for words in ("explain", "session list", "session history --json"):
        line = f"{sys.executable} -m acode {words} > /dev/full"
        answer = subprocess.run(["bash", "-c", line], cwd=workspace, capture_output=True, text=True, check=False)
        assert answer.returncode == 1
        assert "Traceback" not in answer.stderr


@pytest.mark.req("FR-011c-062", "NFR-040b-29")
def test_an_exception_nobody_expected_is_one_sentence_and_a_traceback_in_the_log(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acode("run", save(workspace, THREE_TASKS))

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("acode.cli.status.look_at", broken)
    ended = acode("status")
    assert ended.exit_code == 1
    assert ended.stderr.startswith(
        "error: acode met something it did not expect: ZeroDivisionError: by nothing [ACODE-000]"
    )
    assert "Traceback" not in ended.stderr
    logged = [json.loads(line) for line in (workspace / ".agent" / "logs" / "acode.jsonl").read_text().splitlines()]
    crash = next(line for line in logged if line["event"] == "unexpected_error")
    assert "ZeroDivisionError: by nothing" in crash["traceback"] and crash["level"] == "critical"
    assert "Traceback" in acode("status", "-v").stderr
    assert acode("status", "--json").json["error"]["code"] == "ACODE-000"


def test_an_exception_in_the_middle_of_a_run_still_ends_the_json_lines(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("acode.engine.create.perform_all", broken)
    ended = acode("run", save(workspace, THREE_TASKS), "--json")
    end = ended.lines[-1]
    assert (ended.exit_code, end["event"], end["data"]["error"]["code"]) == (1, "session_end", "ACODE-000")
    assert ended.stderr.splitlines()[-1].startswith("To resume: acode resume ")


def test_help_is_there_for_every_command_and_says_more_than_its_name(acode: Acode) -> None:
    from acode.cli import app, config, key, session, sync

    groups = {"session": session, "config": config, "key": key, "sync": sync}
    tables = {"": app.COMMANDS, **{name: module.COMMANDS for name, module in groups.items()}}
    for group, table in tables.items():
        for name in table:
            shown = acode(*([group] if group else []), name, "--help")
            assert shown.exit_code == 0, name
            assert "Usage: acode" in shown.stdout and "--json" in shown.stdout


def test_without_a_command_help_is_shown_as_an_error(acode: Acode) -> None:
    ended = acode()
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "Commands:" in ended.stderr


@pytest.mark.parametrize("words", [["--json", "config"], ["--json", "sync"], ["--json"], ["key", "--json"]])
def test_a_program_that_names_no_command_gets_an_error_document(acode: Acode, words: list[str]) -> None:
    ended = acode(*words)
    assert (ended.exit_code, ended.json["error"]["code"]) == (2, "ACODE-CLI-001")


def test_the_version_is_one_line(acode: Acode) -> None:
    from acode import __version__

    assert acode("--version").stdout == f"acode {__version__}\n"


# The start.


HEAVY = frozenset({"rich", "ruamel", "ruamel.yaml", "structlog", "psutil", "asyncio", "logging", "psycopg"})
OF_WORKERS = frozenset(
    {"acode.engine.resume", "acode.engine.step", "acode.steps.run", "acode.log_file", "acode.notify"}
)
OF_OTHERS = frozenset({"acode.cli.foreign", "acode.formats.agent_memory", "acode.formats.arc", "acode.library"})


def modules_loaded_by(words: list[str], workspace: Path) -> tuple[str, set[str]]:
    """What a command printed and every module that its process had loaded at the end."""
    script = (
        "import sys; from acode.cli import main; code = main(sys.argv[1:]);"
        "print(*sorted(name for name in sys.modules), file=sys.stderr); sys.exit(code)"
    )
    line = [sys.executable, "-c", script, *words]
    answer = subprocess.run(line, cwd=workspace, capture_output=True, text=True, check=True)
    return answer.stdout, set(answer.stderr.split())


@pytest.mark.parametrize("words", first_of(["session", "list"], ["session", "list", "--json"]))
def test_a_list_in_a_pipe_loads_nothing_heavy(workspace: Path, words: list[str]) -> None:
    save(workspace, THREE_TASKS)
    command("run", "plan.yml", cwd=workspace)
    shown, loaded = modules_loaded_by(words, workspace)
    assert "Add input validation" in shown
    assert loaded & (HEAVY | OF_WORKERS | OF_OTHERS) == set()
    assert loaded & {"click", "subprocess", "acode.workspace", "acode.redact"} == set()


@pytest.mark.parametrize("words", first_of(["status"], ["explain"], ["explain", "--json"], ["resume", "--dry-run"]))
def test_a_look_at_a_session_loads_nothing_that_works_or_asks(workspace: Path, words: list[str]) -> None:
    save(workspace, GATE)
    command("run", "plan.yml", cwd=workspace)
    shown, loaded = modules_loaded_by(words, workspace)
    assert shown
    assert loaded & (HEAVY | OF_WORKERS | OF_OTHERS) == set()
    assert loaded & {"acode.cli.prompts", "acode.cli.progress", "acode.cli.follow_run"} == set()


@pytest.mark.parametrize("words", [["status"], ["status", "--json"]])
def test_ctrl_c_while_the_command_is_still_being_loaded_leaves_no_traceback(workspace: Path, words: list[str]) -> None:
    script = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'acode.cli.app': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from acode.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    line = [sys.executable, "-c", script, *words]
    answer = subprocess.run(line, cwd=workspace, capture_output=True, text=True, check=False)
    assert (answer.returncode, "Traceback" in answer.stderr) == (130, False)
    if "--json" in words:
        assert json.loads(answer.stdout)["error"]["code"] == "ACODE-CLI-003"
    else:
        assert answer.stderr == "\nerror: stopped before anything was done [ACODE-CLI-003]\n"


def test_importing_the_command_line_does_nothing() -> None:
    script = "import sys; before = set(sys.modules); import acode.cli; print(sorted(set(sys.modules) - before))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "['__future__', 'acode', 'acode.cli']"


# Documents.


def test_the_table_of_errors_is_made_from_the_classes() -> None:
    from acode.cli.errors_table import table

    written = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"
    assert written.read_text(encoding="utf-8") == table(), (
        "run: python -m acode.cli.errors_table > docs/reference/errors.md"
    )


def test_the_manual_page_is_made_from_the_commands() -> None:
    from acode.cli.man_page import page

    written = Path(__file__).resolve().parents[2] / "docs" / "man" / "acode.1"
    assert written.read_text(encoding="utf-8") == page(), "run: python -m acode.cli.man_page > docs/man/acode.1"
    for command in (".SS acode run", ".SS acode session watch", ".SS acode resume"):
        assert command in page()


def test_no_two_errors_share_a_code() -> None:
    from acode.errors import every_error

    codes = [cls.detail_code or cls.code for cls in every_error()]
    assert len(codes) == len(set(codes))
