"""Plan files: what is accepted, and that every mistake is a sentence with file, line and expectation."""

from __future__ import annotations

import hashlib
import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.errors import AcodeError, BadPlan
from acode.events.definition import (
    Approve,
    Commit,
    Plan,
    Read,
    Retry,
    Run,
    Sql,
    Step,
    Task,
    Write,
    digest,
    execution_order,
)
from acode.planfile import STEPS_MAX, TASKS_MAX, examine_plan, load_plan, parse_plan, plan_from_data
from acode.planfile.steps import Defaults
from acode.planfile.tasks import read_plan, slug
from acode.yamlfile import ERRORS_MAX, Source, parse
from tests.unit.bad_plans import BAD_PLANS, steps_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLAN_BYTES_MAX = 262_144


def plan_of(text: str, *, name: str = "plan.yml", plan_bytes_max: int = PLAN_BYTES_MAX) -> Plan:
    return parse_plan(textwrap.dedent(text), name, plan_bytes_max=plan_bytes_max, timeout_s_default=600)


def refusal(text: str) -> BadPlan:
    with pytest.raises(BadPlan) as caught:
        plan_of(text)
    return caught.value


FULL = """\
    version: 1
    title: Add input validation
    on_failure: abort
    parallel: 4
    defaults: {idempotent: true, timeout: 90}
    tasks:
      - id: other
        steps:
          - read: {path: ./src//login.ts}
      - title: Build and check
        needs: [other]
        steps:
          - write: {path: out/a.txt, content: "text\\n", mode: "644"}
          - run: make test
            id: unit
            idempotent: false
            probe: test -f build/ok
            outputs: ["build/**", dist/]
            undo: make clean
            retry: {attempts: 3, backoff_seconds: 2}
            timeout: 120
            cwd: sub
            env: {CI: "1"}
            secret_env: [API_TOKEN]
          - run: [make, "", install]
            undo: [make, clean]
          - sql: {database: app.db, file: migrations/003.sql}
          - sql: {database: {env: DATABASE_URL}, file: migrations/003.sql}
            id: remote
          - sql: {database: "postgresql://db/app", file: migrations/003.sql}
          - commit: {message: "Add validators", paths: [src, .]}
          - approve: "Deploy to production?"
      - id: last
        title: Last
        steps: [{read: a}]
    """


def test_every_key_of_a_plan_file_becomes_a_field_of_the_plan() -> None:
    task = "build-and-check"
    unit = Run(
        command="make test",
        probe="test -f build/ok",
        outputs=("build/**", "dist/**"),
        cwd="sub",
        env={"CI": "1"},
        secret_env=("API_TOKEN",),
    )
    retry = Retry(attempts=3, backoff_s=2.0)
    steps = (
        Step(id=f"{task}.1", action=Write(path="out/a.txt", content="text\n", mode="0644")),
        Step(id=f"{task}.unit", action=unit, timeout_s=120, retry=retry, undo="make clean"),
        Step(
            id=f"{task}.3",
            action=Run(command=("make", "", "install")),
            idempotent=True,
            timeout_s=90,
            undo=("make", "clean"),
        ),
        Step(id=f"{task}.4", action=Sql(file="migrations/003.sql", database="app.db"), timeout_s=90),
        Step(id=f"{task}.remote", action=Sql(file="migrations/003.sql", database_env="DATABASE_URL"), timeout_s=90),
        Step(id=f"{task}.6", action=Sql(file="migrations/003.sql", database="postgresql://db/app"), timeout_s=90),
        Step(id=f"{task}.7", action=Commit(message="Add validators", paths=("src", ".")), timeout_s=90),
        Step(id=f"{task}.8", action=Approve(question="Deploy to production?")),
    )
    assert plan_of(FULL) == Plan(
        title="Add input validation",
        on_failure="abort",
        parallel=4,
        tasks=(
            Task(id="other", title="other", steps=(Step(id="other.1", action=Read(path="src/login.ts")),)),
            Task(id=task, title="Build and check", needs=("other",), steps=steps),
            Task(id="last", title="Last", needs=(task,), steps=(Step(id="last.1", action=Read(path="a")),)),
        ),
    )


def test_a_plan_read_again_has_the_same_digest_whatever_its_layout() -> None:
    as_json = (
        '{"tasks": [{"steps": [{"run": "é😀", "id": "x"}], "title": "\\ud83d\\ude00 T"}], "version": 1, "title": "t"}'
    )
    as_yaml = "# c\nversion: 1\ntitle: t\ntasks:\n- title: 😀 T\n  steps:\n  - {id: x, run: é😀}\n"
    assert digest(plan_of(as_json)) == digest(plan_of(as_yaml))


def test_a_task_waits_for_the_one_before_it_unless_it_says_otherwise() -> None:
    plan = plan_of("""\
        tasks:
          - {id: a, needs: [c], steps: [{run: x}]}
          - {id: b, needs: [], steps: [{run: x}]}
          - {id: c, steps: [{run: x}]}
        """)
    assert [task.needs for task in plan.tasks] == [("c",), (), ("b",)]
    assert [task.id for task in execution_order(plan)] == ["b", "c", "a"]


def test_a_plan_without_a_title_is_called_after_its_file() -> None:
    assert plan_of("tasks: [{id: a, steps: [{run: x}]}]", name="deploy/nightly.yml").title == "nightly"


@pytest.mark.parametrize(
    ("title", "expected"),
    [("Build & check!", "build-check"), ("Übung №1", "ubung-no1"), ("日本", ""), ("x" * 100, "x" * 64), ("--", "")],
)
def test_a_title_becomes_an_id(title: str, expected: str) -> None:
    assert slug(title) == expected


def test_a_title_without_latin_letters_gets_a_numbered_id() -> None:
    plan = plan_of("tasks: [{title: 日本, steps: [{run: x}]}, {title: 中国, steps: [{run: x}]}]")
    assert [task.id for task in plan.tasks] == ["task-1", "task-2"]


def test_words_that_older_yaml_takes_for_booleans_stay_text() -> None:
    (step,) = plan_of(steps_of("- run: [echo, no, off, y]")).tasks[0].steps
    assert step.action == Run(command=("echo", "no", "off", "y"))


def test_step_time_limits_come_from_the_step_then_the_plan_then_the_settings() -> None:
    text = "tasks: [{id: a, steps: [{run: x}, {run: x, timeout: 0.5}, {read: x}, {approve: x}]}]"
    assert [step.timeout_s for step in plan_of(text).tasks[0].steps] == [600, 0.5, None, None]
    assert plan_of(f"defaults: {{timeout: 7}}\n{text}").tasks[0].steps[0].timeout_s == 7


@pytest.mark.parametrize("case", BAD_PLANS)
def test_a_mistake_is_a_sentence_with_file_line_and_expectation(case: str) -> None:
    text, expected = BAD_PLANS[case]
    error = refusal(text)
    assert expected in error.message
    assert error.exit_code == 2
    assert "\n" not in error.message
    line, column = error.message.removeprefix("plan.yml:").split(":")[:2]
    assert error.details == {"path": "plan.yml", "line": int(line), "column": int(column)}


def test_a_password_in_a_refused_url_is_not_repeated() -> None:
    assert "hunter2" not in str(refusal(BAD_PLANS["sql elsewhere"][0]).as_dict())


def test_a_terminal_escape_in_a_refused_value_is_not_repeated() -> None:
    error = refusal(steps_of('- run: x\n  cwd: "/\\e[2J\\x9b"'))
    assert error.message.isprintable()


OUTSIDE = {
    "/etc/passwd": "it is absolute",
    "../x": "it leaves the workspace through ..",
    "a/../../x": "it leaves the workspace through ..",
    "a/..": "it leaves the workspace through ..",
    "C:/x": "it is absolute",
    "c:x": "it is absolute",
    "//host/share": "it is absolute",
    "..\\x": "it holds a backslash",
    "\\\\host\\share": "it holds a backslash",
    "~/x": "~ is not expanded",
    ".agent/workspace.db": ".agent/ belongs to acode",
    ".AGENT/config.yml": ".agent/ belongs to acode",
    "./.agent/x": ".agent/ belongs to acode",
    ".agent./x": ".agent/ belongs to acode",
    ".ag\u200dent/x": ".agent/ belongs to acode",
    "": "it is empty",
    "a ": "it begins or ends with a blank",
    "a\tb": "it holds a control character",
    "a\nb": "it holds a control character",
    "x" * 256: "it is longer than",
    "x/" * 2001: "it is longer than",
}
PLACES: dict[str, Callable[[str], object]] = {
    "read": lambda path: {"read": path},
    "write": lambda path: {"write": {"path": path, "content": ""}},
    "cwd": lambda path: {"run": "x", "cwd": path},
    "outputs": lambda path: {"run": "x", "outputs": [path]},
    "sql file": lambda path: {"sql": {"database": "a.db", "file": path}},
    "sql database": lambda path: {"sql": {"database": path, "file": "a.sql"}},
    "commit": lambda path: {"commit": {"message": "m", "paths": [path]}},
}


def one_step(step: object) -> Step:
    plan = plan_from_data({"tasks": [{"id": "a", "steps": [step]}]}, "model", timeout_s_default=1)
    return plan.tasks[0].steps[0]


@pytest.mark.parametrize("place", PLACES)
def test_a_path_that_leaves_the_workspace_is_refused_wherever_it_stands(place: str) -> None:
    for path, reason in OUTSIDE.items():
        with pytest.raises(BadPlan) as caught:
            one_step(PLACES[place](path))
        assert reason in caught.value.message


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", "sub/.git/config", ".GIT/x", "GIT~1/x", ".git", "sub/.agent/config.yml"]
)
def test_what_belongs_to_git_or_another_workspace_may_be_read_and_not_changed(path: str) -> None:
    for place in ("write", "outputs", "sql database"):
        with pytest.raises(BadPlan, match="belongs to"):
            one_step(PLACES[place](path))
    assert one_step({"read": path}).action == Read(path=path)


@pytest.mark.parametrize("path", ["...", "a..b", ".gitignore", ".agents/x", "a b", "-x", "é", ".agent-memory/x"])
def test_odd_names_inside_the_workspace_are_fine(path: str) -> None:
    for place in PLACES.values():
        assert path in str(one_step(place(path)))


# Sizes.


def test_a_plan_over_the_size_limit_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "plan.yml"
    path.write_bytes(b"[" * 10_000_000)
    with pytest.raises(BadPlan) as caught:
        load_plan(path, plan_bytes_max=PLAN_BYTES_MAX, timeout_s_default=1)
    assert caught.value.message == f"{path}: is larger than 262,144 bytes"
    assert "limits.plan_bytes" in caught.value.hint
    with pytest.raises(BadPlan, match="is larger than 10 bytes"):
        plan_of("tasks: 'éééé'", plan_bytes_max=10)


def test_a_plan_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.yml"
    path.write_text("tasks: [{id: a, steps: [{run: x}]}]\n", encoding="utf-8")
    size = path.stat().st_size
    assert load_plan(path, plan_bytes_max=size, timeout_s_default=1).plan.tasks[0].id == "a"
    with pytest.raises(BadPlan, match="is larger than"):
        load_plan(path, plan_bytes_max=size - 1, timeout_s_default=1)


def test_the_numbers_of_tasks_and_steps_have_limits() -> None:
    step = {"read": "x"}
    tasks = [{"id": f"t{n}", "steps": [step]} for n in range(TASKS_MAX + 1)]
    with pytest.raises(BadPlan, match="tasks: expected at most 2,000 items, found 2,001"):
        plan_from_data({"tasks": tasks}, "model", timeout_s_default=1)
    many = {"tasks": [{"id": "a", "steps": [step] * STEPS_MAX}, {"id": "b", "steps": [step]}]}
    with pytest.raises(BadPlan, match="tasks: expected at most 50,000 steps, found 50,001"):
        plan_from_data(many, "model", timeout_s_default=1)


# Files.


def test_a_plan_file_is_known_by_its_real_path_and_the_hash_of_its_bytes(tmp_path: Path) -> None:
    raw = b"\xef\xbb\xbfversion: 1\r\ntasks: [{id: a, steps: [{run: x}]}]\r\n"
    (tmp_path / "plan.yml").write_bytes(raw)
    (tmp_path / "link.yml").symlink_to("plan.yml")
    found = load_plan(tmp_path / "link.yml", plan_bytes_max=1000, timeout_s_default=1)
    assert found.path == os.path.realpath(tmp_path / "plan.yml")
    assert found.sha256 == hashlib.sha256(raw).hexdigest()
    assert found.plan.title == "link"


@pytest.mark.parametrize("kind", ["absent", "directory", "fifo", "binary", "latin-1"])
def test_a_file_that_is_no_plan_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "plan.yml"
    expected = {
        "absent": f"{path}: cannot be read: no such file or directory",
        "directory": f"{path}: ",
        "fifo": f"{path}: is not a regular file",
        "binary": f"{path}:1:1: a file may not hold the character U+007F",
        "latin-1": f"{path}:2:8: is not UTF-8 text",
    }
    match kind:
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "binary":
            path.write_bytes(b"\x7fELF\x02\x01\x01\0\0")
        case "latin-1":
            path.write_bytes("# é\n".encode() + "title: Ü".encode("latin-1"))
    with pytest.raises(BadPlan) as caught:
        load_plan(path, plan_bytes_max=1000, timeout_s_default=1)
    assert caught.value.message.startswith(expected[kind])
    assert caught.value.details["path"] == str(path)


@pytest.mark.parametrize("name", ["hello", "release"])
def test_the_examples_are_plans_whose_every_command_can_be_settled(name: str) -> None:
    plan = load_plan(EXAMPLES / name / "plan.yml", plan_bytes_max=PLAN_BYTES_MAX, timeout_s_default=600).plan
    assert [task.id for task in execution_order(plan)] == [task.id for task in plan.tasks]
    commands = [step for task in plan.tasks for step in task.steps if isinstance(step.action, Run)]
    assert commands
    for step in commands:
        assert isinstance(step.action, Run)
        assert step.idempotent or step.action.probe or step.action.outputs, step.id
    gates = [step for task in plan.tasks for step in task.steps if isinstance(step.action, Approve)]
    assert bool(gates) == (name == "release")


# Plain data.


def test_data_is_held_to_the_rules_of_a_file_and_errors_name_the_path() -> None:
    assert one_step({"run": ["a", "b"]}) == Step(id="a.1", action=Run(command=("a", "b")), timeout_s=1)
    for data, expected in [
        ({"tasks": [{"id": "a", "steps": [{"run": 5}]}]}, "model: tasks[0].steps[0].run: expected text or a list of"),
        ({"tasks": float("nan")}, "model: tasks: expected a finite number"),
        ({"tasks": 10**30}, "model: tasks: expected a number of at most"),
        ({"tasks": b"x"}, "model: tasks: expected plain data, found a bytes"),
        ({1: 2}, "model: expected a text as key, found a int"),
        ({"title": "\ud800"}, "model: title: a text may not hold a lone surrogate"),
    ]:
        with pytest.raises(BadPlan) as caught:
            plan_from_data(data, "model", timeout_s_default=1)
        assert caught.value.message.startswith(expected)
        assert caught.value.details == {"path": "model"}


def test_data_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadPlan, match="is nested deeper than 20 levels"):
        plan_from_data({"tasks": endless}, "model", timeout_s_default=1)


# Fuzzing: a plan or a named error, nothing else.

KEYS = "version tasks id title needs steps run read write sql commit approve path content mode retry attempts defaults"
VALUES = "timeout env secret_env outputs cwd 1 0644 ../x .agent/x ~ null true .nan"
MARKS = "!!x &a *a << - ? : , [ ] { } | > # % --- ..."
WORDS = st.sampled_from(f"{KEYS} {VALUES} {MARKS}".split())
TOKENS = st.lists(
    st.one_of(WORDS, st.sampled_from(["\n", "\n  ", "\n    ", " ", ": ", "- ", '"', "'", "\\"]), st.text(max_size=3)),
    max_size=60,
).map("".join)
DATA = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(WORDS, st.text(max_size=4)), inner, max_size=5)
    ),
    max_leaves=25,
)


def plan_or_refusal(text: str) -> None:
    try:
        plan = parse_plan(text, "plan.yml", plan_bytes_max=10_000, timeout_s_default=600)
    except BadPlan as error:
        assert error.message.isprintable()
        assert error.message.startswith("plan.yml:")
    else:
        assert len(execution_order(plan)) == len(plan.tasks)


@given(st.one_of(st.text(max_size=200), TOKENS))
@settings(max_examples=100, deadline=None)
def test_any_text_is_a_plan_or_a_named_error(text: str) -> None:
    plan_or_refusal(text)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_good_plan_with_something_torn_out_or_put_in_is_a_plan_or_a_named_error(data: st.DataObject) -> None:
    good = textwrap.dedent(FULL)
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 30)))
    plan_or_refusal(good[:start] + data.draw(st.one_of(st.just(""), TOKENS, st.characters())) + good[end:])


@given(DATA)
@settings(max_examples=100, deadline=None)
def test_any_data_is_a_plan_or_a_named_error(data: object) -> None:
    for wrapped in (
        data,
        {"tasks": data},
        {"tasks": [{"id": "a", "steps": data}]},
        {"tasks": [{"id": "a", "steps": [data]}]},
    ):
        try:
            plan_from_data(wrapped, "model", timeout_s_default=1)
        except BadPlan as error:
            assert error.message.isprintable()


@given(raw=st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_bytes_in_a_file_are_a_plan_or_a_named_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-plan.yml"
    path.write_bytes(raw)
    try:
        load_plan(path, plan_bytes_max=150, timeout_s_default=1)
    except AcodeError as error:
        assert isinstance(error, BadPlan)


# All errors at once.


def strictly(text: str) -> BadPlan | Plan:
    """Read so that the first error ends the reading."""
    source = Source("plan.yml", BadPlan)
    try:
        reading = read_plan(parse(text, source), Defaults(timeout_s=600))
    except BadPlan as error:
        return error
    assert reading.plan is not None
    return reading.plan


def same_beginning(text: str) -> None:
    alone, gathered = strictly(text), examine_plan(text, "plan.yml", timeout_s_default=600)
    if isinstance(alone, BadPlan):
        assert gathered.plan is None
        assert gathered.errors[0].as_dict() == alone.as_dict()
    else:
        assert gathered.plan == alone and gathered.errors == ()


@pytest.mark.parametrize("case", BAD_PLANS)
def test_gathering_all_errors_begins_with_the_one_that_ends_a_run(case: str) -> None:
    same_beginning(BAD_PLANS[case][0])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_torn_plan_has_the_same_first_error_however_it_is_read(data: st.DataObject) -> None:
    text = textwrap.dedent(FULL)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2), label="torn out"))
    put_in = data.draw(st.sampled_from(["", "x", "[", ": ", "- 1\n"]), label="put in")
    same_beginning(text[:start] + put_in + text[end:])


def test_every_error_of_a_plan_is_gathered_with_its_place_and_none_is_there_twice() -> None:
    text = """\
        version: 2
        titel: x
        titel: y
        tasks:
          - id: build
            needs: [ship, nope]
            steps:
              - rum: make
              - run: ""
                idempotent: maybe
                outputs: ["../x", fine, /abs]
              - write: {content: 5}
              - run: x
                id: same
              - run: y
                id: Same
                undo: []
          - title: 5
            needs: [build]
            steps: []
          - id: ship
            steps:
              - approve: Go?
              - sql: {database: 1}
    """
    errors = examine_plan(textwrap.dedent(text), "plan.yml", timeout_s_default=600).errors
    found = sorted((error.details["line"], error.details["column"]) for error in errors)
    assert found == [
        (1, 10), (2, 1), (3, 1), (8, 9), (9, 14), (10, 21), (11, 19), (11, 33), (12, 16), (12, 26), (16, 13), (17, 15),
        (18, 12), (20, 12), (24, 14), (24, 25),
    ]  # fmt: skip


def test_every_cycle_is_reported_and_every_gate_behind_one() -> None:
    text = """\
        tasks:
          - {id: a, needs: [b], steps: [{run: x}]}
          - {id: b, needs: [a], steps: [{run: x}]}
          - {id: c, needs: [c], steps: [{run: x}]}
          - {id: d, needs: [a], steps: [{approve: Go?}]}
          - {id: e, needs: [], steps: [{approve: Go?}]}
    """
    errors = examine_plan(textwrap.dedent(text), "plan.yml", timeout_s_default=600).errors
    assert [error.message.split(": ", 2)[2] for error in errors] == [
        "expected tasks in an order, found a cycle: a → b → a",
        "expected tasks in an order, found a cycle: c → c",
        "this gate is never reached: its task waits for a cycle of tasks",
    ]


def test_no_more_errors_are_gathered_than_a_person_reads() -> None:
    text = "tasks:\n- id: a\n  steps:\n" + "  - {rum: x}\n" * 5_000
    assert len(examine_plan(text, "plan.yml", timeout_s_default=600).errors) == ERRORS_MAX + 1
