"""A whole function made durable, so that `acode resume` can call it again; its steps come from a file."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

import acode
from tests.conformance.steps import Step, perform_call

KEY = "conformance"


@acode.durable(key=KEY)
def work(file: str) -> str:
    session = acode.current()
    assert session is not None
    for step in msgspec.json.decode(Path(file).read_bytes(), type=list[Step]):
        if step.gate:
            session.approve(step.gate, name=step.name)
            continue
        retry = None if step.retry is None else acode.Retry(attempts=step.retry[0], backoff_s=step.retry[1])
        session.step(
            step.name, perform_call, step.line, idempotent=step.idempotent, retry=retry, timeout=step.timeout_s
        )
    return os.fspath(file)
