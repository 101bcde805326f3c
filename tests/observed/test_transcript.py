"""Transcripts are read in bounded memory, whatever their size and the length of their lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from acode.observed.transcript import LINE_BYTES_MAX
from tests.transcripts import SESSION

MEBIBYTE = 1024 * 1024
PEAK = """
import resource, sys
from acode.cli import main
status = main(["inspect", sys.argv[1], "--json"])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(peak, file=sys.stderr)
sys.exit(status)
"""


def write_large(path: Path, project: Path, total_bytes: int, long_lines: int = 0) -> None:
    """Calls with their results, each 100 kB, and at the end a call without one."""
    line = {"parentUuid": None, "isSidechain": False, "sessionId": SESSION, "cwd": str(project), "version": "2.1.197"}
    line["timestamp"] = "2026-11-16T17:37:25.393Z"
    padding = "x" * 50_000

    def call(number: int) -> dict[str, object]:
        block = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": f"echo {padding}"}}
        return {**line, "type": "assistant", "message": {"role": "assistant", "content": [block]}}

    with path.open("w") as file:
        for number in range(total_bytes // 100_000):
            block = {"type": "tool_result", "tool_use_id": f"c{number}", "content": padding}
            result = {**line, "type": "user", "message": {"role": "user", "content": [block]}}
            file.write(json.dumps(call(number)) + "\n" + json.dumps(result) + "\n")
        for _ in range(long_lines):
            file.write('{"type":"user","content":"')
            for _ in range(LINE_BYTES_MAX // MEBIBYTE + 4):
                file.write("y" * MEBIBYTE)
            file.write('"}\n')
        file.write(json.dumps(call(-1)) + "\n")


def inspected_with_peak(path: Path) -> tuple[dict[str, object], int]:
    ended = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (session,) = json.loads(ended.stdout)["sessions"]
    return session, int(ended.stderr.split()[-1])


def test_the_memory_needed_does_not_grow_with_the_transcript(tmp_path: Path) -> None:
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    write_large(small, tmp_path, 100_000)
    write_large(large, tmp_path, 60_000_000)
    session, usual = inspected_with_peak(small)
    assert session["ending"] == "in_flight"
    session, peak = inspected_with_peak(large)
    assert session["ending"] == "in_flight"
    assert peak - usual < 8 * MEBIBYTE


def test_a_line_that_is_too_long_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_large(path, tmp_path, 100_000, long_lines=2)
    session, peak = inspected_with_peak(path)
    assert session["ending"] == "in_flight"
    assert any("2 of 5 lines are longer than 16 MiB" in str(note) for note in session["notes"])  # type: ignore[attr-defined]
    write_large(path, tmp_path, 100_000)
    assert peak - inspected_with_peak(path)[1] < 3 * LINE_BYTES_MAX
