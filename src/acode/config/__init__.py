"""Typed settings: flag, environment, the workspace's file, the user's file, default, in this order.

A workspace may be the repository of another person. Its settings that execute or send something are therefore held back
until the user trusts the very file they are in; `load_config` never lets them through, only `effective(config,
trusted=True)` does. Loading costs no YAML parser where there is no file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from acode.config.layer_merge import executing, merge
from acode.config.layers import Layer, from_environment, from_file, from_flags, strange_variables
from acode.config.places import CONFIG_NAME, state_dir, user_config_dir, workspace_config_path
from acode.config.rules import DRIVER_NAMES, DRIVERS, RULES
from acode.config.settings import Driver, Fleet, Hooks, Section, Settings
from acode.config.trust import is_trusted, trust
from acode.errors import BadConfig
from acode.yamlfile import Source, decode_text, did_you_mean, parse, read_bytes, shown

__all__ = [
    "RULES",
    "Config",
    "Driver",
    "Settings",
    "effective",
    "is_trusted",
    "known_keys",
    "load_config",
    "state_dir",
    "trust",
    "user_config_dir",
    "workspace_config_path",
]

CONFIG_BYTES_MAX = 65_536
SectionT = TypeVar("SectionT", bound=Section)
# At their defaults these do not count in the digest, or the configuration of every session of 0.1 would seem changed.
SINCE_0_1: Final = {
    "sync": ("release",),
    "notify": ("on",),
    "hooks": Hooks.__struct_fields__,
    "fleet": Fleet.__struct_fields__,
}


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force and where each was said.

    `executes` names the workspace's settings that execute or send something; they are in `settings` only if `trusted`.
    """

    settings: Settings
    executes: tuple[str, ...]
    workspace_file_sha256: str | None
    warnings: tuple[str, ...]
    trusted: bool
    layers: tuple[Layer, ...]  # strongest first
    workspace_layer: int

    def origin(self, key: str) -> str:
        """Where the value in force was said: flag, a variable, a file with its line, or default."""
        if key not in known_keys():
            raise BadConfig(f"unknown setting {shown(key)}{did_you_mean(key, known_keys())}")
        held_back = () if self.trusted else self.executes
        merged = merge(self.layers, self.workspace_layer, held_back)
        where = merged[key].origin if key in merged else "default"
        if key in held_back:
            where += f" ({self.layers[self.workspace_layer][key].origin} is not trusted)"
        return where

    @property
    def digest(self) -> str:
        """A hash of the settings in force, to notice that they changed. It must not let anyone guess a password."""
        from acode.events.definition import digest

        url = self.settings.sync.url
        public = msgspec.structs.replace(self.settings.sync, url=without_password(url) if url else None)
        plain = msgspec.to_builtins(msgspec.structs.replace(self.settings, sync=public))
        default = msgspec.to_builtins(Settings())
        for section, names in SINCE_0_1.items():
            for name in names:
                if plain[section][name] == default[section][name]:
                    del plain[section][name]
            if not plain[section]:
                del plain[section]
        return digest(plain)


def load_config(workspace: Path, env: Mapping[str, str], flags: Mapping[str, object]) -> Config:
    """The settings for a workspace; those that execute or send are held back until `effective` gets `trusted=True`."""
    workspace_raw = _read_if_there(workspace_config_path(workspace))
    user_path = user_config_dir(env) / CONFIG_NAME
    user_raw = _read_if_there(user_path)
    layers = (
        from_flags(flags),
        from_environment(env),
        _parse_file(workspace_raw, workspace_config_path(workspace)),
        _parse_file(user_raw, user_path),
    )
    config = Config(
        settings=Settings(),
        executes=executing(layers, workspace_layer=2),
        workspace_file_sha256=None if workspace_raw is None else hashlib.sha256(workspace_raw).hexdigest(),
        warnings=strange_variables(env),
        trusted=False,
        layers=layers,
        workspace_layer=2,
    )
    return effective(config, trusted=False)


def effective(config: Config, *, trusted: bool) -> Config:
    """The configuration with the workspace's executing settings in force, or with the values that hold without them."""
    held_back = () if trusted else config.executes
    merged = merge(config.layers, config.workspace_layer, held_back)
    settings = _assemble({key: entry.value for key, entry in merged.items()})
    return msgspec.structs.replace(config, settings=settings, trusted=trusted)


def known_keys() -> tuple[str, ...]:
    return (*RULES, *(f"{DRIVERS}.{name}" for name in DRIVER_NAMES))


def without_password(url: str) -> str:
    """The URL as it may be shown: neither the user's part nor the options, where passwords can stand too."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


# Layers to settings.


def _read_if_there(path: Path) -> bytes | None:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass  # It is there and cannot be looked at: reading it says why.
    return read_bytes(path, Source(str(path), BadConfig), bytes_max=CONFIG_BYTES_MAX)


def _parse_file(raw: bytes | None, path: Path) -> Layer:
    if raw is None:
        return {}
    source = Source(str(path), BadConfig)
    return from_file(parse(decode_text(raw, source), source))


def _assemble(values: Mapping[str, object]) -> Settings:
    prefix = f"{DRIVERS}."
    drivers = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    return msgspec.structs.replace(_fill(Settings(), values), drivers=drivers)


def _fill(section: SectionT, values: Mapping[str, object], prefix: str = "") -> SectionT:
    """The section with the values that are said; everything else stays at its default."""
    changes: dict[str, object] = {}
    for name in section.__struct_fields__:
        current, key = getattr(section, name), f"{prefix}{name}"
        if isinstance(current, Section):
            changes[name] = _fill(current, values, f"{key}.")
        elif key in values:
            changes[name] = values[key]
    return msgspec.structs.replace(section, **changes)
