"""The digest of a step's arguments: two different values never share one, equal ones always do, in every process.

A later run is held to the arguments on record by their digest. The rule has a version, which is recorded with each
start: a digest by an earlier rule is compared by that rule. Only the type counts of a value that cannot be read, such
as a connection, and of values nested deeper than a hundred levels.
"""

from __future__ import annotations

import base64
import hashlib
from types import BuiltinFunctionType, FunctionType
from typing import Any

import msgspec

from acode import seal
from acode.engine.held_session import Held
from acode.errors import NotStorable
from acode.events import decode
from acode.events.definition import SAFE_INTEGER_MAX, Run
from acode.library import values
from acode.library.deep_equality import state_of
from acode.library.values import DEPTH_MAX, TAG

VERSION = 2
PURPOSE = b"acode arguments"
BUILTIN = (str, int, float, bytes, bytearray, tuple, list, dict, set, frozenset)
_ordered = msgspec.json.Encoder(order="deterministic")


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of a step: their digest, and the digests that version 1 may have recorded for the same."""

    digest: str
    first: Any  # what version 1 made its digest of

    def by_first_rule(self) -> tuple[str, ...]:
        return values.digest_of(self.first), values.digest_of(self.first, as_given=True)


def arguments_of(value: Any, *, first: Any = None) -> Arguments:
    """first: what version 1 made its digest of, where that was something else."""
    return Arguments(digest_of(value), value if first is None else first)


def of_command(run: Held, action: Run) -> Arguments:
    """The digest of a command: everything that defines its action; not its timeout, its attempts and its undo.

    The values of its environment may be secret, and a bare hash of a short secret can be guessed: so they count by an
    HMAC. Variables that it takes from the program's own environment count by their names: tokens change between runs.
    """
    line = list(action.command) if isinstance(action.command, tuple) else action.command
    rest = [line, action.probe, list(action.outputs), action.cwd]
    first = [*rest, sorted(action.env)]
    if not action.env and not action.secret_env:
        return arguments_of([*rest, {}, []], first=first)
    key = key_of(run) if action.env else b""
    env = {name: seal.seal(key, PURPOSE, f"{name}={value}".encode()).hex() for name, value in action.env.items()}
    return arguments_of([*rest, env, sorted(action.secret_env)], first=first)


def key_of(run: Held) -> bytes:
    """A key of the session, made of the one that signed its first event: another one may sign today.

    Where that key is lost, and a person has accepted its events, it is made of the first one that can be verified.
    """
    accepted, session_id = run.session.accepted, run.session.session_id
    seq, body, _ = next(run.store.rows(session_id, accepted.through if accepted is not None else 0, 1))
    key = run.store.keys_of(session_id).key(decode(body, session_id, seq).key_id)
    return seal.seal(key, PURPOSE, session_id.encode())


def digest_of(value: Any) -> str:
    """SHA-256 over the value as JSON in which every difference shows, with sorted names."""
    try:
        data = _ordered.encode(value if _is_json(value, 0) else canonical(value, 0))
    except UnicodeEncodeError:  # half a character in plain data
        data = _ordered.encode(canonical(value, 0))
    return hashlib.sha256(data).hexdigest()


def digest_of_call(given: list[Any], named: dict[str, Any]) -> str:
    """`digest_of` for the arguments of a function: mostly a few texts and numbers, which need no look inside."""
    whole = [given, named]
    if named:
        return digest_of(whole)
    for item in given:
        kind = type(item)
        if kind is not str and not (kind is int and -SAFE_INTEGER_MAX <= item <= SAFE_INTEGER_MAX):
            return digest_of(whole)
    try:
        return hashlib.sha256(_ordered.encode(whole)).hexdigest()
    except UnicodeEncodeError:
        return digest_of(whole)


def _is_json(value: Any, depth: int) -> bool:
    """Whether it stands for itself: an agent's request is its whole conversation, and is not copied for the digest."""
    kind = type(value)
    if kind is str:
        return True
    if kind is int:
        return bool(-SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX)
    if depth > DEPTH_MAX:
        return False
    if kind is list:
        for item in value:  # a generator, or a call for each text or number, would cost more than the look
            kind = type(item)
            if kind is int:
                if not -SAFE_INTEGER_MAX <= item <= SAFE_INTEGER_MAX:
                    return False
            elif kind is not str and (item or kind is not dict) and not _is_json(item, depth + 1):
                return False
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or key == TAG or not _is_json(item, depth + 1):
                return False
        return True
    return value is None or kind is bool


def canonical(value: Any, depth: int) -> Any:
    """Data of which `_is_json` is true, with a tag wherever JSON would make two values the same."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() or _whole(value) else _tag("str", value.encode("utf-8", "surrogatepass").hex())
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX else _tag("int", format(value, "x"))
    if kind in (float, complex, range):
        return _tag(kind.__name__, repr(value))
    if depth > DEPTH_MAX:
        return _tag("object", _name(kind))
    if kind is list:
        return [canonical(item, depth + 1) for item in value]
    if kind is dict:
        return _dict(value, depth + 1)
    return _tagged(value, kind, depth + 1)


def _tag(kind: str, value: Any, **more: Any) -> dict[str, Any]:
    return {TAG: kind, "v": value, **more}


def _name(kind: type) -> str:
    return values.name_of(kind)


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    """Equal dicts are the same, whatever was put in first."""
    if TAG not in value and all(type(key) is str and _whole(key) for key in value):
        return {key: canonical(item, depth) for key, item in value.items()}
    pairs = [[canonical(key, depth), canonical(item, depth)] for key, item in value.items()]
    return _tag("dict", sorted(pairs, key=_ordered.encode))


def _tagged(value: Any, kind: type, depth: int) -> dict[str, Any]:
    if kind is tuple:
        return _tag("tuple", [canonical(item, depth) for item in value])
    if kind in (set, frozenset):
        return _tag(kind.__name__, sorted((canonical(item, depth) for item in value), key=_ordered.encode))
    if kind in (bytes, bytearray):
        return _tag(kind.__name__, base64.b64encode(value).decode())
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        return _tag("named", values.name_of(value))
    state = state_of(value, kind)
    if state is not None:
        return _tag("state", {name: canonical(item, depth) for name, item in state.items()}, type=_name(kind))
    try:
        return _tag("value", canonical(values.plain(value, depth), depth))
    except NotStorable:
        return _derived(value, kind, depth)


def _derived(value: Any, kind: type, depth: int) -> dict[str, Any]:
    """An object of a class that extends a built-in one, such as a named tuple; of any other nothing can be read."""
    base = next((one for one in BUILTIN if isinstance(value, one)), None)
    if base is None:
        return _tag("object", _name(kind))
    own = canonical(dict(getattr(value, "__dict__", {})), depth)
    return _tag("derived", canonical(_as(base, value), depth), type=_name(kind), own=own)


def _as(base: type, value: Any) -> Any:
    """The built-in value in it; by the built-in class's own methods, because it may have others."""
    if base in (int, float, str):
        return {int: int.__int__, float: float.__float__, str: str.__str__}[base](value)
    if base is dict:
        return {key: dict.__getitem__(value, key) for key in dict.__iter__(value)}
    return base(base.__iter__(value))  # type: ignore[attr-defined]
