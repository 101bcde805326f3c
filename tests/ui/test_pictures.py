"""The pictures in the guide: made by a program from a real page, which a change of the page must not break."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height, as a PNG's first chunk says."""
    wide, high = struct.unpack(">II", picture.read_bytes()[16:24])
    return wide, high


@pytest.mark.release
def test_every_picture_of_the_page_in_the_guide_is_made_again_from_the_page_as_it_is(tmp_path: Path) -> None:
    if shutil.which("chromium") is None and shutil.which("google-chrome") is None:
        pytest.skip("no Chromium is installed (on Debian the package chromium)")
    made = subprocess.run([sys.executable, ROOT / "docs" / "images" / "page.py", tmp_path], check=False)
    assert made.returncode == 0
    guide = (ROOT / "docs" / "guide" / "page.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"images/(page-[\w-]+\.png)", guide))
    assert len(shown) == 4 and shown == {one.name for one in tmp_path.glob("*.png")}
    for name in shown:
        assert size_of(tmp_path / name) == size_of(ROOT / "docs" / "images" / name)
