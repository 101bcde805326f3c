"""The JSON Schemas and the readers agree: an editor marks what acode refuses, and nothing that it accepts.

A schema cannot say everything; EXCEPTIONS lists what only the reader knows. In the other direction there is no
exception: a file that the reader accepts fits its schema.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.config.layers import from_file
from acode.config.rules import RULES
from acode.config.schema import config_schema
from acode.errors import AcodeError, BadConfig
from acode.planfile import plan_from_data
from acode.planfile.schema import plan_schema
from acode.yamlfile import Source, from_data, parse
from tests.unit.bad_configs import BAD_FILES
from tests.unit.bad_plans import BAD_PLANS

jsonschema = pytest.importorskip("jsonschema", reason="is in the development environment only")

PLAN = jsonschema.Draft202012Validator(plan_schema())
CONFIG = jsonschema.Draft202012Validator(config_schema())
EXCEPTIONS = (
    "is there twice",  # ids of tasks and steps, names in env and secret_env
    "is named twice",
    "which no task has",
    "found a cycle",
    "never reached",
    "expected a path inside the workspace",  # .agent, .git, ./~, long names: as file systems see them
    "expected the path of a file",  # the workspace itself
    "found a line break or control character",  # characters that are not printable, beyond the controls
    "control or invisible characters",
    "expected a name, found",
    "expected a pattern in one line",
    "that acode does not use itself",  # in whatever case
    " bytes, found ",  # a schema counts characters
    "expected a duration of",  # too long or too short
    "expected a whole number",  # 3.0 is an integer to a schema
    "expected at most 50,000 steps, found",  # in all tasks together
)
# `$` of this validator also matches before a line break at the end; that of an editor does not.
ODD = [
    None, True, False, 0, 1, 2, -1, 3.0, 0.5, 101, 1e9, "", " ", "x", "a b", "../x", "/abs", "a\\b", "~", "~x", "C:x",
    ".", "..", "a/../b", "a..b", "!x", "#x", ":x", "644", "0644", "99", "X_1", "1X", "ACODE_STEP_ID", "acode_step_id",
    ".git/x", "postgres://h/d", "postgresql://", "http://h/v1", "http://u@h/", "x\ty", "x" * 65, "x" * 201, "pause",
    "30m", "2 H", "7d ", "0s", "999999w", "٣d",
    "retry", "ask", [], ["x"], ["x", "x"], ["", "x"], ["x", ""], [1], [[]], {}, {"x": 1}, {"path": "x"}, {"env": "X"},
    {"env": 1}, {"attempts": 1}, {"attempts": 0}, {"A": "b"}, {"A": 1},
    {"tool": "search", "match": "x", "answer": "ask"},
]  # fmt: skip
KEYS = ["title", "id", "needs", "run", "probe", "env", "timeout", "mode", "path", "unknown", "resume", "drivers"]

FULL_PLAN: dict[str, Any] = {
    "version": 1,
    "title": "All",
    "on_failure": "abort",
    "parallel": 4,
    "defaults": {"idempotent": True, "timeout": 5},
    "tasks": [
        {"id": "a", "steps": [{"read": "in.txt", "id": "r", "title": "Look", "retry": {"attempts": 2}}]},
        {
            "title": "Second",
            "needs": ["a"],
            "steps": [
                {"read": {"path": "x"}},
                {"write": {"path": "out/a", "content": "", "mode": "0644"}, "title": "W"},
                {
                    "run": ["make", ""], "id": "run", "idempotent": False, "probe": "test -f x",
                    "outputs": ["b/**", "c/"],
                    "undo": "make clean", "retry": {"attempts": 3, "backoff_seconds": 0.5}, "timeout": 0.5, "cwd": ".",
                    "env": {"CI": "1"}, "secret_env": ["TOKEN"],
                },
                {"sql": {"database": "app.db", "file": "a.sql"}, "undo": ["x"], "timeout": 5},
                {"sql": {"database": "postgres://h/d", "file": "a.sql"}},
                {"sql": {"database": {"env": "URL"}, "file": "a.sql"}},
                {"commit": {"message": "m", "paths": ["src", "."]}},
                {"approve": "Go?", "id": "gate"},
            ],
        },
    ],
}  # fmt: skip
FULL_CONFIG: dict[str, Any] = {
    "resume": {"enabled": True, "stale_after_days": 0.5, "cooldown_seconds": {"timeout": 0}, "attempts": "per_run"},
    "session": None,
    "steps": {"timeout_seconds": 5, "output_limit_bytes": 1024},
    "model": {"name": "m", "base_url": "http://h/v1", "api_key_env": "KEY", "budget_tokens": None, "budget_usd": 1},
    "tools": {
        "run_command": "ask",
        "rules": [{"tool": "run_command", "match": "pytest *", "answer": "allow"}],
        "read_only": ["ls *"],
    },
    "sync": {"url": None, "release": "never"},
    "notify": {"command": ["x", ""]},
    "drivers": {
        "arc": {"command": ["x"], "idempotent": True, "timeout": 5, "probe": "x", "cwd": "sub"},
        "agent-memory": {"agent": "codex", "arguments": ["--full-auto"], "timeout": 5},
    },
}


def places(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield (*above, key)
        yield from places(value, (*above, key))


@st.composite
def changed(draw: st.DrawFn, whole: dict[str, Any]) -> Any:
    """A good file with up to three values replaced, removed or added."""
    data = copy.deepcopy(whole)
    for _ in range(draw(st.integers(0, 3))):
        *way, last = draw(st.sampled_from(list(places(data)) or [("x",)]))
        holder = data
        for key in way:
            holder = holder[key]
        how = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if how == "add" and isinstance(holder, dict):
            holder[draw(st.sampled_from(KEYS))] = copy.deepcopy(draw(st.sampled_from(ODD)))
        elif how == "remove":
            del holder[last]
        else:
            holder[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
        if not data:
            break
    return data


def read_plan(data: Any) -> object:
    return plan_from_data(data, "plan.yml", timeout_s_default=600)


def read_config(data: Any) -> object:
    return from_file(from_data(data, Source("config.yml", BadConfig)))


def refusal(read: Callable[[Any], object], data: Any) -> list[str]:
    try:
        read(data)
    except AcodeError as error:
        return [error.message, *(other.message for other in error.others)]
    return []


def agree(read: Callable[[Any], object], validator: Any, data: Any) -> None:
    refused, fits = refusal(read, data), validator.is_valid(data)
    if not refused:
        assert fits, list(validator.iter_errors(data))
    elif fits:
        unexpected = [message for message in refused if not any(one in message for one in EXCEPTIONS)]
        assert unexpected == [], data


@settings(max_examples=120, deadline=None)
@given(data=changed(FULL_PLAN))
def test_the_schema_of_plans_and_their_reader_agree(data: Any) -> None:
    agree(read_plan, PLAN, data)


@settings(max_examples=100, deadline=None)
@given(data=changed(FULL_CONFIG))
def test_the_schema_of_settings_and_their_reader_agree(data: Any) -> None:
    agree(read_config, CONFIG, data)


PARTS = 8  # of all pairs of a place and a value; the gate tries one, in which each place and each value occurs


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.release) for part in range(1, PARTS))])
@pytest.mark.parametrize("whole", [FULL_PLAN, FULL_CONFIG], ids=["plan", "config"])
def test_every_single_odd_value_in_every_place_is_judged_alike(whole: dict[str, Any], part: int) -> None:
    """Exhaustive before random: each value of a full file, replaced by each odd one."""
    read, validator = (read_plan, PLAN) if whole is FULL_PLAN else (read_config, CONFIG)
    data = copy.deepcopy(whole)
    for number, (*way, last) in enumerate(places(whole)):
        holder: Any = data
        for key in way:
            holder = holder[key]
        right = holder[last]
        for odd in ODD[(number + part) % PARTS :: PARTS]:
            holder[last] = odd
            agree(read, validator, data)
        holder[last] = right
    assert data == whole, "nobody who reads a file changes what was read"


def plain(text: str) -> Any:
    """The data of a YAML text; None where it is none."""

    def value(node: Any) -> Any:
        if isinstance(node.data, dict):
            return {key: value(entry) for key, entry in node.data.items()}
        return [value(one) for one in node.data] if isinstance(node.data, tuple) else node.data

    try:
        return value(parse(text, Source("x", AcodeError)))
    except AcodeError:
        return None


@pytest.mark.parametrize("case", BAD_PLANS)
def test_a_plan_that_the_schema_accepts_is_refused_only_for_what_no_schema_can_say(case: str) -> None:
    data = plain(BAD_PLANS[case][0])
    if data is not None:
        agree(read_plan, PLAN, data)


@pytest.mark.parametrize("case", BAD_FILES)
def test_settings_that_the_schema_accepts_are_refused_only_for_what_no_schema_can_say(case: str) -> None:
    data = plain(BAD_FILES[case][0])
    if data is not None:
        agree(read_config, CONFIG, data)


def test_the_schemas_are_schemas_and_know_every_setting() -> None:
    for one in (plan_schema(), config_schema()):
        jsonschema.Draft202012Validator.check_schema(one)
    assert [key for key, rule in RULES.items() if not rule.schema] == []


@pytest.mark.parametrize("path", sorted(Path(__file__).resolve().parents[2].glob("examples/**/*.yml")), ids=str)
def test_the_examples_fit_the_schema(path: Path) -> None:
    assert not list(PLAN.iter_errors(plain(path.read_text(encoding="utf-8"))))


def test_the_patterns_use_nothing_that_only_python_knows() -> None:
    found = re.findall(r'"pattern": "((?:[^"\\]|\\.)*)"', json.dumps([plan_schema(), config_schema()]))
    assert found and not [one for one in found if re.search(r"\(\?[^:]|\\[AZzGK]|\(\?P", one)]
