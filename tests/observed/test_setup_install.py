"""acode hook install and uninstall: an agent's settings get acode's and lose them again, and nothing else changes."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from acode.disk.replace_file import replace_file
from acode.errors import AgentSettingsUnusable, Usage
from acode.observed.setup import SETUPS, json_text
from acode.observed.setup.config_file import Scope, Where
from acode.observed.setup.install import Changes, install, uninstall
from acode.observed.setup.install_record import FILE_BYTES_MAX

AGENTS = sorted(SETUPS)


def where(scope: Scope = "user", **variables: str) -> Where:
    environment = {**os.environ, "SHELL": "/bin/bash", **variables}
    for name in ("BASH_ENV", "CLAUDE_CODE_SHELL_PREFIX", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        if name not in variables:
            environment.pop(name, None)
    return Where(scope=scope, project=Path(environment["HOME"]) / "project", environment=environment)


def home() -> Path:
    return Path(os.environ["HOME"])


def tree() -> dict[str, bytes | None]:
    """Every file and directory of the home, acode's own state excepted."""
    found: dict[str, bytes | None] = {}
    for path in home().rglob("*"):
        if not path.is_relative_to(home() / "acode"):
            found[str(path.relative_to(home()))] = path.read_bytes() if path.is_file() else None
    return found


def put(name: str, text: str) -> Path:
    path = home() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


CLAUDE_SETTINGS = {
    "nothing": "{}",
    "an empty file": "",
    "lines": '{\n  "model": "opus",\n  "permissions": {"allow": ["Bash(ls:*)"], "deny": []}\n}\n',
    "one line": '{"model": "opus", "env": {"A": "1"}}',
    "tabs and no newline": '{\n\t"env": {\n\t\t"A": "1"\n\t}\n}',
    "windows": '{\r\n  "model": "opus",\r\n  "env": {}\r\n}\r\n',
    "comments": '// mine\n{\n  /* why */ "model": "opus", // because\n  "hooks": {\n    // none yet\n  },\n}\n',
    "a trailing comma": '{\n  "model": "opus", // last\n}\n',
    "hooks of their own": json.dumps(
        {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./log"}]}]}}, indent=4
    ),
    "empty lists": '{\n  "hooks": {\n    "PreToolUse": [],\n    "Stop": [ ]\n  },\n  "env": { }\n}\n',
    "a prefix of their own": '{\n  "env": {"CLAUDE_CODE_SHELL_PREFIX": "/usr/bin/nice run", "B": "2"}\n}\n',
    "a byte order mark": '\ufeff{\n  "model": "opus"\n}\n',
    "text outside ASCII": '{\n  "Größe": "naïve 🙂"\n}\n',
}
CODEX_SETTINGS = {
    "an empty file": "",
    "top level": 'model = "gpt-5.4"  # mine\n',
    "no last newline": 'model = "gpt-5.4"\n[projects."/x"]\ntrust_level = "trusted"',
    "features": "[features]\nweb = true # yes\n\n[tui]\ntheme = 'dark'\n",
    "features inline": 'features = { web = true }\nmodel = "m"\n',
    "features off": "[features]\nhooks = false\n",
    "features dotted": "features.web = true\n",
    "a policy": '[shell_environment_policy]\ninherit = "core"\nset = { A = "1" }\n',
    "an empty set": "[shell_environment_policy]\nset = {}\n",
    "a set of its own": '[shell_environment_policy.set]\nA = "1"\n\n[tui]\n',
    "their BASH_ENV": '[shell_environment_policy]\nset = { BASH_ENV = "/home/you/env.sh", A = "1" }\n',
    "no sandbox": 'sandbox_mode = "danger-full-access"\n',
    "windows": 'model = "m"\r\n[features]\r\nweb = true\r\n',
    "array of tables": "[[servers]]\nname = 'a'\n\n[[servers]]\nname = 'b'\n",
}
GEMINI_ENV = {
    "an empty file": "",
    "a key": "# mine\nGEMINI_API_KEY='abc'\n",
    "no last newline": "A=1",
    "their BASH_ENV": 'export BASH_ENV="/home/you/my env.sh"\nA=1\n',
    "windows": "A=1\r\nB=2\r\n",
}
OPENCODE_SETTINGS = {
    "nothing": "{}",
    "lines": '{\n  "$schema": "https://opencode.ai/config.json",\n  "model": "a/b"\n}\n',
    "their shell": '{\n  "shell": "/usr/bin/zsh", // mine\n  "model": "a/b"\n}\n',
}
CASES = [
    *(("claude", ".claude/settings.json", text) for text in CLAUDE_SETTINGS.values()),
    *(("codex", ".codex/config.toml", text) for text in CODEX_SETTINGS.values()),
    *(("gemini", ".gemini/settings.json", text) for text in CLAUDE_SETTINGS.values()),
    *(("gemini", ".gemini/.env", text) for text in GEMINI_ENV.values()),
    *(("opencode", ".config/opencode/opencode.jsonc", text) for text in OPENCODE_SETTINGS.values()),
]


@pytest.mark.parametrize(("agent", "name", "text"), CASES)
def test_uninstall_leaves_every_byte_as_it_was_before_install(agent: str, name: str, text: str) -> None:
    put(name, text)
    before = tree()
    assert install(agent, where(), front=True).written
    assert tree() != before
    uninstall(agent, where())
    assert tree() == before


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("agent", AGENTS)
def test_uninstall_removes_the_files_and_directories_that_install_made(agent: str, scope: Scope) -> None:
    (home() / "project").mkdir()
    before = tree()
    install(agent, where(scope), front=True)
    uninstall(agent, where(scope))
    assert tree() == before


@pytest.mark.parametrize(("agent", "name", "text"), CASES)
def test_a_second_install_changes_nothing(agent: str, name: str, text: str) -> None:
    put(name, text)
    install(agent, where(), front=True)
    before = tree()
    assert install(agent, where(), front=True).written == ()
    assert tree() == before


@pytest.mark.parametrize(("agent", "name", "text"), CASES)
def test_install_changes_nothing_else_in_the_settings(agent: str, name: str, text: str) -> None:
    path = put(name, text)
    install(agent, where(), front=True)
    before, after = parsed(name, text), parsed(name, path.read_bytes().decode())
    assert without_ours(after) == without_ours(before)
    for line in text.splitlines():
        comment = line.partition("//")[2]
        assert not comment or comment in path.read_bytes().decode()


def parsed(name: str, text: str) -> Any:
    if name.endswith(".toml"):
        return tomllib.loads(text)
    if name.endswith(".env"):
        return dict(line.removeprefix("export ").split("=", 1) for line in text.splitlines() if "=" in line)
    return json_text.parse(text).data if text.strip() else {}


def without_ours(settings: Any) -> Any:
    """What is left when acode's settings, and what they replaced, are left out."""
    if isinstance(settings, dict):
        ours = ("CLAUDE_CODE_SHELL_PREFIX", "ACODE_SHELL_PREFIX", "BASH_ENV", "ACODE_BASH_ENV", "SHLVL", "shell")
        kept = {key: without_ours(value) for key, value in settings.items() if key not in ours}
        kept.pop("hooks", None) if isinstance(settings.get("hooks"), bool) else None
        return {key: value for key, value in kept.items() if value not in ({}, [])}
    if isinstance(settings, list):
        return [without_ours(one) for one in settings if "/doors/hook" not in json.dumps(one)]
    return settings


@pytest.mark.parametrize("act", ["install", "uninstall"])
@pytest.mark.parametrize("agent", AGENTS)
def test_stopped_before_any_file_each_is_as_before_or_as_after_and_the_same_command_completes_it(
    agent: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, change = CHANGES[agent]
    put(name, change(""))
    perform = {"install": lambda: install(agent, where(), front=True), "uninstall": lambda: uninstall(agent, where())}
    before = tree()
    install(agent, where(), front=True)
    after = tree()
    if act == "install":
        uninstall(agent, where())
    else:
        before, after = after, before
    for written in range(2):
        with monkeypatch.context() as patch:
            patch.setattr("acode.observed.setup.install.replace_file", stopping_after(written))
            with suppress(Stopped):
                perform[act]()
        now = tree()
        assert all(now.get(path) in (before.get(path), after.get(path)) for path in {*before, *after, *now})
    perform[act]()
    assert tree() == after


class Stopped(BaseException):
    pass


def stopping_after(count: int) -> Callable[[Path, bytes], None]:
    left = [count]

    def write(path: Path, data: bytes) -> None:
        if not left[0]:
            raise Stopped
        left[0] -= 1
        replace_file(path, data)

    return write


# What the user has set up themselves.


def test_a_prefix_of_the_user_runs_behind_the_front() -> None:
    path = put(".claude/settings.json", CLAUDE_SETTINGS["a prefix of their own"])
    install("claude", where(), front=True)
    env = json.loads(path.read_text())["env"]
    assert env["ACODE_SHELL_PREFIX"] == "/usr/bin/nice run" and env["CLAUDE_CODE_SHELL_PREFIX"].endswith("/doors/front")


def test_an_exported_prefix_runs_behind_the_front() -> None:
    install("claude", where(CLAUDE_CODE_SHELL_PREFIX="/bin/theirs"), front=True)
    assert json.loads((home() / ".claude/settings.json").read_text())["env"]["ACODE_SHELL_PREFIX"] == "/bin/theirs"


@pytest.mark.parametrize("exported", [True, False])
def test_a_bash_env_of_the_user_is_kept_for_codex(exported: bool) -> None:
    if not exported:
        put(".codex/config.toml", CODEX_SETTINGS["their BASH_ENV"])
    install("codex", where(BASH_ENV="/home/you/env.sh") if exported else where(), front=True)
    found = tomllib.loads((home() / ".codex/config.toml").read_text())["shell_environment_policy"]["set"]
    assert found["ACODE_BASH_ENV"] == "/home/you/env.sh" and found["BASH_ENV"].endswith("/doors/bash_env.sh")


def test_a_shell_of_the_user_is_kept_for_opencode_also_after_other_changes() -> None:
    path = put(".config/opencode/opencode.json", '{\n  "shell": "/usr/bin/zsh"\n}\n')
    install("opencode", where(), front=True)
    assert json.loads(path.read_text())["shell"].endswith("/doors/shells/zsh")
    path.write_text(json_text.set_member(path.read_text(), ["model"], "a/b"))
    assert uninstall("opencode", where()).left == (path,)
    assert json.loads(path.read_text()) == {"model": "a/b", "shell": "/usr/bin/zsh"}


CHANGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "claude": (".claude/settings.json", lambda text: json_text.set_member(text, ["model"], "opus")),
    "codex": (".codex/config.toml", lambda text: 'model = "m"\n' + text),
    "gemini": (".gemini/settings.json", lambda text: json_text.set_member(text, ["theme"], "dark")),
    "opencode": (".config/opencode/opencode.json", lambda text: json_text.set_member(text, ["model"], "a/b")),
}


@pytest.mark.parametrize("agent", AGENTS)
def test_uninstall_takes_out_its_own_settings_only_when_the_user_has_changed_others(agent: str) -> None:
    name, change = CHANGES[agent]
    install(agent, where(), front=True)
    path = home() / name
    path.write_text(change(path.read_text()))
    assert uninstall(agent, where()).left == (path,)
    assert "doors" not in path.read_text()
    assert without_ours(parsed(name, path.read_text())) == without_ours(parsed(name, change("")))


def installed_record(agent: str) -> Path:
    (found,) = (home() / "acode").rglob(f"installed/{agent}-*.json")
    return found


def test_a_record_that_the_disk_does_not_give_now_leaves_everything_as_it_is() -> None:
    """By looks alone the user's own values would not come back, and with the record removed they never would."""
    put(".codex/config.toml", CODEX_SETTINGS["features off"])
    install("codex", where(), front=True)
    record, before = installed_record("codex"), tree()
    kept = record.rename(record.with_suffix(".kept"))
    record.mkdir()
    with pytest.raises(AgentSettingsUnusable, match="cannot be read"):
        uninstall("codex", where())
    assert tree() == before
    record.rmdir()
    kept.rename(record)
    uninstall("codex", where())
    assert (home() / ".codex/config.toml").read_text() == CODEX_SETTINGS["features off"]


def test_programs_that_another_agent_uses_stay_while_its_record_is_damaged() -> None:
    install("claude", where(), front=True)
    install("codex", where(), front=True)
    installed_record("codex").write_bytes(b"{")
    uninstall("claude", where())
    assert list((home() / "acode").rglob("doors/hook")), "codex is still told to call it"
    uninstall("codex", where())
    assert not list((home() / "acode").rglob("doors/hook"))


def test_settings_stay_behind_a_link_and_keep_their_mode() -> None:
    target = put("dotfiles/claude.json", '{\n  "model": "opus"\n}\n')
    target.chmod(0o640)
    link = home() / ".claude/settings.json"
    link.parent.mkdir()
    link.symlink_to(target)
    install("claude", where(), front=True)
    assert link.is_symlink() and "/doors/hook" in target.read_text() and target.stat().st_mode & 0o777 == 0o640


def test_hooks_without_a_front_write_none_of_its_settings() -> None:
    for agent in AGENTS:
        install(agent, where(), front=False)
    assert not [name for name, data in tree().items() if data and (b"doors/front" in data or b"bash_env" in data)]


# What cannot be changed.


@pytest.mark.parametrize(
    ("agent", "name", "text"),
    [
        ("claude", ".claude/settings.json", '{"model": '),
        ("claude", ".claude/settings.json", '["a list"]'),
        ("claude", ".claude/settings.json", '{"hooks": "none"}'),
        ("claude", ".claude/settings.json", '{"env": []}'),
        ("claude", ".claude/settings.json", "[" * 100_000),
        ("gemini", ".gemini/settings.json", "{'single': 1}"),
        ("codex", ".codex/config.toml", "model = \n"),
        ("codex", ".codex/config.toml", 'features = "all"\n'),
        ("codex", ".codex/hooks.json", "not json"),
        ("opencode", ".config/opencode/plugin/acode.js", "export const Mine = 1\n"),
    ],
)
def test_settings_that_cannot_be_changed_safely_leave_every_file_as_it_was(agent: str, name: str, text: str) -> None:
    put(name, text)
    before = tree()
    with pytest.raises(AgentSettingsUnusable):
        install(agent, where(), front=True)
    assert tree() == before


def test_a_huge_or_unreadable_file_is_refused() -> None:
    path = put(".claude/settings.json", "")
    path.write_bytes(b" " * (FILE_BYTES_MAX + 1))
    with pytest.raises(AgentSettingsUnusable, match="larger than 16 MiB"):
        install("claude", where(), front=True)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(AgentSettingsUnusable, match="not UTF-8"):
        install("claude", where(), front=True)


def test_an_agent_is_set_up_in_one_place_only() -> None:
    install("claude", where(), front=True)
    with pytest.raises(Usage, match="set up already"):
        install("claude", where("project"), front=True)
    uninstall("claude", where())
    assert isinstance(install("claude", where("project"), front=True), Changes)
