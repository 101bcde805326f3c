"""Short forms of a step's start and end: taken where they say everything, and nothing that is unusual is dropped."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from acode.errors import UnreadableEvent
from acode.events import ENVELOPE_VERSION, Envelope, decode, encode, make_key
from acode.events import types as ev
from acode.events.definition import Call, NamedFile, Retry, Step
from tests.builders import SESSION

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ASKED = ev.Asked(arguments="a" * 64, digest_version=2, after="pay", version="3", ordered=True)
START = ev.StepStarted(
    step="pay#2",
    task="pay#2",
    kind="call",
    attempt=1,
    key=make_key(SESSION, "pay#2", 1),
    action_digest="",
    boot_id="b",
    asked=ASKED,
    definition=Step(id="pay#2", action=Call(function="shop:pay")),
    shown="7",
)
END = ev.StepCompleted(
    step="pay#2", task="pay#2", attempt=1, key=START.key, duration_ms=4, result={"v": "paid"}, start=6
)

UNUSUAL_START: dict[str, Any] = {
    "step": "refund",
    "task": "shop",
    "kind": "model",
    "attempt": 2,
    "key": "another key",
    "action_digest": "0" * 64,
    "idempotent": True,
    "boot_id": "another boot",
    "place_made": True,
    "before": (ev.PreImage(path="a.txt", kind="absent"),),
    "before_complete": False,
    "astray": ("link",),
    "after_sha256": "1" * 64,
    "after_mode": 0o644,
    "target": {"database": "shop"},
    "asked": None,
    "definition": None,
    "definition_blob": "2" * 64,
    "shown": "",
    "performer": ev.Performer(pid=1, started=1.0, boot_id="b"),
    "call": ev.ToolCall(id="c", tool="shell"),
}
UNUSUAL_ASKED: dict[str, Any] = {"arguments": "b", "digest_version": 1, "after": None, "version": "", "ordered": False}
ODD_DIGESTS = ("", "b", "A" * 64, "a" * 63, "a b " * 16, "0x" * 32, "é" * 64)
UNUSUAL_STEP: dict[str, Any] = {
    "id": "refund",
    "action": Call(function="shop:refund"),
    "idempotent": True,
    "timeout_s": 3.0,
    "retry": Retry(attempts=2),
    "undo": "true",
    "title": "Pay",
}
UNUSUAL_CALL: dict[str, Any] = {
    "function": "shop:refund",
    "undo": "shop:take_back",
    "files": (NamedFile(path="a.txt"),),
    "more": True,
}
UNUSUAL_END: dict[str, Any] = {
    "step": "refund",
    "task": "shop",
    "attempt": 2,
    "key": "another key",
    "duration_ms": 0,
    "settled": True,
    "output": ev.Output(tail="done"),
    "files": (ev.FileState(path="a.txt", sha256="3" * 64, mode=0o100644),),
    "touched": ("a.txt",),
    "unrecorded": 1,
    "result": None,
    "asked": ASKED,
    "spent": ev.Spent(input_tokens=1, output_tokens=1),
    "start": 3,
}


def said(event: Any, seq: int = 7) -> Envelope:
    return Envelope(
        v=ENVELOPE_VERSION,
        session_id=SESSION,
        seq=seq,
        at=AT,
        actor="system",
        key_id="",
        event=event,
    )


def read_back(event: Any) -> Any:
    return decode(encode(said(event)), SESSION, 7).event


CHANGED_STARTS = {
    **{name: msgspec.structs.replace(START, **{name: value}) for name, value in UNUSUAL_START.items()},
    **{
        f"asked.{name}": msgspec.structs.replace(START, asked=msgspec.structs.replace(ASKED, **{name: value}))
        for name, value in UNUSUAL_ASKED.items()
    },
    **{
        f"definition.{name}": msgspec.structs.replace(
            START, definition=msgspec.structs.replace(START.definition, **{name: value})
        )
        for name, value in UNUSUAL_STEP.items()
    },
    **{
        f"definition.action.{name}": msgspec.structs.replace(
            START,
            definition=msgspec.structs.replace(
                START.definition, action=msgspec.structs.replace(START.definition.action, **{name: value})
            ),
        )
        for name, value in UNUSUAL_CALL.items()
    },
}


def test_plain_steps_are_stored_in_their_short_forms_and_come_back_whole() -> None:
    assert b'"type":"step_started","calls":"shop:pay"' in encode(said(START))
    assert b'"type":"step_completed","step":"pay#2","ms":4,"result"' in encode(said(END))
    assert (read_back(START), read_back(END)) == (START, END)


@pytest.mark.parametrize("name", CHANGED_STARTS)
def test_a_start_with_anything_unusual_comes_back_with_it(name: str) -> None:
    assert CHANGED_STARTS[name] != START
    assert read_back(CHANGED_STARTS[name]) == CHANGED_STARTS[name]


@pytest.mark.parametrize("digits", [*ODD_DIGESTS, ASKED.arguments, "00" * 32])
def test_a_digest_comes_back_digit_by_digit(digits: str) -> None:
    asked = msgspec.structs.replace(ASKED, arguments=digits)
    assert read_back(msgspec.structs.replace(START, asked=asked)).asked == asked


def test_a_digest_is_stored_as_its_bytes_and_read_in_digits_too() -> None:
    """Rows with the digits were written before the bytes were."""
    body = encode(said(START))
    assert ASKED.arguments.encode() not in body and len(body) < 320
    digest = b64encode(bytes.fromhex(ASKED.arguments))
    in_digits = body.replace(b'"args":"%b"' % digest, b'"arguments":"%b"' % ASKED.arguments.encode())
    assert len(in_digits) > len(body) and decode(in_digits, SESSION, 7).event == START


def test_a_row_with_a_broken_digest_is_unreadable() -> None:
    body = encode(said(START)).replace(b'"args":"', b'"args":"!')
    with pytest.raises(UnreadableEvent):
        decode(body, SESSION, 7)


FORMER_FORMS = {
    "in order": ({"after": "pay"}, b'"function":"shop:pay","step":"pay#2","digest":"%b","after":"pay"'),
    "without order": (
        {"after": None, "ordered": False},
        b'"function":"shop:pay","step":"pay#2","digest":"%b","unordered":true',
    ),
    "the first": ({"after": None}, b'"function":"shop:pay","step":"pay#2","digest":"%b"'),
    "in digits": ({"after": None}, b'"function":"shop:pay","step":"pay#2","arguments":"' + b"a" * 64 + b'"'),
}


@pytest.mark.parametrize("name", FORMER_FORMS)
def test_the_short_form_of_earlier_rows_is_read(name: str) -> None:
    changed, form = FORMER_FORMS[name]
    digest = b64encode(bytes.fromhex(ASKED.arguments))
    row = b'{"v":3,"at":"2026-01-01T12:00:00Z","event":{"type":"step_started",%b,"boot_id":"b","shown":"7"}}'
    asked = msgspec.structs.replace(ASKED, version="", **changed)
    body = row % (form % digest if b"%b" in form else form)
    assert decode(body, SESSION, 7).event == msgspec.structs.replace(START, asked=asked)


@pytest.mark.parametrize("after", ["pay", None])
@pytest.mark.parametrize("ordered", [True, False])
def test_the_order_of_a_start_comes_back_and_is_stored_only_where_it_is_unusual(
    after: str | None, ordered: bool
) -> None:
    asked = msgspec.structs.replace(ASKED, after=after, ordered=ordered)
    start = msgspec.structs.replace(START, asked=asked)
    assert read_back(start) == start
    assert (b'"ordered"' in encode(said(start))) == (ordered != (after is not None))


def test_the_duration_of_earlier_rows_is_read() -> None:
    body = encode(said(END)).replace(b'"ms":4', b'"duration_ms":4')
    assert decode(body, SESSION, 7).event == END


@pytest.mark.parametrize("name", UNUSUAL_END)
def test_an_end_with_anything_unusual_comes_back_with_it(name: str) -> None:
    changed = msgspec.structs.replace(END, **{name: UNUSUAL_END[name]})
    assert changed != END and read_back(changed) == changed


@pytest.mark.parametrize(
    ("cls", "unusual"),
    [
        (ev.StepStarted, UNUSUAL_START),
        (ev.Asked, UNUSUAL_ASKED),
        (Step, UNUSUAL_STEP),
        (Call, UNUSUAL_CALL),
        (ev.StepCompleted, UNUSUAL_END),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_this_file_knows_every_field_that_a_short_form_could_drop(cls: type[Any], unusual: dict[str, Any]) -> None:
    assert {field.name for field in msgspec.structs.fields(cls)} == set(unusual)
