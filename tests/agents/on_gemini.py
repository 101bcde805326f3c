"""Gemini CLI."""

from __future__ import annotations

from typing import Any

from tests.agents.client import Place
from tests.agents.wanted_calls import WantedCall

PROGRAM = ".bin/gemini"
PROCESSES = ("node",)
WRITES = True
_PERMITTED = ["-m", "gemini-2.5-pro", "--yolo"]


def configure(place: Place) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    place.write(".gemini/settings.json", settings)
    return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": place.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def start(prompt: str) -> list[str]:
    return [*_PERMITTED, "-o", "json", "-p", prompt]


def resume(prompt: str) -> list[str]:
    return [*_PERMITTED, "-o", "json", "--resume", "latest", "-p", prompt]


def interactive(*, resumes: bool) -> list[str]:
    return [*_PERMITTED, *(["--resume", "latest"] if resumes else [])]


def arguments(call: WantedCall) -> tuple[str, dict[str, Any] | str]:
    if call.kind == "write":
        return "write_file", {"file_path": call.path, "content": call.text}
    return "run_shell_command", {"command": call.text, "description": "as asked"}
