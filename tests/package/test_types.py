"""What a type checker of somebody else's program sees of acode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import acode
from tests.package.conftest import new_environment, tool

SCORE_MIN = 0.95
PUBLIC = ("acode.library.", "acode.errors.", "acode.integrations.")


@pytest.fixture(scope="module")
def report(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """pyright's own account; it looks for the package in the environment that is active."""
    place = tmp_path_factory.mktemp("types")
    programs = new_environment(place / "env", sys.executable, f"{wheel}[pydantic-ai,langgraph]")
    env = {**os.environ, "VIRTUAL_ENV": str(place / "env"), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    asked = [str(tool("pyright")), "--verifytypes", "acode", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(asked, cwd=place, env=env, check=False, text=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    return found


def test_nearly_everything_of_the_package_has_a_type_that_every_checker_reads_alike(report: dict[str, Any]) -> None:
    assert report["completenessScore"] >= SCORE_MIN


def test_the_public_names_have_such_a_type(report: dict[str, Any]) -> None:
    public = [
        symbol
        for symbol in report["symbols"]
        if symbol["name"].startswith(PUBLIC) or symbol["name"].removeprefix("acode.") in acode.__all__
    ]
    assert len(public) > 200
    doubtful = [symbol["name"] for symbol in public if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]]
    assert len(doubtful) <= (1 - SCORE_MIN) * len(public), doubtful
