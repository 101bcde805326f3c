"""The table of all errors for the documentation, made from the classes: `python -m acode.cli.errors_table`."""

from __future__ import annotations

import inspect
import sys

from acode.errors import AcodeError, every_error

HEAD = """# Errors

Every error has a code, an exit status, one sentence and a hint. With `--json` it is
`{"error": {"code", "message", "hint", "exit_code", "details"}}` on stdout.

This table is made from the classes: `python -m acode.cli.errors_table > docs/reference/errors.md`.

| code | exit | meaning | hint |
|---|---|---|---|
"""


def table() -> str:
    rows = [row(AcodeError, "Something that nobody expected: a bug in acode."), *map(row, every_error())]
    return HEAD + "\n".join(rows) + "\n"


def row(cls: type[AcodeError], meaning: str = "") -> str:
    sentence = meaning or " ".join((inspect.getdoc(cls) or "").split())
    default = cls.default_hint
    hint = (default if isinstance(default, str) else default.as_command()).replace("|", "\\|")
    code = f"{cls.code}, detail {cls.detail_code}" if cls.detail_code else cls.code
    return f"| {code} | {cls.exit_code} | {sentence} | {hint} |"


if __name__ == "__main__":
    sys.stdout.write(table())
