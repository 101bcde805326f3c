"""The sources of steps, as facts that the pure modules and the command line need.

A new source of steps is a row in this table, and not a test for its name in thirty files. `engine.source` defines the
record of its steps.
"""

from __future__ import annotations

import msgspec


class StepSource(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one source of steps."""

    kind: str  # as the log names it; never renamed
    asked: bool = False  # the steps are asked for one by one, so that no plan holds them
    follows_model: bool = False  # a model decides what comes next: people follow tasks, and steps lie inside them
    carries_run: bool = False  # the tasks are those of another tool's run, which is resumed under its own id
    told_of_ends: bool = False  # who asked for a command is told how it ended: one that failed has been run
    in_own_process: bool = False  # its process is not acode's: a signal interrupts a step there, and asks for nothing
    observed: bool = False  # another agent acts, and acode only records: it executes, repeats and rolls back nothing

    @property
    def public_kind(self) -> str:
        """As programs read it beside the source of a session."""
        return "program" if self.kind == "library" else self.kind

    @property
    def planning_tasks(self) -> int:
        """Tasks of the session that are none of the user's plan: making the plan is the first one."""
        return 1 if self.follows_model else 0

    @property
    def has_run_id(self) -> bool:
        """Whether the session is known by the id of a run, or by the key that its program gave it."""
        return self.asked or self.carries_run


PLAN = StepSource(kind="plan")
PROGRAM = StepSource(kind="library", asked=True, in_own_process=True)
AGENT = StepSource(kind="agent", asked=True, follows_model=True, told_of_ends=True)
FOREIGN_RUN = StepSource(kind="foreign", carries_run=True)
OBSERVED_AGENT = StepSource(kind="observed", asked=True, told_of_ends=True, in_own_process=True, observed=True)
SOURCES = {source.kind: source for source in (PLAN, PROGRAM, AGENT, FOREIGN_RUN, OBSERVED_AGENT)}
