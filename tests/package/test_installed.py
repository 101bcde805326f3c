"""The wheel, installed as a user would: it starts, runs a plan, and needs nothing of this repository."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import FAST, PYTHON_MIN, PYTHON_NEWEST, ROOT, other_pythons, read_toml
from tests.package.conftest import call, new_environment, tool

PLAN = """
title: Hello
tasks:
  - title: Greet
    steps:
      - write: {path: hello.txt, content: "hello\\n"}
      - run: tr a-z A-Z < hello.txt > loud.txt
        outputs: [loud.txt]
"""
GROUPS = read_toml(ROOT / "pyproject.toml")["dependency-groups"]
TEST_TOOLS = [line for line in GROUPS["fast"] if not line.startswith("acode-cli")]


HERE = "this one"
SUPPORTED = [f"3.{minor}" for minor in range(PYTHON_MIN[1], PYTHON_NEWEST[1] + 1)]


def python_named(version: str) -> str:
    """This Python, or another one of the version, if it is here."""
    found = sys.executable if version == HERE else other_pythons().get(version)
    return found or pytest.skip(f"no other Python {version} is here")


def runs_a_plan(acode: Path, place: Path) -> None:
    """In a home of its own; a path that leads to other Pythons' packages would hide what is missing."""
    place.mkdir()
    env = {"HOME": str(place / "home"), "ACODE_HOME": str(place / "state")}
    assert call(acode, "--version", cwd=place, env=env).startswith("acode ")
    (place / "plan.yml").write_text(PLAN)
    call(acode, "run", "plan.yml", cwd=place, env=env)
    assert (place / "loud.txt").read_text() == "HELLO\n"
    assert "COMPLETED" in call(acode, "session", "list", "--all", cwd=place, env=env)


@pytest.mark.parametrize("version", [HERE, *SUPPORTED])
def test_the_wheel_runs_a_plan_with_each_python_that_is_here(version: str, wheel: Path, tmp_path: Path) -> None:
    runs_a_plan(new_environment(tmp_path / "env", python_named(version), wheel) / "acode", tmp_path / "work")


def test_pip_installs_it_without_the_help_of_any_other_tool(wheel: Path, tmp_path: Path) -> None:
    call(sys.executable, "-m", "venv", tmp_path / "env")
    call(tmp_path / "env" / "bin" / "pip", "install", "--quiet", wheel)
    runs_a_plan(tmp_path / "env" / "bin" / "acode", tmp_path / "work")


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What pipx and uv write goes below a home that is thrown away."""
    home = tmp_path / "home"
    home.mkdir()
    cache = Path.home() / ".cache" / "uv"
    yield {
        "HOME": str(home),
        "PIPX_HOME": str(home / "pipx"),
        "PIPX_BIN_DIR": str(home / "bin"),
        "UV_TOOL_DIR": str(home / "tools"),
        "UV_TOOL_BIN_DIR": str(home / "bin"),
        "UV_CACHE_DIR": str(cache),
    }
    shutil.rmtree(home)


def test_uv_installs_it_as_a_tool(wheel: Path, own_home: dict[str, str], tmp_path: Path) -> None:
    call(tool("uv"), "tool", "install", "--quiet", "--python", sys.executable, wheel, env=own_home)
    runs_a_plan(Path(own_home["UV_TOOL_BIN_DIR"]) / "acode", tmp_path / "work")


def test_uvx_starts_it_without_installing_it(wheel: Path, own_home: dict[str, str]) -> None:
    shown = call(tool("uvx"), "--python", sys.executable, "--from", wheel, "acode", "--version", env=own_home)
    assert shown.startswith("acode ")


def test_pipx_installs_it(wheel: Path, own_home: dict[str, str], tmp_path: Path) -> None:
    call(tool("pipx"), "install", "--python", sys.executable, wheel, env=own_home)
    runs_a_plan(Path(own_home["PIPX_BIN_DIR"]) / "acode", tmp_path / "work")


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("libc", ["musl", "gnu"])
def test_there_is_a_wheel_of_everything_that_it_needs(libc: str, version: str) -> None:
    """Alpine's libc is musl, and its images have no compiler."""
    asked = ["pip", "compile", "--quiet", "--only-binary", ":all:", "--python-version", version]
    needed = call(tool("uv"), *asked, "--python-platform", f"x86_64-unknown-linux-{libc}", "pyproject.toml")
    assert "apsw==" in needed and "re2" not in needed


@pytest.mark.timeout(3600)
def test_the_lowest_versions_that_are_allowed_pass_the_fast_subset_of_the_tests(tmp_path: Path) -> None:
    """A lower bound that nobody has tried is a guess."""
    extras = [word for extra in ("otel", "postgres", "re2") for word in ("--extra", extra)]
    pins = tmp_path / "lowest.txt"
    compiled = ["pip", "compile", "--quiet", "--resolution", "lowest-direct", "--python", sys.executable, *extras]
    call(tool("uv"), *compiled, "--output-file", pins, "pyproject.toml")
    programs = new_environment(tmp_path / "env", sys.executable, "-r", pins, "-c", pins, *TEST_TOOLS)
    arguments = ["-q", "-n", "2", "-m", "not release", "--inline-snapshot=disable", "-p", "no:cacheprovider"]
    # This group runs beside whatever else the machine does: a slow test is no failure.
    call(programs / "python", "-m", "pytest", *arguments, "--timeout", "1800", *FAST, cwd=ROOT)
