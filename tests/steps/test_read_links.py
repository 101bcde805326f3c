"""A read of a link notices what a read of the file would: another content, another link, and nothing outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acode.errors import ChangedFiles
from acode.events import types as ev
from acode.steps import read
from acode.workspace import Root
from acode.workspace.links import LINKS_MAX, way_of
from tests.lives import Life

PLAN = """
tasks:
  - title: t
    steps:
      - read: config.ini
      - run: test -e go && cat config.ini > used
"""


@pytest.fixture
def life(tmp_path: Path) -> Life:
    made = Life(tmp_path)
    made.put("conf/real.ini", "safe=1\n")
    made.put("conf/other.ini", "safe=1\n")
    return made


def link(life: Life, name: str, target: str | Path) -> None:
    path = life.path(name)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def said_of(life: Life) -> str:
    (failed,) = life.events(ev.StepFailed)
    return failed.message


@pytest.mark.parametrize("how", ["relative", "absolute", "two links", "up and down"])
def test_a_file_that_is_read_through_a_link_is_watched(life: Life, how: str) -> None:
    link(life, "conf/link.ini", "real.ini")
    link(life, "deep/er/link.ini", "../../conf/real.ini")
    ways: dict[str, str | Path] = {
        "relative": "./conf/real.ini",
        "absolute": Path(os.path.realpath(life.path("conf/real.ini"))),
        "two links": "conf/link.ini",
        "up and down": "deep/er/link.ini",
    }
    link(life, "config.ini", ways[how])
    assert life.run(PLAN).exit_code == 1
    life.put("go", "")
    life.put("conf/real.ini", "safe=0\n")
    with pytest.raises(ChangedFiles, match=r"conf/real\.ini"):
        life.resume()
    assert not life.path("used").exists()
    life.put("conf/real.ini", "safe=1\n")
    assert life.resume().exit_code == 0 and life.text("used") == "safe=1\n"


@pytest.mark.parametrize("which", ["config.ini", "conf/link.ini"])
def test_a_link_that_was_made_to_lead_elsewhere_is_noticed(life: Life, which: str) -> None:
    link(life, "conf/link.ini", "real.ini")
    link(life, "config.ini", "conf/link.ini")
    life.run(PLAN)
    life.put("go", "")
    link(life, which, "other.ini" if which.startswith("conf/") else "conf/other.ini")
    with pytest.raises(ChangedFiles, match=which.replace(".", r"\.")):
        life.resume()


@pytest.mark.parametrize("where", ["absolute", "relative", "through another link", "acode's own", "down and up"])
def test_a_link_that_leads_out_of_the_workspace_is_not_followed(life: Life, where: str) -> None:
    secret = life.place / "secret"
    secret.write_text("secret\n")
    link(life, "away", life.place)
    targets: dict[str, str | Path] = {
        "absolute": secret,
        "relative": "../secret",
        "through another link": "away/secret",
        "acode's own": ".agent/acode.db",
        "down and up": "away/../conf/real.ini",
    }
    link(life, "config.ini", targets[where])
    assert life.run(PLAN).exit_code == 1
    assert "config.ini" in said_of(life) or "away" in said_of(life)
    assert [file.path for one in life.events(ev.StepCompleted) for file in one.files] == []
    assert "secret\n" not in said_of(life)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("conf/gone.ini", "config.ini leads to conf/gone.ini, which does not exist"),
        ("config.ini", f"config.ini leads through more than {LINKS_MAX} links"),
    ],
)
def test_a_link_that_leads_to_nothing_or_in_a_circle_is_said_to(life: Life, target: str, said: str) -> None:
    link(life, "config.ini", target)
    assert life.run(PLAN).exit_code == 1
    assert said_of(life) == said


def test_a_read_of_a_link_that_did_not_come_to_pass_is_made_by_the_resume(life: Life) -> None:
    link(life, "config.ini", "conf/real.ini")
    life.put("go", "")
    life.cut_off(PLAN, "session_start")
    assert life.resume().exit_code == 0
    read_files = life.events(ev.StepCompleted)[0].files
    assert [file.path for file in read_files] == ["config.ini", "conf/real.ini"]


@pytest.mark.parametrize("target", ["conf", "."])
def test_of_a_link_to_a_directory_it_is_remembered_where_it_leads(life: Life, target: str) -> None:
    link(life, "there", target)
    with Root(life.path(".")) as root:
        assert way_of(root, "there") == ("there", target)
        assert [state.path for state in read.seen(root, "there")] == ["there"]
