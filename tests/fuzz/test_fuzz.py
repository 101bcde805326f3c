"""Every parser of outside data: mutated seeds at each commit, atheris before a release. Only named errors come out."""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, attempt

ROUNDS = 400
RELEASE_S = 120
HERE = Path(__file__).resolve().parent
TOKENS = [b"null", b"true", b"-1", b"1e999", b"9" * 40, b'""', b"[]", b"{}", b"\\ud800", b"\x00", b"\xff", b"&a", b"*a"]
TOKENS += [
    b"!!python/object",
    b"<<: ",
    b"../",
    b"\r",
    b"- ",
    b": ",
    b'"',
    b"'",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"[" * 200,
]


def mutated(seed: bytes, dice: random.Random) -> bytes:
    """A few cuts, copies, changed bytes and awkward tokens."""
    data = bytearray(seed)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data) + 1)
        end = min(len(data), at + dice.randint(1, 12))
        match dice.randrange(5):
            case 0:
                del data[at:end]
            case 1:
                data[at:at] = dice.choice(TOKENS)
            case 2:
                data[at:end] = dice.choice(TOKENS)
            case 3:
                data[at:at] = data[dice.randrange(len(data) + 1) :][:20]
            case _:
                if at < len(data):
                    data[at] = dice.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutated_seed_gives_an_answer_or_a_named_error(name: str) -> None:
    seeds = TARGETS[name][1]
    for seed in seeds:
        attempt(name, seed)
    dice = random.Random(name)
    for _ in range(ROUNDS):
        attempt(name, mutated(dice.choice(seeds), dice))


@pytest.mark.release
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("name", TARGETS)
def test_atheris_finds_nothing_but_named_errors(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    command = [sys.executable, str(HERE / "atheris_run.py"), name, f"-max_total_time={RELEASE_S}", "-rss_limit_mb=4096"]
    ended = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, errors="replace")
    assert ended.returncode == 0, ended.stderr[-4000:]
    done = re.search(r"Done (\d+) runs", ended.stderr)
    assert done is not None, ended.stderr[-4000:]
    record_property("figures", {"fuzz executions": int(done.group(1))})
