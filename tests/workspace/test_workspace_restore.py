"""Taking one path of a finished step back: three-way, so that what a person did since is theirs."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acode.errors import BlobDamaged, UnsafePath
from acode.events.types import FileState, PreImage
from acode.store.blobs import Blobs
from acode.workspace import Root, capture, hash_file, missing_parents, restore, text_of, write_atomic

BUDGET_BYTES = 1_000_000


@pytest.fixture
def root(workspace: Path) -> Iterator[Root]:
    with Root(workspace) as opened:
        yield opened


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def tree(place: Path) -> dict[str, tuple[int, bytes | str]]:
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in place.rglob("*"):
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[path.name] = (path.lstat().st_mode, content)
    return found


def write_step(root: Root, blobs: Blobs, rel: str, data: bytes) -> tuple[PreImage, FileState, Callable[[str], bytes]]:
    pre, inline = capture(root, rel, blobs=blobs)
    post = write_atomic(root, rel, data, None, "key")
    return pre, post, lambda sha256: blobs.read(sha256, BUDGET_BYTES) if inline is None else inline


@pytest.mark.parametrize("size", [0, 3, 70_000])
def test_a_step_is_taken_back_if_nobody_touched_the_file_since(
    root: Root, blobs: Blobs, workspace: Path, size: int
) -> None:
    (workspace / "a").write_bytes(b"x" * size)
    (workspace / "a").chmod(0o640)
    pre, post, read_blob = write_step(root, blobs, "a", b"new")
    assert restore(root, pre, post, read_blob=read_blob) == "restored"
    assert (workspace / "a").read_bytes() == b"x" * size
    assert stat.S_IMODE((workspace / "a").stat().st_mode) == 0o640
    assert restore(root, pre, post, read_blob=read_blob) == "nothing"


def test_a_file_that_a_step_made_goes_with_the_directories_made_for_it(
    root: Root, blobs: Blobs, workspace: Path
) -> None:
    (workspace / "there").mkdir()
    made = missing_parents(root, "there/new/deep/a")
    assert [image.path for image in made] == ["there/new", "there/new/deep"]
    pre, post, read_blob = write_step(root, blobs, "there/new/deep/a", b"x")
    assert restore(root, pre, post, read_blob=read_blob) == "restored"
    for image in reversed(made):
        assert restore(root, image, FileState(path=image.path), read_blob=read_blob) == "restored"
    assert os.listdir(workspace / "there") == []


def test_a_directory_made_for_a_step_stays_if_a_person_put_something_there(
    root: Root, blobs: Blobs, workspace: Path
) -> None:
    made = missing_parents(root, "new/a")
    write_step(root, blobs, "new/a", b"x")
    (workspace / "new" / "mine").write_text("mine")
    (workspace / "new" / "a").unlink()
    assert restore(root, made[0], FileState(path="new"), read_blob=lambda sha256: b"") == "kept"
    assert (workspace / "new" / "mine").read_text() == "mine"


def test_a_source_that_comes_back_is_newer_than_what_was_built_from_its_successor(
    root: Root, blobs: Blobs, workspace: Path
) -> None:
    (workspace / "a.c").write_text("old")
    os.utime(workspace / "a.c", ns=(10**18, 10**18))
    pre, post, read_blob = write_step(root, blobs, "a.c", b"new")
    (workspace / "a.o").write_text("built from new")
    restore(root, pre, post, read_blob=read_blob)
    assert (workspace / "a.c").stat().st_mtime_ns >= (workspace / "a.o").stat().st_mtime_ns


@pytest.mark.parametrize("edit", ["content", "mode", "deleted", "link", "directory"])
def test_what_a_person_changed_since_is_not_touched(root: Root, blobs: Blobs, workspace: Path, edit: str) -> None:
    (workspace / "a").write_text("old")
    pre, post, read_blob = write_step(root, blobs, "a", b"new")
    if edit == "content":
        (workspace / "a").write_text("mine")
    elif edit == "mode":
        (workspace / "a").chmod(0o700)
    else:
        (workspace / "a").unlink()
    if edit == "link":
        (workspace / "a").symlink_to("new")
    elif edit == "directory":
        (workspace / "a").mkdir()
    before = tree(workspace)
    assert restore(root, pre, post, read_blob=read_blob) == "kept"
    assert tree(workspace) == before


def test_a_file_that_a_step_deleted_comes_back(root: Root, blobs: Blobs, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    pre, inline = capture(root, "a", blobs=blobs)
    (workspace / "a").unlink()
    assert restore(root, pre, FileState(path="a"), read_blob=lambda sha256: inline or b"") == "restored"
    assert (workspace / "a").read_text() == "old"


def test_a_link_that_a_step_replaced_comes_back(root: Root, blobs: Blobs, workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    pre, inline = capture(root, "a", blobs=blobs)
    assert (pre.kind, pre.blob, inline) == ("link", "b", None)
    (workspace / "a").unlink()
    (workspace / "a").write_text("x")
    assert restore(root, pre, hash_file(root, "a"), read_blob=lambda sha256: b"") == "restored"
    assert os.readlink(workspace / "a") == "b"


def test_a_forged_pre_image_is_not_put_back(root: Root, blobs: Blobs, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    pre, post, _ = write_step(root, blobs, "a", b"new")
    with pytest.raises(BlobDamaged):
        restore(root, pre, post, read_blob=lambda sha256: b"forged")
    assert (workspace / "a").read_text() == "new"


def test_an_edit_during_the_restore_wins(root: Root, blobs: Blobs, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    pre, post, read_blob = write_step(root, blobs, "a", b"new")

    def read_while_somebody_edits(sha256: str) -> bytes:
        (workspace / "a").write_text("mine")
        return read_blob(sha256)

    assert restore(root, pre, post, read_blob=read_while_somebody_edits) == "kept"
    assert (workspace / "a").read_text() == "mine"


@pytest.mark.parametrize("kind", ["absent", "directory", "link", "other", "file"])
def test_every_kind_of_thing_has_a_pre_image(root: Root, blobs: Blobs, workspace: Path, kind: str) -> None:
    place = workspace / "thing"
    {
        "absent": lambda: None,
        "directory": place.mkdir,
        "link": lambda: place.symlink_to("x"),
        "other": lambda: os.mkfifo(place),
        "file": lambda: place.write_text("x"),
    }[kind]()
    assert capture(root, "thing", blobs=blobs)[0].kind == kind


def test_a_pre_image_is_never_taken_through_a_link(root: Root, blobs: Blobs, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (workspace / "link").symlink_to(tmp_path)
    with pytest.raises(UnsafePath):
        capture(root, "link/secret", blobs=blobs)


def test_names_that_are_not_utf8_have_pre_images(root: Root, blobs: Blobs, workspace: Path) -> None:
    rel = text_of(b"\xff\xfe")
    pre, post, read_blob = write_step(root, blobs, rel, b"x")
    assert os.listdir(os.fsencode(workspace)) == [b"\xff\xfe"]
    assert restore(root, pre, post, read_blob=read_blob) == "restored"
    assert os.listdir(workspace) == []
