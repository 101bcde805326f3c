"""Layers on top of each other: what is in force, and which of a workspace's settings need the user's trust.

A stronger layer replaces what a weaker one says. Rules for tools are the exception: they are put one behind the other,
because a workspace that brings rules of its own must not thereby do away with those that the user made.
"""

from __future__ import annotations

from typing import Any

from acode.config.layers import Entry, Layer
from acode.config.rules import DRIVERS
from acode.config.settings import Settings, ToolRule

TOOL_RULES = "tools.rules"
READ_ONLY = "tools.read_only"
_SENDS = ("model.base_url", "model.api_key_env", "sync.url", "notify.command", "fleet.store", "fleet.source")
_SPENDS = ("model.budget_tokens", "model.budget_usd")
_WEAKENS = {"hooks.on_error": "allow", "hooks.front": "never", "hooks.unknown": "ask"}  # what is watched, and how much


def merge(layers: tuple[Layer, ...], workspace_layer: int, held_back: tuple[str, ...]) -> dict[str, Entry]:
    """All that is said, the strongest first in `layers`; of the workspace's layer without what is held back."""
    merged: dict[str, Entry] = {}
    for index, layer in reversed(list(enumerate(layers))):
        left_out = held_back if index == workspace_layer else ()
        for key, entry in layer.items():
            if key == TOOL_RULES:
                merged[key] = _with_rules(entry, merged.get(key), trusted=key not in left_out)
            elif key not in left_out:
                merged[key] = entry
    return merged


def _with_rules(said: Entry, below: Entry | None, *, trusted: bool) -> Entry:
    """The rules of a layer before those below it. Only the restrictions of an untrusted layer count."""
    rules, known = _rules_of(said), _rules_of(below)
    behind: tuple[ToolRule, ...] = ()
    if not trusted:
        rules = tuple(rule for rule in rules if rule.answer != "allow")
        if any(rule.answer == "deny" for rule in known):  # an `ask` before it would loosen it
            behind = tuple(rule for rule in rules if rule.answer == "ask")
            rules = tuple(rule for rule in rules if rule.answer == "deny")
    origins = [said.origin] if trusted or rules or behind else []
    origins += [below.origin] if below is not None else []
    return Entry((*rules, *known, *behind), ", ".join(origins) or "default")


def _rules_of(entry: Entry | None) -> tuple[ToolRule, ...]:
    value: Any = () if entry is None else entry.value
    return tuple(value)


def executing(layers: tuple[Layer, ...], *, workspace_layer: int) -> tuple[str, ...]:
    """The workspace's settings that would make something run, be sent or be spent that would not without them.

    One that a flag overrides, or that repeats what is in force anyway, has no effect and needs no trust.
    """
    workspace = layers[workspace_layer]
    candidates = tuple(key for key, entry in workspace.items() if _executes_or_sends(key, entry.value))
    with_them, without = merge(layers, workspace_layer, ()), merge(layers, workspace_layer, candidates)
    return tuple(key for key in candidates if _loosens(key, with_them[key].value, _value_of(key, without)))


def _executes_or_sends(key: str, value: object) -> bool:
    if key in (TOOL_RULES, READ_ONLY, *_SPENDS):
        return True
    if key.startswith("tools."):
        return value == "allow"
    if key in _WEAKENS:
        return value == _WEAKENS[key]
    return value is not None and (key in _SENDS or key.startswith(f"{DRIVERS}."))


def _loosens(key: str, value: Any, without: Any) -> bool:
    """Whether the value lets more happen than the one that would stand without it."""
    if key == READ_ONLY:
        return not set(value) <= set(without)
    if key in _SPENDS:
        return without is not None and (value is None or value > without)
    return bool(value != without)


def _value_of(key: str, merged: Layer) -> Any:
    if key in merged:
        return merged[key].value
    return None if key.startswith(f"{DRIVERS}.") else _default(key)


def _default(key: str) -> object:
    value: Any = Settings()
    for name in key.split("."):
        value = getattr(value, name)
    return value
