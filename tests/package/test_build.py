"""The distribution: the same bytes whoever builds it, and everything in it that its users and packagers need."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

from dev import ROOT
from tests.package.conftest import build

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"agent", "fleet", "langgraph", "mcp", "metrics", "otel", "postgres", "pydantic-ai", "re2", "ui"}


def unpacked(sdist: Path, into: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    (only,) = into.iterdir()
    return only


def test_a_second_build_in_another_place_and_at_another_time_is_the_same_to_the_byte(
    built: dict[str, Path], tmp_path: Path
) -> None:
    source = unpacked(built[".gz"], tmp_path / "source")
    for path in source.rglob("*"):
        path.touch()
    again = build(source, tmp_path / "dist")
    assert {suffix: path.name for suffix, path in again.items()} == {
        suffix: path.name for suffix, path in built.items()
    }
    assert all(again[suffix].read_bytes() == path.read_bytes() for suffix, path in built.items())


@pytest.fixture(scope="session")
def bill(built: dict[str, Path]) -> Any:
    return json.loads(built[".json"].read_text(encoding="utf-8"))


def problem(bill: Any) -> Any:
    """What the schema of CycloneDX has against it, as the library of its authors says."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(bill))


def test_the_bill_of_materials_follows_the_schema(bill: Any) -> None:
    assert problem(bill) is None
    assert problem({**bill, "serialNumber": "one"}) is not None, "or nothing was looked at"


def test_the_bill_of_materials_names_this_version_and_all_that_the_wheel_asks_for(bill: Any, wheel: Path) -> None:
    told = metadata(wheel)
    described = bill["metadata"]["component"]
    assert (described["name"], described["version"]) == (told["Name"], told["Version"])
    components = {one["bom-ref"]: one for one in bill["components"]}
    (edges,) = [one["dependsOn"] for one in bill["dependencies"] if one["ref"] == described["bom-ref"]]
    asked: dict[bool, set[str]] = {True: set(), False: set()}
    for line in told.get_all("Requires-Dist", []):
        asked["extra ==" in line].add(re.split(r"[\[>=<;! ]", line)[0].replace(".", "-").lower())
    names = {components[ref]["name"] for ref in edges}
    assert names == (asked[True] | asked[False]) - {told["Name"]}
    scopes = {one["name"]: one["scope"] for one in bill["components"]}
    assert {scopes[name] for name in asked[False]} == {"required"}
    assert scopes["psycopg"] == scopes["mcp"] == "optional" and scopes["markdown-it-py"] == "required"
    assert not {"pytest", "ruff", "mypy", "hatchling"} & set(scopes), "tools of the developers are not installed"
    assert all(one["purl"].startswith("pkg:pypi/") for one in bill["components"])


def test_the_wheel_holds_the_typed_package_and_nothing_beside_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    about = f"acode_cli-{PROJECT['version']}"
    assert {name.split("/")[0] for name in names} == {"acode", f"{about}.data", f"{about}.dist-info"}
    assert [name for name in names if ".data/" in name] == [f"{about}.data/data/share/man/man1/acode.1"]
    assert "acode/py.typed" in names
    assert [name for name in names if name.endswith((".pyc", ".db", ".log"))] == []


def test_the_sdist_holds_what_its_own_tests_need(built: dict[str, Path], tmp_path: Path) -> None:
    source = unpacked(built[".gz"], tmp_path)
    for name in ("tests/conftest.py", "examples/hello/plan.yml", "docs/reference/errors.md", "dev.py", "uv.lock"):
        assert (source / name).is_file(), name
    shutil.rmtree(source)


def metadata(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(archive.read(name).decode())


def test_the_metadata_says_what_it_is_called_and_which_extras_users_may_ask_for(wheel: Path) -> None:
    told = metadata(wheel)
    assert (told["Name"], told["Author"]) == ("acode-cli", "acode contributors")
    assert set(told.get_all("Provides-Extra", [])) == EXTRAS
    needed = [line for line in told.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert needed and not any("re2" in line for line in needed), "Alpine has no wheel of google-re2"
    for minor in (11, 12, 13, 14):
        assert f"Programming Language :: Python :: 3.{minor}" in told.get_all("Classifier", [])
