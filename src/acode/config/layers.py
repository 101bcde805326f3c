"""One layer of settings from one place: a file, the environment, or the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from acode.config.rules import DRIVER_NAMES, DRIVERS, RULES, TELEMETRY, TIMEOUT_S_MAX, arguments, texts
from acode.config.settings import DRIVING_AGENTS, Driver
from acode.errors import BadConfig
from acode.workspacepath import Outside, inside_workspace
from acode.yamlfile import Node, Source, did_you_mean, from_data, shown

PROBE_CHARS_MAX = 10_000
COMMON_DRIVER_KEYS = ("idempotent", "timeout", "probe", "cwd")
COMMAND_DRIVER_KEYS = ("command", *COMMON_DRIVER_KEYS)
AGENT_DRIVER_KEYS = ("agent", "arguments", *COMMON_DRIVER_KEYS)


class Entry(NamedTuple):
    """A value and where it was said. Shown without the value, which may hold a password."""

    value: object
    origin: str

    def __repr__(self) -> str:
        return f"<{self.origin}>"


Layer = Mapping[str, Entry]


# Files.


def from_file(root: Node) -> Layer:
    """The settings of a file. A section without content says nothing: its keys may all be commented out."""
    found: dict[str, Entry] = {}
    _read_section(root, "", found)
    return found


def _read_section(node: Node, prefix: str, found: dict[str, Entry]) -> None:
    if node.data is None:
        return
    expected = f"the settings of {prefix.rstrip('.')}" if prefix else "settings"
    for name, entry in node.mapping(names_below(prefix), f"a mapping with {expected}").items():
        key = f"{prefix}{name}"
        if key == DRIVERS:
            _read_drivers(entry, found)
        elif key in RULES:
            found[key] = Entry(RULES[key].read(entry), _origin(entry))
        else:
            _read_section(entry, f"{key}.", found)


def names_below(prefix: str) -> tuple[str, ...]:
    below = (
        key.removeprefix(prefix).partition(".")[0] for key in (*RULES, DRIVERS, TELEMETRY) if key.startswith(prefix)
    )
    return tuple(dict.fromkeys(below))


def _origin(node: Node) -> str:
    return f"{node.source.name}:{node.at.line}" if node.at else node.source.name


def _read_drivers(node: Node, found: dict[str, Entry]) -> None:
    if node.data is None:
        return
    for name, entry in node.mapping(DRIVER_NAMES, "a mapping of formats to drivers").items():
        found[f"{DRIVERS}.{name}"] = Entry(_read_driver(entry), _origin(entry))


def _read_driver(node: Node) -> Driver:
    entries = node.mapping(("command", *AGENT_DRIVER_KEYS), "a mapping with command or agent")
    if "command" not in entries and "agent" not in entries:
        raise node.problem(
            'expected the key "command" or "agent", found none',
            hint="For example: {agent: claude}, or {command: [my-agent, --go]}",
        )
    for name in ("agent", "arguments"):
        if "command" in entries and name in entries:
            raise entries[name].problem(f"expected either command or agent, found command and {name}")
    defaults = Driver()
    agent, extra = entries.get("agent"), entries.get("arguments")
    probe, cwd, timeout = entries.get("probe"), entries.get("cwd"), entries.get("timeout")
    return Driver(
        command=arguments(entries["command"]) if "command" in entries else (),
        agent=agent.choice(*DRIVING_AGENTS) if agent else "",
        arguments=texts(extra) if extra else (),
        idempotent=entries["idempotent"].flag() if "idempotent" in entries else defaults.idempotent,
        timeout_s=timeout.duration(0, TIMEOUT_S_MAX, above_low=True) if timeout else defaults.timeout_s,
        probe=probe.text(chars_max=PROBE_CHARS_MAX) if probe else None,
        cwd=_read_directory(cwd) if cwd else None,
    )


def _read_directory(node: Node) -> str:
    if not isinstance(node.data, str):
        raise node.wrong("a path inside the workspace")
    try:
        return inside_workspace(node.data)
    except Outside as error:
        raise node.problem(f"expected a path inside the workspace, found {shown(node.data)}: {error}") from error


# The environment.

NAMED = {"ACODE_MODEL": "model.name", "ACODE_POSTGRES_URL": "sync.url"}
# Set by acode itself for the commands it runs, where acode may run again.
_NO_SETTING = ("ACODE_SESSION_ID",)


def variable_of(key: str) -> str:
    return f"ACODE_{key.upper().replace('.', '_')}"


def from_environment(env: Mapping[str, str]) -> Layer:
    """The settings in `ACODE_*`. An empty variable sets nothing, as everywhere in Unix."""
    variables = {variable_of(key): key for key in RULES} | NAMED
    found: dict[str, Entry] = {}
    for variable, key in variables.items():
        if text := env.get(variable, ""):
            source = Source(f"environment {variable}", BadConfig)
            node = from_data(RULES[key].of_text(text), source, where=key)
            found[key] = Entry(RULES[key].read(node), source.name)
    return found


def strange_variables(env: Iterable[str]) -> tuple[str, ...]:
    """Variables that look like a setting and are none. Not an error: the environment is shared with other programs."""
    known = {variable_of(key) for key in RULES} | set(NAMED)
    sections = tuple(f"ACODE_{name.upper()}_" for name in names_below(""))
    return tuple(
        f"{shown(name)[1:-1]} is no setting{did_you_mean(name, known)}"
        for name in sorted(env)
        if name.startswith(sections) and name not in known and name not in _NO_SETTING
    )


# The command line.


def from_flags(flags: Mapping[str, object]) -> Layer:
    """Flags by the key they set; None is a flag that was not given."""
    source = Source("command line", BadConfig)
    found: dict[str, Entry] = {}
    for key, value in flags.items():
        if value is None:
            continue
        if key not in RULES:
            raise source.problem(f"unknown setting {shown(key)}{did_you_mean(key, RULES)}")
        typed = RULES[key].of_text(value) if isinstance(value, str) else value
        found[key] = Entry(RULES[key].read(from_data(typed, source, where=key)), "flag")
    return found
