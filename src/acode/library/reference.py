"""The reference of the library, made from its docstrings: `python -m acode.library.reference`."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import acode

HEAD = """# The library

`import acode` names all of this. The [guide](../guide/library.md) shows how it is used.

This page is made from the docstrings: `python -m acode.library.reference > docs/reference/library.md`.
"""
FUNCTIONS = ("session", "step", "durable", "current", "resolve", "rollback")
CLASSES = ("Session", "Begun", "Retry")
ERRORS = ("AcodeError", "InputRequired", "NonDeterminism", "OutcomeUnknown", "StepFailed", "StepTimeout")


def page() -> str:
    parts = [HEAD, "## Functions\n"]
    parts += [entry(f"acode.{name}", getattr(acode, name)) for name in FUNCTIONS]
    for name in CLASSES:
        parts.append(class_entry(name, getattr(acode, name)))
    parts.append("## Errors\n\n| error | code | meaning |\n|---|---|---|")
    for name in ERRORS:
        cls = getattr(acode, name)
        parts.append(f"| `acode.{name}` | {cls.code} | {in_one_line(cls)} |")
    return "\n".join(parts).rstrip() + "\n"


def entry(name: str, thing: Any) -> str:
    return f"### `{name}`\n\n```text\n{name}{signature(thing)}\n```\n\n{paragraphs(thing)}\n"


def class_entry(name: str, cls: Any) -> str:
    parts = [f"## `acode.{name}`\n\n{paragraphs(cls)}\n"]
    for member, value in vars(cls).items():
        if member.startswith("_") or not inspect.getdoc(value) or member in ("do", "recall", "inside"):
            continue
        if isinstance(value, property):
            parts.append(f"### `{name}.{member}`\n\n{paragraphs(value)}\n")
        elif inspect.isfunction(value):
            parts.append(entry(f"{name}.{member}", value))
    return "\n".join(parts)


def signature(thing: Any) -> str:
    """The names and defaults; types are for the type checker."""
    found = inspect.signature(thing)
    empty = inspect.Parameter.empty
    shown = [parameter.replace(annotation=empty) for name, parameter in found.parameters.items() if name != "self"]
    return str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty))


def paragraphs(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def in_one_line(cls: Any) -> str:
    return " ".join((inspect.getdoc(cls) or "").split())


if __name__ == "__main__":
    sys.stdout.write(page())
