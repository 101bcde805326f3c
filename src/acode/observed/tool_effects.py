"""The effect of a tool call, derived from its arguments: one small table of tools per agent.

A tool that is in no table has an effect that acode does not know. It must never be taken for one without effect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from acode.observed.session import Command, Delete, Edit, Effect, Other, Reads, Write
from acode.observed.transcript import Fields, decode, list_of, object_of, text_of

Builder = Callable[[Fields], tuple[Effect, ...]]
FILES_IN_A_PATCH_MAX: Final = 100
_FILE_IN_PATCH: Final = re.compile(r"\*\*\* (Add|Delete|Update) File: (.+)")
_MOVE: Final = "*** Move to: "


def effects_from(tools: Mapping[str, Builder], tool: str, arguments: Fields) -> tuple[Effect, ...]:
    return tools[tool](arguments) if tool in tools else (Other(),)


def reads(_arguments: Fields) -> tuple[Effect, ...]:
    return (Reads(),)


def command(text_key: str, directory_key: str = "") -> Builder:
    """The argument is a line for a shell, a list of words, or a list of lines."""

    def build(arguments: Fields) -> tuple[Effect, ...]:
        raw = arguments.get(text_key)
        text = text_of(raw) or " ".join(map(text_of, list_of(raw)))
        return (Command(text=text, directory=text_of(arguments.get(directory_key))),) if text else (Other(),)

    return build


def commands(key: str) -> Builder:
    """Several lines for a shell, run one after the other."""

    def build(arguments: Fields) -> tuple[Effect, ...]:
        lines = [text_of(raw) or text_of(object_of(raw).get("command")) for raw in list_of(arguments.get(key))[:100]]
        return tuple(Command(text=line) for line in lines if line) or (Other(),)

    return build


def write(path_key: str, content_key: str) -> Builder:
    def build(arguments: Fields) -> tuple[Effect, ...]:
        path = text_of(arguments.get(path_key))
        known = path and content_key in arguments
        return (Write(path=path, content=text_of(arguments[content_key])),) if known else (Other(),)

    return build


def edit(path_key: str, old_key: str, new_key: str) -> Builder:
    """An edit without an old text makes the file, or writes it again."""

    def build(arguments: Fields) -> tuple[Effect, ...]:
        path, old = text_of(arguments.get(path_key)), text_of(arguments.get(old_key))
        new = text_of(arguments.get(new_key))
        if not path or new_key not in arguments:
            return (Other(),)
        return (Edit(path=path, replacements=((old, new),)),) if old else (Write(path=path, content=new),)

    return build


def several_edits(path_key: str, edits_key: str, old_key: str, new_key: str) -> Builder:
    def build(arguments: Fields) -> tuple[Effect, ...]:
        path = text_of(arguments.get(path_key))
        pairs = [
            (text_of(each.get(old_key)), text_of(each.get(new_key)))
            for each in map(object_of, list_of(arguments.get(edits_key))[:1000])
        ]
        known = tuple((old, new) for old, new in pairs if old)
        return (Edit(path=path, replacements=known),) if path and known else (Other(),)

    return build


def changes(path_key: str) -> Builder:
    """It changes one file in a way that only the tool knows."""

    def build(arguments: Fields) -> tuple[Effect, ...]:
        path = text_of(arguments.get(path_key))
        return (Edit(path=path, replacements=()),) if path else (Other(),)

    return build


def patch(key: str) -> Builder:
    def build(arguments: Fields) -> tuple[Effect, ...]:
        return patch_effects(text_of(arguments.get(key)))

    return build


@dataclass(slots=True)
class _PatchedFile:
    """One file of a patch, while it is read."""

    verb: str
    path: str
    moved_to: str = ""
    lines: list[str] = field(default_factory=list)

    def effects(self) -> Iterator[Effect]:
        if self.verb == "Add":
            yield Write(path=self.path, content="".join(f"{line[1:]}\n" for line in self.lines if line[:1] == "+"))
        elif self.verb == "Delete":
            yield Delete(path=self.path)
        elif self.moved_to and self.moved_to != self.path:
            yield Delete(path=self.path)
            yield Edit(path=self.moved_to, replacements=self.replacements(), moved_from=self.path)
        else:
            yield Edit(path=self.path, replacements=self.replacements())

    def replacements(self) -> tuple[tuple[str, str], ...]:
        """Each part between @@ lines: its old lines become its new ones. None, where a part only adds lines: it does
        not say where."""
        parts: list[tuple[list[str], list[str]]] = [([], [])]
        for line in self.lines:
            if line.startswith("@@"):
                parts.append(([], []))
            if line[:1] in (" ", "-"):
                parts[-1][0].append(line[1:])
            if line[:1] in (" ", "+"):
                parts[-1][1].append(line[1:])
        if any(new and not old for old, new in parts):
            return ()
        return tuple(("\n".join(old), "\n".join(new)) for old, new in parts if old != new)


def patch_effects(text: str, directory: str = "") -> tuple[Effect, ...]:
    """The files of a patch in the form `*** Begin Patch`, each as what it would become."""
    found: list[_PatchedFile] = []
    for line in text.split("\n"):
        if head := _FILE_IN_PATCH.fullmatch(line):
            found.append(_PatchedFile(head[1], os.path.join(directory, head[2].strip())))
        elif line.startswith(_MOVE) and found:
            found[-1].moved_to = os.path.join(directory, line.removeprefix(_MOVE).strip())
        elif line.startswith("*** End Patch"):
            break
        elif found and not line.startswith("*** "):
            found[-1].lines.append(line)
    effects = tuple(effect for one in found[:FILES_IN_A_PATCH_MAX] for effect in one.effects())
    if len(found) > FILES_IN_A_PATCH_MAX:
        return (*effects, Other(reason=f"it changes {len(found):,} files, too many to be compared"))
    return effects or (Other(),)


def arguments_in(raw: msgspec.Raw | None) -> Fields:
    """Arguments that are an object, or an object written as text, as the OpenAI interfaces give them."""
    text = text_of(raw)
    return (decode(text.encode("utf-8", "surrogatepass")) or {}) if text else object_of(raw)
