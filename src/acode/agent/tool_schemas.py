"""The tools that a model may call: their descriptions for the model, and the meaning of their arguments.

Arguments come as text that a model wrote. They are decoded strictly; a text that cannot be decoded, or a path that
leaves the workspace, becomes a sentence for the model and never an exception. Nothing here looks at a file.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from acode.agent import messages
from acode.workspacepath import OWN_DIRECTORY, Outside, inside_workspace

CONTENT_BYTES_MAX = 1_048_576
ARGUMENTS_BYTES_MAX = 8 * CONTENT_BYTES_MAX  # JSON spells some bytes with six
COMMAND_CHARACTERS_MAX = 10_000
MESSAGE_CHARACTERS_MAX = 10_000
QUESTION_CHARACTERS_MAX = 4_000
SEARCH_CHARACTERS_MAX = 1_000
PATTERN_CHARACTERS_MAX = 200
PATHS_MAX = 1_000
PATHS_CHARACTERS_MAX = 65_536  # they stand in one event of the log
LINES_SHOWN_MAX = 2_000
TIMEOUT_S_MAX = 24 * 3600
REASON_CHARACTERS_MAX = 500

T = TypeVar("T")


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The root of the argument types; the JSON schema that a model sees is made from them."""


Path = Annotated[str, Meta(description="relative to the workspace, separated by /")]
Start = Annotated[str, Meta(description="directory or file to look in; the whole workspace if left out")]
Names = Annotated[
    str,
    Meta(max_length=PATTERN_CHARACTERS_MAX, description="only files whose path matches, such as *.py or src/**/*.ts"),
]


class ReadFile(Arguments, frozen=True, kw_only=True):
    path: Path
    offset_lines: Annotated[int, Meta(ge=1, description="the first line to show, counted from 1")] = 1
    limit_lines: Annotated[int, Meta(ge=1, description="how many lines to show at most")] = LINES_SHOWN_MAX


class ListFiles(Arguments, frozen=True, kw_only=True):
    path: Start = "."
    pattern: Names = ""


class Search(Arguments, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=SEARCH_CHARACTERS_MAX, description="what a line must hold")]
    regex: Annotated[bool, Meta(description="whether text is a regular expression (RE2)")] = False
    ignore_case: bool = False
    path: Start = "."
    pattern: Names = ""


class WriteFile(Arguments, frozen=True, kw_only=True):
    path: Path
    content: Annotated[str, Meta(description="the whole new content of the file")]


class EditFile(Arguments, frozen=True, kw_only=True):
    path: Path
    old: Annotated[str, Meta(min_length=1, description="text in the file, exactly as it stands there, line ends too")]
    new: Annotated[str, Meta(description="what shall stand there instead")]
    all: Annotated[bool, Meta(description="replace every occurrence; without it old must occur exactly once")] = False


class RunCommand(Arguments, frozen=True, kw_only=True):
    command: Annotated[str, Meta(min_length=1, max_length=COMMAND_CHARACTERS_MAX, description="a line for the shell")]
    timeout_s: (
        Annotated[float, Meta(gt=0, le=TIMEOUT_S_MAX, description="seconds after which it is stopped")] | UnsetType
    ) = UNSET


class GitCommit(Arguments, frozen=True, kw_only=True):
    message: Annotated[str, Meta(min_length=1, max_length=MESSAGE_CHARACTERS_MAX)]
    paths: Annotated[
        tuple[str, ...],
        Meta(max_length=PATHS_MAX, description="files or directories to commit; all that was changed if left out"),
    ] = ()


class AskUser(Arguments, frozen=True, kw_only=True):
    question: Annotated[str, Meta(min_length=1, max_length=QUESTION_CHARACTERS_MAX)]


KINDS: dict[str, tuple[type[Arguments], str]] = {
    "read_file": (ReadFile, "Show a text file of the workspace, or some of its lines."),
    "list_files": (ListFiles, "List the files of the workspace, those that git ignores left out."),
    "search": (Search, "Find the lines in files of the workspace that hold a text or match a regular expression."),
    "write_file": (WriteFile, "Make a file with this content, or replace the whole content of one that is there."),
    "edit_file": (EditFile, "Replace an exact piece of text in a file. Read the file before."),
    "run_command": (RunCommand, "Run a shell command in the workspace and show what it prints and how it ends."),
    "git_commit": (GitCommit, "Commit changes to git."),
    "ask_user": (AskUser, "Ask the person a question that only they can answer, and wait for the answer."),
}


def schema_of(kind: type[Arguments]) -> dict[str, Any]:
    """The JSON schema of one object, without the references that some endpoints do not resolve."""
    whole = msgspec.json.schema(kind)
    found = dict(whole["$defs"][kind.__name__])
    found.pop("title", None)
    return found


def tool_schema(name: str) -> messages.Tool:
    """The description of a tool for a model."""
    kind, description = KINDS[name]
    return messages.Tool(name=name, description=description, parameters=schema_of(kind))


# Arguments.


class Understood(NamedTuple):
    arguments: Arguments
    identity: Any  # what a later run must ask for again: the arguments in their one spelling


class Misunderstood(NamedTuple):
    reason: str
    malformed: bool  # else understood, and refused
    identity: Any


def understand(tool: str, text: str) -> Understood | Misunderstood:
    """The arguments that a model wrote, with their paths in the one spelling; or why nothing can be done with them."""
    if tool not in KINDS:
        return Misunderstood(
            f"There is no tool {tool[:REASON_CHARACTERS_MAX]!r}; there are: {', '.join(KINDS)}.", True, cleaned(text)
        )
    if len(text) > ARGUMENTS_BYTES_MAX:
        reason = f"The arguments have {len(text):,} characters, over the limit of {ARGUMENTS_BYTES_MAX:,}."
        return Misunderstood(reason, False, cleaned(text))
    kind = KINDS[tool][0]
    try:
        found = msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        return Misunderstood(f"The arguments are no JSON: {error}. {expected(kind)}", True, cleaned(text))
    if not isinstance(found, dict):
        return Misunderstood(f"The arguments are no JSON object. {expected(kind)}", True, cleaned(text))
    given = {name: value for name, value in found.items() if value is not None}  # null is how some leave things out
    try:
        arguments = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        return Misunderstood(f"{str(error)[:REASON_CHARACTERS_MAX]}. {expected(kind)}", True, given)
    try:
        return Understood(placed(arguments), given)
    except Outside as error:
        return Misunderstood(f"Refused: {error}", False, given)


def cleaned(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def expected(kind: type[Arguments]) -> str:
    fields = msgspec.structs.fields(kind)
    names = [field.name if field.required else f"{field.name} (optional)" for field in fields]
    return f"Expected is an object with: {', '.join(names)}."


def placed(arguments: Arguments) -> Arguments:
    """The arguments with every path inside the workspace, spelled in one way."""
    match arguments:
        case WriteFile() | EditFile():
            return msgspec.structs.replace(arguments, path=usable_path(arguments.path, changes=True))
        case ReadFile() | ListFiles() | Search():
            return msgspec.structs.replace(arguments, path=usable_path(arguments.path))
        case GitCommit(paths=paths) if sum(map(len, paths)) > PATHS_CHARACTERS_MAX:
            raise Outside(f"the paths have more than {PATHS_CHARACTERS_MAX:,} characters; name directories")
        case GitCommit():
            return msgspec.structs.replace(arguments, paths=tuple(usable_path(path) for path in arguments.paths))
        case _:
            return arguments


def usable_path(path: str, *, changes: bool = False) -> str:
    try:
        found = inside_workspace(path, changes=changes)
    except Outside as error:
        raise Outside(f"the path {path[:REASON_CHARACTERS_MAX]!r} cannot be used: {error}") from None
    if any(name.casefold() == OWN_DIRECTORY for name in found.split("/")):
        raise Outside(f"the path {found!r} cannot be used: {OWN_DIRECTORY}/ belongs to acode")
    return found
