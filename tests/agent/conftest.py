"""What tests of the agent share."""

from __future__ import annotations

from tests.agent.scripted import serve

__all__ = ["serve"]
