"""One step of a plan: what it does, and what is said about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from acode.events.definition import Action, Approve, Command, Commit, Model, Read, Retry, Run, Sql, Step, Write
from acode.text import hides_something
from acode.workspacepath import Outside, inside_workspace
from acode.yamlfile import Node, listed, shown

Value = TypeVar("Value")

STEPS_MAX = 50_000
ID_CHARS_MAX = 64
TITLE_CHARS_MAX = 200
TIMEOUT_S_MAX = 30 * 24 * 3600
ATTEMPTS_MAX = 100
BACKOFF_S_MAX = 3600
# Linux refuses a single argument of 128 KiB; a character takes at most four bytes.
COMMAND_BYTES_MAX = 128 * 1024 - 1
ARGUMENTS_MAX = 1_000
QUESTION_CHARS_MAX = 2_000
MESSAGE_CHARS_MAX = 20_000
CONTENT_CHARS_MAX = 16 * 1024 * 1024
OUTPUTS_MAX = 200
PATHS_MAX = 1_000
ENV_NAMES_MAX = 200
ENV_NAME_CHARS_MAX = 128

# An id is part of file names, idempotency keys and environment variables, and of a sentence on a terminal.
ID_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{ID_CHARS_MAX - 1}}}"
ENV_NAME_PATTERN = rf"[A-Za-z_][A-Za-z0-9_]{{0,{ENV_NAME_CHARS_MAX - 1}}}"
MODE_PATTERN = "0?[0-7]{3}"
POSTGRES_PATTERN = r"postgres(ql)?://\S{1,2000}"
_ID, _ENV_NAME = re.compile(ID_PATTERN), re.compile(ENV_NAME_PATTERN)
_MODE, _POSTGRES = re.compile(MODE_PATTERN), re.compile(POSTGRES_PATTERN)

RESERVED_ENV = frozenset(
    f"ACODE_{name}" for name in ("SESSION_ID", "STEP_ID", "ATTEMPT", "IDEMPOTENCY_KEY", "OUTPUTS", "CHECKPOINT_SECRET")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The values of a step that declares no others."""

    timeout_s: float
    idempotent: bool = False
    words: bool = False  # a plan for a model: all of its steps are texts


# The keys that are allowed beside the action. Reads, writes, sql and commits carry their own evidence, so `idempotent`
# and `probe` would say nothing there; a write is undone from its pre-image; only a process or a database can run out of
# time.
MODIFIERS: Mapping[str, tuple[str, ...]] = {
    "read": ("id", "title", "retry"),
    "write": ("id", "title", "retry"),
    "run": ("id", "title", "idempotent", "probe", "outputs", "undo", "retry", "timeout", "cwd", "env", "secret_env"),
    "sql": ("id", "title", "undo", "retry", "timeout"),
    "commit": ("id", "title", "undo", "retry", "timeout"),
    "approve": ("id", "title"),
}
STEP_KEYS = (*MODIFIERS, *MODIFIERS["run"])
READ_KEYS = ("path",)
WRITE_KEYS = ("path", "content", "mode")
SQL_KEYS = ("database", "file")
DATABASE_KEYS = ("env",)
COMMIT_KEYS = ("message", "paths")
RETRY_KEYS = ("attempts", "backoff_seconds")


def read_step(node: Node, task_id: str, number: int, defaults: Defaults) -> Step | None:
    """The step; None where errors are gathered and it has some."""
    if defaults.words:
        return _text_step(node, task_id, number)
    source, known = node.source, node.source.mistakes
    entries = node.mapping(STEP_KEYS, "a step such as {run: make test}")
    if source.mistakes > known and not MODIFIERS.keys() & entries.keys():
        return None  # what the step does stands under a key that is reported already
    kind = _kind_of(node, entries)
    for key in [key for key in entries if key != kind and key not in MODIFIERS[kind]]:
        problem = source.problem(
            f"{shown(key)} does not apply to {kind} steps",
            where=node.where,
            at=entries.pop(key).key_at,
            hint=f"Beside {kind} may stand: {', '.join(MODIFIERS[kind])}.",
        )
        source.refuse(problem)
    name = optional(entries, "id", read_id) if "id" in entries else str(number)
    action = source.attempt(ACTIONS[kind], entries[kind], entries)
    idempotent = source.attempt(_idempotent, kind, entries, defaults)
    timeout_s = source.attempt(_timeout_s, kind, entries, defaults)
    retry, undo = optional(entries, "retry", _read_retry), optional(entries, "undo", read_command)
    title = optional(entries, "title", read_title) or ""
    if action is None or idempotent is None or source.mistakes > known:
        return None
    return Step(
        id=f"{task_id}.{name}",
        action=action,
        idempotent=idempotent,
        timeout_s=timeout_s,
        retry=retry,
        undo=undo,
        title=title,
    )


def own_id(node: Node, number: int) -> str | None:
    """The step's own part of its id; None where it cannot be read, which `read_step` has reported."""
    given = node.data.get("id") if isinstance(node.data, dict) else None
    if given is None:
        return str(number)
    return given.data if isinstance(given.data, str) and _ID.fullmatch(given.data) else None


def optional(entries: Mapping[str, Node], key: str, read: Callable[[Node], Value]) -> Value | None:
    """The value of a key that may be absent; None where it is, or where errors are gathered and it is wrong."""
    node = entries.get(key)
    return None if node is None else node.source.attempt(read, node)


def required(node: Node, entries: Mapping[str, Node], key: str, read: Callable[[Node], Value]) -> Value | None:
    """The value of a key that must be there; None where errors are gathered and it is missing or wrong."""

    def present() -> Value:
        if key not in entries:
            raise node.problem(f"expected the key {shown(key)}, found none")
        return read(entries[key])

    return node.source.attempt(present)


def _text_step(node: Node, task_id: str, number: int) -> Step:
    text = node.text(chars_max=QUESTION_CHARS_MAX)
    return Step(id=f"{task_id}.{number}", action=Model(text=text))


def _kind_of(node: Node, entries: Mapping[str, Node]) -> str:
    kinds = [key for key in entries if key in MODIFIERS]
    if len(kinds) != 1:
        found = f"{len(kinds)}: {', '.join(kinds)}" if kinds else "none"
        raise node.problem(
            f"expected one of {listed(MODIFIERS)}, found {found}",
            hint="Every step does one thing; begin each with a dash of its own.",
        )
    return kinds[0]


def _idempotent(kind: str, entries: Mapping[str, Node], defaults: Defaults) -> bool:
    if "idempotent" in entries:
        return entries["idempotent"].flag()
    return kind == "run" and defaults.idempotent


def _timeout_s(kind: str, entries: Mapping[str, Node], defaults: Defaults) -> float | None:
    if "timeout" in entries:
        return read_timeout(entries["timeout"])
    return defaults.timeout_s if "timeout" in MODIFIERS[kind] else None


def read_timeout(node: Node) -> float:
    return node.duration(0, TIMEOUT_S_MAX, above_low=True)


def _read_retry(node: Node) -> Retry:
    entries = node.mapping(RETRY_KEYS, "a mapping such as {attempts: 3, backoff_seconds: 2}")
    attempts = required(node, entries, "attempts", lambda entry: entry.whole(1, ATTEMPTS_MAX))
    backoff_s = optional(entries, "backoff_seconds", lambda entry: entry.duration(0, BACKOFF_S_MAX))
    return Retry(attempts=attempts or 1, backoff_s=backoff_s or 0.0)


# Names.


def read_id(node: Node) -> str:
    expected = f"an id of letters, digits, - and _, at most {ID_CHARS_MAX} characters, the first a letter or digit"
    if not isinstance(node.data, str) or not _ID.fullmatch(node.data):
        raise node.wrong(expected, hint="Quote it." if isinstance(node.data, int) else "For example: id: unit-tests")
    return node.data


def refuse_same_names(named: list[tuple[str, Node]], what: str) -> None:
    """Ids become file names, and some file systems take `Build` and `build` for one name."""
    seen: dict[str, tuple[str, Node]] = {}
    for name, node in named:
        if earlier := seen.get(name.casefold()):
            line = f"first in line {earlier[1].at.line}" if earlier[1].at else f"first at {earlier[1].where}"
            same = "twice" if earlier[0] == name else f"twice in different case ({shown(earlier[0])})"
            twice = f"the {what} {shown(name)} is there {same}, {line}"
            node.source.refuse(_id_node(node).problem(twice, hint="Give one of them another id."))
        seen.setdefault(name.casefold(), (name, node))


def _id_node(node: Node) -> Node:
    return node.data.get("id", node) if isinstance(node.data, dict) else node


def one_line(node: Node, *, chars_max: int) -> str:
    text = node.text("one line of text", chars_max=chars_max)
    if not text.isprintable():
        raise node.problem("expected one line of text, found a line break or control character")
    return text.strip()


def read_title(node: Node) -> str:
    """The title of a plan, a task or a step."""
    return one_line(node, chars_max=TITLE_CHARS_MAX)


# The kinds. A reader gets the value of the action's key and everything that stands beside it.


def _read_read(node: Node, _entries: Mapping[str, Node]) -> Read | None:
    if isinstance(node.data, str):
        return Read(path=read_path(node))
    entries = node.mapping(READ_KEYS, "a path, or a mapping with path")
    path = required(node, entries, "path", read_path)
    return None if path is None else Read(path=path)


def _read_write(node: Node, _entries: Mapping[str, Node]) -> Write | None:
    entries = node.mapping(WRITE_KEYS, "a mapping with path and content")
    path = required(node, entries, "path", _read_changed_path)
    content = required(node, entries, "content", _read_content)
    mode = optional(entries, "mode", _read_mode)
    return None if path is None or content is None else Write(path=path, content=content, mode=mode)


def _read_content(node: Node) -> str:
    if not isinstance(node.data, str):
        raise node.wrong("text", hint="Quote it, or write it as a block after |.")
    if len(node.data) > CONTENT_CHARS_MAX:
        raise node.problem(f"expected at most {CONTENT_CHARS_MAX:,} characters, found {len(node.data):,}")
    return node.data


def _read_mode(node: Node) -> str:
    if not isinstance(node.data, str) or not _MODE.fullmatch(node.data):
        raise node.wrong(
            'three octal digits as text, with or without a leading 0, such as "0644"', hint='Quote it: mode: "0644"'
        )
    return node.data.zfill(4)


def _read_run(node: Node, entries: Mapping[str, Node]) -> Run | None:
    env = optional(entries, "env", _read_env) or {}
    command = node.source.attempt(read_command, node)
    probe = optional(entries, "probe", _read_line)
    outputs = optional(entries, "outputs", _read_outputs) or ()
    cwd = optional(entries, "cwd", _read_directory)
    secret_env = optional(entries, "secret_env", lambda entry: _read_secret_env(entry, env)) or ()
    if command is None:
        return None
    return Run(command=command, probe=probe, outputs=outputs, cwd=cwd, env=env, secret_env=secret_env)


def read_command(node: Node) -> Command:
    hint = "For example: make test, or: [make, test]"
    if isinstance(node.data, str):
        return _read_line(node, hint=hint)
    if not isinstance(node.data, tuple):
        raise node.wrong("text or a list of texts", hint=hint)
    if not node.data:
        raise node.problem("expected text or a list of texts, found an empty list", hint=hint)
    items = node.items("a list of texts", items_max=ARGUMENTS_MAX)
    _read_line(items[0])
    return node.source.each(_argument, items)


def _argument(node: Node) -> str:
    """Unlike a command, an argument may be empty."""
    if not isinstance(node.data, str):
        raise node.wrong("text", hint="Quote it.")
    return _short_enough(node, node.data)


def _read_line(node: Node, *, hint: str | None = None) -> str:
    return _short_enough(node, node.text(chars_max=COMMAND_BYTES_MAX, hint=hint))


def _short_enough(node: Node, text: str) -> str:
    if (size := len(text.encode())) > COMMAND_BYTES_MAX:
        raise node.problem(f"expected at most {COMMAND_BYTES_MAX:,} bytes, found {size:,}")
    return text


def _read_outputs(node: Node) -> tuple[str, ...]:
    items = node.items('a list of paths or patterns, such as ["build/**"]', items_max=OUTPUTS_MAX)
    return node.source.each(_read_output, items)


def _read_output(node: Node) -> str:
    if isinstance(node.data, str) and node.data.startswith(("!", "#")):
        raise node.wrong("a path or pattern", hint="Name what the command changes; exclusions do not exist.")
    path = read_path(node, changes=True)
    return f"{path}/**" if str(node.data).endswith("/") else path


def _read_env(node: Node) -> dict[str, str]:
    if not isinstance(node.data, dict):
        raise node.wrong('a mapping of names to texts, such as {CI: "1"}')
    if len(node.data) > ENV_NAMES_MAX:
        raise node.problem(f"expected at most {ENV_NAMES_MAX} names, found {len(node.data)}")
    for name, value in node.data.items():
        node.source.attempt(_check_env_name, name, value)
    read = {name: node.source.attempt(_argument, value) for name, value in node.data.items()}
    return {name: text for name, text in read.items() if text is not None}


def _read_secret_env(node: Node, env: Mapping[str, str]) -> tuple[str, ...]:
    names: list[str] = []

    def read_name(item: Node) -> None:
        name = item.text("the name of an environment variable", chars_max=ENV_NAME_CHARS_MAX)
        _check_env_name(name, item)
        if name in env or name in names:
            raise item.problem(f"{shown(name)} is there twice", hint="A name stands once, in env or in secret_env.")
        names.append(name)

    for item in node.items("a list of names, such as [API_TOKEN]", items_max=ENV_NAMES_MAX):
        node.source.attempt(read_name, item)
    return tuple(names)


def _check_env_name(name: str, node: Node) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise node.problem(
            f"expected the name of an environment variable, found {shown(name)}",
            hint="Letters, digits and _, the first no digit. A secret's value belongs in the environment, not here.",
        )
    if name.upper() in RESERVED_ENV:
        raise node.problem(f"expected a name that acode does not use itself, found {shown(name)}")


def _read_sql(node: Node, _entries: Mapping[str, Node]) -> Sql | None:
    entries = node.mapping(SQL_KEYS, "a mapping with database and file")
    database = required(node, entries, "database", lambda entry: entry)
    file = required(node, entries, "file", read_path)
    place = None if database is None else node.source.attempt(_read_database, database)
    if place is None or file is None:
        return None
    return Sql(file=file, database=place[0], database_env=place[1])


def _read_database(node: Node) -> tuple[str | None, str | None]:
    """A path or URL, or the name of the environment variable that holds one."""
    if isinstance(node.data, dict):
        name = required(node, node.mapping(DATABASE_KEYS, "a mapping with env"), "env", _read_env_name)
        return None, name
    expected = "a sqlite file in the workspace, a postgres URL or {env: NAME}"
    if not isinstance(node.data, str):
        raise node.wrong(expected)
    if _POSTGRES.fullmatch(node.data):
        return node.data, None
    if "://" in node.data:
        # Not shown: a URL may hold a password.
        raise node.problem(f"expected {expected}, found another URL")
    return read_path(node, changes=True), None


def _read_env_name(node: Node) -> str:
    name = node.text("the name of an environment variable", chars_max=ENV_NAME_CHARS_MAX)
    _check_env_name(name, node)
    return name


def _read_commit(node: Node, _entries: Mapping[str, Node]) -> Commit | None:
    entries = node.mapping(COMMIT_KEYS, "a mapping with message and paths")
    message = required(node, entries, "message", lambda entry: entry.text(chars_max=MESSAGE_CHARS_MAX))
    paths = optional(entries, "paths", _read_paths) or ()
    return None if message is None else Commit(message=message, paths=paths)


def _read_paths(node: Node) -> tuple[str, ...]:
    return node.source.each(_read_commit_path, node.items("a list of paths", items_max=PATHS_MAX))


def _read_commit_path(node: Node) -> str:
    if isinstance(node.data, str) and node.data.startswith(":"):
        raise node.wrong("a path", hint="git's pathspecs with a leading : can leave the workspace.")
    return read_path(node, root=True)


def _read_approve(node: Node, _entries: Mapping[str, Node]) -> Approve:
    question = node.text("a question", chars_max=QUESTION_CHARS_MAX, hint='For example: approve: "Deploy?"')
    if hides_something(question):
        raise node.problem(
            "expected a question, found one with control or invisible characters",
            hint="What a person approves must read as what it is.",
        )
    return Approve(question=question.strip())


ACTIONS: Mapping[str, Callable[[Node, Mapping[str, Node]], Action | None]] = {
    "read": _read_read,
    "write": _read_write,
    "run": _read_run,
    "sql": _read_sql,
    "commit": _read_commit,
    "approve": _read_approve,
}


# Paths.


def read_path(node: Node, *, changes: bool = False, root: bool = False) -> str:
    """A path inside the workspace; `root` allows the workspace itself."""
    if not isinstance(node.data, str):
        raise node.wrong("a path", hint="Quote it." if isinstance(node.data, int | float) else None)
    try:
        path = inside_workspace(node.data, changes=changes)
    except Outside as error:
        raise node.problem(
            f"expected a path inside the workspace, found {shown(node.data)}: {error}",
            hint="Paths are relative to the workspace, separated by /.",
        ) from error
    if path == "." and not root:
        raise node.wrong("the path of a file")
    return path


def _read_changed_path(node: Node) -> str:
    return read_path(node, changes=True)


def _read_directory(node: Node) -> str:
    return read_path(node, root=True)
