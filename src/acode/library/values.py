"""Values that outlive a process: a step's result as JSON and back, and the digest of its arguments. Never pickle.

A value is restored as it was, with its types: types that JSON does not distinguish are tagged, and a value that would
change is refused. Restoring a value imports the module of its class and runs nothing of it but, for a pydantic model,
its validation.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import sys
from collections.abc import Callable
from datetime import timezone
from types import ModuleType
from typing import Any

import msgspec

from acode.errors import NotStorable
from acode.events.definition import SAFE_INTEGER_MAX, digest
from acode.library.deep_equality import computed, differs, is_field

TAG = "$"
DEPTH_MAX = 100
SHOWN_CHARACTERS_MAX = 200
SCALARS = (str, bool, type(None))
MAIN = "__main__"

_encoder = msgspec.json.Encoder()
_ordered = msgspec.json.Encoder(order="deterministic")
_entry: list[
    ModuleType
] = []  # the program that `acode resume` has loaded: its classes were recorded as those of __main__


def stands_for_main(module: ModuleType) -> None:
    """From here on `module` is where the classes of a script are found."""
    _entry[:] = [module]


# There.


def encode(value: Any) -> bytes:
    """JSON of a value; what cannot be restored as it is now is refused by name."""
    if type(value) is str and value.isascii():  # as most results are: nothing in it needs a tag
        return _encoder.encode(value)
    try:
        data = _encoder.encode(plain(value, 0))
    except UnicodeEncodeError as error:  # inside a value that a class has encoded itself
        raise NotStorable(f"the value holds half a character, which JSON cannot hold: {error}") from error
    except NotStorable:
        raise
    except Exception as error:  # of a class's own encoding; whatever it is, the step has run
        raise NotStorable(f"the value cannot be stored: {type(error).__name__}: {error}", hint=STORABLE) from error
    if _OF_A_CLASS in data:
        refuse_other(value, data)
    return data


_OF_A_CLASS = b'","type":"'  # the rest of a tag that names a class


def refuse_other(value: Any, data: bytes) -> None:
    """Compare the restored value with the original, while the original still exists."""
    try:
        other = differs(value, decode(msgspec.json.decode(data)))
    except NotStorable:
        raise
    except Exception as error:
        raise NotStorable(
            f"the value could be stored but not restored: {type(error).__name__}: {error}", hint=STORABLE
        ) from error
    if other is not None:
        raise NotStorable(f"a value would not come back as it is: {other}", hint=STORABLE)


def plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() or _whole(value) else {TAG: "str", "v": _half(value)}
    if kind in SCALARS:
        return value
    if kind is int:
        return value if -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX else {TAG: "int", "v": str(value)}
    if kind is float:
        return value if value - value == 0 else {TAG: "float", "v": repr(value)}
    if depth > DEPTH_MAX:
        raise NotStorable(f"the value is nested more than {DEPTH_MAX} levels deep")
    if kind is list:
        return [plain(item, depth + 1) for item in value]
    if kind is dict:
        if all(type(key) is str and (key.isascii() or _whole(key)) for key in value) and TAG not in value:
            return {key: plain(item, depth + 1) for key, item in value.items()}
        pairs = [[plain(key, depth + 1), plain(item, depth + 1)] for key, item in value.items()]
        return {TAG: "dict", "v": pairs}
    return _tagged(value, kind, depth + 1)


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _half(text: str) -> str:
    """A text with halves of characters, as a file name may have that is no UTF-8."""
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


def _tagged(value: Any, kind: type, depth: int) -> dict[str, Any]:
    if kind in (tuple, set, frozenset):
        items = [plain(item, depth) for item in value]
        return {TAG: kind.__name__, "v": items if kind is tuple else sorted(items, key=_encoder.encode)}
    if kind in (bytes, bytearray):
        return {TAG: kind.__name__, "v": base64.b64encode(value).decode()}
    if "enum" in sys.modules and isinstance(value, sys.modules["enum"].Enum):
        named = value.name in kind.__members__  # type: ignore[attr-defined]  # flags together have no name of their own
        more = {} if named else {"value": plain(value.value, depth)}
        return {TAG: "enum", "type": name_of(kind), "v": value.name, **more}
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass(value, kind, depth)
    if hasattr(kind, "__pydantic_validator__"):
        return {TAG: "pydantic", "type": name_of(kind), "v": value.model_dump(mode="json", round_trip=True)}
    if isinstance(value, msgspec.Struct):
        return {TAG: "struct", "type": name_of(kind), "v": msgspec.to_builtins(value)}
    if (name := _known_name(kind)) is not None:
        more = _zone(value) if name in ("datetime.datetime", "datetime.time") else {}
        return {TAG: name, "v": plain(_TO[name](value), depth), **more}
    raise NotStorable(f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored", hint=STORABLE)


STORABLE = (
    "Results are JSON values, bytes, tuples, sets, dates, decimals, paths, enums, dataclasses, msgspec structs"
    " and pydantic models. Return one of these, or the name of the file that holds the rest."
)


def _dataclass(value: Any, kind: type, depth: int) -> dict[str, Any]:
    """Its fields, and what else was set on it; a cached property is computed again."""
    fields: dict[str, Any] = kind.__dataclass_fields__  # type: ignore[attr-defined]
    kept = {name: plain(getattr(value, name), depth) for name in fields if hasattr(value, name)}
    others = {
        name: plain(item, depth)
        for name, item in getattr(value, "__dict__", {}).items()
        if name not in fields and not computed(kind, name)
    }
    more = {"args": plain(list(value.args), depth)} if isinstance(value, BaseException) else {}
    return {TAG: "dataclass", "type": name_of(kind), "v": kept, **({"others": others} if others else {}), **more}


def _zone(value: Any) -> dict[str, Any]:
    """Where and when on the clock: by its offset alone, the day after would be an hour off when the clocks change."""
    zone, found = value.tzinfo, {"fold": 1} if value.fold else dict[str, Any]()
    kind = type(zone)
    if zone is None:
        return found
    if kind is timezone:
        unnamed = str(zone) == str(timezone(zone.utcoffset(None)))
        return found if unnamed else {**found, "name": str(zone)}
    if kind.__module__.startswith("zoneinfo") and zone.key is not None:
        return {**found, "zone": zone.key}
    raise NotStorable(
        f"a time in a zone of type {kind.__module__}.{kind.__qualname__} cannot be stored",
        hint="Give it a zone of zoneinfo, with its name, or an offset: value.astimezone(ZoneInfo(…)).",
    )


_TO: dict[str, Callable[[Any], str]] = {
    "datetime.datetime": lambda value: value.isoformat(),
    "datetime.date": lambda value: value.isoformat(),
    "datetime.time": lambda value: value.isoformat(),
    "datetime.timedelta": lambda value: f"{value.days} {value.seconds} {value.microseconds}",
    "decimal.Decimal": str,
    "uuid.UUID": str,
    "pathlib.PosixPath": str,
    "pathlib.WindowsPath": str,
    "pathlib.PurePosixPath": str,
    "pathlib.PureWindowsPath": str,
}


def _known_name(kind: type) -> str | None:
    module = "pathlib" if kind.__module__.startswith("pathlib") else kind.__module__
    name = f"{module}.{kind.__qualname__}"
    return name if name in _TO else None


def name_of(thing: Any) -> str:
    """module:name, as an import finds it again; a script's own module is always called __main__."""
    module, name = getattr(thing, "__module__", MAIN), getattr(thing, "__qualname__", type(thing).__qualname__)
    if _entry and module == _entry[0].__name__:
        module = MAIN
    return f"{module}:{name}"


# And back.


def decode(plain_value: Any) -> Any:
    """The value that was encoded."""
    kind = type(plain_value)
    if kind is list:
        return [decode(item) for item in plain_value]
    if kind is not dict:
        return plain_value
    if TAG not in plain_value:
        return {key: decode(item) for key, item in plain_value.items()}
    return _untagged(plain_value)


def _untagged(tagged: dict[str, Any]) -> Any:
    value = tagged["v"]
    match tagged[TAG]:
        case "str":
            return base64.b64decode(value).decode("utf-8", "surrogatepass")
        case "int":
            return int(value)
        case "float":
            return float(value)
        case "dict":
            return {decode(key): decode(item) for key, item in value}
        case "tuple":
            return tuple(decode(item) for item in value)
        case "set":
            return {decode(item) for item in value}
        case "frozenset":
            return frozenset(decode(item) for item in value)
        case "bytes":
            return base64.b64decode(value)
        case "bytearray":
            return bytearray(base64.b64decode(value))
        case "dataclass" | "pydantic" | "struct" | "enum":
            return _of_class(tagged, find_class(tagged["type"]), value)
        case name:
            return _in_zone(_from_text(name, decode(value)), tagged)


def _of_class(tagged: dict[str, Any], cls: Any, value: Any) -> Any:
    match tagged[TAG]:
        case "pydantic":
            return cls.model_validate(value)
        case "struct":
            return msgspec.convert(value, cls)
        case "enum":
            return cls(decode(tagged["value"])) if "value" in tagged else cls[value]
    # Its state as it was; its constructor might do something.
    made = BaseException.__new__(cls, *decode(tagged["args"])) if "args" in tagged else object.__new__(cls)
    for name, item in (*value.items(), *tagged.get("others", {}).items()):
        if is_field(cls, name):
            object.__setattr__(made, name, decode(item))
    return made


def _in_zone(value: Any, tagged: dict[str, Any]) -> Any:
    if "zone" in tagged:
        import zoneinfo

        try:
            value = value.replace(tzinfo=zoneinfo.ZoneInfo(tagged["zone"]))
        except (LookupError, ValueError) as error:
            raise NotStorable(
                f"a value was stored in the zone {tagged['zone']}, which this machine does not know",
                hint="Install the tzdata package.",
            ) from error
    elif "name" in tagged:
        value = value.replace(tzinfo=timezone(value.utcoffset(), tagged["name"]))
    return value.replace(fold=1) if "fold" in tagged else value


def _from_text(name: str, text: str) -> Any:
    if name not in _TO:
        raise NotStorable(f"a value was stored as {name}, which this acode does not know", hint="Upgrade acode.")
    module, _, attribute = name.partition(".")
    cls = getattr(importlib.import_module(module), attribute)
    if name == "datetime.timedelta":
        days, seconds, micros = map(int, text.split())
        return cls(days, seconds, micros)
    return cls.fromisoformat(text) if module == "datetime" else cls(text)


def find_class(name: str) -> Any:
    return find(name, "a stored value")


def find(name: str, what: str) -> Any:
    """The object that `module:name` names; for a script's own module the program that is running."""
    module_name, _, path = name.partition(":")
    try:
        found: Any = _entry[0] if module_name == MAIN and _entry else importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NotStorable(
            f"{what} is of {name}, which cannot be found any more: {error}",
            hint="Keep the class importable under its old name as long as sessions hold values of it.",
        ) from error
    return found


# Arguments.


def digest_of(values: Any, *, as_given: bool = False) -> str:
    """Version 1 of the digest of arguments: `arguments` makes today's, and compares old logs by this one.

    SHA-256 over their canonical JSON. An object that is no value, such as a connection, counts by its type.

    as_given: dicts whose keys are no texts in the order in which they were filled, as digests were once made.
    """
    if not _simple(values, 0):
        values = _argument(values, 0, as_given=as_given)
        if not _simple(values, 0):
            return digest(values)
    # For such data the fast encoder writes what RFC 8785 prescribes, byte for byte.
    try:
        return hashlib.sha256(_ordered.encode(values)).hexdigest()
    except UnicodeEncodeError:  # half a character
        return digest(values)


def _argument(value: Any, depth: int, *, as_given: bool = False) -> Any:
    kind = type(value)
    if kind is str:
        return value
    if kind in SCALARS or kind in (int, float):
        return plain(value, depth)
    if depth <= DEPTH_MAX and kind in (list, tuple):
        return [_argument(item, depth + 1, as_given=as_given) for item in value]
    if depth <= DEPTH_MAX and kind is dict and all(type(key) is str for key in value):
        return {key: _argument(item, depth + 1, as_given=as_given) for key, item in value.items()}
    if depth <= DEPTH_MAX and kind is dict and not as_given:  # equal dicts are the same, whatever was put in first
        pairs = ([_argument(key, depth + 1), _argument(item, depth + 1)] for key, item in value.items())
        return {TAG: "dict", "v": sorted(pairs, key=repr)}
    try:
        return as_first_encoded(plain(value, depth))
    except NotStorable:
        return {TAG: "object", "type": f"{kind.__module__}.{kind.__qualname__}"}


def as_first_encoded(found: Any) -> Any:
    """The encoding without later additions: digests on record were made of this, and are compared forever."""
    if type(found) is list:
        return [as_first_encoded(item) for item in found]
    if type(found) is not dict:
        return found
    match found.get(TAG):
        case None:
            return {name: as_first_encoded(item) for name, item in found.items()}
        case "str":
            return decode(found)
        case "pydantic" | "struct":
            return found
        case _:
            return {name: as_first_encoded(found[name]) for name in (TAG, "type", "v") if name in found}


def _simple(value: Any, depth: int) -> bool:
    """Whether it is plain data without floats, and with names in ASCII, which both encoders put in the same order."""
    kind = type(value)
    if kind is str:
        return True  # an agent's request is its whole conversation: the slow encoder would be felt
    if kind is int:
        return bool(-SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX)
    if depth > DEPTH_MAX:
        return False
    if kind is list or kind is tuple:
        return all(_simple(item, depth + 1) for item in value)
    if kind is dict:
        return all(type(key) is str and key.isascii() and _simple(value[key], depth + 1) for key in value)
    return value is None or kind is bool


def shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Arguments for people, cut short."""
    text = ", ".join(map(short_text, args))
    if kwargs:
        named = [f"{name}={short_text(value)}" for name, value in kwargs.items()]
        text = ", ".join([text, *named] if args else named)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"


def short_text(value: Any) -> str:
    if type(value) in (str, bytes, list, dict, tuple, set) and len(value) > SHOWN_CHARACTERS_MAX:
        return f"{type(value).__name__} of {len(value)}"
    try:
        return repr(value)[:SHOWN_CHARACTERS_MAX]
    except Exception:
        return type(value).__name__
