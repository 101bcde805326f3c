"""Variations of one test: the gate runs the first of them, the release sweep all."""

from __future__ import annotations

from typing import Any

import pytest


def first_of(*values: Any) -> list[Any]:
    """Values for `parametrize`: the first stays in the gate. Several arguments are given as a tuple."""
    return [values[0], *map(in_release_sweep, values[1:])]


def in_release_sweep(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.release)
