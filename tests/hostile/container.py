"""The first process of a container that shares workspaces with the test: it cuts lives off there, and stays."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from acode.steps import keeper_notes
from tests.lives import Life, alive

READY = "ready"


def main() -> None:
    """Each place holds a plan; of its command only the keeper is killed. The end of the input ends the container."""
    for place in map(Path, sys.argv[1:]):
        life = Life(place)
        life.cut_off((place / "plan").read_text(), "step_output", "t.work")
        (place / "session").write_text(life.id)
        (directory,) = (one for one in life.path(".agent/run").iterdir() if (one / "started").exists())
        mark = keeper_notes.read_mark(directory)
        assert mark is not None
        os.kill(mark.keeper, signal.SIGKILL)
        while alive(mark.keeper):
            pass
    print(READY, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
