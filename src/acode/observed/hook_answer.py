"""What a hook answers its agent: nothing, a veto with its reason, or facts for the model. There is no other answer.

A hook that allowed something, or changed what a tool is given, would run what the user has forbidden: the agents check
their user's rules on what the hook leaves of a call.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from acode.observed.hook_payload import HookEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """At most one of these; none of them: the call takes its ordinary way through the agent's own rules."""

    deny: str = ""
    context: str = ""
    error: str = ""  # the start could not be recorded, and nothing may run unrecorded
    once_said: Callable[[], None] | None = field(default=None, compare=False)  # records that it was printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    stdout: str = ""
    stderr: str = ""
    status: int = 0


def printed(event: HookEvent | None, answer: Answer) -> Printed:
    if answer.error:
        return Printed(stderr=f"{answer.error}\n", status=2)
    if event is None or not (answer.deny or answer.context):
        return Printed()
    return Printed(stdout=json.dumps(_shaped(event, answer)) + "\n")


def _shaped(event: HookEvent, answer: Answer) -> dict[str, object]:
    if event.agent == "opencode":
        return {"deny": answer.deny} if answer.deny else {"context": answer.context}
    if answer.deny and event.agent == "gemini":
        return {"decision": "deny", "reason": answer.deny}
    told = (
        {"permissionDecision": "deny", "permissionDecisionReason": answer.deny}
        if answer.deny
        else {"additionalContext": answer.context}
    )
    return {"hookSpecificOutput": {"hookEventName": event.name, **told}}
