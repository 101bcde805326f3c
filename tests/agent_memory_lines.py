"""Lines of agent-memory logs to draw from: ordinary events, and whatever else may stand in an event file."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

TASKS = ["T1", "T2", "T3", " T1 ", "", None, 7]
TYPES = [
    "task_created",
    "task-claimed",
    "task_started",
    "Task_Started",
    "task_verified",
    "task_completed",
    "task_failed",
    "task_blocked",
    "task_pondered",
    "tool_call",
    "phase_transition",
    "phase-gate-passed",
    "run_completed",
    "run_failed",
    "session_resumed",
    "plan_created",
    "bootstrap_begun",
]
STAMPS = ["2026-01-15T10:00:{:02d}Z", "2026-01-15T11:00:{:02d}+01:00", "2026-01-15T10:00:{:02d}.250Z"]
HOSTILE = [
    b"",
    b"  ",
    b"nope",
    b"[]",
    b"null",
    b"{}{}",
    b'{"type":"task_started"',
    b'\xef\xbb\xbf{"type":"task_started","task_id":"T1","event_id":"bom","timestamp":"2026-01-15T10:00:30Z"}',
    b'{"type":"task_started","task_id":["T1"],"event_id":"odd","timestamp":"2026-01-15T10:00:30Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"then","timestamp":"1969-12-31T23:59:59Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"late","timestamp":"9999-12-31T23:59:59-23:00"}',
    b'{"type":"task_started","task_id":"T1","event_id":"plain","timestamp":"2026-01-15T10:00:30"}',
    b'{"type":"task_started","task_id":"T1","event_id":"number","timestamp":1768471230}',
    b'{"type":"task_started","task_id":"T1","event_id":"none"}',
    b'{"type":"task_started","task_id":"T1","timestamp":"2026-01-15T10:00:30Z"}',
    b'{"type":"","event_id":"e","timestamp":"2026-01-15T10:00:30Z"}',
    b"\xff\xfe",
    b'{"type":"task_started","task_id":"T1","event_id":"bytes","actor":"\xff","timestamp":"2026-01-15T10:00:30Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"raw","details":"\xff","timestamp":"2026-01-15T10:00:30Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"half","details":"\\ud800","timestamp":"2026-01-15T10:00:30Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"much","to_phase":1e999,"timestamp":"2026-01-15T10:00:30Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"odd and much","actor":7,"x":1e999}',
    b'{"type":"task_failed","task_id":"T1","event_id":"deep","details":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    (
        b'{"type":"task_failed","type":"task_blocked","task_id":"T2","task_id":"T1","event_id":"a","event_id":"twice",'
        b'"timestamp":"2026-01-15T10:00:30Z"}'
    ),
    b'{"type":"task_started","task_id":"T1","event_id":"no such day","timestamp":"2026-02-30T10:00:30Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"no such hour","timestamp":"2026-01-15T24:00:30Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"no such minute","timestamp":"2026-01-15T10:60:30Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"no such second","timestamp":"2026-01-15T10:00:60Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"lines","timestamp":"2026-01-15T10:00:30Z\\n"}',
    b'{"type":"task_started","task_id":"T1","event_id":"digits","timestamp":"2026-01-15T10:00:30.1234567Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"' + b"i" * 200 + b'","timestamp":"2026-01-15T10:00:30Z"}',
    b'{"type":"task_started","task_id":"T1","event_id":"return","timestamp":"2026-01-15T10:00:30Z"}\r',
    None,
]


@st.composite
def ordinary(draw: st.DrawFn) -> list[bytes | None]:
    """Events in order of time, several at once, of few tasks."""
    second, stamp, found = draw(st.integers(0, 20)), draw(st.sampled_from(STAMPS)), list[bytes | None]()
    for number in range(draw(st.integers(1, 25))):
        second += draw(st.sampled_from([0, 0, 1, 3]))
        event: dict[str, Any] = {
            "type": draw(st.sampled_from([*TYPES, *["task_started", "task_failed"] * 8])),
            "timestamp": stamp.format(min(second, 59)),
            "event_id": draw(st.sampled_from([f"e{number}", f"e{25 - number}", "e1", None])),
            "actor": draw(st.sampled_from(["executor", "acode", "", None])),
            "task_id": draw(st.sampled_from([*TASKS, *["T1", "T2"] * 4])),
            "to_phase": draw(st.sampled_from([None, 2, "3", 99])),
            "details": draw(st.sampled_from([None, {"title": "A title"}, {"title": ""}, {"error": "x"}, "text"])),
        }
        found.append(json.dumps({name: value for name, value in event.items() if value is not None}).encode())
    return found


logs = st.lists(ordinary() | st.lists(st.sampled_from(HOSTILE), max_size=2), max_size=6)
