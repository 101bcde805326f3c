"""The page about the integrations says what their docstrings say."""

from __future__ import annotations

from pathlib import Path

from acode.integrations.reference import OFFERED, page

ROOT = Path(__file__).resolve().parents[2]
NOT_OFFERED = {"reference", "telemetry"}  # the page itself, and what a setting switches on


def test_the_page_about_the_integrations_is_what_the_docstrings_say() -> None:
    written = (ROOT / "docs/reference/integrations.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m acode.integrations.reference > docs/reference/integrations.md"


def test_every_integration_is_on_the_page_under_the_name_it_is_imported_by() -> None:
    found = {path.stem for path in (ROOT / "src/acode/integrations").iterdir() if path.name[0] not in "_."}
    assert {f"acode.integrations.{name}" for name in found - NOT_OFFERED} == {offered.module for offered in OFFERED}
    assert all(f"## `{offered.module}.{offered.name}`\n" in page() for offered in OFFERED)
