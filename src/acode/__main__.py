"""`python -m acode`: the same as the installed command."""

from __future__ import annotations

import sys

from acode.cli import main

if __name__ == "__main__":
    sys.exit(main())
