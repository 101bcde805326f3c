"""The command line: parse, call, render, exit. Imported by nobody.

stdout is data, stderr is talk. Every command is a file of its own that is loaded when it is called, so that a short
one starts quickly. Nothing happens at import.
"""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit status; never raises, never leaves a traceback."""
    from acode.cli.app import run

    return run(argv)
