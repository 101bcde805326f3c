"""acode init and acode schema: a plan to begin with that acode and an editor accept, and the schema they share."""

from __future__ import annotations

import json
import re

import pytest

from acode.cli.init import SCHEMA_NAME
from tests.driver import Acode


def test_the_first_plan_passes_the_check_and_runs_to_its_end(acode: Acode) -> None:
    assert acode("init").exit_code == 0
    told = acode("check", "plan.yml", "--json").json
    assert (told["ok"], told["errors"], told["warnings"]) == (True, [], [])
    assert [step["reason"] for step in told["steps"]] == ["evidence", "outputs", "idempotent"]
    assert acode("run", "plan.yml").exit_code == 0
    assert (acode.workspace / "build" / "result.txt").read_text() == "WRITTEN BY THE FIRST STEP.\n"


def test_the_first_plan_names_a_schema_that_is_there_and_accepts_it(acode: Acode) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="is in the development environment only")
    from tests.unit.test_schema import plain

    assert acode("init", "deploy.yaml").exit_code == 0
    text = (acode.workspace / "deploy.yaml").read_text()
    named = re.search(r"\A# yaml-language-server: \$schema=(\S+)\n", text)
    assert named is not None
    schema = json.loads((acode.workspace / named[1]).read_text())
    assert not list(jsonschema.Draft202012Validator(schema).iter_errors(plain(text)))
    # The steps that stand there as comments are good steps too.
    head, _, tail = text.partition("  # - id: ship")
    uncommented = head.replace("# retry:", "retry:") + ("  # - id: ship" + tail).replace("  # ", "  ")
    (acode.workspace / "whole.yml").write_text(uncommented)
    told = acode("check", "whole.yml", "--json", env={"GIT_CEILING_DIRECTORIES": str(acode.workspace.parent)}).json
    missing = [warning["message"].split(": ")[1] for warning in told["warnings"]]
    assert told["errors"] == [] and missing == ["tasks[2].steps[1].sql.file", "tasks[2].steps[2].commit"]


def test_an_existing_plan_is_never_overwritten(acode: Acode) -> None:
    (acode.workspace / "plan.yml").write_text("mine\n")
    ended = acode("init")
    assert ended.exit_code == 2 and "plan.yml exists" in ended.stderr
    assert (acode.workspace / "plan.yml").read_text() == "mine\n"
    assert not (acode.workspace / SCHEMA_NAME).exists()


def test_a_schema_of_somebody_else_stays_and_one_of_an_older_acode_is_replaced(acode: Acode) -> None:
    (acode.workspace / SCHEMA_NAME).write_text("{}")
    assert acode("init").exit_code == 2
    assert not (acode.workspace / "plan.yml").exists()
    (acode.workspace / SCHEMA_NAME).write_text('{"$comment": "Written by: acode schema plan"}')
    assert acode("init", "--json").json == {"plan": "plan.yml", "schema": SCHEMA_NAME}
    assert json.loads((acode.workspace / SCHEMA_NAME).read_text()) == acode("schema", "plan").json


@pytest.mark.parametrize("name", ["deploy", "deploy.txt", "no/such/plan.yml", "sub/"])
def test_a_name_that_is_no_plan_file_is_refused(acode: Acode, name: str) -> None:
    assert acode("init", name).exit_code == 2
    assert list(acode.workspace.iterdir()) == []


@pytest.mark.parametrize("what", ["plan", "config"])
def test_a_schema_is_one_json_document(acode: Acode, what: str) -> None:
    told = acode("schema", what)
    assert told.exit_code == 0 and told.stderr == ""
    assert told.json["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert acode("schema", "nothing").exit_code == 2
