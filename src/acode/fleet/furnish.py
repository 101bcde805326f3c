"""The workspace of a session in a directory that has none of it: its source once, then what finished steps left."""

from __future__ import annotations

from typing import Any

import msgspec

from acode.engine.world import World
from acode.errors import AcodeError, SourceUnavailable
from acode.fleet.sources import Source, make_workspace
from acode.sync.push_now import connected
from acode.sync.take_over import files_here, put_files_here


def furnish(world: World, session_id: str, kept_source: dict[str, Any]) -> None:
    made = world.agent_dir / "source"
    if not made.exists():
        source = msgspec.convert(kept_source, Source)
        make_workspace(source, world.workspace, _uploaded(world, source))
        made.write_text(f"{source.kind}\n", encoding="ascii")
    missing = [one.path for one in files_here(world, session_id) if one.known]
    if missing:
        put_files_here(world, session_id, missing)


def _uploaded(world: World, source: Source) -> bytes | None:
    if source.kind != "upload":
        return None
    try:
        with connected(world) as ledger:
            return ledger.blob(source.sha256)
    except AcodeError as error:
        raise SourceUnavailable(
            f"the directory that was uploaded with the session: {error.message}", hint=error.hint
        ) from error
