"""Whatever is changed in the modules that keep the promise, a test notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sweep.mutants import MODULES, Module, change, mutants_of, try_part
from tests.sweep.record import ROOT

KILLED_MIN = 0.95


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("module", "part"), [pytest.param(m, part, id=f"{m.path} {part}") for m in MODULES for part in range(m.parts)]
)
def test_a_mutant_is_killed(
    module: Module, part: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tried = try_part(module, part, tmp_path / "copy")
    record_property("figures", {"mutants": tried.mutants, "mutants killed": tried.mutants - len(tried.lived)})
    for one in tried.lived:
        record_property("note", one)
    assert len(tried.lived) <= (1 - KILLED_MIN) * tried.mutants, "\n".join(tried.lived)


def test_every_module_of_the_list_exists() -> None:
    for module in MODULES:
        assert (ROOT / "src" / "acode" / module.path).is_file()
        assert all((ROOT / test).exists() for test in module.tests)


@pytest.mark.release
def test_a_mutant_is_the_module_with_one_change() -> None:
    text = "def add(a: int, b: int) -> int:\n    return a + b\n"
    (mutant,) = mutants_of("sum.py", text)
    assert mutant == text.replace("a + b", "a - b")
    assert change(text, mutant, "sum.py").splitlines()[-2:] == ["-    return a + b", "+    return a - b"]
