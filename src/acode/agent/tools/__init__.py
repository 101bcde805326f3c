"""The tools of an agent: each call is a step, found on record or done once.

A call is known by its place, its tool and its arguments; the provider's id for it does not count. The model's answer
comes from the record, live and in every later run.
"""

from __future__ import annotations

from typing import Any

from acode.agent.context import Context
from acode.agent.messages import Call
from acode.agent.permission import question_for
from acode.agent.tool_schemas import EditFile, Misunderstood, Understood, tool_schema, understand
from acode.agent.tools import command, edit, read, search
from acode.agent.tools.interface import BY_HAND, Answer, Tool, looked, on_record
from acode.library.declarations import Begun
from acode.workspace import visible

__all__ = ["TOOLS", "Answer", "Tool", "refuse", "use"]

SHOWN_CHARACTERS_MAX = 200

TOOLS: dict[str, Tool] = {
    "read_file": Tool(schema=tool_schema("read_file"), do=read.show),
    "list_files": Tool(schema=tool_schema("list_files"), do=search.list_files),
    "search": Tool(schema=tool_schema("search"), do=search.search),
    "write_file": Tool(schema=tool_schema("write_file"), do=edit.write, recount=edit.written),
    "edit_file": Tool(schema=tool_schema("edit_file"), do=edit.edit, recount=edit.edited),
    "run_command": Tool(schema=tool_schema("run_command"), do=command.run, recount=command.ran),
    "git_commit": Tool(schema=tool_schema("git_commit"), do=command.commit, recount=command.committed),
    "ask_user": Tool(schema=tool_schema("ask_user"), do=command.ask),
}


def use(context: Context, name: str, call: Call) -> Answer:
    """The result of the call; `name` is its place in the session. The permission was decided before."""
    understood = understand(call.tool, call.arguments)
    begun = offered(context, name, call, understood)
    if begun.found:
        return from_record(context, begun, call.tool, understood)
    if isinstance(understood, Misunderstood):
        return looked(context, begun, Answer(text=understood.reason, error=True, malformed=understood.malformed))
    return TOOLS[call.tool].do(context, begun, understood.arguments)


def refuse(context: Context, name: str, call: Call, reason: str) -> Answer:
    """The call is not made; one that is on record already gets its recorded result, whatever the settings say today."""
    understood = understand(call.tool, call.arguments)
    begun = offered(context, name, call, understood)
    if begun.found:
        return from_record(context, begun, call.tool, understood)
    return looked(context, begun, Answer(text=f"Refused: {reason}.", error=True))


def offered(context: Context, name: str, call: Call, understood: Understood | Misunderstood) -> Begun:
    clean = context.world.redactor.text
    if isinstance(understood, Understood) and isinstance(understood.arguments, EditFile):
        # No excerpts, which a person is shown when asked: a password without the word before it looks like any text.
        shown = f"Edit {visible(understood.arguments.path)}?"
    elif isinstance(understood, Understood):
        shown = question_for(understood.arguments, clean)
    else:
        shown = visible(clean(call.arguments)[:SHOWN_CHARACTERS_MAX])
    return context.steps.offer(name, [call.tool, understood.identity], shown=shown[:SHOWN_CHARACTERS_MAX])


def from_record(context: Context, begun: Begun, name: str, understood: Understood | Misunderstood) -> Answer:
    answer = on_record(begun)
    if answer is not None:
        return answer
    tool: Any = TOOLS.get(name)
    if begun.result is not None and name == "ask_user":
        return command.reply(begun.result)
    if tool is None or tool.recount is None or isinstance(understood, Misunderstood):
        return Answer(text=BY_HAND)
    return tool.recount(context, begun.completed, understood.arguments)  # type: ignore[no-any-return]
