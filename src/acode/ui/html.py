"""HTML built from elements: every text is made printable and escaped where it enters, so no template can forget it.

The report must open on a machine that has only the core of acode, so no template engine is needed for it; the page
shares its views.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from acode.disk.path_names import visible

VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
LINE_BREAKS = frozenset("\n\t")


class Html(str):
    """Markup that is safe to send; a plain `str` is text and is escaped."""

    __slots__ = ()


Child = str | Html | None | Iterable["Child"]


def text(value: str) -> Html:
    """Text from anywhere: characters that steer, hide or turn the direction are spelled out, the rest is escaped."""
    if not value.isprintable():
        value = "".join(one if one in LINE_BREAKS else visible(one) for one in value.replace("\r\n", "\n"))
    return Html(escape(value, quote=True))


def join(*children: Child) -> Html:
    return Html("".join(_pieces(children)))


def el(tag: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """One element. `class_` and `for_` lose their underscore, the others become dashes; None and False are left out."""
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in VOID:
        return Html(f"<{tag}{shown}>")
    return Html(f"<{tag}{shown}>{join(*children)}</{tag}>")


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'


def _pieces(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            yield child
        elif isinstance(child, str):
            yield text(child)
        else:
            yield from _pieces(child)
