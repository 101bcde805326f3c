"""One person's machine in a directory: a workspace, a home, acode's state, and a ledger of what commands really did.

acode is called by its command line, in this process or in a child that a sweep stops, kills or fails. Everything that
outlives acode lies below the root, so that a copy of the root is the whole world after a crash.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acode.engine.world import World
from tests.driver import Acode, Ended
from tests.worlds import world

VICTIM = "VICTIM"  # where a case has it: the process that its command sends a signal
KEPT_VARIABLES = ("PATH", "LANG", "PYTHONPATH", "TMPDIR")
GIT_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "You"), ("EMAIL", "you@example.org"))
}


class Place:
    """The root is swept; what acode said is kept beside it, because words that were heard cannot be taken back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.ledger = root / "ledger"
        self.heard = root.parent / "heard"
        self.said = root.parent / "said"
        self.answered = root.parent / "answered"  # there when whoever carries on has given the command again
        self.more_env: dict[str, str] = {}
        self.names: dict[str, str] = {}  # what stands for {words} of the table's commands
        self.outside: Any = None  # what the case names there
        self.holder = 0  # the process that somebody else works with here
        self._reader: World | None = None

    def env(self) -> dict[str, str]:
        """The whole environment of acode and its commands: nothing of the machine's own home is seen or touched."""
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        own = {
            "HOME": os.fspath(self.root / "home"),
            "ACODE_HOME": os.fspath(self.root / "state"),
            "LEDGER": os.fspath(self.ledger),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        victim = {VICTIM: str(os.getpid())} if VICTIM in self.more_env else {}
        return {**kept, **own, **GIT_IDENTITY, **self.more_env, **victim}

    def world(self) -> World:
        """The engine's own view, for who wants to look without a command line."""
        return world(self.root, env=self.env())

    def reader(self) -> World:
        """The same, made once: for who reads the log of thousands of states."""
        if self._reader is None:
            self._reader = self.world()
        return self._reader

    def put(self, path: str, text: str) -> None:
        target = self.workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def acode(self, *words: str) -> Ended:
        """In this process, with its words captured."""
        return Acode(self.workspace)(*words, env=self.env())

    def traced(self, *words: str) -> int:
        """For a child of its own: the words go to the files `heard` and `said`, as they are said."""
        from acode.cli import main

        for name in set(os.environ) - set(KEPT_VARIABLES):
            del os.environ[name]
        os.environ.update(self.env())
        os.chdir(self.workspace)
        for path, descriptor in ((self.heard, 1), (self.said, 2)):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(opened, descriptor)
            os.close(opened)
        # The streams of before belong to pytest; these write every word at once, as a pipe would get it.
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        return main(list(words))

    def silence(self) -> None:
        """Nothing has been heard yet."""
        for path in (self.heard, self.said, self.answered):
            path.unlink(missing_ok=True)

    def words_heard(self) -> bytes:
        try:
            return self.heard.read_bytes()
        except FileNotFoundError:
            return b""

    def words_said(self) -> str:
        try:
            return self.said.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def effects(self) -> Counter[str]:
        """How often the command of each step has really run to its effect."""
        try:
            lines = self.ledger.read_text().split()
        except FileNotFoundError:
            return Counter()
        return Counter(line.split(":")[1] for line in lines)

    def session_ids(self) -> list[str]:
        listed: list[Mapping[str, str]] = self.acode("session", "list", "--all", "--json").json
        return [row["session_id"] for row in listed]
