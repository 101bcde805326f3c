"""What an agent tells its hook: one event of one session, told apart by the payload alone.

Foreign and possibly hostile text: it is read a level at a time, and nothing here acts on it. An event that acode has no
use for is None. One that announces a tool and cannot be understood is an error: it must not pass unrecorded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from acode.errors import HookPayload
from acode.observed import claude, codex, opencode
from acode.observed import tool_effects as tools
from acode.observed.session import Effect, Reads
from acode.observed.tool_effects import Builder
from acode.observed.transcript import Fields, decode, id_of, is_true, list_of, object_of, text_of

Moment = Literal["before", "after", "start", "prompt", "idle", "end"]
PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024
TEXT_CHARS_MAX: Final = 4_000

_LIKE_CLAUDE: Final[Mapping[str, Moment]] = {
    "PreToolUse": "before",
    "PostToolUse": "after",
    "PostToolUseFailure": "after",
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "Stop": "idle",
    "SessionEnd": "end",
}
MOMENTS: Final[Mapping[str, Mapping[str, Moment]]] = {
    "claude": _LIKE_CLAUDE,
    "codex": _LIKE_CLAUDE,
    "gemini": {
        "BeforeTool": "before",
        "AfterTool": "after",
        "SessionStart": "start",
        "BeforeAgent": "prompt",
        "AfterAgent": "idle",
        "SessionEnd": "end",
    },
    "opencode": {
        "tool.execute.before": "before",
        "tool.execute.after": "after",
        "chat.message": "prompt",
        "session.idle": "idle",
        "session.deleted": "end",
    },
}
# Tools that only start, ask or steer: what a helper does, its own calls tell.
_CLAUDE_STEERS = (
    "Task Agent TaskCreate TaskUpdate TaskGet TaskList TaskStop KillShell BashOutput AgentOutputTool ExitPlanMode"
    " EnterPlanMode AskUserQuestion Skill SlashCommand ToolSearch ListMcpResourcesTool ReadMcpResourceTool LSP"
    " SendMessage StructuredOutput"
)
_GEMINI_STEERS = (
    "ask_user write_todos delegate_to_agent activate_skill codebase_investigator enter_plan_mode exit_plan_mode"
)
_GEMINI_READS = (
    "read_file read_many_files list_directory glob search_file_content grep_search google_web_search web_fetch"
    " get_internal_docs cli_help"
)
_CODEX_STEERS = "spawn_agent wait wait_agent send_input close_agent request_user_input"
_OPENCODE_STEERS = "task question skill lsp plan_enter plan_exit invalid codesearch"


def _steering(names: str) -> dict[str, Builder]:
    return dict.fromkeys(names.split(), tools.reads)


def _codex_patch(arguments: Fields) -> tuple[Effect, ...]:
    return tools.patch_effects(text_of(arguments.get("input")) or text_of(arguments.get("command")))


def _codex_command(arguments: Fields) -> tuple[Effect, ...]:
    """Codex takes a patch out of the command and applies it itself: no shell is started, and no front sees it."""
    text = text_of(arguments.get("command"))
    if found := _PATCH_COMMAND.match(text):
        return tools.patch_effects(text, directory=(found[1] or "").strip("'\""))
    return tools.command("command", "workdir")(arguments)


_PATCH_COMMAND: Final = re.compile(
    r"\s*(?:cd\s+(\S+|'[^']*'|\"[^\"]*\")\s*&&\s*)?(?:apply_patch|applypatch)\s+(?:<<|['\"]\*\*\* Begin Patch)"
)
TOOLS: Final[Mapping[str, Mapping[str, Builder]]] = {
    "claude": {**claude.TOOLS, **_steering(_CLAUDE_STEERS)},
    "codex": {
        **codex.TOOLS,
        **_steering(_CODEX_STEERS),
        "Bash": _codex_command,
        "apply_patch": _codex_patch,
    },
    "gemini": {
        **_steering(_GEMINI_STEERS),
        **_steering(_GEMINI_READS),
        "run_shell_command": tools.command("command", "dir_path"),
        "write_file": tools.write("file_path", "content"),
        "replace": tools.edit("file_path", "old_string", "new_string"),
    },
    "opencode": {**opencode.TOOLS, **_steering(_OPENCODE_STEERS)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """One event, as far as acode has a use for it."""

    agent: str
    moment: Moment
    name: str  # the agent's own word for it
    session_id: str
    directory: str
    call_id: str = ""
    tool: str = ""
    arguments: Fields | None = None
    effects: tuple[Effect, ...] = ()
    failed: bool = False
    background: bool = False  # the agent continued without waiting for the command
    prompt: str = ""
    subagent: str = ""

    @property
    def only_reads(self) -> bool:
        return bool(self.effects) and all(isinstance(one, Reads) for one in self.effects)

    @property
    def digest(self) -> str:
        """Of the tool and its arguments, in whatever order those stand."""
        return arguments_digest(self.tool, self.arguments or {})


def arguments_digest(tool: str, arguments: Fields) -> str:
    """What is said about a call for people's eyes is no part of it: a model words that anew each time."""
    kept = {name: bytes(raw) for name, raw in arguments.items() if name not in ("description", "timeout")}
    lines = [tool, *(f"{name}=" for name in sorted(kept))]
    values = (b"", *(kept[name] for name in sorted(kept)))
    parts = (line.encode("utf-8", "surrogatepass") + value for line, value in zip(lines, values, strict=True))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def parse(data: bytes) -> HookEvent | None:
    """None: nothing that acode records or answers."""
    if len(data) > PAYLOAD_BYTES_MAX:
        raise HookPayload(f"the hook was given {len(data):,} bytes, more than {PAYLOAD_BYTES_MAX:,}")
    fields = decode(data)
    if fields is None:
        raise HookPayload("the hook was given no JSON object on its standard input")
    if text_of(fields.get("agent")) == "opencode":
        return _of_opencode(fields)
    name = text_of(fields.get("hook_event_name"))
    agent = agent_of(fields, name)
    moment = MOMENTS[agent].get(name) if agent else None
    if agent is None or moment is None:
        return None
    return _event(
        agent,
        moment,
        name,
        session_id=fields.get("session_id"),
        directory=text_of(fields.get("cwd")),
        call_id=id_of(fields.get("tool_use_id")),
        tool=text_of(fields.get("tool_name")),
        arguments=object_of(fields.get("tool_input")),
        failed=name == "PostToolUseFailure",
        background=_went_on(fields),
        prompt=text_of(fields.get("prompt")),
        subagent=id_of(fields.get("agent_id")),
    )


def agent_of(fields: Fields, name: str) -> str | None:
    """None for an agent that acode does not record."""
    transcript = text_of(fields.get("transcript_path")).replace("\\", "/")
    file = transcript.rpartition("/")[2]
    if "turn_id" in fields or file.startswith("rollout-"):
        return "codex"
    if name in MOMENTS["gemini"] and name not in _LIKE_CLAUDE:
        return "gemini"
    if "timestamp" in fields:  # Gemini CLI and Qwen Code say when; Qwen Code has no hooks that acode could settle by
        return "gemini" if file.startswith("session-") else None
    return "claude" if "hook_event_name" in fields and "session_id" in fields else None


def _of_opencode(fields: Fields) -> HookEvent | None:
    name = text_of(fields.get("event"))
    moment = MOMENTS["opencode"].get(name)
    if moment is None:
        return None
    given, answer = object_of(fields.get("input")), object_of(fields.get("output"))
    parts = [object_of(part) for part in list_of(answer.get("parts"))[:20]]
    arguments = object_of(answer.get("args")) or object_of(given.get("args"))
    info = object_of(given.get("info"))
    return _event(
        "opencode",
        moment,
        name,
        session_id=given.get("sessionID") or info.get("id"),
        directory=text_of(fields.get("directory")),
        call_id=id_of(given.get("callID")),
        tool=text_of(given.get("tool")),
        arguments=arguments,
        prompt=" ".join(text_of(part.get("text")) for part in parts),
    )


def _event(
    agent: str,
    moment: Moment,
    name: str,
    *,
    session_id: msgspec.Raw | None,
    directory: str,
    call_id: str = "",
    tool: str = "",
    arguments: Fields,
    failed: bool = False,
    background: bool = False,
    prompt: str = "",
    subagent: str = "",
) -> HookEvent:
    session = id_of(session_id)
    if not session or not directory:
        missing = "session" if not session else "directory"
        raise HookPayload(f"the hook's event {name[:40]!a} of {agent} names no {missing}")
    acts = moment in ("before", "after")
    if acts and not tool:
        raise HookPayload(f"the hook's event {name[:40]!a} of {agent} names no tool")
    return HookEvent(
        agent=agent,
        moment=moment,
        name=name,
        session_id=session,
        directory=directory,
        call_id=call_id,
        tool=tool[:TEXT_CHARS_MAX],
        arguments=arguments if acts else None,
        effects=tools.effects_from(TOOLS[agent], tool, arguments) if acts else (),
        failed=failed,
        background=background,
        prompt=prompt[:TEXT_CHARS_MAX],
        subagent=subagent,
    )


def _went_on(fields: Fields) -> bool:
    """Whether the agent says that the command runs in the background."""
    asked, answer = object_of(fields.get("tool_input")), object_of(fields.get("tool_response"))
    flags = (asked.get("run_in_background"), asked.get("is_background"))
    return any(map(is_true, flags)) or bool(text_of(answer.get("backgroundTaskId")))
