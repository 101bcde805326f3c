"""Pre-images and putting them back: the whole tree as it was, no byte lost, finished after any crash."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acode.errors import BlobDamaged
from acode.events.types import PreImage
from acode.store.blobs import Blobs
from acode.workspace import (
    Captured,
    RestoredOutputs,
    Root,
    capture_outputs,
    matching_paths,
    restore_outputs,
    temp_name,
)
from acode.workspace.declared_outputs import Patterns

BUDGET_BYTES = 1_000_000
PATHS_MAX = 1_000


@pytest.fixture
def root(workspace: Path) -> Iterator[Root]:
    with Root(workspace) as opened:
        yield opened


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def tree(place: Path) -> dict[bytes, tuple[object, ...]]:
    """All that a user can see: kinds, modes, bytes, link targets, and the times of files."""
    seen: dict[bytes, tuple[object, ...]] = {}
    top = os.fsencode(place)
    for directory, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(directory, name)
            info = os.lstat(path)
            rel = os.path.relpath(path, top)
            if stat.S_ISLNK(info.st_mode):
                seen[rel] = ("link", os.readlink(path))
            elif stat.S_ISDIR(info.st_mode):
                seen[rel] = ("directory", stat.S_IMODE(info.st_mode))
            elif stat.S_ISREG(info.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
                seen[rel] = ("file", stat.S_IMODE(info.st_mode), content, info.st_mtime_ns)
            else:
                seen[rel] = ("other", stat.S_IFMT(info.st_mode))
    return seen


def keep(root: Root, blobs: Blobs, *patterns: str, **limits: int) -> Captured:
    return capture_outputs(
        root,
        patterns,
        blobs=blobs,
        budget_bytes=limits.get("budget_bytes", BUDGET_BYTES),
        files_max=limits.get("files_max", PATHS_MAX),
        inline_bytes_max=limits.get("inline_bytes_max", 16),
    )


def roll_back(root: Root, blobs: Blobs, captured: Captured, *patterns: str) -> RestoredOutputs:
    present = matching_paths(root, patterns, paths_max=PATHS_MAX).paths

    def read_blob(sha256: str) -> bytes:
        return captured.inline[sha256] if sha256 in captured.inline else blobs.read(sha256, BUDGET_BYTES)

    return restore_outputs(root, captured.images, present, read_blob, blobs.put, complete=captured.complete)


@pytest.fixture
def build(workspace: Path) -> Path:
    """A directory with one of everything."""
    build = workspace / "build"
    (build / "sub" / "deep").mkdir(parents=True)
    (build / "empty").mkdir(mode=0o750)
    (build / "small.txt").write_text("small")
    (build / "large.bin").write_bytes(bytes(range(256)) * 40)
    (build / "tool").write_text("#!/bin/sh\n")
    (build / "tool").chmod(0o755)
    (build / ".env").write_text("TOKEN=secret")
    (build / "sub" / "deep" / "x.o").write_bytes(b"\0\1")
    (build / "link").symlink_to("small.txt")
    (build / "dangling").symlink_to("../nowhere")
    (build / "dirlink").symlink_to("sub")
    Path(os.fsdecode(os.fsencode(build) + b"/n\xe9\xff")).write_text("not utf-8")
    os.utime(build / "sub" / "deep" / "x.o", ns=(10**18, 10**18))
    (workspace / "source.c").write_text("int x;")
    (workspace / ".gitignore").write_text("build/\n.env\n")
    return build


def overwrite_all(build: Path) -> None:
    for path in build.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_text("overwritten")


def delete_all(build: Path) -> None:
    shutil.rmtree(build)


def rename_all(build: Path) -> None:
    for path in sorted(build.iterdir()):
        path.rename(path.with_name("moved-" + path.name))
    (build / "moved-sub").rename(build / "elsewhere")


def add_more(build: Path) -> None:
    (build / "new" / "below").mkdir(parents=True)
    (build / "new" / "below" / "f").write_text("new")
    (build / "new" / "empty").mkdir()
    (build / "newlink").symlink_to("/etc/passwd")
    (build / "sub" / "deep" / "y.o").write_bytes(b"new")
    os.mkfifo(build / "fifo")
    Path(os.fsdecode(os.fsencode(build) + b"/\xfe")).write_text("new and not utf-8")


def change_modes(build: Path) -> None:
    (build / "tool").chmod(0o600)
    (build / "small.txt").chmod(0o777)
    (build / "empty").chmod(0o700)
    (build / "sub").chmod(0o711)


def change_kinds(build: Path) -> None:
    (build / "small.txt").unlink()
    (build / "small.txt").mkdir()
    (build / "small.txt" / "inside").write_text("x")
    (build / "empty").rmdir()
    (build / "empty").write_text("a file now")
    shutil.rmtree(build / "sub")
    (build / "sub").symlink_to("/etc")
    (build / "link").unlink()
    (build / "link").write_text("a file now")
    (build / "dangling").unlink()
    (build / "dangling").mkdir()
    (build / "tool").unlink()
    os.mkfifo(build / "tool")
    (build / "large.bin").unlink()
    (build / "large.bin").symlink_to("/etc/passwd")


def relink(build: Path) -> None:
    for name in ("link", "dirlink"):
        (build / name).unlink()
        (build / name).symlink_to("/etc/passwd")


def touch(build: Path) -> None:
    os.utime(build / "sub" / "deep" / "x.o")


def break_hard_links(build: Path) -> None:
    (build / "small.txt").unlink()
    os.link(build.parent / "source.c", build / "small.txt")


def clone_a_repository(build: Path) -> None:
    subprocess.run(["git", "init", "-q", "vendor"], cwd=build, check=True)
    (build / "vendor" / "f").write_text("x")


EFFECTS = [
    overwrite_all,
    delete_all,
    rename_all,
    add_more,
    change_modes,
    change_kinds,
    relink,
    touch,
    break_hard_links,
    clone_a_repository,
]


@pytest.mark.parametrize("effect", EFFECTS)
def test_whatever_a_command_did_to_its_outputs_is_undone(
    root: Root, workspace: Path, blobs: Blobs, build: Path, effect: Callable[[Path], None]
) -> None:
    before = tree(workspace)
    captured = keep(root, blobs, "build/**")
    assert captured.complete
    assert tree(workspace) == before, "looking changes nothing"
    effect(build)
    assert tree(workspace) != before
    done = roll_back(root, blobs, captured, "build/**")
    assert tree(workspace) == before
    assert done.restored
    assert done.kept == ()
    again = roll_back(root, blobs, captured, "build/**")
    assert (again.restored, again.saved, again.kept) == ((), (), ())


def test_the_bytes_that_a_rollback_replaces_or_removes_can_be_had_back(
    root: Root, blobs: Blobs, build: Path, workspace: Path
) -> None:
    captured = keep(root, blobs, "build/**")
    (build / "small.txt").write_text("half a result")
    (build / "new").write_text("new result")
    (build / "link").unlink()
    (build / "link").symlink_to("elsewhere")
    (build / "tool").chmod(0o700)
    saved = {image.path: image for image in roll_back(root, blobs, captured, "build/**").saved}
    assert set(saved) == {"build/small.txt", "build/new", "build/link"}
    assert blobs.read(saved["build/small.txt"].blob or "", 100) == b"half a result"
    assert blobs.read(saved["build/new"].blob or "", 100) == b"new result"
    assert saved["build/link"].blob == "elsewhere"


def test_a_hard_link_to_an_output_keeps_its_bytes(root: Root, blobs: Blobs, build: Path, workspace: Path) -> None:
    captured = keep(root, blobs, "build/**")
    (build / "small.txt").write_text("changed")
    os.link(build / "small.txt", workspace / "other-name")
    roll_back(root, blobs, captured, "build/**")
    assert (build / "small.txt").read_text() == "small"
    assert (workspace / "other-name").read_text() == "changed"


def test_a_directory_that_did_not_exist_goes_unless_something_undeclared_lies_in_it(
    root: Root, blobs: Blobs, workspace: Path
) -> None:
    captured = keep(root, blobs, "out/gen/*.c")
    assert [(image.path, image.kind) for image in captured.images] == [("out", "absent"), ("out/gen", "absent")]
    (workspace / "out/gen").mkdir(parents=True)
    (workspace / "out/gen/a.c").write_text("x")
    roll_back(root, blobs, captured, "out/gen/*.c")
    assert os.listdir(workspace) == []
    (workspace / "out/gen").mkdir(parents=True)
    (workspace / "out/gen/a.c").write_text("x")
    (workspace / "out/mine").write_text("a person's")
    done = roll_back(root, blobs, captured, "out/gen/*.c")
    assert sorted(path.name for path in workspace.rglob("*")) == ["mine", "out"]
    assert done.kept == ("out",)


def test_an_empty_directory_that_was_there_stays_when_its_new_files_go(
    root: Root, blobs: Blobs, workspace: Path
) -> None:
    (workspace / "objects" / "inner").mkdir(parents=True)
    captured = keep(root, blobs, "**/*.o")
    (workspace / "objects" / "inner" / "a.o").write_text("x")
    (workspace / "fresh").mkdir()
    (workspace / "fresh" / "b.o").write_text("x")
    (workspace / "unrelated").mkdir()
    roll_back(root, blobs, captured, "**/*.o")
    assert sorted(os.listdir(workspace)) == ["objects", "unrelated"]
    assert os.listdir(workspace / "objects" / "inner") == []


def test_what_was_not_declared_is_not_touched(root: Root, blobs: Blobs, build: Path, workspace: Path) -> None:
    captured = keep(root, blobs, "build/*.txt")
    overwrite_all(build)
    (workspace / "source.c").write_text("edited")
    done = roll_back(root, blobs, captured, "build/*.txt")
    assert done.restored == ("build/small.txt",)
    assert (build / "tool").read_text() == "overwritten"
    assert (workspace / "source.c").read_text() == "edited"


def test_a_directory_that_holds_undeclared_files_is_no_matter_of_the_rollback(
    root: Root, blobs: Blobs, workspace: Path
) -> None:
    (workspace / "lib").mkdir()
    (workspace / "lib" / "a.c").write_text("source")
    captured = keep(root, blobs, "*/*.o")
    (workspace / "lib" / "a.o").write_text("x")
    done = roll_back(root, blobs, captured, "*/*.o")
    assert (done.restored, done.kept) == (("lib/a.o",), ())
    assert os.listdir(workspace / "lib") == ["a.c"]


def test_a_file_that_another_session_is_writing_is_left_alone(
    root: Root, blobs: Blobs, build: Path, workspace: Path
) -> None:
    captured = keep(root, blobs, "build/**")
    theirs = workspace / temp_name("build/theirs", "another session's key")
    theirs.write_text("half")
    roll_back(root, blobs, captured, "build/**")
    assert theirs.read_text() == "half"


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("build/**", ["build/a", "build/a/b", "build/.env"], ["build2/a", "x/build/a"]),
        ("build", ["build", "build/a/b"], ["x/build"]),
        ("build/", ["build/a"], ["x/build/a"]),
        ("*.o", ["a.o"], ["d/a.o"]),
        ("**/*.o", ["a.o", "d/e/a.o"], ["a.c"]),
        ("./out.txt", ["out.txt"], ["d/out.txt"]),
        ("#odd", ["#odd"], ["odd"]),
        ("**", ["a", ".env", "vendor/.git/config"], [".agent/x", ".git/config", "sub/.agent/workspace.db", ".AGENT/x"]),
    ],
)
def test_patterns_are_globs_from_the_root(pattern: str, matched: list[str], not_matched: list[str]) -> None:
    matches = Patterns([pattern])
    assert [path for path in matched if not matches(path)] == []
    assert [path for path in not_matched if matches(path)] == []


def test_a_pattern_can_take_paths_out_again(root: Root, blobs: Blobs, build: Path) -> None:
    paths = matching_paths(root, ["build/**", "!build/sub/**"], paths_max=PATHS_MAX).paths
    assert "build/small.txt" in paths
    assert not [path for path in paths if path.startswith("build/sub/")]


def test_acodes_own_files_are_never_outputs(root: Root, blobs: Blobs, workspace: Path) -> None:
    for place in (".agent", "inner/.agent"):
        (workspace / place).mkdir(parents=True)
        (workspace / place / "workspace.db").write_text("log")
    captured = keep(root, blobs, "**")
    assert not [image.path for image in captured.images if ".agent" in image.path]
    (workspace / ".agent" / "workspace.db").write_text("log, longer")
    roll_back(root, blobs, captured, "**")
    assert (workspace / ".agent" / "workspace.db").read_text() == "log, longer"


def test_small_files_are_handed_over_and_large_ones_are_blobs(root: Root, blobs: Blobs, build: Path) -> None:
    captured = keep(root, blobs, "build/**", inline_bytes_max=5)
    images = {image.path: image for image in captured.images}
    assert captured.inline[images["build/small.txt"].blob or ""] == b"small"
    large = images["build/large.bin"].blob or ""
    assert large not in captured.inline
    assert len(blobs.read(large, BUDGET_BYTES)) == 10_240


def test_over_the_budget_is_said_and_such_a_file_is_never_taken_for_new(root: Root, blobs: Blobs, build: Path) -> None:
    captured = keep(root, blobs, "build/**", budget_bytes=1000)
    assert not captured.complete
    assert captured.skipped == ("build/large.bin",)
    (build / "large.bin").write_text("changed")
    (build / "new").write_text("cannot be told from one that was left out")
    done = roll_back(root, blobs, captured, "build/**")
    assert set(done.kept) == {"build/large.bin", "build/new"}
    assert (build / "large.bin").read_text() == "changed"
    assert (build / "new").exists()


def test_too_many_files_are_said_and_none_is_removed(root: Root, blobs: Blobs, build: Path, workspace: Path) -> None:
    before = tree(workspace)
    captured = keep(root, blobs, "build/**", files_max=3)
    assert not captured.complete
    assert len(captured.images) <= 3
    roll_back(root, blobs, captured, "build/**")
    assert tree(workspace) == before


@pytest.mark.timeout(10)
def test_fifos_and_sockets_are_reported_and_left_alone(
    root: Root, blobs: Blobs, build: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(build)
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    captured = keep(root, blobs, "build/**")
    assert captured.complete
    assert captured.skipped == ("build/fifo", "build/socket")
    before = tree(workspace)
    overwrite_all(build / "sub")
    roll_back(root, blobs, captured, "build/**")
    assert tree(workspace) == before
    (build / "fifo").unlink()
    assert roll_back(root, blobs, captured, "build/**").kept == ("build/fifo",)


def test_outputs_behind_a_link_are_not_captured_and_that_is_said(
    root: Root, blobs: Blobs, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("x")
    (workspace / "build").symlink_to(tmp_path / "outside")
    captured = keep(root, blobs, "build/**")
    assert not captured.complete
    assert captured.skipped == captured.astray == ("build",)
    assert "build/f" not in {image.path for image in captured.images}


@pytest.mark.parametrize(
    ("link", "astray"),
    [
        (("build/log", "../source.c"), True),
        (("build/log", "../nowhere"), True),
        (("build/log", "/etc/passwd"), True),
        (("build/log", ".."), True),
        (("build/log", "../.agent/config.yml"), True),
        (("build/log", "../other"), True),
        (("build/log", "small.txt"), False),
        (("build/log", "not-yet"), False),
        (("build/log", "sub"), False),
        (("build/log", "sub/../small.txt"), False),
        (("other/log", "../build/small.txt"), False),
        (("kept.txt", "source.c"), True),
        (("kept.txt", "build/small.txt"), False),
    ],
)
def test_a_link_that_leads_out_of_the_outputs_is_named(
    root: Root, blobs: Blobs, build: Path, link: tuple[str, str], astray: bool
) -> None:
    """What a command writes through it is no output, so putting the outputs back does not undo the command."""
    (at, to), workspace = link, build.parent
    (build / "dangling").unlink()
    (workspace / "other").mkdir()
    (workspace / at).symlink_to(to)
    captured = keep(root, blobs, "build/**", "other/*.o", "other/log", "kept.txt")
    assert captured.astray == ((at,) if astray else ())
    assert captured.complete, "what is captured can be put back all the same"


def test_an_output_directory_that_became_a_link_is_put_back_without_following_it(
    root: Root, blobs: Blobs, build: Path, workspace: Path, tmp_path: Path
) -> None:
    before = tree(build)
    captured = keep(root, blobs, "build/**")
    build.rename(workspace / "moved")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "small.txt").write_text("a stranger's")
    build.symlink_to(tmp_path / "outside")
    roll_back(root, blobs, captured, "build/**")
    assert tree(build) == before
    assert (tmp_path / "outside" / "small.txt").read_text() == "a stranger's"
    assert os.listdir(tmp_path / "outside") == ["small.txt"]


def test_a_damaged_pre_image_stops_the_rollback_before_anything_changes(
    root: Root, blobs: Blobs, build: Path, workspace: Path
) -> None:
    captured = keep(root, blobs, "build/**")
    overwrite_all(build)
    half = tree(workspace)
    present = matching_paths(root, ["build/**"], paths_max=PATHS_MAX).paths
    with pytest.raises(BlobDamaged, match="nothing was restored"):
        restore_outputs(root, captured.images, present, lambda sha256: b"forged", blobs.put)
    assert tree(workspace) == half


def test_what_was_saved_is_announced_before_anything_changes(
    root: Root, blobs: Blobs, build: Path, workspace: Path
) -> None:
    captured = keep(root, blobs, "build/*.txt")
    (build / "small.txt").write_text("half")
    seen: list[tuple[tuple[str, ...], str]] = []

    def announce(saved: tuple[PreImage, ...]) -> None:
        seen.append((tuple(image.path for image in saved), (build / "small.txt").read_text()))

    restore_outputs(root, captured.images, (), captured.inline.__getitem__, blobs.put, announce=announce)
    assert seen == [(("build/small.txt",), "half")]
    assert (build / "small.txt").read_text() == "small"


def test_bytes_written_while_the_rollback_runs_are_saved_too(root: Root, blobs: Blobs, build: Path) -> None:
    captured = keep(root, blobs, "build/*.txt")
    (build / "small.txt").write_text("half")

    announced: list[PreImage] = []

    def announce(saved: tuple[PreImage, ...]) -> None:
        if not announced:
            (build / "small.txt").write_text("a person's last-minute edit")
        else:
            assert (build / "small.txt").read_text() == "a person's last-minute edit", "named before it is replaced"
        announced.extend(saved)

    done = restore_outputs(root, captured.images, (), captured.inline.__getitem__, blobs.put, announce=announce)
    kept = [blobs.read(image.blob or "", 100) for image in done.saved]
    assert kept == [b"half", b"a person's last-minute edit"]
    assert tuple(announced) == done.saved
    assert (build / "small.txt").read_text() == "small"


CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.symlink", "os.utime")


def killed_at(boundary: int, work: Callable[[], object]) -> bool:
    """Run in a child that is killed when it is about to make its nth call; whether it came that far."""
    child = os.fork()
    if child == 0:
        calls = 0

        def count(event: str, _: object) -> None:
            nonlocal calls
            if event in CHANGES:
                calls += 1
                if calls == boundary:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)  # a child that raised must not go on as a second test run
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return os.WIFSIGNALED(status)


def do_everything(build: Path) -> None:
    add_more(build)
    change_kinds(build)
    (build / ".env").write_text("half written")


def test_a_rollback_killed_anywhere_is_finished_by_the_next_one(
    root: Root, workspace: Path, blobs: Blobs, build: Path
) -> None:
    before = tree(workspace)
    captured = keep(root, blobs, "build/**")
    boundary = kills = 0
    while True:
        boundary += 7
        do_everything(build)
        if not killed_at(boundary, lambda: roll_back(root, blobs, captured, "build/**")):
            break
        kills += 1
        # Killed once more on the way, and then left in peace.
        killed_at(boundary // 2 + 1, lambda: roll_back(root, blobs, captured, "build/**"))
        roll_back(root, blobs, captured, "build/**")
        assert tree(workspace) == before, f"killed at call {boundary}"
    assert tree(workspace) == before
    assert kills > 8


def test_read_only_directories_are_filled_again_and_stay_read_only(
    root: Root, workspace: Path, blobs: Blobs, build: Path
) -> None:
    (build / "sub" / "deep").chmod(0o555)
    (build / "empty").chmod(0o555)
    user = os.geteuid() or 12345  # root may write everywhere, so that somebody else must do it
    for path in (workspace, build, *build.rglob("*")):
        os.chown(path, user, -1, follow_symlinks=False)
    before = tree(workspace)
    captured = keep(root, blobs, "build/**")
    present = matching_paths(root, ["build/**"], paths_max=PATHS_MAX).paths
    stored = dict(captured.inline) | {name: blobs.read(name, BUDGET_BYTES) for name, _ in blobs.all()}
    (build / "sub" / "deep" / "x.o").write_text("changed")
    (build / "empty").rmdir()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(user)
            restore_outputs(root, captured.images, present, stored.__getitem__, lambda chunks: "0" * 64)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert tree(workspace) == before
