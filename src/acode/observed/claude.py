"""Claude Code: JSON lines in projects/<directory>/<session>.jsonl, and sessions/<pid>.json for its processes.

A call in flight at its death is a `tool_use` without a `tool_result`. A resumed session continues in the same file from
before that call, so a later prompt means that the call was given up. Helpers have files of their own below the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from acode.observed import tool_effects as tools
from acode.observed.call_tally import CALLS_MAX, CallTally
from acode.observed.line_reader import LineFold, fold_file, session_of
from acode.observed.session import CallInFlight, Effect, ObservedSession, RecordedProcess
from acode.observed.transcript import (
    Fields,
    Listing,
    config_above,
    decode,
    find_files,
    id_of,
    is_text,
    is_true,
    list_of,
    number_of,
    object_of,
    read_head,
    text_of,
    time_of,
)

TITLE: Final = "Claude Code"
PROGRAMS: Final = ("claude", "@anthropic-ai/claude-code")
SUBAGENTS_MAX: Final = 32
PROCESS_FILES_MAX: Final = 1000

_reads = dict.fromkeys(
    ("Read", "Glob", "Grep", "LS", "WebFetch", "WebSearch", "TodoWrite", "TodoRead", "NotebookRead", "TaskOutput"),
    tools.reads,
)
TOOLS: Final = {
    **_reads,
    "Bash": tools.command("command"),
    "Write": tools.write("file_path", "content"),
    "Edit": tools.edit("file_path", "old_string", "new_string"),
    "NotebookEdit": tools.changes("notebook_path"),
    "MultiEdit": tools.several_edits("file_path", "edits", "old_string", "new_string"),
}
# Lines of the role `user` that no person wrote: what a slash command printed.
_LOCAL = ("<command-name>", "<local-command-", "<command-message>", "<bash-")
_INTERRUPTED = "[Request interrupted by user"


def config_directories(environment: Mapping[str, str]) -> tuple[Path, ...]:
    own = environment.get("CLAUDE_CONFIG_DIR")
    return (Path(own),) if own else (Path(environment.get("HOME") or "/") / ".claude",)


def configuration_variable(config: Path) -> tuple[str, str]:
    return "CLAUDE_CONFIG_DIR", str(config)


def transcripts(config: Path) -> Listing:
    return find_files(config, "projects", "*", "*.jsonl")


def config_of(transcript: Path) -> Path | None:
    return config_above(transcript, "projects", "*")


def recognizes(head: bytes) -> bool:
    first = _first_objects(head)
    return any(
        "sessionId" in one and ("parentUuid" in one or "operation" in one or "leafUuid" in one) for one in first
    ) and not any("parts" in object_of(one.get("message")) for one in first)


def _first_objects(head: bytes) -> list[Fields]:
    return [one for line in head.split(b"\n")[:50] if (one := decode(line)) is not None]


def resume_command(session: ObservedSession) -> tuple[str, ...]:
    return ("claude", "--resume", session.session_id)


def effects_of(tool: str, arguments: Fields) -> tuple[Effect, ...]:
    return tools.effects_from(TOOLS, tool, arguments)


def read(path: Path, config: Path | None, within: Path | None) -> Iterator[ObservedSession]:
    fold = _Fold(tally=CallTally(effects_of))
    counts = fold_file(path, fold, within)
    if counts is None:
        return
    found = session_of(
        "claude", path, config, fold, counts, process=_process(config, fold.session_id) if config is not None else None
    )
    if found.ending == "in_flight":
        found = replace(found, calls=(*found.calls, *_subagent_calls(path))[:CALLS_MAX])
    yield found


@dataclass(slots=True)
class _Fold(LineFold):
    sidechain: bool = False  # a helper's own transcript: every line of it is marked so

    def line(self, number: int, fields: Fields) -> None:
        self.session_id = self.session_id or id_of(fields.get("sessionId"))
        self.directory = self.directory or text_of(fields.get("cwd"))
        self.version = text_of(fields.get("version")) or self.version
        kind = text_of(fields.get("type"))
        if kind not in ("user", "assistant") or is_true(fields.get("isSidechain")) is not self.sidechain:
            return
        self.tally.messages += 1
        at = time_of(fields.get("timestamp"))
        self.tally.moment(at)
        message = object_of(fields.get("message"))
        blocks = [object_of(raw) for raw in list_of(message.get("content"))]
        if kind == "assistant":
            self._assistant(blocks, message, number, fields)
        else:
            self._user(blocks, message, meta=is_true(fields.get("isMeta")))

    def _assistant(self, blocks: list[Fields], message: Fields, number: int, fields: Fields) -> None:
        called = False
        for block in blocks:
            if text_of(block.get("type")) == "tool_use":
                called = True
                arguments = object_of(block.get("input"))
                at = time_of(fields.get("timestamp"))
                self.tally.call(block.get("id"), block.get("name"), arguments, at=at, line=number)
        said = any(text_of(block.get("type")) == "text" for block in blocks)
        if said and not called and text_of(message.get("stop_reason")) != "tool_use":
            self.tally.end_turn()

    def _user(self, blocks: list[Fields], message: Fields, *, meta: bool) -> None:
        results = [block for block in blocks if text_of(block.get("type")) == "tool_result"]
        for block in results:
            self.tally.result(block.get("tool_use_id"))
        if results or meta:
            return
        text = text_of(message.get("content")) if is_text(message.get("content")) else _joined(blocks)
        if text.startswith(_INTERRUPTED):
            self.tally.abandon()
            self.tally.end_turn()
        elif not text.startswith(_LOCAL):
            self.tally.prompt(text)


def _joined(blocks: list[Fields]) -> str:
    return " ".join(text_of(block.get("text")) for block in blocks if text_of(block.get("type")) == "text")


def _subagent_calls(path: Path) -> tuple[CallInFlight, ...]:
    """The calls that a session's helpers had in flight: its own transcript only shows that a helper was at work."""
    place = path.with_suffix("")
    listing = find_files(place, "subagents", "agent-*.jsonl")
    listing.files += find_files(place, "subagents", "*", "agent-*.jsonl").files
    found: list[CallInFlight] = []
    for _, each in sorted(listing.files, reverse=True)[:SUBAGENTS_MAX]:
        fold = _Fold(tally=CallTally(effects_of), sidechain=True)
        with suppress(OSError):
            fold_file(each, fold, None)
        name = each.stem.removeprefix("agent-")[:100]
        found += [replace(call, subagent=name) for call in fold.tally.calls if not call.abandoned]
    return tuple(found)


def _process(config: Path, session_id: str) -> RecordedProcess | None:
    """The newest process that the agent noted for this session."""
    newest: RecordedProcess | None = None
    listing = find_files(config, "sessions", "*.json")
    for _, path in sorted(listing.files)[-PROCESS_FILES_MAX:]:
        fields: Fields = {}
        with suppress(OSError):
            fields = decode(read_head(path)) or {}
        pid = number_of(fields.get("pid"))
        if not session_id or id_of(fields.get("sessionId")) != session_id or pid is None or not 0 < pid < 2**31:
            continue
        ticks = text_of(fields.get("procStart"))
        newest = RecordedProcess(
            pid=int(pid),
            start_ticks=float(ticks) if ticks.isascii() and ticks.isdigit() and len(ticks) < 16 else None,
            started_at=time_of(fields.get("startedAt")),
        )
    return newest
