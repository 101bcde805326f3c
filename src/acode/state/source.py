"""Where the steps of a session come from, as facts that the pure modules and the rim need.

A new source of steps is a row in this table, and not a test for its name in thirty files. What happens when one of its
steps is recorded stands in `engine.source`.
"""

from __future__ import annotations

import msgspec


class StepSource(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one source of steps."""

    kind: str  # as the log names it; never renamed
    asked: bool = False  # the steps are asked for one by one, so that no plan holds them
    follows_model: bool = False  # a model decides what comes next: people follow tasks, and steps lie inside them
    carries_run: bool = False  # the tasks are those of another tool's run, which is resumed under its own id

    @property
    def planning_tasks(self) -> int:
        """Tasks of the session that are none of the user's plan: making the plan is the first one."""
        return 1 if self.follows_model else 0

    @property
    def has_run_id(self) -> bool:
        """Whether the session is known by the id of a run, or by the key that its program gave it."""
        return self.asked or self.carries_run


PLAN = StepSource(kind="plan")
PROGRAM = StepSource(kind="library", asked=True)
AGENT = StepSource(kind="agent", asked=True, follows_model=True)
FOREIGN_RUN = StepSource(kind="foreign", carries_run=True)
SOURCES = {source.kind: source for source in (PLAN, PROGRAM, AGENT, FOREIGN_RUN)}
