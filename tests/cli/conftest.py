"""Fixtures of the command line's tests."""

from __future__ import annotations

from tests.terminals import terminal

__all__ = ["terminal"]
