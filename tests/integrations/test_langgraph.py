"""LangGraph's own conformance suite, whole; and what it does not ask: seals, linear storage, kills, sync graphs."""

from __future__ import annotations

import asyncio
import itertools
import operator
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import apsw
import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs the extra: langgraph")
pytest.importorskip("langgraph.checkpoint.conformance", reason="needs langgraph-checkpoint-conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from acode.errors import BlobDamaged, ChainBroken, Usage
from acode.integrations.langgraph import AcodeSaver

CONFORMANCE_TESTS = 81
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACODE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.fixture
def saver(workspace: Path) -> Iterator[AcodeSaver]:
    with AcodeSaver(workspace) as made:
        yield made


def test_the_whole_conformance_suite_passes_base_and_extended(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @checkpointer_test(name="AcodeSaver")
    async def on_the_store() -> AsyncIterator[AcodeSaver]:
        with AcodeSaver(workspace) as made:
            yield made

    report = asyncio.run(validate(on_the_store))
    failures = [failure for result in report.results.values() for failure in result.failures or []]
    passed = sum(result.tests_passed for result in report.results.values())
    with capsys.disabled():
        sys.stdout.write(f"\nlanggraph-checkpoint-conformance: {passed} of {CONFORMANCE_TESTS} passed\n")
    assert failures == []
    assert {name for name, result in report.results.items() if result.detected} == {one.value for one in Capability}
    assert passed == CONFORMANCE_TESTS


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def graph(saver: AcodeSaver, steps: int) -> Any:
    langgraph = pytest.importorskip("langgraph.graph")
    builder = langgraph.StateGraph(State)
    names = [f"n{number}" for number in range(steps)]
    for name in names:
        builder.add_node(name, lambda state, name=name: {"log": [name * 20]})
    builder.add_edge(langgraph.START, names[0])
    for one, other in itertools.pairwise(names):
        builder.add_edge(one, other)
    return builder.compile(checkpointer=saver, interrupt_before=[names[-1]])


def test_a_graph_goes_on_in_another_process_where_it_stopped(workspace: Path) -> None:
    config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 100}
    with AcodeSaver(workspace) as first:
        graph(first, 5).invoke({"log": ["begin"]}, config)
    with AcodeSaver(workspace) as second:
        ended = graph(second, 5).invoke(None, config)
        assert [line[:2] for line in ended["log"]] == ["be", "n0", "n1", "n2", "n3", "n4"]
        assert len(list(second.list(config))) == 7


def test_an_async_graph_uses_the_same_store(saver: AcodeSaver) -> None:
    async def program() -> Any:
        config: Any = {"configurable": {"thread_id": "t"}}
        running = graph(saver, 3)
        await running.ainvoke({"log": []}, config)
        return await running.ainvoke(None, config)

    assert len(asyncio.run(program())["log"]) == 3


def put(saver: AcodeSaver, values: dict[str, Any], parent: Any = None, thread: str = "t") -> Any:
    from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata

    config = parent or generate_config(thread)
    return saver.put(config, generate_checkpoint(channel_values=values), generate_metadata(), {})


def stored_bytes(workspace: Path) -> int:
    db = apsw.Connection(os.fspath(workspace / ".agent" / "workspace.db"))
    try:
        return int(next(iter(db.execute("SELECT sum(length(data)) FROM graph_values")))[0])
    finally:
        db.close()


def test_storage_is_linear_in_what_changed(saver: AcodeSaver, workspace: Path) -> None:
    """A big value that stays, and a list that grows by 1 KiB: each checkpoint costs what it added."""
    big, log, parent = "x" * 100_000, list[str](), None
    for number in range(200):
        log.append(f"{number:04}" + "y" * 1_000)
        parent = put(saver, {"big": big, "log": list(log)}, parent)
    added = len(big) + sum(map(len, log))
    assert stored_bytes(workspace) < 1.5 * added
    found = saver.get_tuple(parent)
    assert found is not None and found.checkpoint["channel_values"] == {"big": big, "log": log}


def test_pruned_values_are_removed_and_the_kept_ones_are_whole(saver: AcodeSaver, workspace: Path) -> None:
    parent = None
    for number in range(20):
        parent = put(saver, {"own": f"{number}" * 5_000, "log": ["z" * 100 for _ in range(number)]}, parent)
    before = stored_bytes(workspace)
    saver.prune(["t"])
    assert stored_bytes(workspace) < before / 5
    found = saver.get_tuple(parent)
    assert found is not None and found.checkpoint["channel_values"]["log"] == ["z" * 100] * 19


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE graph_checkpoints SET body = CAST(body || x'00' AS BLOB)", ChainBroken),
        ("UPDATE graph_checkpoints SET parent = 'other'", ChainBroken),
        ("UPDATE graph_writes SET task = 'other'", ChainBroken),
        ("UPDATE graph_values SET data = CAST(data || x'00' AS BLOB)", BlobDamaged),
        ("DELETE FROM graph_values", BlobDamaged),
    ],
)
def test_a_changed_row_is_an_error_and_never_a_state(
    saver: AcodeSaver, workspace: Path, change: str, error: type[Exception]
) -> None:
    config = put(saver, {"a": [1, 2]})
    saver.put_writes(config, [("a", 3)], "task")
    db = apsw.Connection(os.fspath(workspace / ".agent" / "workspace.db"))
    db.execute(change)
    db.close()
    with pytest.raises(error):
        saver.get_tuple(config)


def test_writes_come_back_in_the_order_of_their_paths_and_one_of_a_kind_is_replaced(saver: AcodeSaver) -> None:
    config = put(saver, {})
    saver.put_writes(config, [("b", 1)], "a-task", task_path="2")
    saver.put_writes(config, [("b", 2)], "z-task", task_path="1")
    saver.put_writes(config, [("__interrupt__", "first")], "a-task", task_path="2")
    saver.put_writes(config, [("__interrupt__", "second")], "a-task", task_path="2")
    found = saver.get_tuple(config)
    assert found is not None
    assert found.pending_writes == [("z-task", "b", 2), ("a-task", "__interrupt__", "second"), ("a-task", "b", 1)]


def test_a_forked_child_stores_no_checkpoint_and_leaves_those_of_its_parent_alone(saver: AcodeSaver) -> None:
    place = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with saver._turn:  # as if another thread of the parent were writing: no such thread is in the child
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(Usage, match="forked child"):
                    graph(saver, 3).invoke({"log": []}, place)
                saver.close()
                status = 0
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert graph(saver, 3).invoke({"log": []}, place)["log"]
