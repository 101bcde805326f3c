"""The capability that makes an agent durable: the place of its runs in the session, and the features it must refuse."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_ai.agent import AbstractAgent, EventStreamHandler
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    conversation_id_from_run_id,
)
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, ExternalToolset, FunctionToolset, WrapperToolset

from acode.errors import Usage
from acode.integrations.pydantic_ai.step_identity import Run, in_a_name
from acode.integrations.pydantic_ai.steps import METADATA, RUN, Steps
from acode.library.open_session import OPEN
from acode.library.step_identity import CURRENT, Current, Scope


class Runs:
    """How many runs an agent has begun at one place of the program, and whether one of them is under way."""

    def __init__(self) -> None:
        self.begun = 0
        self.under_way = False


PLACES: WeakKeyDictionary[Scope, dict[str, Runs]] = WeakKeyDictionary()


class AcodeDurability(BaseDurabilityCapability[AgentDepsT]):
    """Make an agent durable: inside `acode.session`, its model requests and tool calls are steps.

    Give it to the agent: `Agent(…, name="support", capabilities=[AcodeDurability()])`. Killed anywhere and run again,
    the agent is given the responses and results on record, and continues where it stood. Outside of a session it
    changes nothing.

    idempotent: the names of tools that may be repeated when the program was killed inside them. All others are effects:
    the next run raises `OutcomeUnknown`, and a person decides. A tool can say it itself, with `metadata={"acode":
    {"idempotent": True}}`; `metadata={"acode": False}` makes it no step at all. name: the agent's name in the steps, if
    not its own. models: further models by name, for `run(model=…)`. event_stream_handler: receives the model's stream
    as it arrives; it is no step, and receives tool calls again on a resume.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="acode",
        durable_unit_noun="step",
        durable_container_noun="session",
        codec=JSON_CODEC,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_call_result_upgrade_lenient=True,  # what a person said that a call returned is the bare value
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=METADATA,
    )

    def __init__(
        self,
        *,
        idempotent: Collection[str] = (),
        name: str | None = None,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
    ) -> None:
        if isinstance(idempotent, str):
            raise Usage(f"idempotent: expected names of tools, found the text {idempotent!r}")
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._idempotent = frozenset(idempotent)

    def for_agent(self, agent: AbstractAgent[AgentDepsT, Any]) -> AbstractCapability[AgentDepsT]:
        """Bind it to the agent; one with tools that would escape it is refused."""
        for toolset in agent.toolsets:
            toolset.apply(refuse_escaping_features)
        return super().for_agent(agent)

    def get_durable_operation_backend(self) -> Steps:
        """Where the agent's operations become steps."""
        return Steps(self.name, self._idempotent)

    @property
    def in_durable_context(self) -> bool:
        """Whether a session is open here."""
        return CURRENT.get() is not None

    # One run.

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: Any) -> AgentRunResult[Any]:
        """A run is a place of its own in the session: `support-run1`, `support-run2`."""
        here = CURRENT.get()
        if here is None:
            self._refuse_lost_thread()
            return await super().wrap_run(ctx, handler=handler)
        with self._place(here):
            return await super().wrap_run(ctx, handler=handler)

    @contextlib.contextmanager
    def _place(self, here: Current) -> Iterator[None]:
        runs = self._runs(here)
        if runs.under_way:
            raise Usage(
                f"two runs of the agent {self.name} at the same time at the same place: which of them is the second, is"
                " chance",
                hint="Give each a branch of its own: with session.branch(name): await agent.run(…).",
            )
        name, runs.begun, runs.under_way = self._next(here), runs.begun + 1, True
        token = RUN.set(Run())
        try:
            with here.session.branch(name):
                inside = CURRENT.get()
                assert inside is not None
                inside.scope.repeated = here.scope.repeated  # its steps may be on record from an earlier attempt
                yield
        finally:
            runs.under_way = False
            RUN.reset(token)

    def _runs(self, here: Current) -> Runs:
        return PLACES.setdefault(here.scope, {}).setdefault(in_a_name(self.name), Runs())

    def _next(self, here: Current) -> str:
        return f"{in_a_name(self.name)}-run{self._runs(here).begun + 1}"

    def _refuse_lost_thread(self) -> None:
        """A new thread knows nothing of the session; run there in silence, the agent would not be durable."""
        if OPEN:
            raise Usage(
                f"the agent {self.name} is run in a thread that knows of no session, while {OPEN[-1].key} is open",
                hint="Start the thread with asyncio.to_thread, or contextvars.copy_context().run.",
            )

    def get_default_run_id(self) -> str | None:
        """The same on a resume."""
        here = CURRENT.get()
        if here is None:
            return None
        place = f"{here.scope.path}." if here.scope.path else ""
        return f"{here.session.id}:{place}{self._next(here)}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """The same on a resume."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """When the run first began, so that its timeout counts from there; asked only for a run with a timeout."""
        here = CURRENT.get()
        if here is None:
            return None
        return here.session.step(f"{self._next(here)}-began", now, idempotent=True)


def now() -> datetime:
    return datetime.now(UTC)


def refuse_escaping_features(toolset: AbstractToolset[Any]) -> None:
    """Tools of these kinds become steps, or are executed by nobody; those of any other would run again on a resume."""
    if isinstance(toolset, FunctionToolset | DynamicToolset | ExternalToolset | WrapperToolset):
        return
    try:
        from pydantic_ai.mcp import MCPToolset
    except ImportError:
        pass
    else:
        if isinstance(toolset, MCPToolset):
            return
    raise Usage(
        f"the tools of {type(toolset).__name__} cannot be steps: it executes them in a way of its own",
        hint="Offer them through a FunctionToolset, or let a function return the toolset: DynamicToolset(…, id=…).",
    )
