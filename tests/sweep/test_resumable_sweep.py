"""A sweep that is killed continues where it stopped, and its figures are those of its portions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lives import until
from tests.sweep.figures import page, read_records, totals
from tests.sweep.record import ROOT

PORTIONS = 3
TINY = """
import os
import pytest

@pytest.mark.release
@pytest.mark.parametrize("number", range({portions}))
def test_a_portion(number, record_property, monkeypatch):
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(f"{{number}}\\n")
    for name in [one for one in os.environ if one.startswith("ACODE_")]:
        monkeypatch.delenv(name)  # as the tests of the project do
    record_property("figures", {{"kills": 10 + number, "violations": int(number == 1)}})
    assert number != 1, "a violation"
"""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "test_tiny.py").write_text(TINY.format(portions=PORTIONS))
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    (tmp_path / "ledger").touch()
    return tmp_path / "ledger"


def command(place: Path, hours: str) -> list[str]:
    words = ["-c", str(ROOT / "pyproject.toml"), str(place / "test_tiny.py")]
    return [sys.executable, "-m", "tests.sweep", "--hours", hours, "--place", str(place / "sweep"), *words]


@pytest.mark.timeout(300)
def test_a_killed_sweep_continues_where_it_stopped_and_its_figures_add_up(tmp_path: Path, ledger: Path) -> None:
    killed = subprocess.Popen(command(tmp_path, "1"), cwd=ROOT, stdout=subprocess.DEVNULL)
    until(lambda: ledger.read_text().count("\n") >= 1)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(read_records(tmp_path / "sweep")) < PORTIONS

    ended = subprocess.run(command(tmp_path, "1"), cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == 1, ended.stdout + ended.stderr  # one portion has found a violation
    assert f"{PORTIONS} portions done, all; 1 with a violation" in ended.stdout
    assert sorted(ledger.read_text().split()) == [str(number) for number in range(PORTIONS)], "none twice, none skipped"

    records = read_records(tmp_path / "sweep")
    assert sorted(one["outcome"] for one in records) == ["failed", "passed", "passed"]
    assert all("a violation" in one["failure"] for one in records if one["outcome"] == "failed")
    assert totals(records) == {"kills": 33, "violations": 1}
    assert "33 kills, 1 violations" in page(records, "2026-01-01")


@pytest.mark.timeout(300)
def test_a_sweep_without_hours_left_begins_nothing_and_the_next_one_continues(tmp_path: Path, ledger: Path) -> None:
    ended = subprocess.run(command(tmp_path, "0"), cwd=ROOT, check=False, capture_output=True, text=True)
    assert "0 portions done, not all" in ended.stdout, ended.stdout + ended.stderr
    assert ledger.read_text() == ""
    listed = subprocess.run(
        [sys.executable, "-m", "acode", "session", "list", "--json"],
        cwd=next((tmp_path / "sweep").iterdir()),
        check=True,
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert [one["resumable"] for one in json.loads(listed.stdout)] == [True]
