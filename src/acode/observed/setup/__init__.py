"""How acode is set up in the agents of others: hooks and front in an agent's own settings.

One module per agent with the interface of `config_file.Setup`. `install` writes and removes them, `check` looks whether
they work.
"""

from __future__ import annotations

from acode.observed.setup import claude, codex, gemini, opencode
from acode.observed.setup.config_file import Setup

SETUPS: dict[str, Setup] = {"claude": claude, "codex": codex, "gemini": gemini, "opencode": opencode}
