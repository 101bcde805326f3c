"""The JSON Schema of .agent/config.yml and the user's config.yml, put together from the rules of the settings."""

from __future__ import annotations

from collections.abc import Mapping

from acode.config.layers import AGENT_DRIVER_KEYS, COMMAND_DRIVER_KEYS, PROBE_CHARS_MAX, names_below
from acode.config.rules import ARGUMENTS_MAX, COMMAND_SCHEMA, DRIVER_NAMES, DRIVERS, RULES, TIMEOUT_S_MAX
from acode.config.settings import DRIVING_AGENTS
from acode.hints import Command, Subject
from acode.workspacepath import PATH_BYTES_MAX
from acode.yamlfile import schema
from acode.yamlfile.schema import Schema

COMMAND = Command("schema config").as_command(Subject())

_DRIVER_VALUES: Mapping[str, Schema] = {
    "command": COMMAND_SCHEMA,
    "agent": schema.choice(*DRIVING_AGENTS),
    "arguments": schema.items({"type": "string"}, items_max=ARGUMENTS_MAX),
    "idempotent": schema.flag(),
    "timeout": schema.duration(0, TIMEOUT_S_MAX, above_low=True),
    "probe": schema.text(chars_max=PROBE_CHARS_MAX),
    "cwd": {"type": "string", "minLength": 1, "maxLength": PATH_BYTES_MAX},
}


def config_schema() -> Schema:
    return schema.document(_section(""), title="acode configuration", command=COMMAND)


def _section(prefix: str) -> Schema:
    """A section, or nothing: all of its keys may be commented out."""
    properties = {name: _value(f"{prefix}{name}") for name in names_below(prefix)}
    return schema.one_of(schema.NULL, schema.mapping(properties))


def _value(key: str) -> Schema:
    if key == DRIVERS:
        driver = schema.one_of(_driver(COMMAND_DRIVER_KEYS, "command"), _driver(AGENT_DRIVER_KEYS, "agent"))
        return schema.one_of(schema.NULL, schema.mapping(dict.fromkeys(DRIVER_NAMES, driver)))
    return RULES[key].schema if key in RULES else _section(f"{key}.")


def _driver(keys: tuple[str, ...], needed: str) -> Schema:
    return schema.mapping({name: _DRIVER_VALUES[name] for name in keys}, required=(needed,))
