"""The distribution as it would be published, built once, and environments that it is installed into."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dev import ROOT
from tests.package import build as release

CLEARED = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT_ENVIRONMENT")


def call(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run it with nothing of this environment; what it printed, or a failure with all that it said."""
    kept = {name: value for name, value in os.environ.items() if name not in CLEARED and not name.startswith("ACODE_")}
    kept.setdefault("UV_SYSTEM_CERTS", "1")
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**kept, **(env or {})}, check=False, text=True, capture_output=True
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def tool(name: str) -> Path:
    """A program of this environment."""
    found = Path(sys.executable).parent / name
    if not found.exists():
        pytest.skip("needs the group: package (python3 dev.py package)")
    return found


def build(source: Path, into: Path) -> dict[str, Path]:
    """Wheel, sdist and bill of materials, by the suffix of their names."""
    tool("hatchling")
    release.build(source, into, built_at=release.BUILT_AT)
    return {path.suffix: path for path in into.iterdir() if path.suffix in (".whl", ".gz", ".json")}


def new_environment(place: Path, python: str, *requirements: str | Path) -> Path:
    """A directory of programs: a new environment with these installed, and nothing else."""
    call(tool("uv"), "venv", "--quiet", "--python", python, place)
    call(tool("uv"), "pip", "install", "--quiet", "--python", place / "bin" / "python", *requirements)
    return place / "bin"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def wheel(built: dict[str, Path]) -> Path:
    return built[".whl"]
