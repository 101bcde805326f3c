"""Changed files: found by stat and hash, reported with times, hashes and hints, shown as a difference."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from acode.errors import EnvironmentInvalid
from acode.events.types import FileState
from acode.workspace import ChangedFile, Root, changed, diff, hash_file, integrity_report, restat, text_of
from acode.workspace.suspicious_text import PATTERNS, PatternSearch


@pytest.fixture
def root(workspace: Path) -> Iterator[Root]:
    with Root(workspace) as opened:
        yield opened


def record(root: Root, *paths: str) -> dict[str, FileState]:
    return {path: hash_file(root, path) for path in paths}


def settled(root: Root, workspace: Path, *paths: str) -> dict[str, FileState]:
    """Entries recorded when the files were old enough for their stat to prove something."""
    until = max((workspace / path).stat().st_ctime_ns for path in paths) + 25_000_000
    while time.time_ns() < until:
        pass
    manifest = record(root, *paths)
    assert all(state.ctime_ns for state in manifest.values())
    return manifest


@pytest.mark.req("FR-040b-17", "FR-040b-20", "BP-011c-18", "IF-011c-07")
def test_modified_deleted_and_new_files_are_found_with_time_and_hashes(root: Root, workspace: Path) -> None:
    for name in ("same", "modified", "deleted", "dir/in-it"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("old")
    manifest = record(root, "same", "modified", "deleted", "dir/in-it", "created", "never")
    (workspace / "modified").write_text("new")
    os.utime(workspace / "modified", ns=(0, 1_700_000_000_123_000_000))
    (workspace / "deleted").unlink()
    (workspace / "created").write_text("new")
    (workspace / "dir" / "in-it").unlink()
    (workspace / "dir").rmdir()
    found = {change.path: change for change in changed(root, manifest)}
    old, new = manifest["same"].sha256, hash_file(root, "created").sha256
    assert list(found) == ["created", "deleted", "dir/in-it", "modified"]
    assert found["modified"] == ChangedFile(
        path="modified",
        change="modified",
        modified_at="2023-11-14T22:13:20.123Z",
        expected_hash=old,
        found_hash=new,
    )
    assert (found["deleted"].change, found["deleted"].expected_hash, found["deleted"].found_hash) == (
        "deleted",
        old,
        None,
    )
    assert found["dir/in-it"].change == "deleted"
    assert (found["created"].change, found["created"].expected_hash, found["created"].found_hash) == (
        "created",
        None,
        new,
    )


@pytest.mark.req("FR-040b-19")
def test_the_same_bytes_are_unchanged_whatever_happened_to_the_file(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("text")
    manifest = record(root, "a")
    (workspace / "a").unlink()
    (workspace / "a").write_text("text")
    os.utime(workspace / "a", ns=(5, 5))
    (workspace / "a").chmod(0o600)
    assert changed(root, manifest) == ()


def test_a_change_of_the_same_length_with_the_time_set_back_is_found(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("good")
    manifest = settled(root, workspace, "a")
    info = (workspace / "a").stat()
    (workspace / "a").write_text("evil")
    os.utime(workspace / "a", ns=(info.st_atime_ns, info.st_mtime_ns))
    assert [change.path for change in changed(root, manifest)] == ["a"]


def test_a_change_in_the_moment_of_recording_is_found(root: Root, workspace: Path) -> None:
    for attempt in range(20):
        (workspace / "a").write_bytes(b"good")
        manifest = record(root, "a")
        (workspace / "a").write_bytes(b"evil")
        assert [change.path for change in changed(root, manifest)] == ["a"], attempt


def test_files_that_the_stat_proves_are_not_opened(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    manifest = settled(root, workspace, "a")
    lying = {"a": msgspec.structs.replace(manifest["a"], sha256="0" * 64)}
    assert changed(root, lying) == (), "a hash would have shown the lie"


@pytest.mark.parametrize("what", ["link", "parent link", "directory", "fifo", "executable"])
def test_another_kind_of_thing_in_its_place_is_a_change(root: Root, workspace: Path, tmp_path: Path, what: str) -> None:
    (workspace / "d").mkdir()
    file = workspace / "d" / "a"
    file.write_text("text")
    manifest = record(root, "d/a")
    if what == "executable":
        file.chmod(0o755)
    elif what == "parent link":
        (workspace / "d").rename(tmp_path / "d")
        (workspace / "d").symlink_to(tmp_path / "d")
    else:
        file.unlink()
    if what == "link":
        (tmp_path / "copy").write_text("text")
        file.symlink_to(tmp_path / "copy")
    elif what == "directory":
        file.mkdir()
    elif what == "fifo":
        os.mkfifo(file)
    (change,) = changed(root, manifest)
    words = {"link": "a symbolic link", "directory": "a directory", "fifo": "a FIFO", "executable": "made executable"}
    assert change.suspicious == ((words[what],) if what in words else ())
    assert change.change == ("deleted" if what == "parent link" else "modified")


@pytest.mark.req("THREAT-011c-07")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_suspicious_pattern_in_a_changed_file_is_reported_whatever_its_case(
    root: Root, workspace: Path, pattern: str
) -> None:
    (workspace / "a").write_text("harmless")
    (workspace / "b").write_text(pattern)
    manifest = record(root, "a", "b")
    (workspace / "a").write_bytes(b"\xff\0 x = " + pattern.upper().encode() + b"1)")
    (change,) = changed(root, manifest)
    assert change.suspicious == (pattern,)


def test_a_pattern_across_two_chunks_is_found_and_one_across_two_files_is_not() -> None:
    search = PatternSearch()
    search.feed(b"subprocess")
    search.feed(b".call(x)")
    assert search.take() == ("subprocess.call(",)
    search.feed(b"rm -")
    assert search.take() == ()
    search.feed(b"rf")
    assert search.take() == ()


@pytest.mark.req("THREAT-011c-08", "THREAT-011c-03")
def test_the_integrity_report_counts_names_and_recommends(root: Root, workspace: Path) -> None:
    for name in ("a", "b", "c"):
        (workspace / name).write_text("old")
    manifest = record(root, "a", "b", "c")
    quiet = integrity_report(3, changed(root, manifest))
    assert (quiet.total_files, quiet.changed_files, quiet.suspicious_files) == (3, (), ())
    assert quiet.recommendation == "Nothing changed; continue."
    (workspace / "a").write_text("new")
    harmless = integrity_report(3, changed(root, manifest))
    assert "Look at the file that changed" in harmless.recommendation
    (workspace / "b").write_text("import os; os.system('rm -rf x')")
    report = integrity_report(3, changed(root, manifest))
    assert [change.path for change in report.changed_files] == ["a", "b"]
    assert report.changed_files[1].expected_hash == manifest["b"].sha256
    assert report.changed_files[1].found_hash == hash_file(root, "b").sha256
    assert report.changed_files[1].modified_at is not None
    assert [(file.path, file.patterns) for file in report.suspicious_files] == [("b", ("os.system(", "rm -rf"))]
    assert report.recommendation == (
        "Do not continue before you have read the file with suspicious content, first b (os.system(, rm -rf)."
    )


def test_running_out_of_time_is_said_and_is_no_clean_bill(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    manifest = {f"none-{number}": FileState(path=f"none-{number}") for number in range(600)}
    with pytest.raises(EnvironmentInvalid, match="ran out of time after 256 of 600 files"):
        changed(root, manifest, deadline=lambda: True)
    fresh = record(root, "a")
    (workspace / "a").write_text("y")
    with pytest.raises(EnvironmentInvalid, match="ran out of time"):
        changed(root, fresh, deadline=lambda: True)


def test_after_a_step_only_what_it_touched_is_recorded_anew(root: Root, workspace: Path) -> None:
    for name in ("same", "formatted", "deleted"):
        (workspace / name).write_text("x=1")
    manifest = settled(root, workspace, "same", "formatted", "deleted") | record(root, "made")
    (workspace / "formatted").write_text("x = 1")
    (workspace / "deleted").unlink()
    (workspace / "made").write_text("new")
    again = {state.path: state for state in restat(root, manifest)}
    assert sorted(again) == ["deleted", "formatted", "made"]
    assert again["formatted"].sha256 == hash_file(root, "formatted").sha256
    assert again["deleted"] == FileState(path="deleted")
    assert changed(root, manifest | again) == (), "what the step did is no alarm"


def test_an_entry_too_fresh_to_be_proved_is_recorded_anew_once(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    proved = settled(root, workspace, "a")
    fresh = {"a": msgspec.structs.replace(proved["a"], ctime_ns=0)}
    assert restat(root, fresh) == (proved["a"],)
    assert restat(root, proved) == ()


def test_files_that_cannot_be_read_are_changes_with_an_unknown_hash(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    manifest = record(root, "a")
    (workspace / "a").chmod(0)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(12345)  # root reads everything
            (change,) = changed(root, manifest)
            assert (change.change, change.found_hash, change.suspicious) == ("modified", None, ("unreadable",))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_directory_that_cannot_be_read_is_no_clean_bill(root: Root, workspace: Path) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "a").write_text("x")
    manifest = record(root, "d/a")
    (workspace / "d").chmod(0)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(12345)
            with pytest.raises(EnvironmentInvalid, match="the directory d cannot be read"):
                changed(root, manifest)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_names_that_are_not_utf8_are_checked(root: Root, workspace: Path) -> None:
    rel = text_of(b"\xff")
    Path(os.fsdecode(os.fsencode(workspace) + b"/\xff")).write_text("x")
    manifest = record(root, rel)
    assert changed(root, manifest) == ()
    Path(os.fsdecode(os.fsencode(workspace) + b"/\xff")).write_text("y")
    assert [change.path for change in changed(root, manifest)] == [rel]


# The difference for a person.


def test_the_difference_is_a_unified_diff(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("one\ntwo\nthree\n")
    assert diff(root, "a", b"one\n2\nthree\n").splitlines() == [
        "--- a (recorded)",
        "+++ a (now)",
        "@@ -1,3 +1,3 @@",
        " one",
        "-2",
        "+two",
        " three",
    ]


def test_control_characters_are_spelled_out_so_that_the_terminal_obeys_nobody(root: Root, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"\x1b[2Jgone\r\nend\t\xe2\x80\xae\x9b\n")
    text = diff(root, "a", b"")
    assert "+\\x1b[2Jgone\\x0d" in text
    assert "+end\t\\u202e" in text
    assert not [character for character in text if ord(character) < 32 and character not in "\n\t"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"\0\1", b"text", "binary, 2 bytes before, 4 now"),
        (b"text", b"\0", "binary, 4 bytes before, 1 now"),
        (b"x", b"y" * 1_100_000, "too large to compare, 1 bytes before, 1,100,000 now"),
    ],
)
def test_what_cannot_be_compared_as_text_says_so(
    root: Root, workspace: Path, old: bytes, new: bytes, words: str
) -> None:
    (workspace / "a").write_bytes(new)
    assert diff(root, "a", old) == f"a: {words}\n"


def test_a_deleted_file_is_shown_as_removed(root: Root) -> None:
    assert diff(root, "a", b"old\n").splitlines()[-1] == "-old"


def test_a_link_in_place_of_the_file_is_said_not_followed(root: Root, workspace: Path) -> None:
    (workspace / "a").symlink_to("/etc/passwd")
    assert diff(root, "a", b"old") == "a: a symbolic link stands there now\n"


@pytest.mark.timeout(10)
def test_a_long_difference_is_cut_and_quick(root: Root, workspace: Path) -> None:
    (workspace / "a").write_text("".join(f"{number % 7} {'x' * 900}\n" for number in range(1_000)))
    cut = diff(root, "a", b"".join(b"%d old\n" % number for number in range(30_000)))
    assert cut.splitlines()[-1] == "… cut after 500 lines"
    assert len(cut.splitlines()) == 501
    assert max(len(line) for line in cut.splitlines()) <= 401
    assert [line for line in cut.splitlines() if line.startswith("+") and "x" in line]
