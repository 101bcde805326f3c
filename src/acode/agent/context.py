"""One agent's session at work: what every part of it needs, and the way a model is asked.

A request is a step. On record, its answer is given back and nobody is asked again; in flight at a crash, it is simply
asked again, because a request changes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from acode.agent.conversation import TaskConversation
from acode.agent.messages import Ask, Reply, Setup
from acode.engine import notices
from acode.engine.world import World, short
from acode.errors import BudgetSpent, ContextTooLong, ModelTrouble
from acode.events import types as ev
from acode.events.definition import Call, Model
from acode.hints import Hint, Resume
from acode.library.declarations import Begun
from acode.library.deferred_steps import DeferredSteps
from acode.library.step_identity import CURRENT, Current
from acode.state import Conversation

T = TypeVar("T")
STEP_TEXT_CHARACTERS = 200


class Endpoint(Protocol):
    """The interface that sends a request to a model."""

    def __call__(
        self,
        setup: Setup,
        ask: Ask,
        *,
        api_key: str | None,
        timeout_s: float,
        show: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> Reply: ...


class Context:
    """The session, its model, and what was allowed while this process lives."""

    def __init__(
        self, steps: DeferredSteps, setup: Setup, instructions: dict[str, str], goal: str, endpoint: Endpoint
    ) -> None:
        self.steps = steps
        self.setup = setup
        self.instructions = instructions
        self.goal = goal
        self.endpoint = endpoint
        self.allowed: set[str] = set()  # tools that a person allowed for as long as this process lives

    @property
    def world(self) -> World:
        return self.steps.run.world

    @property
    def conversation(self) -> Conversation:
        return self.steps.run.session.conversation or Conversation()

    @property
    def place(self) -> str:
        """The task whose steps are asked for now."""
        current = CURRENT.get()
        return current.scope.path if current is not None else ""

    # Tasks: steps with steps inside.

    def task(self, name: str, title: str, arguments: Any, work: Callable[[], T]) -> T:
        """A piece of work that asks for steps of its own; on record, its result is enough."""
        begun = self.steps.offer(name, arguments, shown=title)
        if begun.found:
            return begun.result  # type: ignore[no-any-return]  # what was stored is what `work` returned then
        self.steps.start(begun, Call(function=self.world.redactor.text(title)))
        token = CURRENT.set(Current(self.steps.session, begun.inside()))
        try:
            value = work()
        finally:
            CURRENT.reset(token)
        self.steps.complete(begun, value)
        return value

    def stopped_before(self, name: str, what: str) -> bool:
        """Whether a stop is on record; if not it is put there, so that the next run goes past it."""
        begun = self.steps.offer(name, [what], shown="Stop, for a person to look")
        if not begun.found:
            self.steps.answer(begun, Call(function="stop"), what)
        return begun.found

    # Requests.

    def ask(self, name: str, ask: Ask, identity: list[Any] | None = None) -> Reply:
        """`identity`: the value that a later run must repeat, where it is not the whole request."""
        begun = self.steps.offer(name, identity or self.identity(ask), shown=self.shown(ask))
        return self.reply(begun, ask)

    def ask_in_time(self, name: str, conversation: TaskConversation, ask: Callable[[], Ask]) -> Reply:
        """Ask; where the conversation is too long for the model, it is shortened first. The log says where it was."""
        reply = self.ask_whole(name, conversation, ask())
        if reply is not None:
            return reply
        context = self.world.config.settings.model.context_tokens
        # How much of the record fits depends on today's settings; on record is a summary of the same conversation.
        summary = self.ask(
            f"shorten-{name}", conversation.to_shorten(self.instructions["compact"], context), [self.setup.name, name]
        )
        conversation.shortened(summary.text)
        return self.ask(f"{name}-short", ask())

    def ask_whole(self, name: str, conversation: TaskConversation, ask: Ask) -> Reply | None:
        """The answer to the conversation as it is; None where it is, or was, too long for that."""
        try:
            begun = self.steps.offer(name, self.identity(ask), shown=self.shown(ask))
        except ContextTooLong:
            return None  # on record: the model refused it in an earlier life, and it was shortened then
        if begun.found:
            return restored(begun)
        if begun.id in self.conversation.compacted:
            return None
        if conversation.full(self.world.config.settings.model.context_tokens):
            self.note_compaction(begun.id, conversation, "long")
            return None
        try:
            return self.reply(begun, ask)
        except ContextTooLong:
            self.note_compaction(begun.id, conversation, "refused")
            return None

    def identity(self, ask: Ask) -> list[Any]:
        """The value that a later run must repeat: the model and its messages; not the tools, which a later acode may
        add.
        """
        return [self.setup.name, ask.instructions, msgspec.to_builtins(ask.messages)]

    def shown(self, ask: Ask) -> str:
        """The beginning of the request; secrets are removed first, because no rule finds the rest of a secret that was
        cut.
        """
        return self.world.redactor.text(ask.messages[-1].text)[:STEP_TEXT_CHARACTERS]

    def reply(self, begun: Begun, ask: Ask) -> Reply:
        if begun.found:
            return restored(begun)
        self.refuse_overspending()
        self.steps.start(begun, Model(name=self.setup.name))
        lines = self.world.redactor.stream()
        try:
            reply = self.endpoint(
                self.setup,
                ask,
                api_key=self.world.env.get(self.setup.api_key_env),
                timeout_s=self.world.config.settings.model.timeout_seconds,
                # A plan is shown when it is whole: as it arrives it is JSON.
                show=lambda piece: (
                    self.show(begun.id, lines.feed(piece.encode("utf-8", "replace"))) if ask.answer is None else None
                ),
                stopped=self.world.stop.at_once,
            )
        except ModelTrouble as error:
            self.steps.session.fail(begun, error)
            raise
        finally:
            self.show(begun.id, lines.finish())
        self.steps.complete(begun, msgspec.to_builtins(reply), spent=self.spent(reply))
        return reply

    def show(self, step: str, piece: bytes) -> None:
        """Show the model's answer, line by line as it arrives; a secret that it repeats is not shown."""
        if piece:
            self.steps.run.emit(notices.StepOutput(text=piece.decode("utf-8", "replace")), step=step)

    def spent(self, reply: Reply) -> ev.Spent:
        from acode.agent.endpoint import price

        return ev.Spent(
            input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, usd=price(self.setup, reply)
        )

    def refuse_overspending(self) -> None:
        settings, so_far = self.world.config.settings.model, self.conversation
        tokens = so_far.input_tokens + so_far.output_tokens
        name = short(self.steps.session.id)
        if settings.budget_tokens is not None and tokens >= settings.budget_tokens:
            raise BudgetSpent(
                f"session {name} has used {tokens} tokens of the {settings.budget_tokens} that it may use",
                hint=Hint("Raise model.budget_tokens, then: {}", Resume(), of=name),
                tokens=tokens,
            )
        if settings.budget_usd is not None and so_far.usd >= settings.budget_usd:
            raise BudgetSpent(
                f"session {name} has cost {so_far.usd:.2f} USD of the {settings.budget_usd:.2f} that it may cost",
                hint=Hint("Raise model.budget_usd, then: {}", Resume(), of=name),
                usd=so_far.usd,
            )

    # The conversation.

    def note_compaction(self, step: str, conversation: TaskConversation, reason: Any) -> None:
        """Recorded before the summary is requested: a resume after a crash here shortens too."""
        self.steps.run.append(
            ev.ContextCompacted(
                step=step, reason=reason, messages=len(conversation.messages), tokens=conversation.estimate()
            )
        )
        self.steps.run.emit(notices.ContextCompacted(reason=reason, messages=len(conversation.messages)), step=step)


def restored(begun: Begun) -> Reply:
    return msgspec.convert(begun.result, Reply)
