"""The sources that every guarantee of a step is run against."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.hook_source import HookSource
from tests.conformance.sources import (
    AgentSource,
    AsyncSource,
    CommandSource,
    DurableSource,
    ForeignSource,
    FunctionSource,
    ParallelSource,
    PlanSource,
    Source,
    ThreadSource,
)
from tests.conformance.split_source import SplitSource

SOURCES: tuple[type[Source], ...] = (
    PlanSource,
    ParallelSource,
    CommandSource,
    FunctionSource,
    AsyncSource,
    ThreadSource,
    DurableSource,
    AgentSource,
    ForeignSource,
    SplitSource,
    HookSource,
)


def every_source(*features: str, fails: dict[type[Source], str] | None = None) -> Any:
    """Run a guarantee against every source that has these features; `fails`: known faults, each with its reason."""
    chosen = [
        pytest.param(
            one,
            id=one.name,
            marks=[pytest.mark.xfail(reason=fails[one], strict=True)] if fails and one in fails else [],
        )
        for one in SOURCES
        if not any(feature in one.lacks for feature in features)
    ]
    return pytest.mark.parametrize("source", chosen, indirect=True)
