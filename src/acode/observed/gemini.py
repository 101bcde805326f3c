"""Gemini CLI: JSON lines with `$set` patches in tmp/<project>/chats/session-*.jsonl.

It writes a call down only when the call has ended. So its transcript never names the call in flight at its death, and
acode does not guess: it says that there may have been one, and looks for traces since the last message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acode.observed.call_tally import CallTally
from acode.observed.line_reader import LineFold, fold_file, is_within, session_of
from acode.observed.session import Effect, Ending, ObservedSession, Other
from acode.observed.transcript import (
    Fields,
    LineCounts,
    Listing,
    config_above,
    decode,
    find_files,
    id_of,
    is_text,
    list_of,
    object_of,
    read_head,
    text_of,
    time_of,
)

TITLE: Final = "Gemini CLI"
PROGRAMS: Final = ("gemini", "@google/gemini-cli")
UNNAMED: Final = "Gemini CLI writes a call down only when it has ended: its transcript cannot name a call in flight."


def config_directories(environment: Mapping[str, str]) -> tuple[Path, ...]:
    return (Path(environment.get("GEMINI_CLI_HOME") or environment.get("HOME") or "/") / ".gemini",)


def configuration_variable(config: Path) -> tuple[str, str]:
    return "GEMINI_CLI_HOME", str(config.parent)


def transcripts(config: Path) -> Listing:
    return find_files(config, "tmp", "*", "chats", "session-*.jsonl")


def config_of(transcript: Path) -> Path | None:
    return config_above(transcript, "tmp", "*", "chats")


def recognizes(head: bytes) -> bool:
    first = decode(head.split(b"\n", 1)[0])
    return first is not None and {"sessionId", "projectHash"} <= first.keys()


def resume_command(session: ObservedSession) -> tuple[str, ...]:
    return ("gemini", "--resume", session.session_id)


def effects_of(_tool: str, _arguments: Fields) -> tuple[Effect, ...]:
    return (Other(),)  # it names no call that has not ended


def read(path: Path, config: Path | None, within: Path | None) -> Iterator[ObservedSession]:
    root = _project_root(path)
    if within is not None and not (root and is_within(root, within)):
        return
    fold = _Fold(tally=CallTally(effects_of))
    counts = fold_file(path, fold, None)
    assert counts is not None
    if fold.project_hash in ("", hashlib.sha256(root.encode("utf-8", "surrogatepass")).hexdigest()):
        fold.directory = root  # the transcript itself bears only the hash of its directory
    yield session_of("gemini", path, config, fold, counts, notes=(UNNAMED,))


@dataclass(slots=True)
class _Fold(LineFold):
    project_hash: str = ""
    last_kind: str = ""  # of the last message: user or gemini
    last_said: bool = False  # it holds text
    last_calls: bool = False  # it holds calls, which all have ended

    def line(self, number: int, fields: Fields) -> None:
        self.session_id = self.session_id or id_of(fields.get("sessionId"))
        self.project_hash = self.project_hash or id_of(fields.get("projectHash"))
        if "$set" in fields:
            for message in list_of(object_of(fields["$set"]).get("messages"))[-1:]:
                self._message(object_of(message))
        else:
            self._message(fields)

    def _message(self, fields: Fields) -> None:
        kind = text_of(fields.get("type"))
        if kind not in ("user", "gemini"):
            return
        self.tally.messages += 1
        self.tally.moment(time_of(fields.get("timestamp")))
        self.last_kind = kind
        content = fields.get("content")
        text = text_of(content) if is_text(content) else _joined(content)
        self.last_said = bool(text.strip())
        self.last_calls = bool(list_of(fields.get("toolCalls")))
        if kind == "user" and self.last_said and not text.startswith("<session_context>"):
            self.tally.prompt(text)

    def ending(self, counts: LineCounts) -> Ending:
        if not self.tally.messages:
            return "unknown"
        if self.last_kind == "gemini" and not self.last_calls:
            if not self.last_said:
                return "unnamed_call"
            return "unfinished" if counts.torn_bytes else "finished"
        return "unfinished"


def _joined(content: object) -> str:
    import msgspec

    raw = content if isinstance(content, msgspec.Raw) else None
    return " ".join(text_of(object_of(part).get("text")) for part in list_of(raw)).strip()


def _project_root(path: Path) -> str:
    """The directory that the client noted beside the chats."""
    with suppress(OSError, ValueError):
        return read_head(path.parent.parent / ".project_root").decode("utf-8").strip()
    return ""
