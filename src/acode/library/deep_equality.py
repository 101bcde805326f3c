"""Whether two values are the same, part by part and with their types; an `==` of their own is no proof of that.

Asked when a result was encoded, about its restored form: a secret that is masked on the way, a private
attribute or a zone that is left out must not be found missing by a later run.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec


def differs(one: Any, other: Any) -> str | None:
    """The name of the first part that is not the same in both, types and all; None where nothing differs."""
    kind = type(one)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind is not type(other):
        return name
    if kind is dict:
        return differs([*one.items()], [*other.items()])
    if kind in (list, tuple):
        parts = (differs(mine, theirs) for mine, theirs in zip(one, other, strict=False))
        return name if len(one) != len(other) else next((part for part in parts if part is not None), None)
    mine, theirs = state_of(one, kind), state_of(other, kind)
    if mine is None or theirs is None:
        return None if _equal(one, other, kind) else name
    if mine.keys() != theirs.keys():
        return name
    return next((f"{name}.{part}" for part in mine if differs(mine[part], theirs[part]) is not None), None)


def state_of(value: Any, kind: Any) -> dict[str, Any] | None:
    """The state of an object; None for one that is compared as a whole."""
    if "enum" in sys.modules and isinstance(value, sys.modules["enum"].Enum):
        return None
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if hasattr(kind, "__pydantic_validator__") and not hasattr(kind, "__dataclass_fields__"):
        private, extra = value.__pydantic_private__ or {}, value.__pydantic_extra__ or {}
        return {name: item for name, item in {**vars(value), **private, **extra}.items() if not computed(kind, name)}
    if not hasattr(kind, "__dataclass_fields__"):
        return None
    slots = {name for one in kind.__mro__ for name in _slots(one)}
    names = [*kind.__dataclass_fields__, *getattr(value, "__dict__", ()), *sorted(slots)]
    found = {name: getattr(value, name) for name in names if is_field(kind, name) and hasattr(value, name)}
    return {name: item for name, item in found.items() if not computed(kind, name)}


def _slots(kind: type) -> tuple[str, ...]:
    found = vars(kind).get("__slots__", ())
    return tuple(name for name in ((found,) if isinstance(found, str) else found) if not name.startswith("__"))


def _equal(one: Any, other: Any, kind: type) -> bool:
    if kind in (float, complex) or kind.__module__ == "decimal":
        return repr(one) == repr(other)  # also NaN and a negative zero
    if kind.__module__ == "datetime" and hasattr(one, "fold"):
        zones = [getattr(value.tzinfo, "key", None) for value in (one, other)]
        return one.isoformat() == other.isoformat() and one.fold == other.fold and zones[0] == zones[1]
    return bool(one == other)


def computed(kind: type, name: str) -> bool:
    return any(type(vars(one).get(name)).__name__ == "cached_property" for one in kind.__mro__)


def is_field(kind: Any, name: str) -> bool:
    """Whether it belongs to the object: what is only given to the constructor, or stands in the class, does not."""
    field = kind.__dataclass_fields__.get(name)
    return field is None or field._field_type is sys.modules["dataclasses"]._FIELD
