"""Lives of an agent that end where a test wants: at the first place of the log at which none has ended yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from acode.store.journal import Journal
from tests.agent.town import in_child, kill_self

PLACE_BYTES_MAX = 4_096
Place = Callable[[str, tuple[Any, ...]], str | None]  # "before" or "after", and the events that are being appended


def lived(words: list[str], place: Place, visited: set[str]) -> tuple[int, str]:
    """One life of `acode WORDS`: how it ended, and the place at which it was killed; "" if it ended by itself."""
    reading, writing = os.pipe()

    def live() -> int:
        from acode.cli import main

        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        append = Journal.append

        def die(phase: str, events: tuple[Any, ...]) -> None:
            found = place(phase, events)
            if found is not None and found not in visited:
                os.write(writing, found.encode())
                kill_self()

        def watched(self: Journal, *events: Any, **how: Any) -> Any:
            die("before", events)
            done = append(self, *events, **how)
            self.settle(done[-1].seq, durable=False)  # steps at the same time share a commit: behind it, it is there
            die("after", events)
            return done

        Journal.append = watched  # type: ignore[method-assign]  # in this child alone
        return main(words)

    status = in_child(live)
    os.close(writing)
    told = os.read(reading, PLACE_BYTES_MAX).decode()
    os.close(reading)
    return status, told
