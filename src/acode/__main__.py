"""`python -m acode`: the same as the installed command."""

from __future__ import annotations

from acode.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
