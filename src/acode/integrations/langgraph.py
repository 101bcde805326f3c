"""A checkpointer for LangGraph on the workspace's store: durable, sealed, and linear in the size of the changes.

    from acode.integrations.langgraph import AcodeSaver
    graph = builder.compile(checkpointer=AcodeSaver("."))

A channel's value is stored once, however many checkpoints hold it; a list that grew is stored as the list it was and
what was added. Needs the extra: pip install "acode-cli[langgraph]".
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from acode import forked
from acode.engine.workspace_store import opened
from acode.errors import Usage
from acode.library.world import world_of
from acode.store.graphs import Graphs, Kept, Write

LIST_ITEMS_MIN, LIST_ITEMS_MAX = 2, 50_000
ITEM_BYTES_MIN = 48  # a link costs about as much: shorter items are stored with their list
Typed = tuple[str, bytes]
Pending = list[tuple[str, str, Any]]


class Body(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The content of a checkpoint's row: itself without its values, and their names."""

    checkpoint: Typed
    metadata: Typed
    values: dict[str, bytes]


class Value(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A stored value; or, with `before`, the last item of a list and the name of the list without it."""

    typed: Typed
    before: bytes | None = None
    item: bool = False


class WriteBody(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    channel: str
    path: str
    typed: Typed


_pack = msgspec.msgpack.encode
_bodies = msgspec.msgpack.Decoder(Body)
_values = msgspec.msgpack.Decoder(Value)
_writes = msgspec.msgpack.Decoder(WriteBody)


class AcodeSaver(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer in the workspace's `.agent/workspace.db`, for sync and async graphs.

    Every put is synced before it returns. Every row that is read was verified: a changed row is an error, never a
    state.
    """

    def __init__(self, workspace: str | os.PathLike[str] = ".", *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._turn = threading.RLock()  # one connection, used by whatever thread comes
        self._stack = contextlib.ExitStack()
        store = self._stack.enter_context(opened(world_of(workspace), look_only=False, create=True))
        self._graphs = Graphs(store)
        forked.own(self, AcodeSaver._disown)

    def _disown(self) -> None:
        """In a forked child the store refuses all use; a turn that another thread had would be waited for forever."""
        self._turn = threading.RLock()

    def close(self) -> None:
        """Close the store; the end of the process does it too."""
        with self._turn:
            self._stack.close()

    def __enter__(self) -> AcodeSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Putting.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; values that are there already are only named."""
        thread, space = place_of(config)
        bare: dict[str, Any] = {**checkpoint, "channel_values": {}}
        about = get_serializable_checkpoint_metadata(config, metadata)
        new: dict[bytes, bytes] = {}
        names = {channel: self._keep(value, new) for channel, value in checkpoint["channel_values"].items()}
        body = Body(checkpoint=self.serde.dumps_typed(bare), metadata=self.serde.dumps_typed(about), values=names)
        run = about.get("run_id")
        kept = Kept(
            thread=thread,
            space=space,
            checkpoint=checkpoint["id"],
            parent=get_checkpoint_id(config),
            run=str(run) if run is not None else None,
            body=_pack(body),
        )
        with self._turn:
            self._graphs.put(kept, new)
        return as_config(thread, space, checkpoint["id"])

    def _keep(self, value: Any, new: dict[bytes, bytes]) -> bytes:
        """The name of a value; what is to be stored under it, and under the names in it, is added to `new`."""
        if type(value) is list and LIST_ITEMS_MIN <= len(value) <= LIST_ITEMS_MAX:
            items = [self.serde.dumps_typed(item) for item in value]
            if sum(len(data) for _, data in items) >= ITEM_BYTES_MIN * len(items):
                return keep_chain(items, new)
        return keep_one(Value(typed=self.serde.dumps_typed(value)), new)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, until the next checkpoint holds it."""
        thread, space = place_of(config)
        rows = [
            Write(
                task=task_id,
                place=WRITES_IDX_MAP.get(channel, number),
                body=_pack(WriteBody(channel=channel, path=task_path, typed=self.serde.dumps_typed(value))),
            )
            for number, (channel, value) in enumerate(writes)
        ]
        with self._turn:
            self._graphs.put_writes(thread, space, wanted_id(config), rows)

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the latest one of its thread and namespace."""
        thread, space = place_of(config)
        with self._turn:
            found = self._graphs.find(thread, space, get_checkpoint_id(config))
            return self._tuple(found) if found is not None else None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name for it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the latest first."""
        wanted = config["configurable"] if config is not None else {}
        if limit is not None and limit <= 0:
            return
        with self._turn:
            rows = list(
                self._graphs.checkpoints(
                    wanted.get("thread_id"),
                    wanted.get("checkpoint_ns"),
                    checkpoint=wanted.get("checkpoint_id"),
                    before=get_checkpoint_id(before) if before is not None else None,
                )
            )
        given = 0
        for row in rows:
            if filter and not self._fits(row, filter):
                continue
            with self._turn:
                found = self._tuple(row)
            yield found
            given += 1
            if given == limit:
                return

    def _fits(self, row: Kept, wanted: dict[str, Any]) -> bool:
        metadata = self.serde.loads_typed(_bodies.decode(row.body).metadata)
        return all(metadata.get(name) == value for name, value in wanted.items())

    def _tuple(self, row: Kept) -> CheckpointTuple:
        body = _bodies.decode(row.body)
        checkpoint = self.serde.loads_typed(body.checkpoint)
        checkpoint["channel_values"] = {name: self._value(row.thread, sha256) for name, sha256 in body.values.items()}
        return CheckpointTuple(
            config=as_config(row.thread, row.space, row.checkpoint),
            checkpoint=checkpoint,
            metadata=self.serde.loads_typed(body.metadata),
            parent_config=as_config(row.thread, row.space, row.parent) if row.parent else None,
            pending_writes=self._pending(row),
        )

    def _pending(self, row: Kept) -> Pending:
        stored = [(one, _writes.decode(one.body)) for one in self._graphs.writes(row.thread, row.space, row.checkpoint)]
        stored.sort(key=lambda pair: writes_sort_key(pair[1].path, pair[0].task, pair[0].place))
        return [(one.task, body.channel, self.serde.loads_typed(body.typed)) for one, body in stored]

    def _value(self, thread: str, sha256: bytes) -> Any:
        value = _values.decode(self._graphs.value(thread, sha256))
        if not value.item:
            return self.serde.loads_typed(value.typed)
        items = [value]
        while value.before is not None:
            value = _values.decode(self._graphs.value(thread, value.before))
            items.append(value)
        return [self.serde.loads_typed(one.typed) for one in reversed(items)]

    # Removing and copying.

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread with everything in it."""
        with self._turn:
            self._graphs.delete_thread(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs made, with their writes."""
        runs = {str(run) for run in run_ids}
        with self._turn:
            threads = self._graphs.threads_of_runs(sorted(runs)) if runs else []
            for thread in threads:
                self._graphs.keep_only(thread, lambda one: one.run not in runs, names_in)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one."""
        with self._turn:
            self._graphs.copy_thread(source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`keep_latest`: only the latest checkpoint of each namespace, and those its delta channels are built from.

        `delete`: nothing of these threads.
        """
        if strategy not in ("keep_latest", "delete"):
            raise Usage(f"strategy: expected keep_latest or delete, found {strategy!r}")
        with self._turn:
            for thread in thread_ids:
                if strategy == "delete":
                    self._graphs.delete_thread(thread)
                    continue
                self._keep_latest(thread)

    def _keep_latest(self, thread: str) -> None:
        kept = self._needed(thread)
        self._graphs.keep_only(thread, lambda one: (one.space, one.checkpoint) in kept, names_in)

    def _needed(self, thread: str) -> set[tuple[str, str]]:
        """The latest of each namespace, and the ancestors without which a delta channel could not be built again."""
        rows = {(one.space, one.checkpoint): one for one in self._graphs.checkpoints(thread)}
        latest: dict[str, Kept] = {}
        for one in rows.values():
            latest.setdefault(one.space, one)
        needed = set[tuple[str, str]]()
        for one in latest.values():
            at: Kept | None = one
            open_channels = set(self.serde.loads_typed(_bodies.decode(one.body).metadata).get(DELTA_COUNTERS) or ())
            while at is not None:
                needed.add((at.space, at.checkpoint))
                open_channels -= _bodies.decode(at.body).values.keys()
                at = rows.get((at.space, at.parent)) if open_channels and at.parent else None
        return needed

    # Versions.

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Versions count up; the width keeps their order as text."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}"

    # Async: the same, in a thread, so that the loop never waits for the disk.

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name for it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self.prune(thread_ids, strategy=strategy))


DELTA_COUNTERS = "counters_since_delta_snapshot"


def place_of(config: RunnableConfig) -> tuple[str, str]:
    wanted = config["configurable"]
    return str(wanted["thread_id"]), str(wanted.get("checkpoint_ns") or "")


def wanted_id(config: RunnableConfig) -> str:
    found = get_checkpoint_id(config)
    if found is None:
        raise Usage("writes belong to a checkpoint, and the config names none")
    return found


def as_config(thread: str, space: str, checkpoint: str | None) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": checkpoint}}


def keep_one(value: Value, new: dict[bytes, bytes]) -> bytes:
    data = _pack(value)
    sha256 = hashlib.sha256(data).digest()
    new[sha256] = data
    return sha256


def keep_chain(items: Sequence[Typed], new: dict[bytes, bytes]) -> bytes:
    """A list as a chain: each link names the list before it, so that a list that grew adds only what is new."""
    before: bytes | None = None
    for item in items:
        before = keep_one(Value(typed=item, before=before, item=True), new)
    assert before is not None
    return before


def names_in(data: bytes) -> Iterable[bytes]:
    """The values that a checkpoint's body names, or the list before a list's last item."""
    try:
        return tuple(_bodies.decode(data).values.values())
    except msgspec.ValidationError:
        before = _values.decode(data).before
        return (before,) if before is not None else ()
