"""Cline: one JSON document of messages per session, data/sessions/<id>/<id>.messages.json, and <id>.json beside it.

A call in flight at its death is a `tool_use` without a `tool_result`; the file beside it names process and directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from acode.observed import tool_effects as tools
from acode.observed.call_tally import CallTally
from acode.observed.line_reader import LineFold, is_within, session_of
from acode.observed.session import Effect, ObservedSession, RecordedProcess
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
    number_of,
    object_of,
    read_document,
    read_head,
    text_of,
    time_of,
)

TITLE: Final = "Cline"
PROGRAMS: Final = ("cline", "@cline/cli")
SUFFIX: Final = ".messages.json"

TOOLS: Final = {
    **dict.fromkeys(("read_files", "read_file", "search_codebase", "list_files", "fetch_web_content"), tools.reads),
    "run_commands": tools.commands("commands"),
    "execute_command": tools.command("command"),
    "editor": tools.edit("path", "old_text", "new_text"),
    "write_to_file": tools.write("path", "content"),
    "apply_patch": tools.patch("input"),
}


def config_directories(environment: Mapping[str, str]) -> tuple[Path, ...]:
    if data := environment.get("CLINE_DATA_DIR"):
        return (Path(data),)
    own = environment.get("CLINE_DIR")
    return (Path(own),) if own else (Path(environment.get("HOME") or "/") / ".cline",)


def configuration_variable(config: Path) -> tuple[str, str]:
    return "CLINE_DIR", str(config)


def transcripts(config: Path) -> Listing:
    listing = find_files(config, "data", "sessions", "*", f"*{SUFFIX}")
    other = find_files(config, "sessions", "*", f"*{SUFFIX}")  # where the directory itself is the data directory
    listing.files += other.files
    listing.problems += other.problems
    return listing


def config_of(transcript: Path) -> Path | None:
    return config_above(transcript, "data", "sessions", "*") or config_above(transcript, "sessions", "*")


def recognizes(head: bytes) -> bool:
    """The document may be longer than its head, so only its beginning identifies it."""
    start = head.lstrip()[:400]
    return start[:1] == b"{" and b'"messages"' in head and b'"updated_at"' in start and b'"sessionId"' in start


def resume_command(session: ObservedSession) -> tuple[str, ...]:
    return ("cline", "--tui", "--id", session.session_id)


def effects_of(tool: str, arguments: Fields) -> tuple[Effect, ...]:
    effects = tools.effects_from(TOOLS, tool, arguments)
    return tools.effects_from({}, tool, arguments) if tool == "editor" and _inserts(arguments) else effects


def _inserts(arguments: Fields) -> bool:
    """A text inserted at a line: its presence in the file proves nothing."""
    return number_of(arguments.get("insert_line")) is not None


def read(path: Path, config: Path | None, within: Path | None) -> Iterator[ObservedSession]:
    about = _about(path)
    directory = text_of(about.get("cwd"))
    if within is not None and not (directory and is_within(directory, within)):
        return
    counts, fold = LineCounts(lines=1), LineFold(tally=CallTally(effects_of), directory=directory)
    document = decode(read_document(path))
    if document is None:
        counts.torn_bytes = path.lstat().st_size
        document = {}
    fold.session_id = id_of(document.get("sessionId")) or path.name.removesuffix(SUFFIX)
    fold.version = text_of(object_of(document.get("origin")).get("version"))
    for number, message in enumerate(map(object_of, list_of(document.get("messages"))), 1):
        _message(fold.tally, message, number)
    if text_of(about.get("status")) in ("completed", "cancelled"):
        fold.tally.abandon()
        fold.tally.end_turn()
    yield session_of("cline", path, config, fold, counts, process=_process(about))


def _message(tally: CallTally, message: Fields, number: int) -> None:
    role, at = text_of(message.get("role")), time_of(message.get("ts"))
    if role not in ("user", "assistant"):
        return
    tally.messages += 1
    tally.moment(at)
    content = message.get("content")
    called, answered, said = False, False, text_of(content) if is_text(content) else ""
    for block in map(object_of, list_of(content)):
        kind = text_of(block.get("type"))
        if kind == "tool_use":
            called = True
            tally.call(block.get("id"), block.get("name"), object_of(block.get("input")), at=at, line=number)
        elif kind == "tool_result":
            answered = True
            tally.result(block.get("tool_use_id"))
        elif kind == "text":
            said += text_of(block.get("text"))
    if role == "user" and not answered:
        tally.prompt(said.partition(">")[2].partition("</user_input")[0] if said.startswith("<user_input") else said)
    elif role == "assistant" and said and not called:
        tally.end_turn()


def _about(path: Path) -> Fields:
    """The file beside the messages; a session without it is read too."""
    with suppress(OSError):
        return decode(read_head(path.with_name(path.name.removesuffix(SUFFIX) + ".json"))) or {}
    return {}


def _process(about: Fields) -> RecordedProcess | None:
    pid = number_of(about.get("pid"))
    if pid is None or not 0 < pid < 2**31:
        return None
    return RecordedProcess(pid=int(pid), start_ticks=None, started_at=time_of(about.get("started_at")))
