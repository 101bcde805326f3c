"""What is fuzzed: every parser of data from outside, as a function of bytes that may only fail by a named error.

Used three ways: mutated seeds in the gate, atheris for as long as a release allows, and one at a time by hand:
python tests/fuzz/atheris_run.py NAME [libFuzzer's options].
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from acode import seal
from acode.config import load_config
from acode.disk.private_files import write_private
from acode.engine.bundle import verify_bundle
from acode.errors import AcodeError
from acode.events import ENVELOPE_VERSION, covered, decode, encode
from acode.formats.agent_memory import dialect
from acode.formats.arc import checkpoint as arc_value
from acode.formats.arc import frontmatter, migrations
from acode.observed import AGENTS
from acode.observed.call_step import action_of, shown_arguments
from acode.observed.evidence import Scene, evidence_of, outcome_of
from acode.observed.hook_answer import Answer, printed
from acode.observed.hook_payload import parse
from acode.planfile import parse_plan
from acode.redact import redactor
from acode.store import checkpoints as ck
from acode.store.row_check import judge
from tests.arc import arc, context, diagnosed
from tests.builders import completed, created, did, failed, log, paused, resumed, started
from tests.observed import agents
from tests.transcripts import DIED, FINISHED, RESUMED, fill_opencode, open_opencode, write_session

KEY = b"k" * 32
KEYRING = seal.Keyring(current="k", keys={"k": KEY})
PLACE = Path(tempfile.gettempdir()) / "acode-fuzz"
SCENE = Scene()  # one look at all processes for all attempts
REDACTOR = redactor(["correct-horse-battery"])

PLAN = b"""version: 1
title: Add validation
on_failure: abort
parallel: 2
defaults: {idempotent: true, timeout: 600}
tasks:
  - id: build
    needs: []
    steps:
      - read: src/a.txt
      - write: {path: out/a.txt, content: "x\\n", mode: "0644"}
      - run: [make, test]
        outputs: ["build/**"]
        env: {CI: "1"}
        retry: {attempts: 3, backoff_seconds: 2}
      - sql: {database: app.db, file: m.sql}
      - commit: {message: "m", paths: [src]}
      - approve: "Go?"
"""
CONFIG = b"""resume: {enabled: true, max_resume_attempts: 3, cooldown_seconds: {timeout: 120}}
steps: {timeout_seconds: 600}
sync: {url: "postgresql://u:p@h/d"}
drivers: {arc: {command: [a, "{prompt_file}"], timeout: 3600}}
"""


def plan(data: bytes) -> None:
    parse_plan(data.decode("utf-8", "replace"), "plan.yml", plan_bytes_max=262_144, timeout_s_default=60.0)


def config(data: bytes) -> None:
    (PLACE / ".agent").mkdir(parents=True, exist_ok=True)
    (PLACE / ".agent" / "config.yml").write_bytes(data)
    load_config(PLACE, {"HOME": str(PLACE)}, {})


def event(data: bytes) -> None:
    decode(data, "s", 1)


def row(data: bytes) -> None:
    assert judge("s", (1, "s", data, bytes(32)), bytes(32), KEYRING).envelope is None


def sealed_row(data: bytes) -> None:
    """Signed by a key that got into wrong hands: still no more than a named error."""
    judge("s", (1, "s", data, seal.code(KEY, bytes(32), covered(ENVELOPE_VERSION, "s", 1, data))), bytes(32), KEYRING)


def checkpoint(data: bytes) -> None:
    ck.open_checkpoint("s", 1, data, seal.seal(KEY, ck.PURPOSE, data), KEYRING)


def snapshot(data: bytes) -> None:
    import hashlib

    ref = ck.SnapshotRef(seq=1, sha256=hashlib.sha256(data).hexdigest(), head="", size=len(data))
    ck.open_snapshot(ref, data)


def bundle(data: bytes) -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    path = PLACE / "bundle.jsonl"
    path.write_bytes(data)
    verify_bundle(path, KEYRING)


def keys(data: bytes) -> None:
    place = PLACE / "keys"
    place.mkdir(parents=True, exist_ok=True)
    write_private(seal.key_file(place), data, durable=False)
    seal.load_keyring(place, {}, create=False)


def anchor(data: bytes) -> None:
    place = PLACE / "anchors"
    place.mkdir(parents=True, exist_ok=True)
    (place / "s").write_bytes(data)
    list(seal.all_anchors(place))


def agent_memory(data: bytes) -> None:
    said = dialect.parse(data)
    if isinstance(said, dialect.LineEvent):
        dialect.task_id_of(said), dialect.details_of(said), dialect.phase_of(said), dialect.time_us(said.timestamp)


def arc_checkpoint(data: bytes) -> None:
    diagnosed(migrations.migrate(arc_value.decode(data, name="checkpoint.json")).value)


def arc_context(data: bytes) -> None:
    frontmatter.parse_head(data)


def observed(agent: str) -> Callable[[bytes], None]:
    """A transcript of another agent: whatever stands in it, reading it gives sessions or an error of the system."""

    def read(data: bytes) -> None:
        place = PLACE / "observed" / agent
        place.mkdir(parents=True, exist_ok=True)
        path = place / "a.messages.json"
        path.write_bytes(data)
        AGENTS[agent].recognizes(data[:65536])
        with contextlib.suppress(OSError):
            for session in AGENTS[agent].read(path, place, None):
                for call in session.calls:
                    outcome_of(evidence_of(call, session, SCENE))

    return read


def opencode_seed() -> bytes:
    """A database that was closed in order: its WAL stands in it."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "opencode.db"
        database = open_opencode(path)
        fill_opencode(database, Path("/x"), [(datetime.now(UTC), one) for one in DIED])
        database.close()
        return path.read_bytes()


def observed_seeds(agent: str) -> list[bytes]:
    with tempfile.TemporaryDirectory() as place:
        stories = (DIED, FINISHED, RESUMED)
        return [
            write_session(agent, Path(place) / str(number), Path("/x"), one).read_bytes()
            for number, one in enumerate(stories)
        ]


def hook_payload(data: bytes) -> None:
    """What an agent tells its hook: an event, nothing, or a named error; whatever it is, it can be answered."""
    event = parse(data)
    if event is not None:
        assert len(event.digest) == 64
        action_of(event, PLACE)
        shown_arguments(event)
        for answer in (Answer(deny="no"), Answer(context="facts"), Answer(error="wrong"), Answer()):
            out = printed(event, answer)
            assert "updatedInput" not in out.stdout and out.status in (0, 2)


def hook_seeds() -> list[bytes]:
    tools = {"tool": "Bash", "arguments": {"command": "true"}, "call": "c"}
    edit = {"tool": "Edit", "arguments": {"file_path": "a", "old_string": "x", "new_string": "y"}, "call": "c"}
    moments = ("before", "after", "prompt")
    found = [agents.payload(name, one, PLACE, **tools) for name in agents.EVENTS for one in moments]
    return [json.dumps(one).encode() for one in (*found, agents.payload("claude", "before", PLACE, **edit))]


def redaction(data: bytes) -> None:
    """Never an error, never longer than a mask makes it, and the same however it is cut."""
    stream = REDACTOR.stream()
    pieces = b"".join(stream.feed(data[at : at + 3]) for at in range(0, len(data), 3)) + stream.finish()
    assert b"correct-horse-battery" not in pieces


SESSION_EVENTS = log(
    created("a", "b"), did("a"), started("b"), failed("b"), paused("step_failed"), resumed(), completed("b")
)
EVENTS = [encode(one) for one in SESSION_EVENTS]
TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "plan": (plan, [PLAN]),
    "config": (config, [CONFIG]),
    "event": (event, EVENTS),
    "row": (row, EVENTS),
    "sealed_row": (sealed_row, EVENTS),
    "checkpoint": (checkpoint, [b'{"v":2,"id":0,"session_id":"s","seq":1,"head":"","key_id":"k","session":{}}']),
    "snapshot": (snapshot, [b'{"session_id":"s","seq":1,"state":"EXECUTING","records":{"steps":{}}}']),
    "bundle": (
        bundle,
        [b'{"line":"acode-bundle","version":1,"session_id":"s","title":"","key_id":"k","anchor":null}\n'],
    ),
    "keys": (keys, [b"00" * 32 + b"\n"]),
    "anchor": (
        anchor,
        [b'{"session_id":"s","seq":1,"head":"","title":"t","workspace":"w","at":"2026-01-01T00:00:00Z"}'],
    ),
    "agent_memory": (agent_memory, [b'{"type":"task_completed","task":"t1","ts":"2026-01-01T00:00:00Z","details":{}}']),
    "arc_checkpoint": (arc_checkpoint, [json.dumps(arc()).encode()]),
    "arc_context": (arc_context, [context()]),
    **{f"observed_{agent}": (observed(agent), observed_seeds(agent)) for agent in AGENTS if agent != "opencode"},
    "observed_opencode": (observed("opencode"), [opencode_seed()]),
    "hook_payload": (hook_payload, hook_seeds()),
    "redaction": (redaction, [b"password=correct-horse-battery -----BEGIN " + b"PRIVATE KEY-----\n", PLAN]),
}


def attempt(name: str, data: bytes) -> None:
    """One execution; a named error is an answer, any other exception is what is looked for."""
    with contextlib.suppress(AcodeError):
        TARGETS[name][0](data)
