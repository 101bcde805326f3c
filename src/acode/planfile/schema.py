"""The JSON Schema of plan files, put together from the tables and limits of the reader.

A key that the reader learns and that has no entry here ends in a KeyError, which a test sees before an editor does.
"""

from __future__ import annotations

from collections.abc import Mapping

from acode.hints import Command, Subject
from acode.planfile import steps as rules
from acode.planfile import tasks
from acode.workspacepath import PATH_BYTES_MAX
from acode.yamlfile import schema
from acode.yamlfile.schema import Schema, described

COMMAND = Command("schema plan").as_command(Subject())

_TITLE = {**schema.text(chars_max=rules.TITLE_CHARS_MAX), "not": {"pattern": "[\\u0000-\\u001f\\u007f-\\u009f]"}}
_ID = schema.matching(rules.ID_PATTERN)
_ENV_NAME = schema.matching(rules.ENV_NAME_PATTERN)
_LINE = schema.text(chars_max=rules.COMMAND_BYTES_MAX)
_ARGUMENT: Schema = {"type": "string", "maxLength": rules.COMMAND_BYTES_MAX}
_TIMEOUT = schema.duration(0, rules.TIMEOUT_S_MAX, above_low=True)
# Absolute, through .., with a backslash, a control character, a drive letter, ~ or a blank at an end.
_OUTSIDE = r"^/|(^|/)\.\.(/|$)|\\|^[A-Za-z]:|^~(/|$)|^\s|\s$|[\u0000-\u001f\u007f-\u009f]"
_PATH: Schema = {"type": "string", "minLength": 1, "maxLength": PATH_BYTES_MAX, "not": {"pattern": _OUTSIDE}}


def _path_without(pattern: str) -> Schema:
    return {**_PATH, "not": {"pattern": f"{_OUTSIDE}|{pattern}"}}


_COMMAND = schema.one_of(
    _LINE,
    {**schema.items(_ARGUMENT, items_min=1, items_max=rules.ARGUMENTS_MAX), "prefixItems": [_LINE]},
)
_DATABASE = schema.one_of(
    _path_without("://"),
    schema.matching(rules.POSTGRES_PATTERN),
    schema.mapping(dict(zip(rules.DATABASE_KEYS, (_ENV_NAME,), strict=True)), required=rules.DATABASE_KEYS),
)
_RETRY = schema.mapping(
    dict(
        zip(
            rules.RETRY_KEYS,
            (schema.whole(1, rules.ATTEMPTS_MAX), schema.duration(0, rules.BACKOFF_S_MAX)),
            strict=True,
        )
    ),
    required=("attempts",),
)
_WRITE: Mapping[str, Schema] = {
    "path": _PATH,
    "content": {"type": "string", "maxLength": rules.CONTENT_CHARS_MAX},
    "mode": schema.matching(rules.MODE_PATTERN),
}
_COMMIT: Mapping[str, Schema] = {
    "message": schema.text(chars_max=rules.MESSAGE_CHARS_MAX),
    "paths": schema.items(_path_without("^:"), items_max=rules.PATHS_MAX),
}

ACTIONS: Mapping[str, Schema] = {
    "read": described(
        schema.one_of(_PATH, schema.mapping(dict.fromkeys(rules.READ_KEYS, _PATH), required=rules.READ_KEYS)),
        "Read a file and watch it for changes.",
    ),
    "write": described(
        schema.mapping({key: _WRITE[key] for key in rules.WRITE_KEYS}, required=("path", "content")),
        "Write a file, whole or not at all.",
    ),
    "run": described(_COMMAND, "Run a line for /bin/sh -c, or a list of arguments."),
    "sql": described(
        schema.mapping(
            {key: {"database": _DATABASE, "file": _PATH}[key] for key in rules.SQL_KEYS}, required=rules.SQL_KEYS
        ),
        "Apply a file of statements exactly once: to a sqlite file, a postgres URL or {env: NAME}.",
    ),
    "commit": described(
        schema.mapping({key: _COMMIT[key] for key in rules.COMMIT_KEYS}, required=("message",)),
        "Make a git commit exactly once.",
    ),
    "approve": described(
        schema.text(chars_max=rules.QUESTION_CHARS_MAX), "Ask a person; the steps behind it wait for a yes."
    ),
}

MODIFIERS: Mapping[str, Schema] = {
    "id": described(_ID, "The step is called <task>.<id>; by default it gets a number."),
    "title": described(_TITLE, "The name that people see instead of the command."),
    "idempotent": described(schema.flag(), "Running it twice does no harm: it is repeated after a crash."),
    "probe": described(_LINE, "A read-only command that is asked after a crash: exit 0 it happened, 1 it did not."),
    "outputs": described(
        schema.items(_path_without("^[!#]"), items_max=rules.OUTPUTS_MAX),
        "Its only effects: they are rolled back after a crash, and it is repeated.",
    ),
    "undo": described(_COMMAND, "The command that undoes it where the session is rolled back."),
    "retry": described(_RETRY, "Try a failed step again, if it may be repeated."),
    "timeout": described(_TIMEOUT, "Seconds, or a duration such as 30m."),
    "cwd": described(_PATH, "The working directory, inside the workspace."),
    "env": described(
        {
            "type": "object",
            "propertyNames": {**_ENV_NAME, "not": {"enum": sorted(rules.RESERVED_ENV)}},
            "additionalProperties": _ARGUMENT,
            "maxProperties": rules.ENV_NAMES_MAX,
        },
        "Variables for this command.",
    ),
    "secret_env": described(
        schema.items(_ENV_NAME, items_max=rules.ENV_NAMES_MAX, unique=True),
        "Variables of your environment whose values are redacted everywhere.",
    ),
}


def step_schema() -> Schema:
    """One alternative for each kind: its action, and what may stand beside it."""
    kinds = [
        schema.mapping({kind: ACTIONS[kind], **{key: MODIFIERS[key] for key in beside}}, required=(kind,))
        for kind, beside in rules.MODIFIERS.items()
    ]
    return schema.one_of(*kinds)


def task_schema() -> Schema:
    values: Mapping[str, Schema] = {
        "id": described(_ID, "By default made from the title."),
        "title": described(_TITLE, "The name that people see."),
        "needs": described(
            schema.items(schema.text(chars_max=rules.TITLE_CHARS_MAX), items_max=tasks.TASKS_MAX, unique=True),
            "The ids of the tasks that must be done before; by default the task before it, [] for none.",
        ),
        "steps": schema.items({"$ref": "#/$defs/step"}, items_min=1, items_max=rules.STEPS_MAX),
    }
    task = schema.mapping({key: values[key] for key in tasks.TASK_KEYS}, required=("steps",))
    return {**task, "anyOf": [{"required": ["id"]}, {"required": ["title"]}]}


def plan_schema() -> Schema:
    defaults = {"idempotent": schema.flag(), "timeout": _TIMEOUT}
    values: Mapping[str, Schema] = {
        "version": described({"const": 1}, "The version of the format."),
        "title": described(_TITLE, "By default the name of the file."),
        "on_failure": described(schema.choice(*tasks.ON_FAILURE), "The effect of a failed step on the session."),
        "parallel": described(
            schema.whole(1, tasks.PARALLEL_MAX),
            "The number of tasks that may run at the same time once their needs are done; by default 1.",
        ),
        "defaults": described(
            schema.one_of(schema.NULL, schema.mapping({key: defaults[key] for key in tasks.DEFAULTS_KEYS})),
            "Defaults for the steps of this plan.",
        ),
        "tasks": schema.items({"$ref": "#/$defs/task"}, items_min=1, items_max=tasks.TASKS_MAX),
    }
    plan = schema.mapping({key: values[key] for key in tasks.PLAN_KEYS}, required=("tasks",))
    parts = {"task": task_schema(), "step": step_schema()}
    return schema.document({**plan, "$defs": parts}, title="acode plan", command=COMMAND)
