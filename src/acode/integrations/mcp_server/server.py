"""An MCP server on stdio: durable tools for any agent that speaks the Model Context Protocol.

Each call that changes something has a key. The protocol is served here; what a call does, and what is recorded of it,
stands in `tool_calls`. Nothing but the protocol is written to stdout.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    DeclinedElicitation,
    Elicit,
    ElicitationResult,
    MCPServer,
    Resolve,
)
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field

from acode import __version__
from acode.agent.tool_schemas import (
    COMMAND_CHARACTERS_MAX,
    CONTENT_BYTES_MAX,
    MESSAGE_CHARACTERS_MAX,
    PATHS_MAX,
    QUESTION_CHARACTERS_MAX,
    TIMEOUT_S_MAX,
)
from acode.agent.tools.interface import Answer
from acode.events.definition import Action, Approve, Commit, Run, Sql, Write
from acode.integrations.mcp_server.tool_calls import ToolCall, ToolCalls
from acode.library.step_identity import NAME_CHARACTERS_MAX
from acode.workspacepath import PATH_BYTES_MAX

INSTRUCTIONS = """Durable tools: each call with a key happens once, also if the agent or this server is killed.
Give every call a new key that names its purpose, such as migrate-users-1. To learn how a call ended after an
interruption, make the same call with the same key: the recorded answer is returned and nothing is done again. To
repeat something on purpose, use another key. If an outcome is unknown, tell the user the command from the answer."""

Key = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NAME_CHARACTERS_MAX,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$",
        description="Names this call: the same key returns the recorded answer, another key is a new call.",
    ),
]
WorkspacePath = Annotated[
    str, Field(min_length=1, max_length=PATH_BYTES_MAX, description="Relative to the workspace, separated by /.")
]
T = TypeVar("T")


class Decision(BaseModel):
    """The form that a person fills in."""

    approve: bool = Field(title="Approve", description="Whether it may be done.")


class NotAsked(Decision):
    """Nobody was asked by the client: the answer is on record, or a person gives it from a terminal."""

    approve: bool = False


async def decision(key: str, question: str, context: Context[Any, Any]) -> Decision | Elicit[Decision]:
    """The person is asked by the client where it can; the answer is recorded like one from a terminal."""
    tools: Server = context.request_context.lifespan_context
    calls = tools.calls_of(context)
    if not can_ask(context) or await in_thread(lambda: calls.answered(key)):
        return NotAsked()
    return Elicit(question, Decision)


class Server:
    """One server process: the calls of its client in one workspace."""

    def __init__(self, workspace: Path, session_key: str | None) -> None:
        self._workspace = workspace
        self._session_key = session_key
        self._calls: dict[str, ToolCalls] = {}

    @property
    def busy(self) -> bool:
        return any(calls.busy for calls in self._calls.values())

    def calls_of(self, context: Context[Any, Any]) -> ToolCalls:
        """One session for each client by name: the same client finds its calls again after a crash."""
        params = context.session.client_params
        name = plain(params.client_info.name) if params is not None else "client"
        key = self._session_key or f"mcp {name}"
        return self._calls.setdefault(key, ToolCalls(key, self._workspace))

    async def call(
        self,
        context: Context[Any, Any],
        key: str,
        action: Action,
        timeout_s: float | None = None,
        said: bool | None = None,
    ) -> CallToolResult:
        wanted = ToolCall(key=key, action=action, timeout_s=timeout_s, said=said)
        calls = self.calls_of(context)
        return result_of(await in_thread(lambda: calls.call(wanted)))

    # The tools. Their docstrings are what a model reads.

    async def run(
        self,
        key: Key,
        command: Annotated[str, Field(min_length=1, max_length=COMMAND_CHARACTERS_MAX)],
        context: Context[Any, Any],
        cwd: WorkspacePath | None = None,
        timeout_s: Annotated[float, Field(gt=0, le=TIMEOUT_S_MAX)] | None = None,
    ) -> CallToolResult:
        """Run a shell command once. It survives this server; its exit status and output are recorded."""
        return await self.call(context, key, Run(command=command, cwd=cwd), timeout_s)

    async def write(
        self,
        key: Key,
        path: WorkspacePath,
        content: Annotated[str, Field(max_length=CONTENT_BYTES_MAX)],
        context: Context[Any, Any],
    ) -> CallToolResult:
        """Write a text file of the workspace once, whole or not at all."""
        return await self.call(context, key, Write(path=path, content=content))

    async def sql(
        self,
        key: Key,
        file: WorkspacePath,
        context: Context[Any, Any],
        database: WorkspacePath | None = None,
        database_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")] | None = None,
    ) -> CallToolResult:
        """Apply a file of SQL statements exactly once, in one transaction.

        Give either database, a SQLite file of the workspace, or database_env, the name of the environment variable that
        holds a postgres URL.
        """
        if (database is None) == (database_env is None) or "://" in (database or ""):
            return result_of(
                Answer(
                    text="Give either database, a SQLite file of the workspace, or database_env, the name of the"
                    " variable that holds a postgres URL. Nothing was done.",
                    error=True,
                )
            )
        return await self.call(context, key, Sql(file=file, database=database, database_env=database_env))

    async def commit(
        self,
        key: Key,
        message: Annotated[str, Field(min_length=1, max_length=MESSAGE_CHARACTERS_MAX)],
        context: Context[Any, Any],
        paths: Annotated[list[WorkspacePath], Field(max_length=PATHS_MAX)] | None = None,
    ) -> CallToolResult:
        """Commit to git once: the given paths, or everything that was changed."""
        return await self.call(context, key, Commit(message=message, paths=tuple(paths or ())))

    async def approve(
        self,
        key: Key,
        question: Annotated[str, Field(min_length=1, max_length=QUESTION_CHARACTERS_MAX)],
        answer: Annotated[ElicitationResult[Decision], Resolve(decision)],
        context: Context[Any, Any],
    ) -> CallToolResult:
        """Ask the person for an approval, once. If nobody can be asked here, the answer names the command to type."""
        said: bool | None = None
        if isinstance(answer, DeclinedElicitation):
            said = False
        elif isinstance(answer, AcceptedElicitation) and not isinstance(answer.data, NotAsked):
            said = answer.data.approve
        return await self.call(context, key, Approve(question=question), said=said)

    async def status(self, context: Context[Any, Any]) -> CallToolResult:
        """Where the session of these calls stands: steps done and in flight, and the next command."""
        return result_of(await in_thread(self.calls_of(context).status))

    async def explain(self, context: Context[Any, Any]) -> CallToolResult:
        """Why the session stopped, the evidence on calls in flight, and what happens next, as JSON."""
        return result_of(await in_thread(self.calls_of(context).explain))


def can_ask(context: Context[Any, Any]) -> bool:
    capabilities = context.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    # A client of the first version declares elicitation without saying which: then it means forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def make_server(tools: Server) -> MCPServer[Server]:
    @contextlib.asynccontextmanager
    async def lifespan(_server: MCPServer[Server]) -> AsyncIterator[Server]:
        yield tools

    changes = ToolAnnotations(destructive_hint=True, idempotent_hint=True)  # by their key
    asks, looks = ToolAnnotations(destructive_hint=False), ToolAnnotations(read_only_hint=True)
    table: dict[Callable[..., Any], ToolAnnotations] = {
        **dict.fromkeys((tools.run, tools.write, tools.sql, tools.commit), changes),
        tools.approve: asks,
        **dict.fromkeys((tools.status, tools.explain), looks),
    }
    offered = [strict_tool(tool, nature) for tool, nature in table.items()]
    about: dict[str, Any] = {"instructions": INSTRUCTIONS, "version": __version__, "log_level": "WARNING"}
    return MCPServer("acode", tools=offered, lifespan=lifespan, **about)


def strict_tool(function: Callable[..., Any], nature: ToolAnnotations) -> Tool:
    """A tool that refuses unknown arguments. The SDK drops them: a commit of `path`, not `paths`, takes everything."""
    tool = Tool.from_function(function, structured_output=False, annotations=nature)
    known = tool.fn_metadata.arg_model
    tool.fn_metadata.arg_model = type(known.__name__, (known,), {"model_config": ConfigDict(extra="forbid")})
    tool.parameters = tool.fn_metadata.arg_model.model_json_schema(by_alias=True)
    return tool


async def in_thread(work: Callable[[], T]) -> T:
    """A call that its client gives up continues: the same key gets its answer later."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


def result_of(answer: Answer) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=answer.error)


def plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")[:60] or "client"


def serve_on_stdio(workspace: Path, session_key: str | None) -> None:
    """Serve until the client closes the pipe. A command in progress outlives this process under its keeper."""
    tools = Server(workspace, session_key)
    try:
        make_server(tools).run("stdio")
    finally:
        if tools.busy:
            # Waiting for the thread would keep the process from ending, and its client would kill it anyway: the next
            # server settles the call by its evidence.
            os._exit(0)
