"""acode config, key, doctor and completion."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from tests.cli.plans import GATE, THREE_TASKS, save
from tests.driver import Acode


def configure(workspace: Path, text: str) -> None:
    (workspace / ".agent").mkdir(mode=0o700, exist_ok=True)
    (workspace / ".agent" / "config.yml").write_text(text)


def test_show_tells_every_setting_and_where_it_was_said(acode: Acode, workspace: Path) -> None:
    configure(workspace, "resume: {backup: true}\n")
    found = acode("config", "show", "--json", env={"ACODE_RESUME_MAX_RESUME_ATTEMPTS": "5"}).json
    assert (found["resume.backup"], found["resume.max_resume_attempts"], found["steps.timeout_seconds"]) == (
        True,
        5,
        600,
    )
    origins = acode("config", "show", "--origin", "--json", env={"ACODE_RESUME_MAX_RESUME_ATTEMPTS": "5"}).json
    assert origins["resume.backup"]["origin"].endswith("config.yml:1")
    assert origins["resume.max_resume_attempts"]["origin"] == "environment ACODE_RESUME_MAX_RESUME_ATTEMPTS"
    assert origins["steps.timeout_seconds"] == {"value": 600, "origin": "default"}
    assert "resume.backup" in acode("config", "show", "--origin").stdout


def test_a_password_in_a_setting_is_not_shown(acode: Acode) -> None:
    env = {"ACODE_POSTGRES_URL": "postgresql://me:s3cr3t-passw0rd@db.example/acode"}
    shown = acode("config", "show", env=env).stdout + acode("config", "show", "--json", env=env).stdout
    assert "s3cr3t-passw0rd" not in shown
    assert "postgresql://db.example/acode" in shown


@pytest.mark.req("FR-011c-042")
def test_a_session_is_not_resumed_under_a_configuration_with_a_mistake(acode: Acode, workspace: Path) -> None:
    assert acode("run", save(workspace, GATE)).exit_code == 10
    name = acode("session", "list", "--json").json[0]["short_id"]
    before = acode("session", "history", name, "--json").json
    acode("session", "approve", name)
    approved = acode("session", "history", name, "--json").json
    configure(workspace, "resume:\n  in_progress_strategy: sometimes\n")
    refused = acode("resume", name, "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (3, "ACODE-CFG-001")
    assert "config.yml:2" in refused.json["error"]["message"]
    configure(workspace, "resume:\n  in_progress_strategy: retry\n")
    assert len(approved) > len(before) and acode("session", "history", name, "--json").json == approved
    assert acode("resume", name, "--yes").exit_code == 0


@pytest.mark.parametrize("command", [["config", "check"], ["config", "show"], ["session", "list"], ["run", "plan.yml"]])
def test_a_mistake_in_the_configuration_has_file_line_and_suggestion(
    acode: Acode, workspace: Path, command: list[str]
) -> None:
    save(workspace, THREE_TASKS)
    configure(workspace, "resume:\n  enabld: true\n")
    ended = acode(*command)
    assert ended.exit_code == 3
    assert "config.yml:2" in ended.stderr and "enabled" in ended.stderr


def test_a_valid_configuration_is_said_to_be_one(acode: Acode) -> None:
    assert "The configuration is valid" in acode("config", "check").stdout
    assert acode("config", "check", "--json").json["ok"] is True


def test_a_variable_that_is_no_setting_is_warned_about(acode: Acode, workspace: Path) -> None:
    env = {"ACODE_RESUME_BACKUPS": "true"}
    assert "ACODE_RESUME_BACKUPS is no setting" in acode("config", "check", env=env).stderr
    assert "ACODE_RESUME_BACKUPS is no setting" in acode("run", save(workspace, THREE_TASKS), env=env).stderr


NOTIFY = "notify: {command: [touch, told]}\n"


def test_what_executes_waits_for_trust_and_the_wait_is_said(acode: Acode, workspace: Path) -> None:
    configure(workspace, NOTIFY)
    plan = save(workspace, THREE_TASKS)
    assert "is not trusted; not in effect: notify.command" in acode("run", plan).stderr
    trusted = acode("config", "trust")
    assert (trusted.exit_code, "In effect: notify.command" in trusted.stdout) == (0, True)
    assert "not trusted" not in acode("run", plan, "--new").stderr
    configure(workspace, NOTIFY + "# changed\n")
    assert "is not trusted" in acode("run", plan, "--new").stderr


def test_yes_trusts_and_looking_does_not_ask(acode: Acode, workspace: Path) -> None:
    configure(workspace, NOTIFY)
    plan = save(workspace, THREE_TASKS)
    assert "not trusted" not in acode("session", "list").stderr
    assert "not trusted" not in acode("run", plan, "--yes").stderr
    assert "not trusted" not in acode("run", plan, "--new").stderr


def test_nothing_to_trust_is_no_error(acode: Acode) -> None:
    ended = acode("config", "trust")
    assert (ended.exit_code, ended.stdout.startswith("Nothing to trust")) == (0, True)


# Keys.


def test_an_exported_key_verifies_a_workspace_elsewhere(acode: Acode, workspace: Path, tmp_path: Path) -> None:
    acode("run", save(workspace, THREE_TASKS))
    keys = acode("key", "export").stdout
    assert len(keys.strip()) == 64
    elsewhere = {"ACODE_HOME": str(tmp_path / "elsewhere")}
    assert acode("session", "verify", env=elsewhere).exit_code == 20
    assert acode("key", "import", "-", stdin=keys, env=elsewhere).exit_code == 0
    assert acode("session", "verify", env=elsewhere).exit_code == 0


def test_a_rotated_key_leaves_old_sessions_resumable(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, THREE_TASKS))
    made = acode("key", "rotate", "--json").json["key_id"]
    (workspace / "go.txt").write_text("go\n")
    assert acode("resume", "--last").exit_code == 0
    assert acode("session", "verify").exit_code == 0
    assert made in acode("doctor").stdout


@pytest.mark.parametrize("text", ["", "nonsense\n", "ab" * 31 + "\n", "zz" * 32 + "\n"])
def test_what_is_no_key_is_not_imported(acode: Acode, text: str) -> None:
    assert acode("key", "import", "-", stdin=text).exit_code == 20


def test_there_is_nothing_to_export_before_the_first_session(acode: Acode) -> None:
    assert acode("key", "export").exit_code == 20


# Doctor and completion.


def test_a_healthy_machine_is_told_check_by_check(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, THREE_TASKS))
    found = acode("doctor", "--json")
    assert (found.exit_code, found.json["ok"]) == (0, True)
    names = {check["name"] for check in found.json["checks"]}
    assert names >= {
        "Python",
        "apsw",
        "SQLite",
        "file system",
        "locks",
        "permissions",
        "disk space",
        "signing key",
        "git",
    }
    assert all(line.startswith("✓") for line in acode("doctor").stdout.splitlines())


def test_a_file_system_without_locks_is_found(acode: Acode, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    ended = acode("doctor")
    assert ended.exit_code == 1 and "cannot be locked: No locks available" in ended.stdout


def test_files_that_others_can_read_are_found(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, THREE_TASKS))
    (workspace / ".agent" / "workspace.db").chmod(0o644)
    ended = acode("doctor")
    assert (ended.exit_code, "workspace.db (0644)" in ended.stdout) == (1, True)
    assert "chmod" in ended.stdout


def test_a_key_that_others_can_read_is_found(acode: Acode, workspace: Path, home: Path) -> None:
    acode("run", save(workspace, THREE_TASKS))
    key = home / "acode" / "keys"
    key.chmod(stat.S_IMODE(key.stat().st_mode) | 0o044)
    ended = acode("doctor")
    assert (ended.exit_code, "can be read by others" in ended.stdout) == (1, True)


def test_a_broken_configuration_and_database_do_not_stop_the_doctor(acode: Acode, workspace: Path) -> None:
    configure(workspace, "resume: {nonsense: 1}\n")
    (workspace / ".agent" / "workspace.db").write_bytes(b"this is no database, but it is long enough to be read" * 9)
    found = acode("doctor", "--json").json
    failed = {check["name"] for check in found["checks"] if not check["ok"]}
    assert failed >= {"configuration", "database"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_each_shell_gets_a_script_that_calls_acode(acode: Acode, shell: str) -> None:
    ended = acode("completion", shell)
    assert ended.exit_code == 0
    assert "_ACODE_COMPLETE" in ended.stdout


def test_an_unknown_shell_is_a_usage_error_with_the_known_ones(acode: Acode) -> None:
    ended = acode("completion", "cmd")
    assert ended.exit_code == 2
    assert "bash" in ended.stderr


@pytest.mark.parametrize("name", ["ACODE_HOME", "XDG_STATE_HOME", "HOME"])
def test_a_file_in_the_place_of_the_state_directory_is_an_error_with_a_way_out(
    acode: Acode, workspace: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").write_text("")
    env = {"HOME": str(tmp_path), "ACODE_HOME": "", "XDG_STATE_HOME": "", name: str(tmp_path / "file")}
    refused = acode("run", save(workspace, THREE_TASKS), env=env)
    assert refused.exit_code == 3 and "expected a directory for keys and anchors" in refused.stderr
    assert "set ACODE_HOME" in refused.stderr and not (workspace / ".agent").exists()


def test_telemetry_is_a_section_without_settings(acode: Acode, workspace: Path) -> None:
    for text in ("telemetry: {}\n", "telemetry:\n"):
        configure(workspace, text)
        assert acode("config", "check").exit_code == 0, text
    configure(workspace, "telemetry: {url: x}\n")
    refused = acode("config", "check")
    assert refused.exit_code == 3 and 'telemetry: unknown key "url"' in refused.stderr
