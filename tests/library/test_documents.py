"""What the documents say about the library is true: their examples run, and the reference is the docstrings'."""

from __future__ import annotations

import os
import re
from pathlib import Path

import acode
from acode.library.reference import CLASSES, ERRORS, FUNCTIONS, page
from tests.library.programs import Place

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: str) -> list[str]:
    return BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))


def test_every_example_of_the_guide_runs_in_order(place: Place) -> None:
    found = blocks("docs/guide/library.md")
    assert len(found) >= 10
    ended = place.run("\n".join(found) + "\ntell(done=True)\n")
    assert ended.told == [{"done": True}], ended.errors


AROUND = """
def extract(day):
    return [day]

def render(rows):
    return str(rows)

def send(rows):
    note("sent", len(rows))
"""


def test_the_library_example_of_the_readme_runs(place: Place) -> None:
    (block,) = [block for block in blocks("README.md") if "acode.session" in block]
    tools = place.path / "bin"
    tools.mkdir()
    (tools / "make").write_text("#!/bin/sh\necho $1 >> made\n")
    (tools / "make").chmod(0o755)
    program, path = AROUND + block + "\ntell(done=True)\n", os.pathsep.join([str(tools), os.environ["PATH"]])
    for _ in range(2):
        ended = place.run(program, PATH=path)
        assert ended.told == [{"done": True}], ended.errors
    assert place.effects() == ["sent 1"] and (place.workspace / "made").read_text() == "publish\n"


def test_the_reference_is_what_the_docstrings_say() -> None:
    written = (ROOT / "docs/reference/library.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m acode.library.reference > docs/reference/library.md"


def test_every_public_name_is_in_the_reference_and_few_they_are() -> None:
    assert {*FUNCTIONS, *CLASSES, *ERRORS, "__version__"} == set(acode.__all__)
    assert all(getattr(acode, name).__doc__ for name in (*FUNCTIONS, *CLASSES, *ERRORS))
