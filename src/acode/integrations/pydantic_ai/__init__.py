"""Pydantic AI agents that survive: each model request and each tool call is a step of the open session.

    from acode.integrations.pydantic_ai import AcodeDurability
    agent = Agent("openai:gpt-5", name="support", capabilities=[AcodeDurability()])

    with acode.session("ticket-7"):
        agent.run_sync("…")

Needs the extra: pip install "acode-cli[pydantic-ai]".
"""

from acode.integrations.pydantic_ai.durability import AcodeDurability

__all__ = ["AcodeDurability"]
