"""Qwen Code: JSON lines with `message.parts` in projects/<directory>/chats/<session>.jsonl.

A call in flight at its death is a `functionCall` without a `functionResponse`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acode.observed import tool_effects as tools
from acode.observed.call_tally import CallTally
from acode.observed.line_reader import LineFold, fold_file, session_of
from acode.observed.session import Effect, ObservedSession
from acode.observed.transcript import (
    Fields,
    Listing,
    config_above,
    decode,
    find_files,
    id_of,
    list_of,
    object_of,
    text_of,
    time_of,
)

TITLE: Final = "Qwen Code"
PROGRAMS: Final = ("qwen", "@qwen-code/qwen-code")

_READING = (
    "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content", "web_fetch",
    "web_search", "google_web_search", "todo_write",
)  # fmt: skip
TOOLS: Final = {
    **dict.fromkeys(_READING, tools.reads),
    "run_shell_command": tools.command("command", "directory"),
    "write_file": tools.write("file_path", "content"),
    "edit": tools.edit("file_path", "old_string", "new_string"),
    "replace": tools.edit("file_path", "old_string", "new_string"),
}


def config_directories(environment: Mapping[str, str]) -> tuple[Path, ...]:
    own = environment.get("QWEN_HOME")
    return (Path(own),) if own else (Path(environment.get("HOME") or "/") / ".qwen",)


def configuration_variable(config: Path) -> tuple[str, str]:
    return "QWEN_HOME", str(config)


def transcripts(config: Path) -> Listing:
    return find_files(config, "projects", "*", "chats", "*.jsonl")


def config_of(transcript: Path) -> Path | None:
    return config_above(transcript, "projects", "*", "chats")


def recognizes(head: bytes) -> bool:
    first = (decode(line) for line in head.split(b"\n")[:50])
    return any(one is not None and "sessionId" in one and "parts" in object_of(one.get("message")) for one in first)


def resume_command(session: ObservedSession) -> tuple[str, ...]:
    return ("qwen", "--resume", session.session_id)


def effects_of(tool: str, arguments: Fields) -> tuple[Effect, ...]:
    return tools.effects_from(TOOLS, tool, arguments)


def read(path: Path, config: Path | None, within: Path | None) -> Iterator[ObservedSession]:
    fold = _Fold(tally=CallTally(effects_of))
    counts = fold_file(path, fold, within)
    if counts is not None:
        yield session_of("qwen", path, config, fold, counts)


@dataclass(slots=True)
class _Fold(LineFold):
    def line(self, number: int, fields: Fields) -> None:
        self.session_id = self.session_id or id_of(fields.get("sessionId"))
        self.directory = self.directory or text_of(fields.get("cwd"))
        self.version = text_of(fields.get("version")) or self.version
        kind = text_of(fields.get("type"))
        if kind not in ("user", "assistant", "tool_result"):
            return
        at = time_of(fields.get("timestamp"))
        self.tally.messages += 1
        self.tally.moment(at)
        called, said = False, ""
        for part in map(object_of, list_of(object_of(fields.get("message")).get("parts"))):
            if "functionCall" in part:
                call, called = object_of(part["functionCall"]), True
                self.tally.call(call.get("id"), call.get("name"), object_of(call.get("args")), at=at, line=number)
            elif "functionResponse" in part:
                self.tally.result(object_of(part["functionResponse"]).get("id"))
            elif "thought" not in part:
                said += text_of(part.get("text"))
        if kind == "user":
            self.tally.prompt(said)
        elif kind == "assistant" and said and not called:
            self.tally.end_turn()
