"""Arc runs on a real disk: found by content, read strictly, written whole, and never looked at through a link."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from acode.errors import DiskFull, ForeignUnreadable, NotWritable, UnsafePath, WriteFailed
from acode.formats.arc import diagnose, locate, look, read, resolve_config_dir, write
from acode.formats.arc import disk as arc_disk
from acode.formats.arc.checkpoint import CHECKPOINT_BYTES_MAX, stamp
from acode.formats.arc.surroundings import artifact, process, state_files
from tests.arc import CONTEXT_PATH, NOW, RUN, arc, context, put, put_run, suspended, task

HOME = ".claude/arc"


def touched(path: Path, minutes_ago: float) -> None:
    at = (NOW - timedelta(minutes=minutes_ago)).timestamp()
    os.utime(path, (at, at))


def tree(root: Path) -> dict[str, Any]:
    """Everything a directory holds, with contents, modes, times and link targets."""
    found: dict[str, Any] = {}
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, status.st_ino, content)
    return found


# Finding.


@pytest.mark.req("ARC-01")
def test_the_most_recent_run_is_found_by_its_own_content_and_a_disagreement_is_said(workspace: Path) -> None:
    """A checkout or a copy gives the oldest run the newest modification time."""
    old = put_run(workspace, arc(id="arc-1", updated_at="2026-03-01T09:00:00Z"), "arc-1")
    new = put_run(workspace, arc(id="arc-2", updated_at="2026-03-01T10:00:00Z"), "arc-2")
    touched(old, 1)
    touched(new, 60)
    found = locate(workspace)
    assert [run.run_id for run in found] == ["arc-2", "arc-1"]
    assert found[0].path == new
    assert any("modification time" in warning and "arc-1" in warning for warning in found[0].warnings)
    touched(new, 0)
    assert locate(workspace)[0].warnings == ()


@pytest.mark.req("ARC-01")
def test_equal_content_is_ordered_by_modification_time_and_a_missing_updated_at_falls_back_to_it(
    workspace: Path,
) -> None:
    for name, minutes, updated in (("arc-1", 5, None), ("arc-2", 1, None), ("arc-3", 3, stamp(NOW))):
        touched(put_run(workspace, arc(id=name, updated_at=updated), name), minutes)
    assert [run.run_id for run in locate(workspace)] == ["arc-3", "arc-2", "arc-1"]


def test_unreadable_runs_are_listed_as_unreadable_and_never_dropped(workspace: Path) -> None:
    put_run(workspace, arc(), RUN)
    put_run(workspace, b"{torn", "arc-torn")
    put_run(workspace, b"x" * (CHECKPOINT_BYTES_MAX + 10), "arc-huge")
    (workspace / HOME / "arc-empty").mkdir()
    put(workspace, "elsewhere/checkpoint.json", json.dumps(arc()))
    (workspace / HOME / "arc-linked").symlink_to(workspace / "elsewhere")
    (workspace / HOME / "arc-inner").mkdir()
    (workspace / HOME / "arc-inner" / "checkpoint.json").symlink_to(workspace / "elsewhere" / "checkpoint.json")
    os.mkfifo(put(workspace, f"{HOME}/arc-pipe/x", "").with_name("checkpoint.json"))
    found = {run.run_id: run.problem for run in locate(workspace)}
    assert found.pop(RUN) is None
    assert set(found) == {"arc-torn", "arc-huge", "arc-linked", "arc-inner", "arc-pipe"}
    assert all(found.values())


def test_a_home_behind_a_link_is_reported_and_not_entered(workspace: Path, tmp_path: Path) -> None:
    put_run(tmp_path / "other", arc())
    (workspace / ".claude").symlink_to(tmp_path / "other" / ".claude")
    (found,) = locate(workspace)
    assert found.problem is not None
    assert "link" in found.problem


def test_a_workspace_without_runs_has_none_and_the_later_home_counts_too(workspace: Path) -> None:
    assert locate(workspace) == []
    put(workspace, ".rune/arc/arc-9/checkpoint.json", json.dumps(arc(id="arc-9", schema_version=24)))
    assert [run.run_id for run in locate(workspace)] == ["arc-9"]


def test_a_checkpoint_in_the_wrong_directory_is_said_to_be_another_runs(workspace: Path) -> None:
    put_run(workspace, arc(), "arc-other")
    assert any(RUN in warning for warning in locate(workspace)[0].warnings)


# Reading.


@pytest.mark.req("ARC-RESUME-02")
def test_a_corrupt_checkpoint_names_its_newest_readable_backup_and_a_fresh_start_and_deletes_nothing(
    workspace: Path,
) -> None:
    path = put_run(workspace, b'{"phases": ')
    put(path.parent, "checkpoint.json.bak.100", json.dumps(arc(updated_at="2026-03-01T10:00:00Z")))
    put(path.parent, "checkpoint.json.bak.200", json.dumps(arc(updated_at="2026-03-01T09:00:00Z")))
    put(path.parent, "checkpoint.json.bak.300", "{torn too")
    before = tree(workspace)
    with pytest.raises(ForeignUnreadable) as refused:
        read(path)
    assert refused.value.exit_code == 20
    assert refused.value.details["backup"].endswith("checkpoint.json.bak.100")
    assert refused.value.details["next_action"] == "fresh_start"
    assert "checkpoint.json.bak.100" in refused.value.hint
    assert "afresh" in refused.value.hint
    assert tree(workspace) == before


@pytest.mark.req("ARC-RESUME-02")
@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b'{"a": NaN}', b'{"id": 1, "id": 2}', b'{"a": "\\ud800"}', b"\xff\xfe"),
        *(b"{}", b'{"phases": []}', b'{"phases": {}, "schema_version": "old"}'),
    ],
)
def test_every_kind_of_damage_is_the_same_named_error(workspace: Path, data: bytes) -> None:
    with pytest.raises(ForeignUnreadable) as refused:
        read(put_run(workspace, data))
    assert refused.value.details["backup"] is None and "afresh" in refused.value.hint


def test_a_backup_that_holds_no_phases_is_not_offered(workspace: Path) -> None:
    path = put_run(workspace, b"{}")
    put(path.parent, "checkpoint.json.bak.100", json.dumps(arc()))
    put(path.parent, "checkpoint.json.bak.200", "{}")
    with pytest.raises(ForeignUnreadable, match="no phases") as refused:
        read(path)
    assert refused.value.details["backup"].endswith("checkpoint.json.bak.100")


def test_a_checkpoint_behind_a_link_is_not_read(workspace: Path) -> None:
    path = put_run(workspace, arc())
    path.rename(workspace / "real.json")
    path.symlink_to(workspace / "real.json")
    with pytest.raises(ForeignUnreadable, match="link"):
        read(path)
    with pytest.raises(UnsafePath):
        read(workspace / "real.json")


# Writing.


def test_a_write_keeps_mode_unknown_fields_and_three_backups(workspace: Path) -> None:
    value = arc(x_unknown={"kept": [1, None, "ä"]})
    path = put_run(workspace, value)
    path.chmod(0o666)
    for number in range(5):
        value = {**value, "number": number}
        write(path, value, now=NOW + timedelta(seconds=number))
    assert read(path).raw == value
    assert stat.S_IMODE(path.stat().st_mode) == 0o666  # also what the umask would take away
    backups = sorted(path.parent.glob("checkpoint.json.bak.*"))
    assert [json.loads(backup.read_text())["number"] for backup in backups] == [1, 2, 3]
    assert {entry.name for entry in path.parent.iterdir()} == {"checkpoint.json", *(backup.name for backup in backups)}


def test_the_content_from_before_a_schema_change_is_kept_for_good(workspace: Path) -> None:
    old = {**arc(), "schema_version": 6}
    path = put_run(workspace, old)
    for number in range(6):
        write(path, arc(number=number), now=NOW)
    assert json.loads((path.parent / "checkpoint.json.schema-6.bak").read_text()) == old


def test_two_writes_within_a_millisecond_both_leave_a_backup(workspace: Path) -> None:
    path = put_run(workspace, arc())
    write(path, arc(n=1), now=NOW)
    write(path, arc(n=2), now=NOW)
    assert len(list(path.parent.glob("checkpoint.json.bak.*"))) == 2


def test_writing_what_is_there_already_touches_nothing(workspace: Path) -> None:
    path = put_run(workspace, arc())
    write(path, arc(n=1), now=NOW)
    before = tree(workspace)
    write(path, arc(n=1), now=NOW + timedelta(hours=1))
    assert tree(workspace) == before


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": "\ud800"}, {1: "keys become text"}])
def test_what_would_not_read_back_is_refused_before_anything_is_touched(workspace: Path, value: Any) -> None:
    path = put_run(workspace, arc())
    before = tree(workspace)
    with pytest.raises((WriteFailed, ForeignUnreadable, ValueError)):
        write(path, value, now=NOW)
    assert tree(workspace) == before


def test_a_full_or_read_only_disk_leaves_the_old_checkpoint(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put_run(workspace, arc())
    (path.parent / "checkpoint.json.bak.1").mkdir()  # a planted directory is no backup and no obstacle
    for number, error in ((28, DiskFull), (30, NotWritable), (5, WriteFailed)):

        def fails(fd: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(arc_disk, "sync_file", fails)
            with pytest.raises(error):
                write(path, arc(n=number), now=NOW)
        assert read(path).raw == arc()
    assert not list(path.parent.glob(".*acode-tmp"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the names of descriptors are read from /proc")
def test_the_content_is_synced_before_the_rename_and_the_directory_after(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the first a power cut leaves an empty checkpoint, without the second the old one comes back."""
    path = put_run(workspace, arc())
    done: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(fd: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        done.append(
            f"sync {name.removesuffix('.acode-tmp').rpartition('.')[0] if name.endswith('.acode-tmp') else name}"
        )
        real_sync(fd)

    def rename(old: str, new: str, **places: Any) -> None:
        done.append(f"rename to {new}")
        real_replace(old, new, **places)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    write(path, arc(n=1), now=NOW)
    assert done[-3:] == ["sync .checkpoint.json", "rename to checkpoint.json", f"sync {RUN}"]
    assert len(done) == 6  # the backup was made just as safely, and before


WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from acode.formats.arc import read, write
path = Path(sys.argv[1])
value = read(path).raw
print("ready", flush=True)
for number in range(1_000_000):
    write(path, {**value, "number": number, "filler": "x" * 50_000}, now=datetime.now(UTC))
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_checkpoint(workspace: Path) -> None:
    path = put_run(workspace, arc(number=-1))
    seen = set()
    for round_ in range(6):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            before = path.stat().st_ino
            while path.stat().st_ino == before:  # at least one whole write, then somewhere inside a later one
                assert writer.poll() is None
            for _ in range(round_ * 400):
                path.stat()
            writer.send_signal(signal.SIGKILL)
        seen.add(read(path).raw["number"])
        for backup in path.parent.glob("checkpoint.json.bak.*"):
            json.loads(backup.read_text())
    assert -1 not in seen
    write(path, arc(n=1), now=NOW)
    assert not list(path.parent.glob(".*acode-tmp"))


# Looking.


@pytest.mark.req("ARC-HASH-01", "ARC-HASH-02")
def test_artifacts_are_hashed_below_the_workspace_and_never_through_a_link(workspace: Path, tmp_path: Path) -> None:
    put(workspace, "tmp/a.md", b"report")
    put(tmp_path, "outside/secret.md", b"report")
    (workspace / "tmp" / "link.md").symlink_to(workspace / "tmp" / "a.md")
    (workspace / "dir").symlink_to(tmp_path / "outside")
    os.mkfifo(workspace / "tmp" / "pipe")
    whole = artifact(workspace, "tmp/a.md")
    assert (whole.kind, whole.sha256) == ("file", hashlib.sha256(b"report").hexdigest())
    assert artifact(workspace, str(workspace / "tmp" / "a.md")) == whole
    kinds = {path: artifact(workspace, path).kind for path in ("tmp/no.md", "tmp/a.md/x", "tmp", "tmp/", "tmp/link.md")}
    assert kinds == {
        "tmp/no.md": "missing",
        "tmp/a.md/x": "missing",
        "tmp": "directory",
        "tmp/": "directory",
        "tmp/link.md": "unsafe",
    }
    for path in ("dir/secret.md", "../outside/secret.md", str(tmp_path / "outside" / "secret.md"), "tmp/pipe", "a\0b"):
        assert artifact(workspace, path).kind == "unsafe"


@pytest.mark.req("ARC-04")
def test_a_process_is_alive_dead_or_a_zombie_and_its_number_may_be_text() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert process(child.pid).alive
        assert process(str(child.pid)).alive
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet looked at: a zombie
        assert not process(child.pid).alive
    assert not process(child.pid).alive
    useless: list[object] = [None, "", "abc", 0, -1, True, 2**40, 1.5, [], "１"]
    for nothing in useless:
        assert process(nothing).pid is None


ASK = """
import os, sys
from acode.formats.arc.surroundings import process
if os.geteuid() == 0:
    os.setuid(65534)
try:
    os.kill(int(sys.argv[1]), 0)
    print("may signal it")
except PermissionError:
    print("alive" if process(int(sys.argv[1])).alive else "dead")
"""


@pytest.mark.req("ARC-04")
def test_a_process_that_we_may_not_signal_is_alive() -> None:
    """`kill -0 … || dead`, as the seed has it, claims the run of every other user."""
    pid = os.getpid() if os.geteuid() == 0 else 1
    asked = subprocess.run([sys.executable, "-c", ASK, str(pid)], check=True, capture_output=True, text=True)
    assert asked.stdout.strip() == "alive"


@pytest.mark.req("ARC-03", "ARC-06")
def test_the_config_directory_is_the_callers_and_canonical(workspace: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "alias").symlink_to(real)
    assert resolve_config_dir({"HOME": str(tmp_path)}) == str(tmp_path / ".claude")
    assert resolve_config_dir({"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": ""}) == str(tmp_path / ".claude")
    assert resolve_config_dir({"HOME": "/", "CLAUDE_CONFIG_DIR": str(tmp_path / "alias")}) == str(real)
    checkpoint = read(put_run(workspace, arc(config_dir=str(real))))
    facts = look(checkpoint, config_dir=str(tmp_path / "alias"), own_pid=os.getpid())
    assert diagnose(checkpoint, NOW, facts).refusals == ()  # the seed compares the spellings, and aborts


@pytest.mark.req("ARC-ORPHAN-06", "ARC-ORPHAN-09")
def test_the_state_files_of_all_seven_kinds_are_looked_at_and_no_others(workspace: Path) -> None:
    kinds = ("work", "review", "mend", "audit", "forge", "gap-fix", "inspect")
    for kind in kinds:
        put(workspace, f"tmp/.rune-{kind}-1.json", json.dumps({"status": "active"}))
    put(workspace, "tmp/.rune-other-1.json", "{}")
    put(workspace, "tmp/.rune-work-2.json", "{torn")
    put(workspace, "tmp/.rune-work-3.txt", "{}")
    (workspace / "tmp" / ".rune-work-4.json").symlink_to(workspace / "tmp" / ".rune-work-1.json")
    found = {state.path: state for state in state_files(workspace)}
    readable = {path for path, state in found.items() if state.document is not None}
    assert readable == {f"tmp/.rune-{kind}-1.json" for kind in kinds}
    assert set(found) - readable == {"tmp/.rune-work-2.json", "tmp/.rune-work-4.json"}


def test_a_gap_fix_file_has_the_owner_of_the_run_it_belongs_to(workspace: Path) -> None:
    put_run(workspace, arc(owner_pid=str(os.getpid())), "arc-live")
    put(workspace, "tmp/.rune-gap-fix-1.json", json.dumps({"status": "active", "id": "arc-live"}))
    put(workspace, "tmp/.rune-gap-fix-2.json", json.dumps({"status": "active", "id": "../../x"}))
    first, second = state_files(workspace)
    assert (first.owner.pid, first.owner.alive) == (os.getpid(), True)
    assert second.owner.pid is None


# A dry run.


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def test_a_dry_run_changes_nothing_on_disk(workspace: Path, tmp_path: Path) -> None:
    """Everything that a resume would change is there to be changed: index, teams, state files, contexts, checkpoint."""
    config = tmp_path / "config"
    put(config, "teams/team-1/config.json", "{}")
    put(config, "tasks/team-1/1.json", "{}")
    put(workspace, "src/a.py", "def keep_me():\n    pass\n")
    put(workspace, "src/b.py", "b = 1\n")
    git(workspace, "init", "-q", "-b", "main")
    git(workspace, "add", ".")
    git(workspace, "commit", "-q", "-m", "first")
    sha = git(workspace, "rev-parse", "HEAD").strip()
    put(workspace, "plans/a.md", f"---\ngit_sha: {sha}\nbranch: main\n---\n`src/a.py` `keep_me` `gone_name`\n")
    put(workspace, "src/a.py", "def keep_me():\n    return 1\n")
    touched(workspace / "src" / "b.py", 1)  # the same content with another time: git would refresh its index
    put(workspace, CONTEXT_PATH, context(files=("src/a.py",)))
    put(workspace, "tmp/.rune-work-1.json", json.dumps({"status": "active"}))
    put(workspace, "tmp/a.md", "changed")
    value = arc(
        suspended(task(), status="in_progress")
        | {"forge": {"status": "completed", "artifact": "tmp/a.md", "artifact_hash": "0" * 64}}
    )
    value["phases"]["work"]["team_name"] = "team-1"
    path = put_run(workspace, {**value, "schema_version": 15})
    before = tree(tmp_path)

    (found,) = locate(workspace)
    checkpoint = read(found.path)
    diagnosis = diagnose(checkpoint, NOW, look(checkpoint, config_dir=str(config), own_pid=os.getpid()))

    assert tree(tmp_path) == before
    shown = diagnosis.as_json()
    assert shown["checkpoint_path"] == path.relative_to(workspace).as_posix()
    assert [demotion["phase"] for demotion in shown["demoted"]] == ["forge"]
    assert shown["orphans_cleaned"] == ["team-1"]
    assert shown["stale_state_files"] == ["tmp/.rune-work-1.json"]
    assert shown["suspended"]["7"]["action"] == "inject"
    assert (shown["schema_from"], shown["schema_to"], shown["next_phase"]) == (15, 19, "forge")
    signals = (diagnosis.freshness.result or {})["signals"]
    assert signals["identifier_loss"] == {"ids_checked": 2, "lost": 1, "normalized": 0.5}
    assert signals["commit_distance"]["raw"] == 0


def test_drift_is_measured_with_real_commits(workspace: Path) -> None:
    put(workspace, "src/a.py", "def old_name():\n    pass\n")
    git(workspace, "init", "-q", "-b", "main")
    git(workspace, "add", ".")
    git(workspace, "commit", "-q", "-m", "first")
    sha = git(workspace, "rev-parse", "HEAD").strip()
    put(workspace, "src/a.py", "def new_name():\n    pass\n")
    put(workspace, "plans/a.md", f"---\ngit_sha: {sha}\nbranch: plan\n---\n`src/a.py` `old_name`\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "-q", "-m", "second")  # the plan quotes the lost name, and does not make it found
    checkpoint = read(put_run(workspace, arc()))
    facts = look(checkpoint, config_dir=str(workspace / "c"), own_pid=1)
    assert facts.drift is not None
    assert facts.drift.sha_reachable
    assert (facts.drift.commits_since, facts.drift.changed_since) == (1, frozenset({"src/a.py", "plans/a.md"}))
    assert (facts.drift.identifiers_lost, facts.drift.current_branch) == (("old_name",), "main")
    put(workspace, "plans/a.md", f"---\ngit_sha: {'f' * 40}\n---\n")
    unreachable = look(checkpoint, config_dir=str(workspace / "c"), own_pid=1).drift
    assert unreachable is not None
    assert not unreachable.sha_reachable


@pytest.mark.parametrize("where", ["no git at all", "no commit yet"])
def test_a_workspace_without_history_can_still_be_diagnosed(workspace: Path, where: str) -> None:
    if where == "no commit yet":
        git(workspace, "init", "-q")
    put(workspace, "plans/a.md", "---\ngit_sha: 0123456\n---\n")
    put(workspace, CONTEXT_PATH, context(files=("a.py",)))
    checkpoint = read(put_run(workspace, arc(suspended(task()))))
    found = diagnose(checkpoint, NOW, look(checkpoint, config_dir=str(workspace / "c"), own_pid=1))
    assert found.as_json()["suspended"]["7"]["action"] == "advisory"
