"""opencode: one SQLite database with the tables session, message and part (data as JSON).

A call in flight at its death is a part whose `state.status` is `running`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from acode.observed import tool_effects as tools
from acode.observed.call_tally import ARGUMENTS_BYTES_MAX, CALLS_MAX, PROMPT_CHARS_MAX, CallTally
from acode.observed.line_reader import is_within
from acode.observed.readonly_database import open_to_read
from acode.observed.session import Effect, Ending, ObservedSession
from acode.observed.transcript import (
    EPOCH_MS_MAX,
    ID_CHARS_MAX,
    Fields,
    Listing,
    NotRegular,
    decode,
    find_files,
    object_of,
    text_of,
    time_of,
)

TITLE: Final = "opencode"
PROGRAMS: Final = ("opencode", "opencode-ai")
DATA_BYTES_MAX: Final = 4 * ARGUMENTS_BYTES_MAX
READS_MAX: Final = 3

TOOLS: Final = {
    **dict.fromkeys(("read", "grep", "glob", "list", "webfetch", "websearch", "todowrite", "todoread"), tools.reads),
    "bash": tools.command("command", "workdir"),
    "write": tools.write("filePath", "content"),
    "edit": tools.edit("filePath", "oldString", "newString"),
    "multiedit": tools.several_edits("filePath", "edits", "oldString", "newString"),
    "apply_patch": tools.patch("patchText"),
}

# Everything is asked for as bytes: a column may hold text that is no text.
SESSIONS = """
SELECT CAST(id AS BLOB), CAST(parent_id AS BLOB), CAST(directory AS BLOB), CAST(version AS BLOB), time_updated
FROM session ORDER BY time_updated DESC, id DESC
"""
# A part that is too long to be looked at is counted as one that cannot be read, never as one that has ended.
RUNNING = """
SELECT CAST(id AS BLOB), CASE WHEN length(CAST(data AS BLOB)) <= :bytes_max THEN CAST(data AS BLOB) END FROM part
WHERE session_id = CAST(:session AS TEXT)
AND instr(substr(CAST(data AS BLOB), 1, :bytes_max), CAST('"running"' AS BLOB))
ORDER BY time_created DESC, id DESC LIMIT :rows_max
"""
LAST_MESSAGE = """
SELECT substr(CAST(data AS BLOB), 1, :bytes_max), time_created FROM message
WHERE session_id = CAST(:session AS TEXT) ORDER BY time_created DESC, id DESC LIMIT 1
"""
LAST_PROMPT = """
SELECT substr(CAST(part.data AS BLOB), 1, :bytes_max) FROM part JOIN message ON message.id = part.message_id
WHERE part.session_id = CAST(:session AS TEXT)
AND instr(substr(CAST(message.data AS BLOB), 1, 2000), CAST('"role":"user"' AS BLOB))
ORDER BY message.time_created DESC, part.id LIMIT 1
"""


def config_directories(environment: Mapping[str, str]) -> tuple[Path, ...]:
    data = environment.get("XDG_DATA_HOME")
    return ((Path(data) if data else Path(environment.get("HOME") or "/") / ".local" / "share") / "opencode",)


def configuration_variable(config: Path) -> tuple[str, str]:
    return "XDG_DATA_HOME", str(config.parent)


def transcripts(config: Path) -> Listing:
    """The time of the WAL file counts too: that is where the last writes of a killed process are."""
    listing = find_files(config, "opencode*.db")
    wal = {path.name: at for at, path in find_files(config, "opencode*.db-wal").files}
    listing.files = [(max(at, wal.get(f"{path.name}-wal", at)), path) for at, path in listing.files]
    return listing


def config_of(transcript: Path) -> Path | None:
    return transcript.parent if transcript.parent.name == "opencode" else None


def recognizes(head: bytes) -> bool:
    return head.startswith(b"SQLite format 3\0")


def resume_command(session: ObservedSession) -> tuple[str, ...]:
    return ("opencode", "--session", session.parent_id or session.session_id)


def effects_of(tool: str, arguments: Fields) -> tuple[Effect, ...]:
    return tools.effects_from(TOOLS, tool, arguments)


def read(path: Path, config: Path | None, within: Path | None) -> Iterator[ObservedSession]:
    """Its sessions, the newest first. Read again where a writer at work has made it look damaged."""
    import apsw

    for attempt in range(1, READS_MAX + 1):
        given = 0
        try:
            with open_to_read(path) as connection:
                for row in connection.execute(SESSIONS):
                    found = _session(connection, row, path, config, within)
                    if found is not None:
                        given += 1
                        yield found
            return
        except (apsw.Error, UnicodeDecodeError) as error:
            if given or attempt == READS_MAX or not isinstance(error, apsw.CorruptError):
                reason = f"it cannot be read as opencode's database: {error}"
                raise NotRegular(0, reason, str(path)) from error


def _session(
    connection: Any, row: tuple[Any, ...], path: Path, config: Path | None, within: Path | None
) -> ObservedSession | None:
    session_id, parent, directory, version = ((one or b"").decode("utf-8", "replace") for one in row[:4])
    if within is not None and not (directory and is_within(directory, within)):
        return None
    tally, notes = CallTally(effects_of), []
    bound = {"session": row[0], "bytes_max": DATA_BYTES_MAX, "rows_max": CALLS_MAX}
    for part_id, data in reversed(list(connection.execute(RUNNING, bound))):
        fields = decode(data)
        if fields is None:
            name = part_id.decode("utf-8", "replace")[:40]
            notes.append(f"The part {name} cannot be read: it may be a call in flight.")
        else:
            _part(tally, fields)
    ending, last_at = _ending(connection, bound, tally)
    return ObservedSession(
        agent="opencode",
        session_id=session_id[:ID_CHARS_MAX],
        transcript=path,
        config=config,
        directory=directory,
        version=version[:100],
        updated_at=_milliseconds(row[4]) or datetime.fromtimestamp(path.lstat().st_mtime, UTC),
        prompt=_prompt(connection, bound),
        ending=ending,
        calls=tally.calls,
        calls_left_out=tally.left_out,
        last_message_at=last_at,
        shares_transcript=True,
        parent_id=parent[:ID_CHARS_MAX],
        notes=tuple(notes),
    )


def _part(tally: CallTally, fields: Fields) -> None:
    state = object_of(fields.get("state"))
    if text_of(fields.get("type")) != "tool" or text_of(state.get("status")) != "running":
        return
    at = time_of(object_of(state.get("time")).get("start"))
    tally.call(fields.get("callID"), fields.get("tool"), object_of(state.get("input")), at=at)


def _ending(connection: Any, bound: dict[str, Any], tally: CallTally) -> tuple[Ending, datetime | None]:
    for data, created in connection.execute(LAST_MESSAGE, bound):
        fields, at = decode(data), _milliseconds(created)
        if tally.calls:
            return "in_flight", at
        if fields is None:
            return "unknown", at
        done = time_of(object_of(fields.get("time")).get("completed")) is not None
        answered = text_of(fields.get("role")) == "assistant" and text_of(fields.get("finish")) != "tool-calls"
        return ("finished" if done and answered else "unfinished"), at
    return ("in_flight" if tally.calls else "unknown"), None


def _prompt(connection: Any, bound: dict[str, Any]) -> str:
    for (data,) in connection.execute(LAST_PROMPT, bound):
        return text_of((decode(data) or {}).get("text"))[:PROMPT_CHARS_MAX]
    return ""


def _milliseconds(value: object) -> datetime | None:
    known = isinstance(value, int | float) and 0 <= value <= EPOCH_MS_MAX
    return datetime.fromtimestamp(value / 1000, UTC) if known and isinstance(value, int | float) else None
