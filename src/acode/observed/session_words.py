"""Sessions of other agents in words, the same on the terminal and on the page."""

from __future__ import annotations

from acode.observed.session import Command, Delete, Edit, Effect, Write
from acode.text.durations import count

STATES = {"alive": "alive", "dead": "dead", "no_process_found": "no process found", "unknown": "perhaps alive"}
ENDINGS = {
    "in_flight": "call in flight",
    "unnamed_call": "perhaps a call in flight",
    "unfinished": "last turn unfinished",
    "finished": "finished",
    "unknown": "not understood",
}
OUTCOMES = {
    "applied": "it took effect",
    "not_applied": "it took no effect",
    "partial": "a part of it took effect",
    "running": "still running",
    "unknown": "unknown whether it took effect",
    "no_effect": "it changes nothing",
}


def effect_words(effect: Effect) -> str:
    match effect:
        case Command(text=text):
            return text
        case Write(path=path, content=content):
            return f"write {path} ({len(content.encode('utf-8', 'surrogatepass')):,} bytes)"
        case Edit(path=path, replacements=replacements):
            return f"edit {path} ({count(len(replacements), 'replacement')})"
        case Delete(path=path):
            return f"delete {path}"
        case _:
            return ""
