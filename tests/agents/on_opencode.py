"""opencode."""

from __future__ import annotations

from typing import Any

from tests.agents.client import Place
from tests.agents.wanted_calls import WantedCall

PROGRAM = "opencode-linux-x64/bin/opencode"
PROCESSES = ("opencode",)
WRITES = True
_HEADLESS = ["run", "--format", "json", "-m", "scripted/scripted"]


def configure(place: Place) -> dict[str, str]:
    model = {"name": "scripted", "tool_call": True, "limit": {"context": 100000, "output": 8000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "dummy"},
        "models": {"scripted": model},
    }
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": False,
        "share": "disabled",
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "permission": {"*": "allow"},
        "provider": {"scripted": provider},
    }
    place.write(".config/opencode/opencode.json", settings)
    disabled = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return {f"OPENCODE_DISABLE_{name}": "1" for name in disabled}


def start(prompt: str) -> list[str]:
    return [*_HEADLESS, prompt]


def resume(prompt: str) -> list[str]:
    return [*_HEADLESS, "--continue", prompt]


def interactive(*, resumes: bool) -> list[str]:
    return ["--continue"] if resumes else []


def arguments(call: WantedCall) -> tuple[str, dict[str, Any] | str]:
    if call.kind == "write":
        return "write", {"filePath": call.path, "content": call.text}
    return "bash", {"command": call.text, "description": "as asked"}
