"""The source under test, and the table of guarantees and sources at the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.every_source import SOURCES
from tests.conformance.sources import Source, living


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path, record_property: Any) -> Iterator[Source]:
    record_property("conformance", f"{request.node.originalname}\t{request.param.name}")
    with living(request.param, tmp_path / "place") as made:
        yield made


MARKS = {"passed": "✓", "failed": "FAILS", "skipped": "known fault"}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Guarantee × source; a source without that feature shows a dash."""
    found: dict[str, dict[str, str]] = {}
    for status in ("passed", "failed", "xfailed"):
        for report in terminalreporter.stats.get(status, ()):
            for name, value in getattr(report, "user_properties", ()):
                if name == "conformance":
                    guarantee, source = value.split("\t")
                    found.setdefault(guarantee, {})[source] = MARKS.get(report.outcome, report.outcome)
    if not found:
        return
    terminalreporter.section("conformance: guarantee × source")
    names = [one.name for one in SOURCES]
    for guarantee in sorted(found):
        row = found[guarantee]
        cells = ", ".join(f"{name} {row.get(name, '–')}" for name in names)
        terminalreporter.write_line(f"{guarantee.removeprefix('test_').replace('_', ' ')}: {cells}")
