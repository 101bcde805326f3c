"""Observed agents: the place of their sessions, the calls in flight when one died, and the command that resumes it.

Everything here reads and nothing writes: not a byte in an agent's directory, not a lock that it could see. One module
per agent with the interface of `interface.Agent`; `inspect.inspect` is the entry.
"""

from __future__ import annotations

from acode.observed import claude, cline, codex, gemini, opencode, qwen
from acode.observed.interface import Agent

AGENTS: dict[str, Agent] = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "qwen": qwen,
    "opencode": opencode,
    "cline": cline,
}
