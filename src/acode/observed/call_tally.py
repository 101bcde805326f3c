"""Pairs the tool calls of a transcript with their results; only calls without one are kept.

That is what keeps a transcript of a gigabyte in a few megabytes: a result removes its call, and of the calls that never
get one the newest are kept, each with arguments up to a size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec

from acode.observed.session import CallInFlight, Effect, Ending, Other
from acode.observed.transcript import Fields, id_of, text_of

CALLS_MAX: Final = 64
ARGUMENTS_BYTES_MAX: Final = 1024 * 1024
PROMPT_CHARS_MAX: Final = 500

ReadEffects = Callable[[str, Fields], tuple[Effect, ...]]


@dataclass(slots=True)
class CallTally:
    """The state while lines are read: calls without a result, whether the last turn has ended, the last prompt."""

    effects_of: ReadEffects
    messages: int = 0
    turn_open: bool = False
    prompt_text: str = ""
    left_out: int = 0
    last_at: datetime | None = None
    _calls: dict[str, CallInFlight] = field(default_factory=dict)

    def call(
        self,
        call_id: msgspec.Raw | None,
        tool: msgspec.Raw | None,
        arguments: Fields,
        *,
        at: datetime | None,
        line: int = 0,
        effects: tuple[Effect, ...] | None = None,
    ) -> None:
        """A call began. Its id may be missing in a damaged line: then no result can be matched with it."""
        self.turn_open = True
        found_id, name = id_of(call_id), text_of(tool)[:100]
        size = sum(len(memoryview(value)) for value in arguments.values())
        if effects is None:
            too_large = size > ARGUMENTS_BYTES_MAX
            reason = f"its arguments have {size:,} bytes, too many to be compared"
            effects = (Other(reason=reason),) if too_large else self.effects_of(name, arguments)
        key = found_id or f"\0line {line}"
        self._calls[key] = CallInFlight(call_id=found_id, tool=name, effects=effects, at=at, line=line)
        if len(self._calls) > CALLS_MAX:
            self._calls.pop(next(iter(self._calls)))
            self.left_out += 1

    def result(self, call_id: msgspec.Raw | None) -> None:
        """A call ended. The turn has not: the model has yet to read the result."""
        self._calls.pop(id_of(call_id), None)
        self.turn_open = True

    def prompt(self, text: str) -> None:
        """A person's prompt: the session continued without the results that are still missing."""
        self.abandon()
        self.turn_open = True
        if text.strip():
            self.prompt_text = text[:PROMPT_CHARS_MAX]

    def abandon(self) -> None:
        for call_id, call in self._calls.items():
            if not call.abandoned:
                self._calls[call_id] = replace(call, abandoned=True)

    def end_turn(self) -> None:
        self.turn_open = False

    def moment(self, at: datetime | None) -> None:
        if at is not None:
            self.last_at = at

    @property
    def calls(self) -> tuple[CallInFlight, ...]:
        return tuple(self._calls.values())

    def ending(self, *, uncertain: bool) -> Ending:
        """`uncertain`: the last line is torn, so that the turn cannot have been seen to end."""
        if any(not call.abandoned for call in self._calls.values()):
            return "in_flight"
        if not self.messages:
            return "unknown"
        return "unfinished" if self.turn_open or uncertain else "finished"
