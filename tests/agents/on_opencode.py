"""opencode."""

from __future__ import annotations

from typing import Any

from tests.agents.client import INSTALLED, PINS, Place, pinned_version
from tests.agents.wanted_calls import WantedCall

PROGRAM = "opencode-linux-x64/bin/opencode"
NAME, PLUGIN = "opencode", "@opencode-ai/plugin"
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
    put_plugin_package(place)
    disabled = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return {f"OPENCODE_DISABLE_{name}": "1" for name in disabled}


def put_plugin_package(place: Place) -> None:
    """Where a plugin is configured, opencode fetches its package for plugins at its first start as long as it is not
    there: 20 seconds of processor time, and the network. It is there, as in a home that opencode was used in."""
    there = f".config/{NAME}"
    place.write(f"{there}/package.json", {"dependencies": {PLUGIN: pinned_version(NAME)}})
    place.write(f"{there}/package-lock.json", (PINS / NAME / "package-lock.json").read_text())
    packages = place.home / there / "node_modules"
    packages.mkdir()
    for package in (INSTALLED / NAME / "node_modules").iterdir():
        (packages / package.name).symlink_to(package)


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
