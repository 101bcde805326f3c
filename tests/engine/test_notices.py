"""What programs read of a notice is a promise: names, fields and their order stay as they were first printed."""

from __future__ import annotations

import typing
from datetime import UTC, datetime

import msgspec
import pytest

from acode.engine import notices
from acode.engine.environment import Check, Finding, Report
from acode.engine.lease_state import SyncState
from acode.engine.remediation import Remedy
from acode.events import types as ev
from acode.lock import owner
from acode.workspace import ChangedFile

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CHANGED = ChangedFile(path="a.txt", change="modified", modified_at=None, expected_hash="1", found_hash="2")
REPORT = Report(
    valid=False,
    total_files=2,
    errors=(Finding(code="C", message="m"),),
    recommendation="r",
    changed_files=(CHANGED,),
    checks=(Check(name="n", ok=True),),
)
REMEDY = Remedy(
    failed_step="t.1", command=None, exit_status=3, message="m", last_output=("o",), changed_files=(), checklist=("c",)
)
STARTED = ev.ResumeStarted(
    scenario="clean",
    interruption_class=ev.InterruptionClass.TIMEOUT,
    point_seq=4,
    replay_last=9,
    owner=owner(),
)
PUBLIC: list[tuple[notices.Body, str]] = [
    (
        notices.SessionStart(title="T", short_id="abc", tasks=1, steps=2, workspace="/w"),
        '["session_start",{"title":"T","short_id":"abc","tasks":1,"steps":2,"resumed":false,"workspace":"/w"}]',
    ),
    (
        notices.SessionStart(title="T", short_id="abc", tasks=0, steps=0, workspace="/w", source="arc", run_id="r"),
        (
            '["session_start",{"title":"T","short_id":"abc","tasks":0,"steps":0,"resumed":false,"workspace":"/w",'
            '"source":"arc","run_id":"r"}]'
        ),
    ),
    (
        notices.SessionReopened(title="T", short_id="abc", state="PAUSED", tasks=1, steps=2),
        '["session_start",{"title":"T","short_id":"abc","state":"PAUSED","resumed":true,"tasks":1,"steps":2}]',
    ),
    (notices.RunWarning(message="m"), '["warning",{"message":"m"}]'),
    (notices.Backup(path="p"), '["backup",{"path":"p"}]'),
    (
        notices.Repaired(kind="k", quarantined=[3], backup="b"),
        '["repaired",{"kind":"k","quarantined":[3],"backup":"b"}]',
    ),
    (notices.PlanChanged(title="T", tasks=1), '["plan_changed",{"title":"T","tasks":1}]'),
    (notices.PlanChanged(title="T", tasks=1, text="x"), '["plan_changed",{"title":"T","tasks":1,"text":"x"}]'),
    (
        notices.PlanReplaced(
            previous_digest="a", plan_digest="b", kept=["t.1"], replaced=["t.2"], added=[], removed=[], asked_again=[]
        ),
        (
            '["plan_replaced",{"previous_digest":"a","plan_digest":"b","kept":["t.1"],"replaced":["t.2"],"added":[],'
            '"removed":[],"asked_again":[]}]'
        ),
    ),
    (notices.TaskCompleted(duration_ms=5), '["task_completed",{"duration_ms":5}]'),
    (
        notices.Escalated(reason_code="r", context={"step": "t.1"}, remedy=REMEDY),
        (
            '["escalated",{"reason_code":"r","context":{"step":"t.1"},"remedy":{"failed_step":"t.1","command":null,'
            '"exit_status":3,"message":"m","last_output":["o"],"changed_files":[],"checklist":["c"]}}]'
        ),
    ),
    (
        notices.SyncChanged(change="degraded", pending_events=2, reason=None),
        '["sync_changed",{"change":"degraded","pending_events":2,"reason":null}]',
    ),
    (
        notices.ResumeDecision(
            eligible=True, reason_code="r", attempt=1, max_attempts=3, cooldown_seconds_remaining=0, advice=["a"]
        ),
        (
            '["resume_decision",{"eligible":true,"reason_code":"r","attempt":1,"max_attempts":3,'
            '"cooldown_seconds_remaining":0,"advice":["a"]}]'
        ),
    ),
    (
        notices.EnvironmentChecked(report=REPORT),
        (
            '["environment",{"report":{"valid":false,"total_files":2,"errors":[{"code":"C","message":"m"}],"warnings":[],'
            '"recommendation":"r","changed_files":[{"path":"a.txt","change":"modified","modified_at":null,'
            '"expected_hash":"1","found_hash":"2","suspicious":[],"session_id":null,"step":null}],'
            '"checks":[{"name":"n","ok":true,"detail":""}]}}]'
        ),
    ),
    (notices.ChangesAccepted(paths=["a"]), '["changes_accepted",{"paths":["a"]}]'),
    (
        notices.ResumeStarted(
            started=STARTED,
            state="EXECUTING",
            skipped_task_ids=["t"],
            skipped_step_ids=["t.1"],
            remaining_step_ids=["t.2"],
            sync=SyncState(status="degraded", pending_events=1, last_attempt_at=AT, reason="no"),
            task_ms={"t": 7},
        ),
        (
            '["resume_started",{"scenario":"clean","interruption_class":"timeout","counted":false,"automatic":false,'
            '"checkpoint_id":0,"point_seq":4,"point_event_id":null,"skipped_tasks":0,"skipped_steps":0,'
            '"remaining_steps":0,"in_progress_action":null,"environment_valid":true,"replay_first":1,"replay_last":9,'
            '"state":"EXECUTING","skipped_task_ids":["t"],"skipped_step_ids":["t.1"],"remaining_step_ids":["t.2"],'
            '"sync_status":"degraded","sync":{"status":"degraded","pending_events":1,'
            '"last_attempt_at":"2026-01-02T03:04:05Z","next_retry_in_seconds":null,"reason":"no","standing":"owner"},'
            '"task_ms":{"t":7}}]'
        ),
    ),
    (
        notices.ResumeCompleted(state="COMPLETED", executed_steps=1, skipped_steps=2),
        '["resume_completed",{"state":"COMPLETED","executed_steps":1,"skipped_steps":2}]',
    ),
    (
        notices.StepSettled(kind="run", outcome="unknown", action="ask", evidence="e"),
        '["step_settled",{"kind":"run","outcome":"unknown","action":"ask","evidence":"e"}]',
    ),
    (notices.StepWaiting(evidence="e"), '["step_waiting",{"evidence":"e"}]'),
    (
        notices.StepRolledBack(restored=["a"], saved=1, saved_until_end=0),
        '["step_rolled_back",{"restored":["a"],"saved":1,"saved_until_end":0}]',
    ),
    (
        notices.StepStarted(kind="run", title="T", attempt=1, number=1, of=2, key="k"),
        '["step_started",{"kind":"run","title":"T","attempt":1,"number":1,"of":2,"key":"k"}]',
    ),
    (
        notices.StepStarted(kind="call", title="T", attempt=1, shown="f(1)", number=0, of=0, key="k"),
        '["step_started",{"kind":"call","title":"T","attempt":1,"shown":"f(1)","number":0,"of":0,"key":"k"}]',
    ),
    (notices.StepOutput(text="x"), '["step_output",{"text":"x"}]'),
    (notices.StepWarning(message="m"), '["step_warning",{"message":"m"}]'),
    (notices.StepRetry(after_seconds=1.5, attempt=2), '["step_retry",{"after_seconds":1.5,"attempt":2}]'),
    (
        notices.StepCompleted(duration_ms=5, settled=False, touched=["a"], done=1, total=2),
        '["step_completed",{"duration_ms":5,"settled":false,"touched":["a"],"done":1,"total":2}]',
    ),
    (
        notices.StepFailed(reason="exit", message="m", exit_status=1, output_tail="o", touched=[]),
        '["step_failed",{"reason":"exit","message":"m","exit_status":1,"output_tail":"o","touched":[]}]',
    ),
    (notices.FinishedStepRolledBack(title="T"), '["step_taken_back",{"title":"T"}]'),
    (notices.ApprovalRequest(question="q", covers=["c"]), '["approval_request",{"question":"q","covers":["c"]}]'),
    (
        notices.ContextCompacted(reason="refused", messages=4),
        '["context_compacted",{"reason":"refused","messages":4}]',
    ),
]


@pytest.mark.parametrize(("body", "printed"), PUBLIC, ids=[type(body).__name__ for body, _ in PUBLIC])
def test_a_notice_keeps_its_public_name_its_fields_and_their_order(body: notices.Body, printed: str) -> None:
    assert msgspec.json.encode(notices.public_form(body)).decode() == printed


def test_every_type_of_notice_has_its_public_form_on_record() -> None:
    assert {type(body) for body, _ in PUBLIC} == set(typing.get_args(notices.Body))


def test_text_that_is_no_unicode_passes_through_the_public_form() -> None:
    body = notices.StepFailed(reason="exit", message="\udc80", exit_status=1, output_tail="", touched=["\udcff"])
    assert notices.public_form(body)[1]["touched"] == ["\udcff"]
