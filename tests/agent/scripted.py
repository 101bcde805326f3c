"""The scripted model server of the examples, in this process: the real client talks HTTP to it."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from acode.agent.messages import Ask, Message, Setup

ROOT = Path(__file__).resolve().parents[2]
KEY_VARIABLE = "SCRIPTED_KEY"

Serve = Callable[..., Any]


def load() -> ModuleType:
    """The example is a script, not a package: it is loaded from its file."""
    spec = importlib.util.spec_from_file_location("scripted_model", ROOT / "examples" / "agent" / "scripted_model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


scripted_model = load()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server for a script on a free port of the loopback address; it ends with the test."""
    with contextlib.ExitStack() as running:
        yield lambda script, **how: running.enter_context(scripted_model.serve(script, **how))


def setup_of(server: Any, name: str = "scripted") -> Setup:
    return Setup(name=name, base_url=server.base_url, api_key_env=KEY_VARIABLE)


def ask_for(text: str, **more: Any) -> Ask:
    return Ask(instructions="Be brief.", messages=(Message(role="user", text=text),), **more)
