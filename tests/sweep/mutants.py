"""Mutants: one thing of a module is changed at a time, and a test must notice.

mutmut makes them. Each is tried in a copy of the project with the changed module in its place, by processes that have
loaded nothing before: what runs in children, as most of what performs a step, is changed too. A mutant is killed where
a test fails, or does not end. Those that live are told with their change, for a person to judge.
"""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.sweep.record import ROOT

TEST_S_MAX = 90
MUTANT_S_MAX = 900.0
COPIED = ("src", "tests", "docs", "examples", "pyproject.toml", "dev.py", "README.md", "CHANGELOG.md")


class Module(NamedTuple):
    """A module, the tests that know it best first, and in how many portions its mutants are tried."""

    path: str
    tests: tuple[str, ...]
    parts: int


STATE = ("test_state.py", "test_state_programs.py", "test_state_records.py", "test_resume_point.py")
EVENTS = ("test_events.py", "test_lean_steps.py")
REDACT = tuple(f"test_redact{part}.py" for part in ("", "_context", "_edges", "_keys", "_streams", "_corpus"))
STEP = (
    "tests/conformance/test_guarantees.py",
    "tests/library/test_plain_calls.py",
    "tests/library/test_steps_at_once.py",
    "tests/library/test_steps.py",
    "tests/library/test_running.py",
    "tests/engine",
)


def unit(*files: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{file}" for file in files)


MODULES = (
    Module("engine/step.py", STEP, 12),
    Module("engine/plain_step.py", STEP, 2),
    Module("policy.py", unit("test_policy.py"), 4),
    Module("plan.py", unit("test_plan.py"), 2),
    Module("resume_point.py", unit("test_resume_point.py"), 2),
    Module("state/session_fold.py", unit(*STATE), 6),
    Module("state/session.py", unit(*STATE), 2),
    Module("state/plain_fold.py", ("tests/library/test_plain_calls.py",), 1),
    Module("events/codec.py", unit(*EVENTS), 3),
    Module("events/lean_steps.py", unit(*EVENTS), 3),
    Module("redact/redactors.py", unit(*REDACT), 6),
    Module("redact/evidence.py", unit(*REDACT), 6),
)


class Tried(NamedTuple):
    mutants: int
    lived: list[str]  # the change of each


def try_part(module: Module, part: int, place: Path) -> Tried:
    """Every so-manieth mutant of the module, from this one on."""
    right = (ROOT / "src" / "acode" / module.path).read_text(encoding="utf-8")
    tried, lived = 0, list[str]()
    with copy_of_project(place) as copy:
        changed = copy / "src" / "acode" / module.path
        assert is_killed(copy, module) is False, "the tests fail without any change"
        for mutant in mutants_of(module.path, right, part, module.parts):
            changed.write_text(mutant, encoding="utf-8")
            tried += 1
            if not is_killed(copy, module):
                lived.append(change(right, mutant, module.path))
    return Tried(tried, lived)


def mutants_of(path: str, text: str, part: int = 0, parts: int = 1) -> Iterator[str]:
    """The module with one change in a function; to make one takes a tenth of a second."""
    making = import_module("mutmut.mutation.file_mutation")
    module, mutations, _, _ = making.create_mutations(path, text)
    inside = [one for one in mutations if type(one.contained_by_top_level_function).__name__ == "FunctionDef"]
    for mutation in inside[part::parts]:
        mutant: str = module.deep_replace(mutation.original_node, mutation.mutated_node).code
        if mutant != text:
            yield mutant


@contextmanager
def copy_of_project(place: Path) -> Iterator[Path]:
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "node_modules")
            shutil.copytree(ROOT / name, place / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, place / name)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def is_killed(copy: Path, module: Module) -> bool:
    """Whether a test notices. The compiled module is removed: the mutant before may be of the same size and second."""
    changed = copy / "src" / "acode" / module.path
    for compiled in (changed.parent / "__pycache__").glob(f"{changed.stem}.*"):
        compiled.unlink()
    words = ["-x", "-q", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider", "--timeout", str(TEST_S_MAX)]
    line = [sys.executable, "-m", "pytest", *words, "-m", "not release and not agents", *module.tests]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ACODE_", "PYTEST_"))}
    env["PYTHONPATH"] = os.pathsep.join((os.fspath(copy), os.fspath(copy / "src")))
    try:
        ended = subprocess.run(line, cwd=copy, env=env, check=False, capture_output=True, timeout=MUTANT_S_MAX)
    except subprocess.TimeoutExpired:
        return True
    return ended.returncode != 0


def change(right: str, mutant: str, path: str) -> str:
    lines = difflib.unified_diff(right.splitlines(), mutant.splitlines(), path, path, n=1, lineterm="")
    return "\n".join(lines)
