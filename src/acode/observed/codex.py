"""Codex: JSON lines `{timestamp, type, payload}` in sessions/<year>/<month>/<day>/rollout-*.jsonl.

A call in flight at its death is a `function_call` without a `function_call_output`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
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

TITLE: Final = "Codex"
PROGRAMS: Final = ("codex", "@openai/codex")

TOOLS: Final = {
    **dict.fromkeys(("update_plan", "view_image", "list_dir", "read_file", "grep_files"), tools.reads),
    "exec_command": tools.command("cmd", "workdir"),
    "shell": tools.command("command", "workdir"),
    "shell_command": tools.command("command", "workdir"),
    "local_shell_call": tools.command("command", "working_directory"),
    "apply_patch": tools.patch("input"),
}


def config_directories(environment: Mapping[str, str]) -> tuple[Path, ...]:
    own = environment.get("CODEX_HOME")
    return (Path(own),) if own else (Path(environment.get("HOME") or "/") / ".codex",)


def configuration_variable(config: Path) -> tuple[str, str]:
    return "CODEX_HOME", str(config)


def transcripts(config: Path) -> Listing:
    return find_files(config, "sessions", "*", "*", "*", "rollout-*.jsonl")


def config_of(transcript: Path) -> Path | None:
    return config_above(transcript, "sessions", "*", "*", "*")


def recognizes(head: bytes) -> bool:
    if head.lstrip()[:1] == b"{" and b'"session_meta"' in head.split(b"\n", 1)[0]:
        return True
    first = decode(head.split(b"\n", 1)[0])
    return first is not None and {"timestamp", "type", "payload"} <= first.keys()


def resume_command(session: ObservedSession) -> tuple[str, ...]:
    return ("codex", "resume", session.session_id)


def effects_of(tool: str, arguments: Fields) -> tuple[Effect, ...]:
    return tools.effects_from(TOOLS, tool, arguments)


def read(path: Path, config: Path | None, within: Path | None) -> Iterator[ObservedSession]:
    fold = _Fold(tally=CallTally(effects_of))
    counts = fold_file(path, fold, within)
    if counts is not None:
        yield session_of("codex", path, config, fold, counts)


@dataclass(slots=True)
class _Fold(LineFold):
    says_turns: bool = False  # newer versions note the beginning and the end of a turn; older ones only messages

    def line(self, number: int, fields: Fields) -> None:
        kind, payload = text_of(fields.get("type")), object_of(fields.get("payload"))
        at = time_of(fields.get("timestamp"))
        if kind == "session_meta":
            self.session_id = self.session_id or id_of(payload.get("id")) or id_of(payload.get("session_id"))
            self.directory = self.directory or text_of(payload.get("cwd"))
            self.version = text_of(payload.get("cli_version")) or self.version
        elif kind == "event_msg":
            self._event(text_of(payload.get("type")), at)
        elif kind == "response_item":
            self.tally.messages += 1
            self.tally.moment(at)
            self._item(text_of(payload.get("type")), payload, at, number)

    def _event(self, kind: str, at: datetime | None) -> None:
        if kind == "task_started":
            self.says_turns = True
            self.tally.prompt("")
        elif kind in ("task_complete", "turn_aborted"):
            self.says_turns = True
            self.tally.moment(at)
            self.tally.abandon()
            self.tally.end_turn()

    def _item(self, kind: str, payload: Fields, at: datetime | None, number: int) -> None:
        call_id = payload.get("call_id")
        if kind == "function_call":
            arguments = tools.arguments_in(payload.get("arguments"))
            self.tally.call(call_id, payload.get("name"), arguments, at=at, line=number)
        elif kind == "custom_tool_call":
            self.tally.call(call_id, payload.get("name"), payload, at=at, line=number)
        elif kind == "local_shell_call":
            arguments = object_of(payload.get("action"))
            self.tally.call(call_id, payload.get("type"), arguments, at=at, line=number)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self.tally.result(call_id)
        elif kind == "message":
            self._message(payload)

    def _message(self, payload: Fields) -> None:
        role = text_of(payload.get("role"))
        text = " ".join(text_of(object_of(raw).get("text")) for raw in list_of(payload.get("content")))
        if role == "user" and not text.lstrip().startswith("<"):  # what begins so is the client's own context
            self.tally.prompt(text)
        elif role == "assistant" and not self.says_turns:
            self.tally.end_turn()
