"""What a step of an agent costs: one sync of the log for a request and one for a call, whatever the call does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.agent.context import Context
from acode.agent.messages import Ask, Call, Message, Reply
from acode.agent.tools import use
from tests.agent.desk import Desk
from tests.stores import WatchedSyncs


@pytest.fixture
def syncs() -> Iterator[WatchedSyncs]:
    vfs = WatchedSyncs()
    yield vfs
    vfs.unregister()


CALLS = [
    ("read_file", '{"path": "notes.txt"}'),
    ("list_files", "{}"),
    ("search", '{"text": "note"}'),
    ("write_file", '{"path": "a.txt", "content": "a"}'),
    ("edit_file", '{"path": "notes.txt", "old": "end", "new": "fin"}'),
    ("run_command", '{"command": "true"}'),
]


@pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=[tool for tool, _ in CALLS])
def test_a_tool_call_costs_one_sync_of_the_log(syncs: WatchedSyncs, tmp_path: Path, tool: str, arguments: str) -> None:
    desk = Desk(tmp_path)
    (desk.workspace / "notes.txt").write_text("notes\nend\n")
    with desk.life() as context:
        before = syncs.of_the_log()
        use(context, f"{tool}-1-1", Call(id="c", tool=tool, arguments=arguments))
        assert syncs.of_the_log() - before == 1


def test_a_request_to_the_model_costs_one_sync_of_the_log(syncs: WatchedSyncs, tmp_path: Path) -> None:
    with Desk(tmp_path).life() as context:
        answering = Context(
            context.steps, context.setup, {}, "goal", lambda *_, **__: Reply(text="yes", output_tokens=1)
        )
        before = syncs.of_the_log()
        answering.ask("ask-1", Ask(instructions="i", messages=(Message(role="user", text="?"),)))
        assert syncs.of_the_log() - before == 1
