"""One step of a plan: what it does, and what is said about it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from acode.events.definition import Action, Approve, Command, Commit, Model, Read, Retry, Run, Sql, Step, Write
from acode.workspacepath import Outside, inside_workspace
from acode.yamlfile import Node, listed, shown

STEPS_MAX = 50_000
ID_CHARS_MAX = 64
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
_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{ID_CHARS_MAX - 1}}}")
_ENV_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{ENV_NAME_CHARS_MAX - 1}}}")
_MODE = re.compile(r"0?[0-7]{3}")
_POSTGRES = re.compile(r"postgres(ql)?://\S{1,2000}")

RESERVED_ENV = frozenset(
    f"ACODE_{name}" for name in ("SESSION_ID", "STEP_ID", "ATTEMPT", "IDEMPOTENCY_KEY", "OUTPUTS", "CHECKPOINT_SECRET")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a step has that says nothing else."""

    timeout_s: float
    idempotent: bool = False
    words: bool = False  # a plan for a model: all of its steps are in words


# What may stand beside the action. Reads, writes, sql and commits carry their own evidence, so `idempotent` and `probe`
# would say nothing there; a write is undone from its pre-image; only a process or a database can run out of time.
MODIFIERS: Mapping[str, tuple[str, ...]] = {
    "read": ("id", "retry"),
    "write": ("id", "retry"),
    "run": ("id", "idempotent", "probe", "outputs", "undo", "retry", "timeout", "cwd", "env", "secret_env"),
    "sql": ("id", "undo", "retry", "timeout"),
    "commit": ("id", "undo", "retry", "timeout"),
    "approve": ("id",),
}
STEP_KEYS = (*MODIFIERS, *MODIFIERS["run"])


def read_step(node: Node, task_id: str, number: int, defaults: Defaults) -> Step:
    if defaults.words:
        return _step_in_words(node, task_id, number)
    entries = node.mapping(STEP_KEYS, "a step such as {run: make test}")
    kind = _kind_of(node, entries)
    for key, entry in entries.items():
        if key != kind and key not in MODIFIERS[kind]:
            raise node.source.problem(
                f"{shown(key)} does not apply to {kind} steps",
                where=node.where,
                at=entry.key_at,
                hint=f"Beside {kind} may stand: {', '.join(MODIFIERS[kind])}.",
            )
    own_id = read_id(entries["id"]) if "id" in entries else str(number)
    return Step(
        id=f"{task_id}.{own_id}",
        action=ACTIONS[kind](entries[kind], entries),
        idempotent=_idempotent(kind, entries, defaults),
        timeout_s=_timeout_s(kind, entries, defaults),
        retry=_read_retry(entries["retry"]) if "retry" in entries else None,
        undo=read_command(entries["undo"]) if "undo" in entries else None,
    )


def _step_in_words(node: Node, task_id: str, number: int) -> Step:
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
        return entries["timeout"].number(0, TIMEOUT_S_MAX, above_low=True, unit="seconds")
    return defaults.timeout_s if "timeout" in MODIFIERS[kind] else None


def _read_retry(node: Node) -> Retry:
    entries = node.mapping(("attempts", "backoff_seconds"), "a mapping such as {attempts: 3, backoff_seconds: 2}")
    if "attempts" not in entries:
        raise node.problem('expected the key "attempts", found none')
    backoff = entries.get("backoff_seconds")
    return Retry(
        attempts=entries["attempts"].whole(1, ATTEMPTS_MAX),
        backoff_s=backoff.number(0, BACKOFF_S_MAX, unit="seconds") if backoff else 0.0,
    )


# Names.


def read_id(node: Node) -> str:
    expected = f"an id of letters, digits, - and _, at most {ID_CHARS_MAX} characters, the first a letter or digit"
    if not isinstance(node.data, str) or not _ID.fullmatch(node.data):
        raise node.wrong(expected, hint="Quote it." if isinstance(node.data, int) else "For example: id: unit-tests")
    return node.data


def refuse_same_names(named: list[tuple[str, Node]], what: str) -> None:
    """Ids become file names, and some file systems do not tell `Build` from `build`."""
    seen: dict[str, tuple[str, Node]] = {}
    for name, node in named:
        if earlier := seen.get(name.casefold()):
            line = f"first in line {earlier[1].at.line}" if earlier[1].at else f"first at {earlier[1].where}"
            same = "twice" if earlier[0] == name else f"twice in different case ({shown(earlier[0])})"
            raise _id_node(node).problem(
                f"the {what} {shown(name)} is there {same}, {line}", hint="Give one of them another id."
            )
        seen[name.casefold()] = (name, node)


def _id_node(node: Node) -> Node:
    return node.data.get("id", node) if isinstance(node.data, dict) else node


def one_line(node: Node, *, chars_max: int) -> str:
    text = node.text("one line of text", chars_max=chars_max)
    if not text.isprintable():
        raise node.problem("expected one line of text, found a line break or control character")
    return text.strip()


# The kinds. A reader gets the value of the action's key and everything that stands beside it.


def _read_read(node: Node, _entries: Mapping[str, Node]) -> Read:
    if isinstance(node.data, str):
        return Read(path=read_path(node))
    entries = node.mapping(("path",), "a path, or a mapping with path")
    return Read(path=read_path(_required(node, entries, "path")))


def _read_write(node: Node, _entries: Mapping[str, Node]) -> Write:
    entries = node.mapping(("path", "content", "mode"), "a mapping with path and content")
    path = read_path(_required(node, entries, "path"), changes=True)
    content = _required(node, entries, "content")
    if not isinstance(content.data, str):
        raise content.wrong("text", hint="Quote it, or write it as a block after |.")
    if len(content.data) > CONTENT_CHARS_MAX:
        raise content.problem(f"expected at most {CONTENT_CHARS_MAX:,} characters, found {len(content.data):,}")
    return Write(path=path, content=content.data, mode=_read_mode(entries["mode"]) if "mode" in entries else None)


def _read_mode(node: Node) -> str:
    if not isinstance(node.data, str) or not _MODE.fullmatch(node.data):
        raise node.wrong(
            'three octal digits as text, with or without a leading 0, such as "0644"', hint='Quote it: mode: "0644"'
        )
    return node.data.zfill(4)


def _read_run(node: Node, entries: Mapping[str, Node]) -> Run:
    env = _read_env(entries["env"]) if "env" in entries else {}
    return Run(
        command=read_command(node),
        probe=_read_line(entries["probe"]) if "probe" in entries else None,
        outputs=_read_outputs(entries["outputs"]) if "outputs" in entries else (),
        cwd=read_path(entries["cwd"], root=True) if "cwd" in entries else None,
        env=env,
        secret_env=_read_secret_env(entries["secret_env"], env) if "secret_env" in entries else (),
    )


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
    return tuple(_argument(item) for item in items)


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
    patterns: list[str] = []
    for item in node.items('a list of paths or patterns, such as ["build/**"]', items_max=OUTPUTS_MAX):
        if isinstance(item.data, str) and item.data.startswith(("!", "#")):
            raise item.wrong("a path or pattern", hint="Name what the command changes; exclusions do not exist.")
        path = read_path(item, changes=True)
        patterns.append(f"{path}/**" if str(item.data).endswith("/") else path)
    return tuple(patterns)


def _read_env(node: Node) -> dict[str, str]:
    if not isinstance(node.data, dict):
        raise node.wrong('a mapping of names to texts, such as {CI: "1"}')
    if len(node.data) > ENV_NAMES_MAX:
        raise node.problem(f"expected at most {ENV_NAMES_MAX} names, found {len(node.data)}")
    for name, value in node.data.items():
        _check_env_name(name, value)
    return {name: _argument(value) for name, value in node.data.items()}


def _read_secret_env(node: Node, env: Mapping[str, str]) -> tuple[str, ...]:
    names: list[str] = []
    for item in node.items("a list of names, such as [API_TOKEN]", items_max=ENV_NAMES_MAX):
        name = item.text("the name of an environment variable", chars_max=ENV_NAME_CHARS_MAX)
        _check_env_name(name, item)
        if name in env or name in names:
            raise item.problem(f"{shown(name)} is there twice", hint="A name stands once, in env or in secret_env.")
        names.append(name)
    return tuple(names)


def _check_env_name(name: str, node: Node) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise node.problem(
            f"expected the name of an environment variable, found {shown(name)}",
            hint="Letters, digits and _, the first no digit. A secret's value belongs in the environment, not here.",
        )
    if name.upper() in RESERVED_ENV:
        raise node.problem(f"expected a name that acode does not use itself, found {shown(name)}")


def _read_sql(node: Node, _entries: Mapping[str, Node]) -> Sql:
    entries = node.mapping(("database", "file"), "a mapping with database and file")
    database = _required(node, entries, "database")
    file = read_path(_required(node, entries, "file"))
    if isinstance(database.data, dict):
        source = _required(database, database.mapping(("env",), "a mapping with env"), "env")
        name = source.text("the name of an environment variable", chars_max=ENV_NAME_CHARS_MAX)
        _check_env_name(name, source)
        return Sql(file=file, database_env=name)
    expected = "a sqlite file in the workspace, a postgres URL or {env: NAME}"
    if not isinstance(database.data, str):
        raise database.wrong(expected)
    if _POSTGRES.fullmatch(database.data):
        return Sql(file=file, database=database.data)
    if "://" in database.data:
        # Not shown: a URL may hold a password.
        raise database.problem(f"expected {expected}, found another URL")
    return Sql(file=file, database=read_path(database, changes=True))


def _read_commit(node: Node, _entries: Mapping[str, Node]) -> Commit:
    entries = node.mapping(("message", "paths"), "a mapping with message and paths")
    message = _required(node, entries, "message").text(chars_max=MESSAGE_CHARS_MAX)
    paths: list[str] = []
    if "paths" in entries:
        for item in entries["paths"].items("a list of paths", items_max=PATHS_MAX):
            if isinstance(item.data, str) and item.data.startswith(":"):
                raise item.wrong("a path", hint="git's pathspecs with a leading : can leave the workspace.")
            paths.append(read_path(item, root=True))
    return Commit(message=message, paths=tuple(paths))


def _read_approve(node: Node, _entries: Mapping[str, Node]) -> Approve:
    question = node.text("a question", chars_max=QUESTION_CHARS_MAX, hint='For example: approve: "Deploy?"')
    if any(unicodedata.category(c) in ("Cc", "Cf") and c != "\n" for c in question):
        raise node.problem(
            "expected a question, found one with control or invisible characters",
            hint="What a person approves must read as what it is.",
        )
    return Approve(question=question.strip())


ACTIONS: Mapping[str, Callable[[Node, Mapping[str, Node]], Action]] = {
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


def _required(node: Node, entries: Mapping[str, Node], key: str) -> Node:
    if key not in entries:
        raise node.problem(f"expected the key {shown(key)}, found none")
    return entries[key]
