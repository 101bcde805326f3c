"""The completions for a place of the command line: plan files, sessions, steps, settings. A shell asks at every Tab.

It only reads: nothing is locked, appended or asked of a server. An unreadable file offers nothing; the command itself
reports why, once it is started.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from acode.engine.world import World
    from acode.state import Session
    from acode.store.store import Store

OFFERED_MAX = 50
PATH = "path"  # the type of an item that a shell quotes as a file name, and completes further if it is a directory
PLAN_SUFFIXES = (".yml", ".yaml")

Item = CompletionItem[str]


# Files.


def plan_files(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[Item]:
    """The plans and the directories that begin as typed; hidden ones only where a dot was typed."""
    above, name = os.path.split(typed)
    try:
        entries = sorted(os.scandir(os.path.expanduser(above) or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    found = [entry for entry in entries if entry.name.startswith(name) and (name or not entry.name.startswith("."))]
    directories = [Item(os.path.join(above, entry.name, ""), type=PATH) for entry in found if entry.is_dir()]
    plans = [entry for entry in found if entry.name.lower().endswith(PLAN_SUFFIXES) and entry.is_file()]
    return [*(Item(os.path.join(above, entry.name), type=PATH) for entry in plans), *directories]


# Sessions.


def all_sessions(context: click.Context, _parameter: click.Parameter, typed: str) -> list[Item]:
    return sessions(context, typed, lambda session: True)


def unfinished_sessions(context: click.Context, _parameter: click.Parameter, typed: str) -> list[Item]:
    return sessions(context, typed, lambda session: not session.terminal)


def sessions_or_plans(context: click.Context, parameter: click.Parameter, typed: str) -> list[Item]:
    return [*unfinished_sessions(context, parameter, typed), *plan_files(context, parameter, typed)]


def sessions(context: click.Context, typed: str, wanted: Callable[[Session], bool]) -> list[Item]:
    """The ids as they are shown, the most recently active first; the whole id where its beginning was typed."""
    world = world_of(context)
    with opened_to_look(world) as store:
        known = (session for session in _peeked(store) if wanted(session) and session.kind != "foreign")
        return [*itertools.islice(_named(known, typed), OFFERED_MAX)]


def _peeked(store: Store) -> Iterator[Session]:
    """The most recently active first, by the index."""
    from acode.errors import AcodeError
    from acode.store.session_index import newest

    for hint in newest(store):
        try:
            yield store.peek(hint.session_id)[0]
        except AcodeError:
            continue  # `session list` reports a damaged one


def _named(known: Iterable[Session], typed: str) -> Iterator[Item]:
    from acode.engine.world import short
    from acode.text import one_line

    for session in known:
        for name in (short(session.session_id), session.session_id):
            if name.startswith(typed):
                yield Item(name, help=f"{session.state} {one_line(session.title)}")
                break


# Steps of the session that stands before.


def open_steps(context: click.Context, _parameter: click.Parameter, typed: str) -> list[Item]:
    """The steps that were cut off: a person must state their outcome."""
    return _steps(context, typed, lambda session, step: step in session.in_flight)


def finished_steps(context: click.Context, _parameter: click.Parameter, typed: str) -> list[Item]:
    return _steps(context, typed, lambda session, step: session.done(step))


def begun_steps(context: click.Context, _parameter: click.Parameter, typed: str) -> list[Item]:
    """Those that may have printed or changed something."""
    return _steps(context, typed, lambda session, step: step in session.in_flight or session.record(step) is not None)


def unanswered_gates(context: click.Context, _parameter: click.Parameter, typed: str) -> list[Item]:
    return _steps(context, typed, lambda session, step: not session.done(step), kind="approve")


def _steps(
    context: click.Context, typed: str, wanted: Callable[[Session, str], bool], *, kind: str | None = None
) -> list[Item]:
    from acode.engine.workspace_store import resolve_id
    from acode.events.definition import describe
    from acode.text import one_line

    world = world_of(context)
    with opened_to_look(world) as store:
        session = store.load(resolve_id(world, store, _session_before(context))).session
    known = [step for step in session.steps() if kind in (None, step.kind)]
    titles = {step.id: one_line(world.redactor.text(describe(step))) for step in known}
    names = [*titles, *(step for step in session.in_flight if step not in titles and kind is None)]
    found = [name for name in names if name.startswith(typed) and wanted(session, name)]
    return [Item(name, help=titles.get(name)) for name in found[:OFFERED_MAX]]


def _session_before(context: click.Context) -> str:
    """The parser gives up at an option without its value, and leaves the words before it."""
    return context.params.get("session") or context.args[0]


# Settings.


def config_keys(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[Item]:
    from acode.config import known_keys

    return [Item(key) for key in known_keys() if key.startswith(typed)]


# The place.


def world_of(context: click.Context) -> World:
    from acode.cli.world import build_world

    return build_world(context.obj)


def opened_to_look(world: World) -> AbstractContextManager[Store]:
    from acode.engine.workspace_store import opened

    return opened(world, look_only=True)
