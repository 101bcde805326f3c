"""What tests of the agent share."""

from __future__ import annotations

from tests.agent.scripted import serve
from tests.terminals import terminal

__all__ = ["serve", "terminal"]
