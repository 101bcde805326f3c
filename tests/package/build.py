"""The files of a release: wheel, source archive, and the bill of materials of what the wheel needs.

    python3 -m tests.package.build DIR      as `python3 dev.py build DIR` calls it

The same bytes whoever builds them and where: the time in them is SOURCE_DATE_EPOCH, by default that of the commit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BILL = "acode-cli.cdx.json"  # CycloneDX; the version stands in it, so that a workflow can name the file
BUILT_AT = "1767225600"  # where there is no commit to ask: any fixed time does
MISLEADING = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT_ENVIRONMENT")


def build(source: Path, into: Path, *, built_at: str) -> None:
    into.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(into)],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": built_at},
        check=True,
    )
    (into / BILL).write_text(bill_of_materials(source, built_at), encoding="utf-8")


def bill_of_materials(source: Path, built_at: str) -> str:
    """All that the lock file has for the dependencies and extras; what only an extra needs is optional."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    always = {one["name"] for one in exported(source)["components"]}
    bill = exported(source, "--all-extras")
    root = bill["metadata"]["component"]["bom-ref"]
    bill["components"] = [
        {**one, "scope": "required" if one["name"] in always else "optional"}
        for one in bill["components"]
        if one["bom-ref"] != root
    ]
    for one in bill["components"]:
        del one[
            "externalReferences"
        ]  # every file of every platform with its hash: uv.lock has them, and they are 700 KB
    # uv counts tools of the developers among the project's dependencies if anything else needs them too.
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    named = {plain_name(line) for line in lines}
    meant = {one["bom-ref"] for one in bill["components"] if one["name"] in named}
    for edges in bill["dependencies"]:
        if edges["ref"] == root:
            edges["dependsOn"] = [ref for ref in edges["dependsOn"] if ref in meant]
    bill["metadata"]["timestamp"] = datetime.fromtimestamp(int(built_at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    del bill["serialNumber"]
    bill["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True)).urn
    return json.dumps(bill, indent=1, sort_keys=True) + "\n"


def exported(source: Path, *options: str) -> dict[str, Any]:
    """The lock file as uv tells it, without a look at the index."""
    command = [
        "-m",
        "uv",
        "--offline",
        "--quiet",
        "export",
        "--frozen",
        "--no-default-groups",
        "--python",
        sys.executable,
    ]
    told = subprocess.run(
        [sys.executable, *command, "--format", "cyclonedx1.5", "--preview-features", "sbom-export", *options],
        cwd=source,
        env={name: value for name, value in os.environ.items() if name not in MISLEADING},
        check=True,
        stdout=subprocess.PIPE,
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def plain_name(requirement: str) -> str:
    """As indexes write it: psycopg of `psycopg[binary,pool]>=3.2`."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[>=<;!~ ]", requirement)[0]).lower()


def commit_time(source: Path) -> str:
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=source, check=False, text=True, capture_output=True
    )
    return os.environ.get("SOURCE_DATE_EPOCH") or asked.stdout.strip() or BUILT_AT


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent.parent
    build(here, Path(sys.argv[1]), built_at=commit_time(here))
