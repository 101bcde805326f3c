"""Codex."""

from __future__ import annotations

import json
import platform
from typing import Any

from tests.agents.client import Place
from tests.agents.wanted_calls import WantedCall

_MACHINE = {"x86_64": ("x64", "x86_64"), "aarch64": ("arm64", "aarch64")}.get(platform.machine(), ("", ""))
PROGRAM = f"@openai/codex-linux-{_MACHINE[0]}/vendor/{_MACHINE[1]}-unknown-linux-musl/bin/codex"
PROCESSES = ("codex",)
WRITES = True  # it offers the scripted model no tool for it, and takes a patch out of a command and applies it itself
# Hooks that nobody has trusted are not run, in silence; a test has no person to trust them.
_TRUSTED = "--dangerously-bypass-hook-trust"


def configure(place: Place) -> dict[str, str]:
    settings = f"""model = "gpt-5.4"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.scripted]
name = "scripted"
base_url = "{place.url}/v1"
env_key = "SCRIPTED_API"
wire_api = "responses"

[projects.{json.dumps(str(place.workspace))}]
trust_level = "trusted"
"""
    place.write(".codex/config.toml", settings)
    return {"CODEX_HOME": str(place.home / ".codex"), "SCRIPTED_API": "dummy"}


def start(prompt: str) -> list[str]:
    return ["exec", _TRUSTED, "--json", "--skip-git-repo-check", prompt]


def resume(prompt: str) -> list[str]:
    return ["exec", _TRUSTED, "--json", "--skip-git-repo-check", "resume", "--last", prompt]


def interactive(*, resumes: bool) -> list[str]:
    return [*(["resume", "--last"] if resumes else []), _TRUSTED]


def arguments(call: WantedCall) -> tuple[str, dict[str, Any] | str]:
    if call.kind == "write":
        lines = "".join(f"+{line}\n" for line in call.text.splitlines())
        patch = f"*** Begin Patch\n*** Add File: {call.path}\n{lines}*** End Patch\n"
        return "exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF", "yield_time_ms": 20000}
    return "exec_command", {"cmd": call.text, "yield_time_ms": 20000}
