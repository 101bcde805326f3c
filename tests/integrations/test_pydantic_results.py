"""Pydantic models as results of steps: validated when they come back, and of the class they had."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import acode

pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")


class Mail(pydantic.BaseModel):  # type: ignore[name-defined, misc]
    to: str
    sent: datetime


class Stop(Exception):
    """Ends a block before its end."""


def test_a_pydantic_model_comes_back_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACODE_HOME", str(tmp_path / "state"))
    value = [Mail(to="a@example.org", sent=datetime(2026, 1, 1, tzinfo=UTC))]
    with pytest.raises(Stop), acode.session("k", workspace=tmp_path) as s:
        s.step("send", lambda: value)
        raise Stop
    with acode.session("k", workspace=tmp_path) as s:
        found = s.step("send", list)
    assert found == value and type(found[0]) is Mail
