"""What tests of the agent share."""

from __future__ import annotations

from tests.agent.scripted import serve
from tests.agent.town import begin
from tests.terminals import terminal

__all__ = ["begin", "serve", "terminal"]
