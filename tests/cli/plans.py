"""Plans that the tests of the command line run; short, and each stops where a test wants it."""

from __future__ import annotations

from pathlib import Path

THREE_TASKS = """\
title: Add input validation
tasks:
  - id: analyze
    title: Analyze existing code
    steps:
      - write: {path: notes.txt, content: "seen\\n"}
  - id: validate
    title: Add validators
    steps:
      - write: {path: email.txt, content: "email\\n"}
      - write: {path: phone.txt, content: "phone\\n"}
      - run: cat go.txt
        id: check
        idempotent: true
      - write: {path: late.txt, content: "late\\n"}
  - id: finish
    title: Finish
    steps:
      - write: {path: end.txt, content: "end\\n"}
"""

GATE = """\
title: Deploy it
tasks:
  - id: ship
    title: Ship it
    steps:
      - write: {path: built.txt, content: "built\\n"}
      - approve: Deploy to production?
        id: gate
      - run: echo shipped >> shipped.txt
        id: upload
        idempotent: true
"""

# The first step says that it is on its way and then waits for a file, so that a test can stop it in the middle.
SLOW = """\
title: Slow work
tasks:
  - id: work
    steps:
      - write: {path: first.txt, content: "first\\n"}
      - run: echo under way; while [ ! -e go.txt ]; do sleep 0.05; done
        id: slow
        %s
      - write: {path: last.txt, content: "last\\n"}
"""


# Two tasks at the same time, each of which says that it is on its way and then waits for a file.
TWO_AT_ONCE = """\
title: Two at once
parallel: 2
tasks:
  - id: left
    steps:
      - run: echo left is under way; while [ ! -e go.txt ]; do sleep 0.05; done
        id: slow
        idempotent: true
  - id: right
    needs: []
    steps:
      - run: echo right is under way; while [ ! -e go.txt ]; do sleep 0.05; done
        id: slow
        idempotent: true
"""


def slow(declared: str = "idempotent: true") -> str:
    return SLOW % declared


def save(workspace: Path, text: str, name: str = "plan.yml") -> Path:
    path = workspace / name
    path.write_text(text, encoding="utf-8")
    return path
