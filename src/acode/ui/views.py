"""Parts of a session as HTML, the same for the report and the page: head, needs, waterfall, decision trail, audit.

Every part takes values and returns markup. `Words` redacts and shortens text the way the terminal does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from acode.attention import IN_WORDS, Attention
from acode.engine.preview import Preview, next_action
from acode.engine.world import short
from acode.events import types as ev
from acode.events.definition import Step, describe, execution_order
from acode.hints import Action, Subject
from acode.redact import Redactor
from acode.state import Session
from acode.store.verification import Verified
from acode.text import lines_of, one_line
from acode.text.durations import ago, count, shortened, stamp, took
from acode.ui.axis import WIDTH, Axis
from acode.ui.html import Html, el, join
from acode.ui.timeline import Attempt, Gap, StepTimes, Timeline
from acode.ui.trail import Entry

OUTPUT_LINES_MAX = 40
OUTPUT_LINE_CHARS_MAX = 2_000
TITLE_CHARS_MAX = 300
BAR_HEIGHT = 14
DIFF_TONES = {"+": "added", "-": "removed", "@": "place"}
SIGNS = {
    "completed": "✓",
    "applied": "✓",
    "failed": "✗",
    "running": "●",
    "in_flight": "●",
    "unknown": "?",
    "not_applied": "↺",
    "rolled_back": "↺",
    "retry_accepted": "↺",
    "pending": "·",
}
STATUS_WORDS = {
    "completed": "done",
    "applied": "done, settled by evidence",
    "failed": "failed",
    "running": "in flight",
    "in_flight": "in flight",
    "unknown": "outcome unknown",
    "not_applied": "not applied",
    "rolled_back": "rolled back",
    "retry_accepted": "repeat accepted",
    "pending": "pending",
}


def to_type(action: Action, of: str = "") -> Html:
    """A command as it stands on the page, ready to copy; `of`: the session that it is about."""
    return el("code", action.as_command(Subject(of)), class_="command")


class Words:
    """Text as people may see it."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def line(self, text: str, chars_max: int = TITLE_CHARS_MAX) -> str:
        return shortened(one_line(self._redactor.text(text).replace("\n", " ").strip()), chars_max)

    def block(self, text: str, lines_max: int = OUTPUT_LINES_MAX) -> str:
        return "\n".join(lines_of(self._redactor.text(text), lines_max=lines_max, chars_max=OUTPUT_LINE_CHARS_MAX))


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the waterfall."""

    id: str
    title: str
    kind: str
    status: str
    task: str = ""
    attempts: tuple[Attempt, ...] = ()


# The head.


def state_badge(session: Session, attention: Attention | None, *, running: bool) -> Html:
    """The state in the words of the terminal, or what the session needs in its place."""
    if running and attention is None:
        return badge("running", "now")
    words = IN_WORDS[attention] if attention is not None else str(session.state).lower().replace("_", " ")
    return badge(words, "bad" if attention == "escalated" else TONES.get(str(session.state), "warn"))


TONES = {"COMPLETED": "good", "FAILED": "bad", "CANCELLED": "dim"}


def badge(words: str, tone: str) -> Html:
    return el("span", words, class_=f"badge {tone}")


def facts_list(pairs: Iterable[tuple[str, str | Html | None]]) -> Html:
    rows = ((el("dt", name), el("dd", value)) for name, value in pairs if value)
    return el("dl", rows, class_="facts")


def head(found: Preview, words: Words, now: datetime) -> Html:
    session, created = found.session, found.session.created
    owner = f"{created.owner.user} on {created.owner.host}, acode {created.acode_version}" if created else None
    steps = f"{session.steps_done:,} of {session.steps_total:,}" if session.steps_total else f"{session.steps_done:,}"
    git = f"{created.git_branch} at {created.git_head[:12]}" if created and created.git_head else None
    state = state_badge(session, found.attention, running=found.lock.held)
    return join(
        el("h1", words.line(session.title) or short(session.session_id)),
        el("p", state, " ", el("code", short(session.session_id)), class_="lead"),
        facts_list(
            (
                ("Steps done", steps),
                ("Tasks done", f"{session.plan_tasks_done} of {session.plan_tasks_total}"),
                ("Resumed", count(session.resumes, "time")),
                ("Created", time_of(session.created_at, now)),
                ("Last event", time_of(session.updated_at, now)),
                ("Source", session.source),
                ("Plan file", words.line(created.plan_path) if created and created.plan_path else None),
                ("Git", git),
                ("Started by", owner),
                ("Session id", el("code", session.session_id)),
            )
        ),
    )


def time_of(moment: datetime, now: datetime) -> Html:
    return el("time", f"{moment:%Y-%m-%d %H:%M:%S} UTC ({ago(moment, now)})", datetime=stamp(moment))


# What it needs.


def needs(found: Preview, words: Words) -> Html:
    """Why it stands where it stands, and the one command to type next."""
    if found.survey is None:
        return el("section", el("h2", "What it needs"), el("p", "Nothing: the session has ended."), id="needs")
    survey = found.survey
    told: list[Html] = []
    if not found.lock.held:
        told.append(el("p", sentence(words.line(survey.interruption.evidence))))
    if found.session.waiting_for is not None:
        told.append(el("p", "It waits at a gate: ", el("strong", words.line(found.session.waiting_for.question))))
    told += [
        el(
            "p",
            el("strong", f"{one.step}: {one.outcome}. "),
            words.line(one.evidence),
        )
        for one in survey.continuation.in_flight
    ]
    if found.environment is not None:
        told += [
            el("p", f"Changed: {words.line(one.path)} ({one.change})") for one in found.environment.changed_files[:20]
        ]
    return el(
        "section",
        el("h2", "What it needs"),
        told,
        el("p", "Next: ", el("code", words.line(next_action(found)), class_="command")),
        id="needs",
    )


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# The waterfall.


def planned_steps(session: Session) -> dict[str, tuple[str, Step]]:
    """Every step of the plan by its id, with the title of its task."""
    if session.plan is None:
        return {}
    return {step.id: (task.title, step) for task in execution_order(session.plan) for step in task.steps}


def rows_of(session: Session, timeline: Timeline | None, words: Words) -> list[StepRow]:
    """Steps of the plan in its order, then those that only a program or an agent asked for, as they started."""
    planned, seen = planned_steps(session), timeline.steps if timeline is not None else {}
    ids = [*planned, *(step for step in seen if step not in planned)]
    return [row_of(session, one, planned.get(one), seen.get(one), words) for one in ids]


def row_of(
    session: Session, step_id: str, planned: tuple[str, Step] | None, times: StepTimes | None, words: Words
) -> StepRow:
    attempts = tuple(times.attempts) if times is not None else ()
    status = step_status(session, step_id, attempts, taken_back=times is not None and times.taken_back)
    if planned is not None:
        task, step = planned
        return StepRow(
            id=step_id, title=words.line(describe(step)), kind=step.kind, status=status, task=task, attempts=attempts
        )
    assert times is not None
    task = times.task if times.task != step_id else ""
    return StepRow(
        id=step_id, title=words.line(times.shown), kind=times.kind, status=status, task=task, attempts=attempts
    )


def step_status(session: Session, step_id: str, attempts: Sequence[Attempt], *, taken_back: bool) -> str:
    if taken_back:
        return "pending"
    if step_id in session.in_flight:
        return "unknown" if session.in_flight[step_id].unknown is not None else "in_flight"
    if attempts:
        return attempts[-1].status
    record = session.record(step_id)
    return record.status if record is not None else "pending"


def axis_of(timeline: Timeline | None, now: datetime, *, running: bool) -> Axis | None:
    if timeline is None:
        return None
    return Axis(timeline.start, max(timeline.end, now) if running else timeline.end, timeline.gaps)


def scale(axis: Axis) -> Html:
    """The first row of the waterfall: how long it worked, and where nothing ran."""
    dead_s = sum((gap.end - gap.start).total_seconds() for gap in axis.gaps)
    words = f"{took(axis.work_s * 1000)} of work"
    if axis.gaps:
        words += f", {count(len(axis.gaps), 'interruption')} of {took(dead_s * 1000)} in all"
    return el("p", words, class_="scale")


def bars(row: StepRow, axis: Axis | None) -> Html | None:
    if axis is None or not row.attempts:
        return None
    drawn = [_gap_bar(gap, axis) for gap in axis.gaps if _spans(row.attempts, gap)]
    drawn += [_bar(one, axis) for one in row.attempts]
    label = f"{STATUS_WORDS[row.status]}, {count(len(row.attempts), 'attempt')}, {time_taken(row)}"
    return el(
        "svg",
        drawn,
        viewBox=f"0 0 {WIDTH:.0f} {BAR_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="bars",
    )


def _spans(attempts: Sequence[Attempt], gap: Gap) -> bool:
    last = attempts[-1].end
    return attempts[0].start <= gap.start and (last is None or last >= gap.end)


def _bar(attempt: Attempt, axis: Axis) -> Html:
    x, width = axis.bar(attempt.start, attempt.end or axis.end)
    return el(
        "rect",
        x=f"{x:.1f}",
        y=2,
        width=f"{width:.1f}",
        height=BAR_HEIGHT - 4,
        class_=f"bar {attempt.status}",
    )


def _gap_bar(gap: Gap, axis: Axis) -> Html:
    x = axis.x(gap.start)
    width = axis.x(gap.end) - x
    kind = "dead" if gap.dead else "waiting"
    return el("rect", x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=BAR_HEIGHT, class_=f"gap {kind}")


def time_taken(row: StepRow) -> str:
    known = [
        one.duration_ms if one.duration_ms else (one.end - one.start).total_seconds() * 1000
        for one in row.attempts
        if one.end is not None
    ]
    return took(sum(known)) if known else "time unknown"


def outcome_words(row: StepRow) -> str:
    words = STATUS_WORDS[row.status]
    return f"{words} (attempt {row.attempts[-1].number})" if row.attempts and row.attempts[-1].number > 1 else words


def step_line(row: StepRow, axis: Axis | None) -> Html:
    """Sign, id, title, outcome and bars: the same line in the report and on the page."""
    return el(
        "span",
        el("span", SIGNS[row.status], class_=f"sign {row.status}", aria_hidden="true"),
        el("span", el("code", row.id), " ", row.title, class_="title"),
        el("span", outcome_words(row), class_="outcome"),
        el("span", time_taken(row) if row.attempts else "", class_="took"),
        el("span", bars(row, axis), class_="lane"),
        class_="line",
    )


# The trail and the audit.


def trail(entries: Sequence[Entry], words: Words) -> Html:
    rows = [
        el(
            "li",
            el("span", f"#{one.seq}", class_="seq"),
            " ",
            el("time", one.at[:19].replace("T", " "), datetime=one.at),
            " ",
            el("span", f"{one.actor}{' via ' + one.via if one.via else ''}", class_=f"actor {one.actor}"),
            " ",
            el("strong", words.line(one.what)),
            el("div", words.line(one.evidence), class_="evidence") if one.evidence else None,
            el("code", words.line(one.reason_code), class_="reason") if one.reason_code else None,
        )
        for one in entries
    ]
    return el("ol", rows, class_="trail")


def diff_block(text: str) -> Html:
    """Each line of a unified diff in its own element, so that added and removed ones differ by more than a sign."""
    lines = []
    for line in text.split("\n"):
        tone = "file" if line[:3] in ("---", "+++") else DIFF_TONES.get(line[:1])
        lines.append(el("span", f"{line}\n", class_=tone) if tone else f"{line}\n")
    return el("pre", lines, class_="output diff", tabindex=0, role="group", aria_label="Changes in files")


def audit(verified: Verified, anchors: Sequence[str], words: Words) -> Html:
    verdict = badge("whole", "good") if not verified.problems else badge("damaged", "bad")
    problems = [el("li", el("code", one.code), " ", one.message) for one in verified.problems]
    return join(
        el("p", "Chain, seals, blobs and anchor: ", verdict),
        el("ul", problems) if problems else None,
        facts_list(
            (
                ("Events", f"{verified.events:,}"),
                ("Checkpoints", f"{verified.checkpoints:,}"),
                ("Blobs", f"{verified.blobs:,}"),
                ("Chain head", el("code", verified.head.hex())),
                ("Anchor", el("code", words.line("; ".join(anchors))) if anchors else "none on this machine"),
            )
        ),
    )


def output_block(tail: str, words: Words, *, note: str = "") -> Html | None:
    shown = words.block(tail)
    if not shown:
        return None
    return join(el("p", note, class_="evidence") if note else None, el("pre", shown, class_="output", tabindex=0))


def kept_output(output: ev.Output | None) -> str:
    if output is None or not output.bytes:
        return ""
    cut = ", cut at the limit" if output.truncated else ""
    return f"Output: {output.bytes:,} bytes{cut}"
