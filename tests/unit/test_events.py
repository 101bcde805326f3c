"""Events: bytes and back, keys that parse back, digests that differ where the meaning does."""

from __future__ import annotations

import hashlib
import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.errors import AcodeError, CannotContinue, EventTooLarge, NewerSchema, UnreadableEvent
from acode.events import ENVELOPE_VERSION, EVENT_BYTES_MAX, Envelope, decode, encode, make_key, parse_key, type_of
from acode.events import types as ev
from acode.events.codec import TYPES
from acode.events.definition import (
    Call,
    Commit,
    Model,
    Read,
    Run,
    Sql,
    Step,
    Task,
    Write,
    definition_digest,
    describe,
    digest,
    execution_order,
)
from tests.builders import (
    OTHER_SESSION,
    SESSION,
    awaiting,
    completed,
    created,
    decided,
    envelope,
    failed,
    finished,
    gate,
    paused,
    plan,
    read,
    resumed,
    run,
    settled,
    started,
    task,
    task_done,
    write,
)

FILE = ev.FileState(path="a.txt", sha256="0" * 64, size=3, mtime_ns=1, mode=0o644, inode=7, ctime_ns=2)
IMAGE = ev.PreImage(path="a.txt", kind="file", sha256="0" * 64, mode=0o644, size=3, blob="0" * 64)
EVERY_EVENT: list[Any] = [
    *created(read("a"), write("b"), run("c", probe="test -f x", outputs=("x",), env={"K": "V"}), gate("d")),
    awaiting("d"),
    paused("timeout", "timeout", step="main.c", message="took too long"),
    finished(),
    ev.SessionFailed(reason="abandoned", step="main.c"),
    ev.SessionCancelled(reason="not wanted"),
    ev.FilesSeen(step="main.c", attempt=1, files=(ev.FileState(path="x", sha256="1" * 64),)),
    started("b", kind="write", before=(IMAGE,), after_sha256="1" * 64, after_mode=0o600, target={"n": [1, None]}),
    completed("b", files=(FILE,), output=ev.Output(blob="2" * 64, bytes=9, tail="ok\n"), result={"deep": [1.5, "é"]}),
    *failed("c", exit_status=2, output=ev.Output(tail="no"), touched=("x",)),
    settled("c", "unknown"),
    ev.FailureHandled(step="main.c"),
    task_done(),
    ev.ApprovalGranted(step="main.d", question="Go?", action_digest="d", note="fine"),
    ev.ApprovalDenied(step="main.d", question="Go?", action_digest="d"),
    *resumed(),
    decided(False),
    ev.ResumeCompleted(executed_steps=1, skipped_steps=2),
    ev.ResumeWithdrawn(step="a.1", evidence="still running, pid 7"),
    ev.ValidationSkipped(reason="none given"),
    ev.ChangesAccepted(files=(FILE,)),
    ev.CheckpointCreated(label="before lunch"),
    ev.LockBroken(generation=2, owner={"pid": 3}),
    ev.EscalatedToPerson(reason_code="resume_attempt_limit_reached", attempt=3, context={"step": "main.c"}),
    ev.Forced(what="attempt limit"),
    ev.Quarantined(seqs=(4, 5), reason="damaged", steps=("main.c",)),
    ev.PlanChanged(plan_blob="3" * 64, plan_digest="d", tasks=2, steps=3, reason="planned by the model"),
    ev.PlanReplaced(
        plan_blob="4" * 64,
        plan_digest="e",
        previous_digest="d",
        title="A plan",
        tasks=2,
        steps=4,
        tasks_done=1,
        plan_path="/home/you/plan.yml",
        plan_sha256="5" * 64,
        kept=2,
        replaced=("t.2",),
        added=("t.3",),
        reopened=("t.ask",),
    ),
    ev.RollbackStarted(step="main.c", attempt=1, saved=(IMAGE,)),
    ev.RepeatDenied(step="bash-4", arguments="ab" * 32),
    ev.Noted(what="checkpoint repaired", data={"schema_from": 6}),
    ev.UndoSettled(step="main.b", attempt=1, outcome=ev.Settled.APPLIED, note="I looked"),
    ev.UndoStarted(step="main.b", attempt=1, key=f"{SESSION}:main.b:1", to="main.a"),
    ev.StepsRolledBack(to="main.a", steps=("main.b",), tasks=("main",), files=(FILE,), kept=("mine.txt",)),
    ev.ContextCompacted(step="main.ask-7", reason="long", messages=40, tokens=90_000),
]


def read_back(body: bytes) -> Envelope:
    return decode(body, SESSION, 2)


def stored(**fields: Any) -> bytes:
    """A row of the log as plain JSON, with some fields changed."""
    whole = json.loads(encode(envelope(paused(), 2)))
    return json.dumps({**whole, **fields}).encode()


def test_this_file_knows_every_event_type() -> None:
    assert {type(event) for event in EVERY_EVENT} == set(get_args(ev.Known))


@pytest.mark.parametrize("event", EVERY_EVENT, ids=type_of)
def test_every_event_comes_back_from_its_bytes(event: Any) -> None:
    before = envelope(event, 2, actor="user")
    assert read_back(encode(before)) == before


@pytest.mark.parametrize("event", EVERY_EVENT, ids=type_of)
def test_the_same_event_has_the_same_bytes(event: Any) -> None:
    assert encode(envelope(event, 2)) == encode(read_back(encode(envelope(event, 2))))


def test_fields_that_a_later_version_adds_do_not_disturb() -> None:
    body = stored(event={"type": "session_paused", "reason": "user", "weather": {"rain": True}}, colour="red")
    assert read_back(body).event == paused()


@pytest.mark.parametrize("ignorable", [True, False])
def test_a_type_that_is_not_known_is_kept_by_name(ignorable: bool) -> None:
    body = stored(event={"type": "approval_revoked", "ignorable": ignorable, "step": "main.a"})
    assert read_back(body).event == ev.Unknown(type="approval_revoked", ignorable=ignorable)
    assert read_back(body).type == "approval_revoked"


UNREADABLE: dict[str, bytes] = {
    "nothing": b"",
    "an open brace": b"{",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"text"',
    "no UTF-8": b"\xff\xfe",
    "a version alone": b'{"v":3}',
    "an older version alone": b'{"v":2}',
    "an old version alone": b'{"v":1}',
    "a version that is text": b'{"v":"2"}',
    "a version that is null": b'{"v":null}',
    "an empty object": b"{}",
    "a number that is text": stored(seq="two"),
    "a time that is none": stored(at="yesterday"),
    "no event": stored(event=None),
    "an event that is a list": stored(event=[]),
    "an event without a type": stored(event={}),
    "a type that is a number": stored(event={"type": 7}),
    "a field missing": stored(event={"type": "session_paused"}),
    "an unknown class": stored(event={"type": "session_paused", "reason": "user", "interruption": "bad luck"}),
    "an unknown outcome": stored(
        event={"type": "step_settled", "step": "a.1", "attempt": 1, "outcome": "perhaps", "evidence": ""}
    ),
    "a deep event": b'{"v":3,"event":' + b"[" * 100_000,
    "a deep list": b"[" * 100_000 + b"]" * 100_000,
    "a deep field": stored().replace(b'"reason"', b'"deep":' + b"[" * 100_000 + b"]" * 100_000 + b',"reason"'),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_an_error_by_name(body: bytes) -> None:
    with pytest.raises(
        UnreadableEvent, match=r"^an event (cannot be parsed|of envelope version 1 has no field)"
    ) as caught:
        read_back(body)
    assert caught.value.exit_code == 20
    assert "session repair" in caught.value.hint


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_at_all_lead_to_a_traceback(body: bytes) -> None:
    with pytest.raises(AcodeError):
        read_back(body)


@pytest.mark.parametrize("version", [0, -1, ENVELOPE_VERSION + 1, 99])
def test_an_envelope_of_another_age_asks_for_an_upgrade_whatever_its_shape(version: int) -> None:
    for body in (stored(v=version), json.dumps({"v": version, "everything": "else"}).encode()):
        with pytest.raises(NewerSchema, match=f"version {version}") as caught:
            read_back(body)
        assert caught.value.hint == "Upgrade acode."


@pytest.mark.parametrize("event", [started("a"), completed("a"), paused()], ids=type_of)
def test_an_envelope_of_another_age_is_refused_although_its_shape_is_todays(event: Any) -> None:
    """The events of which a log has thousands are read in one go, and held to the same rule."""
    body = encode(envelope(event, 7)).replace(b'"v":3', b'"v":4')
    with pytest.raises(NewerSchema, match=r"^event 7 has envelope version 4, this acode knows 3$"):
        decode(body, SESSION, 7)


def test_an_event_behind_a_long_name_is_read_all_the_same() -> None:
    before = envelope(started("a"), 2, actor="x" * 300)
    assert read_back(encode(before)) == before


def test_a_type_that_is_not_known_is_kept_by_name_in_the_bytes_that_acode_writes_too() -> None:
    body = encode(envelope(paused(), 2)).replace(b"session_paused", b"session_dreaming")
    assert read_back(body).event == ev.Unknown(type="session_dreaming")


def test_a_type_that_is_no_text_is_an_error_by_name() -> None:
    body = encode(envelope(started("a"), 2)).replace(b"step_started", b"step_\xffstarted")
    with pytest.raises(UnreadableEvent):
        read_back(body)


def version_1(event: Any, **fields: Any) -> bytes:
    inner = json.loads(msgspec.json.encode(event))
    outer = {"v": 1, "session_id": SESSION, "seq": 2, "event_id": "e", "at": "2026-01-01T12:00:00Z", "key_id": "k"}
    return json.dumps({**outer, "by": "user", **inner, **outer, **fields}).encode()


@pytest.mark.req("REGR-011c-01")
@pytest.mark.parametrize("event", [one for one in EVERY_EVENT if not isinstance(one, ev.ResumeDecision)], ids=type_of)
def test_an_event_of_envelope_version_1_is_read_as_todays(event: Any) -> None:
    assert read_back(version_1(event)) == msgspec.structs.replace(envelope(event, 2, actor="user"), named_id="e", v=2)


@pytest.mark.req("REGR-011c-01")
def test_a_decision_of_envelope_version_1_had_the_envelopes_time() -> None:
    lifted = read_back(version_1(decided(False))).event
    assert lifted == msgspec.structs.replace(decided(False), at="2026-01-01T12:00:00Z")


@pytest.mark.parametrize("name", ["by", "seq", "at", "key_id", "session_id", "event_id"])
def test_an_old_envelope_with_a_field_missing_is_unreadable(name: str) -> None:
    whole = json.loads(version_1(paused()))
    del whole[name]
    with pytest.raises(UnreadableEvent, match=f"has no field '{name}'"):
        read_back(json.dumps(whole).encode())


def test_an_unknown_type_in_an_old_envelope_is_kept_by_name() -> None:
    lifted = read_back(version_1(paused()).replace(b"session_paused", b"session_dreaming"))
    assert lifted.event == ev.Unknown(type="session_dreaming")


def test_an_event_over_the_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    def of_size(count: int) -> Envelope:
        return envelope(ev.Forced(what="x" * count), 2)

    fits = EVENT_BYTES_MAX - len(encode(of_size(0)))
    assert len(encode(of_size(fits))) == EVENT_BYTES_MAX
    with pytest.raises(EventTooLarge, match="1,048,577 bytes") as caught:
        encode(of_size(fits + 1))
    assert caught.value.hint == "Large payloads belong into a file or a blob."


def test_a_file_name_that_is_no_text_is_refused_by_name() -> None:
    with pytest.raises(UnreadableEvent, match="not Unicode"):
        encode(envelope(ev.Forced(what="\udcff"), 2))


def test_types_and_tags_are_one_to_one() -> None:
    assert len(TYPES) == len(get_args(ev.Known))
    assert {type_of(event) for event in EVERY_EVENT} == TYPES


# Keys.


@pytest.mark.req("IF-011c-08", "FR-011c-029")
@settings(deadline=None)
@given(st.sampled_from([SESSION, OTHER_SESSION]), st.from_regex(r"[a-z][a-z0-9._-]{0,40}", fullmatch=True), st.data())
def test_a_key_parses_back_into_session_step_and_attempt(session_id: str, step: str, data: st.DataObject) -> None:
    attempt = data.draw(st.integers(1, 10**9 - 1))
    assert parse_key(make_key(session_id, step, attempt)) == (session_id, step, attempt)


@pytest.mark.req("IF-011c-08")
def test_keys_are_unique_in_each_of_their_parts() -> None:
    """Should_Generate_Unique_Keys"""
    keys = {make_key(s, t, n) for s in (SESSION, OTHER_SESSION) for t in ("a.1", "a.11", "a.2") for n in (1, 11, 2)}
    assert len(keys) == 18


@pytest.mark.req("REGR-011c-03")
def test_a_key_of_the_first_format_parses_back_too() -> None:
    assert parse_key(f"{SESSION}/main.a#12") == (SESSION, "main.a", 12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:b:1",
        f"{SESSION}:main.a",
        f"{SESSION}:main.a:0",
        f"{SESSION}:main.a:-1",
        f"{SESSION}:main.a:1\n",
        f"{SESSION}:main.a:01",
        f"{SESSION}::1",
        f"{SESSION}:a:b:1",
        f"{SESSION}/main.a:1",
        f"{SESSION}/main.a#1\n",
        f" {SESSION}:main.a:1",
        f"{SESSION}:main.a:{'9' * 10}",
    ],
)
def test_a_text_that_is_no_key_parses_into_nothing(text: str) -> None:
    assert parse_key(text) is None


# Definitions.


def test_every_difference_of_a_step_is_a_difference_of_its_digest() -> None:
    steps = [
        run("a"),
        run("b"),
        run("a", "false"),
        run("a", idempotent=True),
        run("a", probe="true"),
        run("a", outputs=("x",)),
        read("a"),
        read("a", "other.txt"),
        write("a"),
        write("a", content="y"),
        gate("a"),
        gate("a", "Really?"),
        msgspec.structs.replace(run("a"), timeout_s=5.0),
    ]
    for of in (digest, definition_digest):
        assert len({of(step) for step in steps}) == len(steps)
        assert [of(step) for step in steps] == [of(step) for step in steps]


def test_integers_that_a_double_cannot_tell_apart_have_different_digests() -> None:
    assert digest([2**53]) != digest([2**53 + 1])
    assert digest({"n": 2**63}) != digest({"n": str(2**63)})
    assert digest(True) != digest(1)


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ([1, True, None, 1.5, "é"], '[1,true,null,1.5,"é"]'),
        ({"b": [], "a": {}}, '{"a":{},"b":[]}'),
        (2**53 - 1, "9007199254740991"),
        (-(2**53 - 1), "-9007199254740991"),
        (2**53, '{"$int":"9007199254740992"}'),
    ],
)
def test_a_digest_is_that_of_the_canonical_text_for_ever(value: Any, canonical: str) -> None:
    """Digests stand in logs and are compared with new ones: another text would make every plan look changed."""
    assert digest(value) == hashlib.sha256(canonical.encode()).hexdigest()


def test_tasks_that_wait_for_each_other_are_named() -> None:
    with pytest.raises(CannotContinue, match=r"wait for each other: b, c$"):
        execution_order(plan(task("a", "x"), task("b", "x", needs=["c"]), task("c", "x", needs=["b"])))


def test_the_order_of_keys_is_no_difference() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (read("a"), "Read in.txt"),
        (write("a"), "Write out.txt"),
        (run("a", "make all"), "Run make all"),
        (Step(id="a.1", action=Run(command=("make", "all"))), "Run make all"),
        (Step(id="a.1", action=Sql(file="1.sql")), "Apply 1.sql"),
        (Step(id="a.1", action=Commit(message="First\n\nmore")), "Commit First"),
        (Step(id="a.1", action=Commit(message="")), "Commit"),
        (gate("a"), "Approve: Go?"),
        (Step(id="a.1", action=Call(function="tools:fetch")), "Call tools:fetch"),
        (Step(id="a.1", action=Call(function="")), "Call"),
        (Step(id="a.1", action=Model(name="small", text="Tidy up")), "Tidy up"),
        (Step(id="a.1", action=Model(name="small")), "Ask small"),
    ],
)
def test_a_step_is_described_in_one_line(step: Step, line: str) -> None:
    assert describe(step) == line


def test_a_step_knows_its_task_and_kind() -> None:
    assert (run("build.all").task, run("build.all").kind) == ("build", "run")
    assert [Step(id="a.1", action=action).kind for action in (Read(path="x"), Write(path="x", content=""))] == [
        "read",
        "write",
    ]
    assert Task(id="a", title="A").needs == ()
