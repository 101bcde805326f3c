"""Claude Code."""

from __future__ import annotations

import platform
from typing import Any

from tests.agents.client import Place
from tests.agents.wanted_calls import WantedCall

_MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PROGRAM = f"@anthropic-ai/claude-code-linux-{_MACHINE}/claude"
PROCESSES = ("claude",)
WRITES = True
_PERMITTED = ["--permission-mode", "acceptEdits", "--allowedTools", "Bash Write", "--model", "scripted"]
_HEADLESS = [*_PERMITTED, "--output-format", "stream-json", "--verbose"]


def configure(place: Place) -> dict[str, str]:
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    known = {"hasCompletedOnboarding": True, "theme": "dark", "projects": {str(place.workspace): trusted}}
    known["customApiKeyResponses"] = {"approved": ["dummy"], "rejected": []}
    place.write(".claude/.claude.json", known)
    return {
        "CLAUDE_CONFIG_DIR": str(place.home / ".claude"),
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def start(prompt: str) -> list[str]:
    return [*_HEADLESS, "-p", prompt]


def resume(prompt: str) -> list[str]:
    return [*_HEADLESS, "--continue", "-p", prompt]


def interactive(*, resumes: bool) -> list[str]:
    return [*_PERMITTED, *(["--continue"] if resumes else [])]


def arguments(call: WantedCall) -> tuple[str, dict[str, Any] | str]:
    if call.kind == "write":
        return "Write", {"file_path": call.path, "content": call.text}
    return "Bash", {"command": call.text, "description": "as asked"}
