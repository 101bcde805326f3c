"""Whatever a model writes as a path, a pattern or an expression: it is answered, and nothing outside is touched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acode.agent.tools import use
from tests.agent.desk import Desk, call


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "place")


OUTSIDE = "the content that lies outside"
NAMES = st.sampled_from(
    ["..", ".", "", "out", "link", "deep", "a.txt", "~", ".git", ".GIT", "git~1", ".agent", ".Agent", "hooks", "loop",
     "outside", "secret.txt", "C:", "con", "\u202e", "..\\", "a.txt/", "%2e%2e", "..;", "\ufeff.git", ".git ", ".git."]
)  # fmt: skip
PATHS = st.one_of(
    st.text(max_size=30),
    st.lists(NAMES, max_size=6).map("/".join),
    st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names)),
)


def fenced(place: Path) -> Desk:
    """A workspace full of ways out."""
    desk = Desk(place)
    outside = desk.place / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(f"{OUTSIDE}\n")
    desk.put("a.txt", "inside\n")
    desk.put("deep/a.txt", "inside\n")
    desk.put(".git/hooks/post-checkout", "inside\n")
    (desk.workspace / "out").symlink_to("../outside")
    (desk.workspace / "link").symlink_to("../outside/secret.txt")
    (desk.workspace / "deep" / "out").symlink_to(outside)
    (desk.workspace / "loop").symlink_to("loop")
    return desk


def standing(desk: Desk) -> dict[str, bytes]:
    """What must stay as it is: all that is outside, git's own files, and the links."""
    kept = [*(desk.place / "outside").rglob("*"), *(desk.workspace / ".git").rglob("*")]
    found = {str(path): path.read_bytes() for path in kept if path.is_file()}
    links = {str(path): os.fsencode(os.readlink(path)) for path in desk.workspace.rglob("*") if path.is_symlink()}
    return {**found, **links, "beside": str(sorted(os.listdir(desk.place))).encode()}


MORE: dict[str, dict[str, Any]] = {
    "read_file": {},
    "list_files": {},
    "search": {"text": "lies"},
    "write_file": {"content": "planted"},
    "edit_file": {"old": "i", "new": "planted", "all": True},
    "git_commit": {"message": "m"},
}


def test_no_path_reads_or_writes_anything_outside(tmp_path: Path) -> None:
    desk = fenced(tmp_path / "place")
    with desk.life() as context:
        before = standing(desk)

        @given(path=PATHS, tool=st.sampled_from(sorted(MORE)))
        @example(path="out/secret.txt", tool="read_file")
        @example(path="link", tool="write_file")
        @example(path="deep/out/new.txt", tool="write_file")
        @example(path="out", tool="search")
        @example(path=".git/hooks/pre-commit", tool="write_file")
        @example(path="link", tool="edit_file")
        @settings(max_examples=60, deadline=None)
        def stays_inside(path: str, tool: str) -> None:
            place = {"paths": [path]} if tool == "git_commit" else {"path": path}
            answer = use(context, f"call-{os.urandom(8).hex()}", call(tool, **MORE[tool], **place))
            assert OUTSIDE not in answer.text
            assert standing(desk) == before

        stays_inside()


def test_any_pattern_and_any_expression_is_searched_for_or_refused_in_words(desk: Desk) -> None:
    desk.put("a.txt", "text\n")
    strange = st.text(alphabet=st.sampled_from(list("ab*?[]!\\/(){}+.^$|# ")), max_size=12)
    with desk.life() as context:

        @given(pattern=strange, text=strange.filter(bool), regex=st.booleans())
        @example(pattern="!", text="[", regex=True)
        @settings(max_examples=60, deadline=None)
        def is_answered(pattern: str, text: str, regex: bool) -> None:
            wanted = call("search", text=text, regex=regex, pattern=pattern), call("list_files", pattern=pattern)
            for each in wanted:
                answer = use(context, f"call-{os.urandom(8).hex()}", each)
                assert answer.malformed == answer.error
                assert answer.text

        is_answered()
