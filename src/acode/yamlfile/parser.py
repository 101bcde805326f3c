"""From text to nodes: the events of the YAML parser, less everything that is not allowed here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from acode.yamlfile.node import Mark, Node, Scalar, Source, inside, shown
from acode.yamlfile.scalars import checked_text, plain_value

NESTING_DEPTH_MAX = 20

# Characters that YAML 1.2 does not allow in a stream: control characters, surrogates, no characters at all. Compiled on
# first use: that takes longer than the rest of the import, and most files are ASCII, for which a short one will do.
_FORBIDDEN = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_FORBIDDEN_IN_ASCII = "[^\t\n\r\x20-\x7e]"
_BYTE_ORDER_MARK = "\ufeff"


def parse(text: str, source: Source) -> Node:
    """The one document in the text. An empty text is a document that says nothing."""
    text = text.removeprefix(_BYTE_ORDER_MARK)
    if forbidden := re.search(_FORBIDDEN_IN_ASCII if text.isascii() else _FORBIDDEN, text):
        character = f"U+{ord(forbidden[0]):04X}"
        raise source.problem(f"a file may not hold the character {character}", at=_mark_of(text, forbidden.start()))
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    builder = _Builder(source)
    try:
        return builder.document(YAML(typ="safe", pure=True).parse(text))
    except MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        at = Mark(mark.line + 1, mark.column + 1) if mark else None
        said = shown((error.problem or error.context or "cannot be parsed").strip())[1:-1]
        hint = "Texts with : # { [ or a leading % @ ` need quotes."
        raise source.problem(f"is not YAML: {said}", at=at, hint=hint) from error
    except (ValueError, IndexError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        # The scanner lets these through on hostile text, such as an escape beyond Unicode: bad input, no bug of ours.
        raise source.problem(f"is not YAML: {shown(str(error))[1:-1]}", at=builder.last) from error


def _mark_of(text: str, index: int) -> Mark:
    return Mark(text.count("\n", 0, index) + 1, index - (text.rfind("\n", 0, index) + 1) + 1)


class _Open(msgspec.Struct):
    """A list or mapping whose end has not come yet. `key` is set between a key and its value."""

    where: str
    at: Mark
    key_at: Mark | None
    entries: dict[str, Node] | None = None
    elements: list[Node] = msgspec.field(default_factory=list)
    key: str | None = None
    pending_key_at: Mark | None = None


class _Builder:
    """Nodes from parser events, with a stack of its own: a deep file ends in a sentence, not in a RecursionError."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.open: list[_Open] = []
        self.root: Node | None = None
        self.documents = 0
        self.last = Mark(1, 1)

    def document(self, events: Iterator[Any]) -> Node:
        for event in events:
            mark = self.last = Mark(event.start_mark.line + 1, event.start_mark.column + 1)
            match type(event).__name__:
                case "DocumentStartEvent":
                    self.start_document(event, mark)
                case "AliasEvent":
                    raise self.source.problem("anchors and aliases are not supported: write the value out", at=mark)
                case "ScalarEvent":
                    self.refuse_decoration(event, mark)
                    self.scalar(event, mark)
                case "SequenceStartEvent" | "MappingStartEvent" as kind:
                    self.refuse_decoration(event, mark)
                    self.start(mark, mapping=kind == "MappingStartEvent")
                case "SequenceEndEvent" | "MappingEndEvent":
                    self.end()
        return self.root or Node(None, self.source, at=Mark(1, 1))

    def start_document(self, event: Any, mark: Mark) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self.source.problem("expected one document, found a second one", at=mark, hint="Remove the line ---.")
        if event.tags or event.version not in (None, (1, 2)):
            raise self.source.problem("expected no directive other than %YAML 1.2", at=mark)

    def refuse_decoration(self, event: Any, mark: Mark) -> None:
        if event.anchor is not None:
            self.source.refuse(
                self.source.problem("anchors and aliases are not supported: write the value out", at=mark)
            )
        if event.tag is not None:
            self.source.refuse(self.source.problem(f"tags are not supported: {shown(str(event.tag))}", at=mark))

    def scalar(self, event: Any, mark: Mark) -> None:
        top = self.open[-1] if self.open else None
        if top is not None and top.entries is not None and top.key is None:
            self.key(top, event, mark)
            return
        where, key_at = self.next_place()
        if key_at and event.value == "" and event.style is None:
            mark = key_at  # Nothing stands after the key; the parser would point at whatever comes next.
        self.place(Node(self.value_of(event, where, mark), self.source, where, mark, key_at))

    def key(self, top: _Open, event: Any, mark: Mark) -> None:
        assert top.entries is not None
        value = self.value_of(event, top.where, mark)
        if not isinstance(value, str):
            said = Node(value, self.source).found
            raise self.source.problem(
                f"expected a text as key, found {said}", where=top.where, at=mark, hint="Quote it."
            )
        if earlier := top.entries.get(value):
            line = earlier.key_at.line if earlier.key_at else 0
            twice = f"the key {shown(value)} is there twice, first in line {line}"
            self.source.refuse(self.source.problem(twice, where=top.where, at=mark))
        top.key, top.pending_key_at = value, mark

    def value_of(self, event: Any, where: str, mark: Mark) -> Scalar:
        text: str = event.value
        try:
            # Only a bare word can be anything else than text.
            return plain_value(text) if event.style is None else checked_text(text)
        except ValueError as error:
            raise self.source.problem(str(error), where=where, at=mark) from error

    def start(self, mark: Mark, *, mapping: bool) -> None:
        where, key_at = self.next_place()
        if len(self.open) >= NESTING_DEPTH_MAX:
            raise self.source.problem(f"is nested deeper than {NESTING_DEPTH_MAX} levels", at=mark)
        top = self.open[-1] if self.open else None
        if top is not None and top.entries is not None and top.key is None:
            raise self.source.problem("expected a text as key, found a list or mapping", where=top.where, at=mark)
        self.open.append(_Open(where, mark, key_at, {} if mapping else None))

    def end(self) -> None:
        done = self.open.pop()
        data = tuple(done.elements) if done.entries is None else done.entries
        self.place(Node(data, self.source, done.where, done.at, done.key_at))

    def next_place(self) -> tuple[str, Mark | None]:
        if not self.open:
            return "", None
        top = self.open[-1]
        if top.entries is None:
            return f"{top.where}[{len(top.elements)}]", None
        return inside(top.where, top.key or ""), top.pending_key_at

    def place(self, node: Node) -> None:
        if not self.open:
            self.root = node
            return
        top = self.open[-1]
        if top.entries is None:
            top.elements.append(node)
            return
        assert top.key is not None, "a value comes after its key"
        top.entries.setdefault(top.key, node)  # the reader continues with the first of two equal keys
        top.key = None
