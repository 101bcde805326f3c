"""The reference of the integrations, made from their docstrings: `python -m acode.integrations.reference`.

The sources are read, not imported: so the page can be made without every framework installed.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

HEAD = """# Integrations

Each needs an extra of its own. The [guide](../guide/library.md) shows how they are used.

This page is made from the docstrings: `python -m acode.integrations.reference > docs/reference/integrations.md`.
"""


class Offered(NamedTuple):
    """One class or function that an integration offers, and the file that defines it."""

    module: str
    name: str
    file: str
    own: tuple[str, ...] = ()  # methods beside those that the framework calls


OFFERED = (
    Offered("acode.integrations.langgraph", "AcodeSaver", "langgraph.py", own=("close",)),
    Offered("acode.integrations.pydantic_ai", "AcodeDurability", "pydantic_ai/durability.py"),
    Offered("acode.integrations.mcp_server", "serve", "mcp_server/__init__.py"),
)


def page() -> str:
    return "\n".join([HEAD, *map(entry, OFFERED)]).rstrip() + "\n"


def entry(offered: Offered) -> str:
    source = (Path(__file__).parent / offered.file).read_text(encoding="utf-8")
    body = ast.parse(source).body
    found = next(one for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == offered.name)
    methods = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
    called = found if isinstance(found, ast.FunctionDef) else methods["__init__"]
    line = f"{offered.name}({arguments(called)})"
    parts = [f"## `{offered.module}.{offered.name}`\n\n```text\n{line}\n```\n\n{ast.get_docstring(found)}\n"]
    for name in offered.own:
        parts.append(f"### `{offered.name}.{name}`\n\n{ast.get_docstring(methods[name])}\n")
    return "\n".join(parts)


def arguments(function: ast.FunctionDef) -> str:
    """The names and defaults; types are for the type checker."""
    every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    for argument in every:
        argument.annotation = None
    return ast.unparse(function.args).removeprefix("self").removeprefix(", ")


if __name__ == "__main__":
    sys.stdout.write(page())
