"""A small language for the sessions of other agents: one story, told in the files of each of them.

    write_session("claude", home, project, [Prompt("do it"), Run("c1", "make"), Result("c1"), Answer("done")])

The shapes are those that the real clients wrote in November 2026.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

SESSION = "1f58e630-c28a-43e3-97a4-708a68498e23"
OPENCODE_SESSION = "ses_e1952bae4ffegKYMfl7662rC6w"
AGENTS = ("claude", "codex", "gemini", "qwen", "opencode", "cline")
NAMING = tuple(name for name in AGENTS if name != "gemini")  # those that write a call down before it has ended


@dataclass(frozen=True)
class Prompt:
    text: str


@dataclass(frozen=True)
class Run:
    id: str
    command: str


@dataclass(frozen=True)
class Write:
    id: str
    path: str
    content: str


@dataclass(frozen=True)
class Edit:
    id: str
    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Read:
    id: str
    path: str


@dataclass(frozen=True)
class Result:
    id: str


@dataclass(frozen=True)
class Answer:
    text: str


Event = Prompt | Run | Write | Edit | Read | Result | Answer
Story = Sequence[Event]
Call = Run | Write | Edit | Read

DIED = (Prompt("do the job"), Write("c1", "note.txt", "hello\n"), Result("c1"), Run("c2", "sh -c 'echo x >> ledger'"))
FINISHED = (*DIED, Result("c2"), Answer("DONE"))
RESUMED = (*DIED, Prompt("Continue."), Run("c3", "true"), Result("c3"), Answer("DONE"))


def session_id(agent: str) -> str:
    return {"opencode": OPENCODE_SESSION, "cline": "1794851360911_socje"}.get(agent, SESSION)


def write_session(agent: str, home: Path, project: Path, story: Story, *, at: datetime | None = None) -> Path:
    """The transcript, where this agent keeps it for this home. Call n of the story began n seconds after `at`."""
    start = at or datetime.now(UTC) - timedelta(minutes=5)
    moments = [start + timedelta(seconds=number) for number in range(len(story))]
    return _WRITERS[agent](home, project, list(zip(moments, story, strict=True)))


Timed = list[tuple[datetime, Event]]


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _save(path: Path, lines: Iterator[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _arguments(call: Call, project: Path, *, names: dict[str, str]) -> dict[str, Any]:
    """The arguments under this agent's names for them."""
    match call:
        case Run(command=command):
            return {names["command"]: command}
        case Write(path=path, content=content):
            return {names["path"]: str(project / path), names["content"]: content}
        case Edit(path=path, old=old, new=new):
            return {names["path"]: str(project / path), names["old"]: old, names["new"]: new}
        case Read(path=path):
            return {names["path"]: str(project / path)}


# Claude Code.

_CLAUDE = {"command": "command", "path": "file_path", "content": "content", "old": "old_string", "new": "new_string"}
_CLAUDE_TOOLS = {Run: "Bash", Write: "Write", Edit: "Edit", Read: "Read"}


def claude_lines(project: Path, story: Timed, session: str = SESSION, **marks: Any) -> Iterator[dict[str, Any]]:
    yield {"type": "queue-operation", "operation": "enqueue", "timestamp": _stamp(story[0][0]), "sessionId": session}
    for number, (at, event) in enumerate(story):
        line = {
            "parentUuid": f"u{number - 1}" if number else None,
            "isSidechain": False,
            "uuid": f"u{number}",
            "timestamp": _stamp(at),
            "cwd": str(project),
            "sessionId": session,
            "version": "2.1.197",
            **marks,
        }
        yield {**line, **_claude_message(event, project)}


def _claude_message(event: Event, project: Path) -> dict[str, Any]:
    match event:
        case Prompt(text=text):
            return {"type": "user", "message": {"role": "user", "content": text}}
        case Result(id=call):
            content = [{"tool_use_id": call, "type": "tool_result", "content": "ok"}]
            return {"type": "user", "message": {"role": "user", "content": content}, "toolUseResult": {"stdout": ""}}
        case Answer(text=text):
            content = [{"type": "text", "text": text}]
            return {
                "type": "assistant",
                "message": {"role": "assistant", "content": content, "stop_reason": "end_turn"},
            }
    name, arguments = _CLAUDE_TOOLS[type(event)], _arguments(event, project, names=_CLAUDE)
    content = [{"type": "tool_use", "id": event.id, "name": name, "input": arguments}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content, "stop_reason": "tool_use"}}


def _claude(home: Path, project: Path, story: Timed) -> Path:
    slug = str(project).replace("/", "-")
    return _save(home / ".claude" / "projects" / slug / f"{SESSION}.jsonl", claude_lines(project, story))


def note_claude_process(home: Path, pid: int, ticks: str, at: datetime, session: str = SESSION) -> Path:
    """sessions/<pid>.json, as the client writes it when it starts."""
    path = home / ".claude" / "sessions" / f"{pid}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pid": pid, "sessionId": session, "startedAt": _ms(at), "procStart": ticks}))
    return path


# Codex.


def _codex_item(event: Event, project: Path) -> dict[str, Any]:
    match event:
        case Prompt(text=text):
            return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        case Result(id=call):
            return {"type": "function_call_output", "call_id": call, "output": "Process exited with code 0"}
        case Answer(text=text):
            return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        case Run(id=call, command=command):
            arguments = json.dumps({"cmd": command, "yield_time_ms": 20000})
            return {"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": call}
        case Read(id=call, path=path):
            arguments = json.dumps({"path": str(project / path)})
            return {"type": "function_call", "name": "view_image", "arguments": arguments, "call_id": call}
        case Write(path=path, content=content):
            body = f"*** Add File: {path}\n" + "".join(f"+{line}\n" for line in content.splitlines())
        case Edit(path=path, old=old, new=new):
            body = f"*** Update File: {path}\n@@\n" + "".join(f"-{line}\n" for line in old.splitlines())
            body += "".join(f"+{line}\n" for line in new.splitlines())
    patch = f"*** Begin Patch\n{body}*** End Patch"
    return {"type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": event.id}


def _codex_lines(project: Path, story: Timed) -> Iterator[dict[str, Any]]:
    about = {"id": SESSION, "cwd": str(project), "cli_version": "0.166.0", "originator": "codex_exec"}
    yield {"timestamp": _stamp(story[0][0]), "type": "session_meta", "payload": about}
    for at, event in story:
        line = {"timestamp": _stamp(at)}
        if isinstance(event, Prompt):
            yield {**line, "type": "event_msg", "payload": {"type": "task_started", "turn_id": "t"}}
        item = _codex_item(event, project)
        if isinstance(event, Result) and any(isinstance(one, Write | Edit) and one.id == event.id for _, one in story):
            item["type"] = "custom_tool_call_output"
        yield {**line, "type": "response_item", "payload": item}
        if isinstance(event, Answer):
            yield {**line, "type": "event_msg", "payload": {"type": "task_complete", "turn_id": "t"}}


def _codex(home: Path, project: Path, story: Timed) -> Path:
    place = home / ".codex" / "sessions" / "2026" / "11" / "16"
    return _save(place / f"rollout-2026-11-16T17-39-03-{SESSION}.jsonl", _codex_lines(project, story))


# Gemini CLI.


def _gemini_lines(project: Path, story: Timed) -> Iterator[dict[str, Any]]:
    digest, calls = hashlib.sha256(str(project).encode()).hexdigest(), 0
    yield {"sessionId": SESSION, "projectHash": digest, "startTime": _stamp(story[0][0]), "kind": "main"}
    context = {"id": "d0", "type": "user", "content": [{"text": "<session_context>\nThis is the Gemini CLI."}]}
    yield {"$set": {"messages": [context], "lastUpdated": _stamp(story[0][0])}}
    for at, event in story:
        line: dict[str, Any] = {"id": f"m{calls}", "timestamp": _stamp(at)}
        match event:
            case Prompt(text=text):
                yield {**line, "type": "user", "content": [{"text": text}]}
            case Answer(text=text):
                yield {**line, "type": "gemini", "content": text, "thoughts": []}
            case Result(id=call):
                answer = {"functionResponse": {"id": call, "name": "t", "response": {"output": "ok"}}}
                named = [{"id": call, "name": "t", "args": {}, "result": [answer], "status": "success"}]
                yield {**line, "type": "gemini", "content": "", "thoughts": [], "toolCalls": named}
                yield {**line, "id": f"r{calls}", "type": "user", "content": [answer]}
            case _:
                calls += 1
                yield {**line, "id": f"m{calls}", "type": "gemini", "content": "", "thoughts": []}
        yield {"$set": {"lastUpdated": _stamp(at)}}


def _gemini(home: Path, project: Path, story: Timed) -> Path:
    place = home / ".gemini" / "tmp" / project.name
    path = _save(place / "chats" / "session-2026-11-16T17-37-1f58e630.jsonl", _gemini_lines(project, story))
    (place / ".project_root").write_text(str(project))
    return path


# Qwen Code.

_QWEN_TOOLS = {Run: "run_shell_command", Write: "write_file", Edit: "edit", Read: "read_file"}


def _qwen_lines(project: Path, story: Timed) -> Iterator[dict[str, Any]]:
    for number, (at, event) in enumerate(story):
        line = {"uuid": f"u{number}", "sessionId": SESSION, "timestamp": _stamp(at), "cwd": str(project)}
        line["version"] = "0.15.10"
        match event:
            case Prompt(text=text):
                part, kind = {"text": text}, "user"
            case Answer(text=text):
                part, kind = {"text": text}, "assistant"
            case Result(id=call):
                part, kind = (
                    {"functionResponse": {"id": call, "name": "t", "response": {"output": "ok"}}},
                    "tool_result",
                )
            case _:
                arguments = _arguments(event, project, names=_CLAUDE)
                part = {"functionCall": {"id": event.id, "name": _QWEN_TOOLS[type(event)], "args": arguments}}
                kind = "assistant"
        yield {**line, "type": kind, "message": {"role": "user" if kind == "user" else "model", "parts": [part]}}
        yield {**line, "type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": {}}}


def _qwen(home: Path, project: Path, story: Timed) -> Path:
    place = home / ".qwen" / "projects" / str(project).replace("/", "-") / "chats"
    return _save(place / f"{SESSION}.jsonl", _qwen_lines(project, story))


# Cline.

_CLINE = {"command": "command", "path": "path", "content": "new_text", "old": "old_text", "new": "new_text"}
_CLINE_TOOLS = {Run: "run_commands", Write: "editor", Edit: "editor", Read: "read_files"}


def _cline_content(event: Event, project: Path) -> tuple[str, dict[str, Any]]:
    match event:
        case Prompt(text=text):
            return "user", {"type": "text", "text": f'<user_input mode="act">{text}</user_input>'}
        case Result(id=call):
            return "user", {"type": "tool_result", "tool_use_id": call, "name": "t", "content": "{}"}
        case Answer(text=text):
            return "assistant", {"type": "text", "text": text}
        case Run(id=call, command=command):
            return "assistant", {
                "type": "tool_use",
                "id": call,
                "name": "run_commands",
                "input": {"commands": [command]},
            }
    arguments = _arguments(event, project, names=_CLINE)
    return "assistant", {"type": "tool_use", "id": event.id, "name": _CLINE_TOOLS[type(event)], "input": arguments}


def _cline(home: Path, project: Path, story: Timed) -> Path:
    name = session_id("cline")
    place = home / ".cline" / "data" / "sessions" / name
    place.mkdir(parents=True, exist_ok=True)
    done = isinstance(story[-1][1], Answer)
    about = {"version": 1, "session_id": name, "pid": 2**22 + 7, "started_at": _stamp(story[0][0]), "cwd": str(project)}
    about["status"] = "completed" if done else "running"
    (place / f"{name}.json").write_text(json.dumps(about))
    messages = []
    for at, event in story:
        role, block = _cline_content(event, project)
        messages.append({"id": f"m{len(messages)}", "role": role, "content": [block], "ts": _ms(at)})
    document = {"version": 1, "updated_at": _stamp(story[-1][0]), "agent": "lead", "sessionId": name}
    document |= {"origin": {"source": "cli", "version": "3.0.65"}, "messages": messages}
    path = place / f"{name}.messages.json"
    path.write_text(json.dumps(document, indent=1))
    return path


# opencode.

_OPENCODE = {"command": "command", "path": "filePath", "content": "content", "old": "oldString", "new": "newString"}
_OPENCODE_TOOLS = {Run: "bash", Write: "write", Edit: "edit", Read: "read"}
OPENCODE_SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, directory text NOT NULL,
  title text NOT NULL, version text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX part_session_idx ON part (session_id);
"""


def fill_opencode(
    database: apsw.Connection, project: Path, story: Timed, session: str = OPENCODE_SESSION, parent: str | None = None
) -> None:
    """The rows of one session. A call that was given up is an error there, as the resumed client makes it."""
    ended = {event.id for _, event in story if isinstance(event, Result)}
    last = _ms(story[-1][0])
    prompts = [number for number, (_, event) in enumerate(story) if isinstance(event, Prompt)]
    row = (session, "p", parent, str(project), "t", "1.18.33", _ms(story[0][0]), last)
    database.execute("INSERT INTO session VALUES (?,?,?,?,?,?,?,?)", row)
    for number, (at, event) in enumerate(story):
        if isinstance(event, Result):
            continue
        made = {"created": _ms(at)}
        if isinstance(event, Prompt):
            message, part = {"role": "user", "time": made}, {"type": "text", "text": event.text}
        elif isinstance(event, Answer):
            message = {"role": "assistant", "time": made | {"completed": _ms(at)}, "finish": "stop"}
            part = {"type": "text", "text": event.text}
        else:
            status = "completed" if event.id in ended else "error" if number < prompts[-1] else "running"
            message = {"role": "assistant", "time": made | ({"completed": _ms(at)} if status != "running" else {})}
            message |= {"finish": "tool-calls"} if status != "running" else {}
            state = {"status": status, "input": _arguments(event, project, names=_OPENCODE), "time": {"start": _ms(at)}}
            part = {"type": "tool", "tool": _OPENCODE_TOOLS[type(event)], "callID": event.id, "state": state}
        said = json.dumps(message, separators=(",", ":")), json.dumps(part, separators=(",", ":"))
        ids = f"msg_{session}{number:04}", f"prt_{session}{number:04}"
        database.execute("INSERT INTO message VALUES (?,?,?,?,?)", (ids[0], session, _ms(at), _ms(at), said[0]))
        database.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", (ids[1], ids[0], session, _ms(at), _ms(at), said[1]))


def _opencode(home: Path, project: Path, story: Timed) -> Path:
    """Written by a process that is killed, so that the last rows stand in the WAL file and nowhere else."""
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            database = open_opencode(path)
            fill_opencode(database, project, story)
            status = 0
        finally:
            os._exit(status)  # without closing anything
    assert os.waitpid(child, 0)[1] == 0
    return path


def open_opencode(path: Path) -> apsw.Connection:
    database = apsw.Connection(str(path))
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(OPENCODE_SCHEMA)
    return database


_WRITERS: dict[str, Callable[[Path, Path, Timed], Path]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "qwen": _qwen,
    "opencode": _opencode,
    "cline": _cline,
}
