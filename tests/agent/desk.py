"""A place to use an agent's tools without a model: a session of its own, interrupted and carried on as a test likes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from acode.agent.context import Context
from acode.agent.messages import Ask, Call, Reply, Setup
from acode.agent.planning import begin_executing
from acode.agent.tools import Answer, use
from acode.config import effective
from acode.engine.held_session import held
from acode.engine.settle import resolve
from acode.engine.workspace_store import opened
from acode.engine.world import Nobody, Options, Result, World
from acode.events import types as ev
from acode.library.deferred_steps import DeferredSteps
from acode.library.open_session import Opening
from acode.library.world import LENT, Lent
from tests.agent.town import in_child
from tests.repositories import IDENTITY, git
from tests.worlds import world

SETUP = Setup(name="none", base_url="http://127.0.0.1:9/v1", api_key_env="NO_KEY")


class Interrupted(Exception):
    """The end of one life of a session; the next one finds what it recorded."""


def nobody_answers(setup: Setup, ask: Ask, **how: Any) -> Reply:
    raise AssertionError("these tests ask no model")


class Replying(Nobody):
    """A person who answers the model's questions, and can be counted."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []

    def reply(self, session: Any, step: str, question: str) -> str | None:  # type: ignore[override]
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else None


class Desk:
    """One session in `place`; each `life` carries it on."""

    def __init__(self, place: Path, *, answers: Any = None, env: Mapping[str, str] | None = None) -> None:
        place.mkdir(exist_ok=True)
        self.place = place
        self._answers = answers
        self._env = {"PATH": os.environ["PATH"], "HOME": os.fspath(place), **(env or {})}
        self.workspace = place / "workspace"
        self.workspace.mkdir(exist_ok=True)

    def world(self) -> World:
        made = world(self.place, answers=self._answers, env=self._env)
        return World(**{**{name: getattr(made, name) for name in made.__struct_fields__}, "config": trusted(made)})

    def session_id(self, at: World) -> str:
        if not (at.agent_dir / "workspace.db").exists():
            return ""
        with opened(at, look_only=True) as store:
            return next(iter(store.session_ids()), "")

    @contextmanager
    def life(self, changed_files: Literal["continue", "abort"] = "continue") -> Iterator[Context]:
        """The session from its beginning; it is interrupted at the end of the block."""
        here = self.world()
        endings: list[Result] = []
        forced = changed_files == "continue"  # as often as a test likes
        options = Options(force=forced, reason="a test" if forced else None, changed_files=changed_files)
        token = LENT.set(Lent(self.session_id(here), here, options, endings))
        model = {"name": SETUP.name, "base_url": SETUP.base_url, "api_key_env": SETUP.api_key_env}
        opening = Opening(
            "tools",
            here.workspace,
            on_completed="return",
            on_change="raise",
            probes={},
            options=options,
            entry=None,
            arguments={},
            model=model,
        )
        try:
            with opening as session:
                context = Context(DeferredSteps(session), SETUP, {}, "use tools", nobody_answers)
                begin_executing(context)
                yield context
                raise Interrupted
        except Interrupted:
            pass
        finally:
            LENT.reset(token)

    def use(self, *calls: Call) -> list[Answer]:
        """One life with these calls."""
        with self.life() as context:
            return [use(context, f"{one.tool}-{number}", one) for number, one in enumerate(calls, start=1)]

    def killed(self, *calls: Call) -> None:
        """A life that ends by a kill within these calls; its process id stands in `pid` beside the workspace."""

        def work() -> int:
            (self.place / "pid").write_text(str(os.getpid()))
            self.use(*calls)
            return 0

        assert in_child(work) == -signal.SIGKILL

    def events(self) -> list[ev.Known | ev.Unknown]:
        here = self.world()
        with opened(here, look_only=True) as store:
            return [envelope.event for envelope, _, _ in store.events(self.session_id(here))]

    def resolve(self, step: str, answer: str) -> None:
        """A person's word on a step that nobody saw end."""
        here = self.world()
        with held(here, self.session_id(here)) as run:
            resolve(run, step, answer, evidence="somebody looked", note="")

    def put(self, path: str, content: str | bytes) -> Path:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file


def trusted(of: World) -> Any:
    return effective(of.config, trusted=True)


def call(tool: str, **arguments: Any) -> Call:
    return Call(id=os.urandom(4).hex(), tool=tool, arguments=json.dumps(arguments))


def repository(desk: Desk) -> Path:
    git(desk.workspace, "init", "-q", "-b", "main")
    for name, value in IDENTITY.items():
        git(desk.workspace, "config", name, value)
    return desk.workspace


def told(desk: Desk, tool: str, **arguments: Any) -> str:
    """The text of a call that is to succeed, in a session of its own."""
    answer = one(desk, tool, **arguments)
    assert not answer.error, answer.text
    return str(answer.text)


def one(desk: Desk, tool: str, **arguments: Any) -> Any:
    with desk.life() as context:
        return use(context, f"{tool}-{os.urandom(4).hex()}", call(tool, **arguments))
