"""The report of a session: one HTML file without script that opens offline, for tickets, builds and audits.

Everything in it was read from the verified log. A log that cannot be verified makes no report: its text could be
anybody's; `acode session verify` tells the problems.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby

import msgspec

from acode.engine.preview import Preview, preview, verify
from acode.engine.workspace_store import opened
from acode.engine.world import Options, World, short
from acode.events import types as ev
from acode.store.store import Store
from acode.store.verification import Verified
from acode.text.durations import stamp
from acode.ui import static_files, views
from acode.ui.axis import Axis
from acode.ui.evidence import anchors_of, diff_of
from acode.ui.html import Html, el, join
from acode.ui.timeline import Timeline, timeline_of
from acode.ui.trail import Entry, trail_of
from acode.ui.views import StepRow, Words

STEPS_MAX = 20_000
TRAIL_ENTRIES_MAX = 5_000
OUTPUT_BYTES_READ_MAX = 1_048_576
OUTPUT_BYTES_SHOWN_MAX = 16_384
DIFF_LINES_MAX = 2_000
OPEN_FOR = ("failed", "unknown", "running", "in_flight")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    html: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report shows, read at one moment."""

    preview: Preview
    timeline: Timeline | None
    trail: list[Entry]
    verified: Verified
    outputs: dict[str, str]  # the end of what a step printed
    diff: str  # what it changed in files
    anchors: tuple[str, ...]


def make_report(world: World, text: str) -> Report:
    """The whole report of the session named `text`."""
    found = preview(world, text, Options(actor="system"), probes=False)
    session_id = found.session.session_id
    _, verified = verify(world, session_id)
    with opened(world, look_only=True) as store:
        envelopes = [envelope for envelope, _, _ in store.events(session_id)]
        timeline = timeline_of(envelopes)
        seen = Seen(
            preview=found,
            timeline=timeline,
            trail=trail_of(envelopes),
            verified=verified,
            outputs=dict(outputs_of(store, session_id, timeline)),
            diff=diff_of(world, store, found.session),
            anchors=anchors_of(world, session_id),
        )
    return Report(session_id=session_id, html=document(seen, Words(world.redactor), world.clock()))


def outputs_of(store: Store, session_id: str, timeline: Timeline | None) -> Iterator[tuple[str, str]]:
    """The end of the output of every step that printed something."""
    for times in timeline.steps.values() if timeline is not None else ():
        output = times.attempts[-1].output if times.attempts else None
        if output is not None and (tail := end_of(store, session_id, output)).strip():
            yield times.id, tail


def end_of(store: Store, session_id: str, output: ev.Output) -> str:
    """From the kept bytes where they are, else what the event itself holds."""
    if output.blob is None or output.bytes > OUTPUT_BYTES_READ_MAX or not store.has_blob(session_id, output.blob):
        return output.tail
    return store.blob(session_id, output.blob)[-OUTPUT_BYTES_SHOWN_MAX:].decode(errors="replace")


# The document.


def document(seen: Seen, words: Words, now: datetime) -> str:
    found, session = seen.preview, seen.preview.session
    rows = views.rows_of(session, seen.timeline, words)
    axis = views.axis_of(seen.timeline, now, running=found.lock.held)
    title = f"{words.line(session.title)} · {short(session.session_id)} · acode report"
    body = join(
        el("header", views.head(found, words, now)),
        el(
            "main",
            views.needs(found, words),
            steps_section(rows, axis, seen.outputs, words),
            files_section(seen.diff, words),
            trail_section(seen.trail, words),
            el("section", el("h2", "Audit"), views.audit(seen.verified, seen.anchors, words), id="audit"),
        ),
        el("footer", f"Made by acode at {stamp(now)}. Output and titles are redacted."),
    )
    return page(title, body)


def page(title: str, body: Html) -> str:
    """One file that needs nothing else: its style is in it, and its policy allows nothing but that style."""
    css = static_files.content("page.css").decode()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return "<!doctype html>\n" + el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", http_equiv="Content-Security-Policy", content=policy),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("title", title),
            Html(f"<style>{css}</style>"),
        ),
        el("body", body, class_="report"),
        lang="en",
    )


def steps_section(rows: list[StepRow], axis: Axis | None, outputs: dict[str, str], words: Words) -> Html:
    shown = rows[:STEPS_MAX]
    groups = [
        step_group(task, list(steps), axis, outputs, words) for task, steps in groupby(shown, key=lambda row: row.task)
    ]
    hidden = len(rows) - len(shown)
    return el(
        "section",
        el("h2", "Steps"),
        views.scale(axis) if axis is not None else None,
        groups or el("p", "No step has started."),
        el("p", f"{hidden:,} more steps are not shown.") if hidden else None,
        id="steps",
    )


def step_group(task: str, rows: list[StepRow], axis: Axis | None, outputs: dict[str, str], words: Words) -> Html:
    return join(
        el("h3", words.line(task)) if task else None,
        el("div", [step_row(row, axis, outputs.get(row.id, ""), words) for row in rows], class_="steps", role="list"),
    )


def step_row(row: StepRow, axis: Axis | None, output: str, words: Words) -> Html:
    line = views.step_line(row, axis)
    evidence = [
        el("p", f"Attempt {one.number}: ", el("strong", views.STATUS_WORDS[one.status]), ". ", words.line(one.evidence))
        for one in row.attempts
        if one.evidence or len(row.attempts) > 1
    ]
    detail = join(evidence, views.output_block(output, words))
    if not detail:
        return el("div", line, class_="step", role="listitem")
    is_open = row.status in OPEN_FOR
    whole = el("details", el("summary", line), el("div", detail, class_="detail"), class_="step", open=is_open)
    return el("div", whole, role="listitem")


def files_section(diff: str, words: Words) -> Html:
    told = views.diff_block(words.block(diff, DIFF_LINES_MAX)) if diff else el("p", "No file is known to have changed.")
    return el("section", el("h2", "Files"), told, id="files")


def trail_section(entries: list[Entry], words: Words) -> Html:
    shown = entries[-TRAIL_ENTRIES_MAX:]
    hidden = len(entries) - len(shown)
    return el(
        "section",
        el("h2", "Decisions"),
        el("p", f"{hidden:,} earlier decisions are not shown.") if hidden else None,
        views.trail(shown, words),
        id="decisions",
    )
