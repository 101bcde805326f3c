"""The pages as HTML: the list with what needs somebody first, one session, one step, preview, audit.

Links and forms are relative to one server; the script makes them live, and every page works without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from acode.engine.preview import Preview, next_action
from acode.engine.session_list import Row
from acode.engine.world import short
from acode.hints import Command
from acode.plan import Action
from acode.policy import Decision
from acode.store.verification import Verified
from acode.text.durations import ago, count
from acode.ui import static_files, views
from acode.ui.answers import Asked
from acode.ui.axis import Axis
from acode.ui.guards import Guards
from acode.ui.html import Html, el, join
from acode.ui.timeline import StepTimes
from acode.ui.trail import Entry
from acode.ui.views import StepRow, Words

LISTED_MAX = 75  # of each part of the list: together at most 225 rows
WITH_FLEET = (("Other agents", "/agents"), ("Fleet", "/fleet"))
RENDERED_WHOLE_MAX = 100  # a longer list of steps holds a window of rows; more are fetched as they are scrolled to
RENDERED_FIRST = 40  # of a longer list: two screens of rows; each one costs a read of the log before the first paint


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One session in the list of all workspaces."""

    place: str
    workspace: str
    row: Row

    @property
    def needs_somebody(self) -> bool:
        return self.row.session is None or self.row.attention is not None


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """One session that only the shared server has."""

    session_id: str
    title: str
    state: str
    steps: str
    holder: str


def frame(title: str, body: Html, *, live: str = "", mark: str = "", crumbs: Sequence[tuple[str, str]] = ()) -> str:
    links = [
        el("a", words, href=address)
        for words, address in (("Sessions", "/"), *(crumbs or (("Other agents", "/agents"),)))
    ]
    return "<!doctype html>\n" + el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("title", f"{title} · acode"),
            el("link", rel="stylesheet", href=static_files.address("page.css")),
            el("script", src=static_files.address("page.js"), defer=True),
        ),
        el(
            "body",
            el("a", "Skip to content", href="#content", class_="skip"),
            el("nav", links, aria_label="Breadcrumb"),
            el("p", "", id="connection", role="status", class_="evidence"),
            body,
            class_="page",
            data_live=live or None,
            data_mark=mark or None,
        ),
        lang="en",
    )


# The list.


def list_page(
    listed: Sequence[Listed],
    remote: Sequence[Remote],
    words: Words,
    now: datetime,
    *,
    query: str,
    mark: str,
    left_out: int = 0,
    warning: str = "",
    fleet: bool = False,
) -> str:
    body = list_body(listed, remote, words, now, left_out=left_out, warning=warning)
    crumbs = WITH_FLEET if fleet else ()
    return frame("Sessions", el("main", search_form(query), body, id="content"), live="/live", mark=mark, crumbs=crumbs)


def search_form(query: str) -> Html:
    field = el("input", type="search", name="q", value=query, id="q")
    return el(
        "form",
        el("h1", "Sessions"),
        el("label", "Filter by title, id, state or workspace ", field),
        " ",
        el("button", "Filter"),
        method="get",
        action="/",
        role="search",
        class_="search",
    )


def list_body(
    listed: Sequence[Listed], remote: Sequence[Remote], words: Words, now: datetime, *, left_out: int, warning: str
) -> Html:
    waiting = [one for one in listed if one.needs_somebody]
    rest = [one for one in listed if not one.needs_somebody]
    hidden = max(len(rest) - LISTED_MAX, 0) + left_out
    unseen = max(len(waiting) - LISTED_MAX, 0)
    return el(
        "div",
        el("p", warning, class_="notice") if warning else None,
        el("h2", "Needs you") if waiting else None,
        [needs_card(one, words, now) for one in waiting[:LISTED_MAX]],
        el("p", f"{unseen:,} more: use the filter.") if unseen else None,
        el("h2", "All sessions"),
        sessions_table(rest[:LISTED_MAX], words, now) if rest else el("p", "No other sessions."),
        el("p", f"{hidden:,} more: use the filter.") if hidden else None,
        remote_table(remote, words) if remote else None,
        id="live",
    )


def needs_card(one: Listed, words: Words, now: datetime) -> Html:
    session = one.row.session
    title = words.line(session.title) if session is not None else short(one.row.session_id)
    when = ago(session.updated_at, now) if session is not None else words.line(str(one.row.error))
    return el(
        "article",
        el("a", title, href=address_of(one.place, one.row.session_id), class_="title"),
        " ",
        state_of(one),
        el("div", f"{when} · {words.line(one.workspace)} · {short(one.row.session_id)}", class_="evidence"),
        class_="card",
    )


def state_of(one: Listed) -> Html:
    if one.row.session is None:
        return views.badge("damaged", "bad")
    return views.state_badge(one.row.session, one.row.attention, running=one.row.running)


def sessions_table(rows: Sequence[Listed], words: Words, now: datetime) -> Html:
    head = el(
        "tr",
        [el("th", name, scope="col") for name in ("Session", "State", "Steps", "Source", "Last event", "Workspace")],
    )
    return el("table", el("thead", head), el("tbody", [table_row(one, words, now) for one in rows]), class_="sessions")


def table_row(one: Listed, words: Words, now: datetime) -> Html:
    session = one.row.session
    assert session is not None
    steps = f"{session.steps_done:,}/{session.steps_total:,}" if session.steps_total else f"{session.steps_done:,}"
    title = words.line(session.title) or short(session.session_id)
    return el(
        "tr",
        el("td", el("a", title, href=address_of(one.place, session.session_id)), data_label="Session"),
        el("td", state_of(one), data_label="State"),
        el("td", steps, data_label="Steps"),
        el("td", session.source if session.source != "native" else session.kind, data_label="Source"),
        el("td", ago(session.updated_at, now), data_label="Last event"),
        el("td", words.line(one.workspace), data_label="Workspace"),
    )


def remote_table(remote: Sequence[Remote], words: Words) -> Html:
    head = el("tr", [el("th", name, scope="col") for name in ("Session", "State", "Steps", "Owned by")])
    rows = [
        el(
            "tr",
            el("td", words.line(one.title), " ", el("code", short(one.session_id)), data_label="Session"),
            el("td", words.line(one.state), data_label="State"),
            el("td", one.steps, data_label="Steps"),
            el("td", words.line(one.holder), data_label="Owned by"),
        )
        for one in remote[:LISTED_MAX]
    ]
    return join(el("h2", "On the shared server"), el("table", el("thead", head), el("tbody", rows), class_="sessions"))


def address_of(place: str, session_id: str, rest: str = "") -> str:
    return f"/w/{place}/s/{session_id}{rest}"


# One session.


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page of one session shows at a moment."""

    place: str
    found: Preview
    asked: list[Asked]
    trail: list[Entry]
    axis: Axis | None
    recent: dict[str, StepTimes] = {}  # steps in the part of the log that was read, with every attempt
    lines_total: int = 0
    covers: tuple[str, ...] = ()  # the definitions that a grant at its gate covers
    outputs: dict[str, str] = {}  # the last lines of the steps whose outcome is asked for


def session_page(
    page: SessionPage,
    rows: Iterable[str | StepRow],
    guards: Guards,
    words: Words,
    *,
    now: datetime,
    start: int,
    mark: str,
) -> str:
    session = page.found.session
    base = address_of(page.place, session.session_id)
    total = page.lines_total
    body = el(
        "main",
        live_part(page, guards, words, now),
        el(
            "section",
            el("h2", "Steps"),
            views.scale(page.axis) if page.axis is not None else None,
            el(
                "div",
                [line_of(row, page, start + number) for number, row in enumerate(rows)],
                id="steps",
                role="list",
                data_total=total,
                data_start=start,
                data_rows=f"{base}/rows",
                aria_label="Steps",
                class_="virtual" if total > RENDERED_WHOLE_MAX else None,
            ),
            more_links(base, start, total),
            class_="work",
        ),
        id="content",
        class_="session",
    )
    crumbs = [("Steps", base), ("Resume preview", f"{base}/preview"), ("Audit", f"{base}/audit")]
    if session.conversation is not None:
        crumbs.append(("Conversation", f"{base}/conversation"))
    return frame(words.line(session.title), body, live=f"{base}/live", mark=mark, crumbs=crumbs)


def more_links(base: str, start: int, total: int) -> Html | None:
    """For a browser without script."""
    if total <= RENDERED_WHOLE_MAX:
        return None
    later = start + RENDERED_FIRST
    return el(
        "p",
        el("a", "Earlier steps", href=f"{base}?from={max(start - RENDERED_FIRST, 0)}") if start > 0 else None,
        " ",
        el("a", "Later steps", href=f"{base}?from={later}") if later < total else None,
        class_="more",
    )


def live_part(page: SessionPage, guards: Guards, words: Words, now: datetime) -> Html:
    """The part that the script replaces when the log has grown."""
    return el(
        "div",
        el("header", views.head(page.found, words, now)),
        ask_box(page, guards, words),
        el(
            "aside",
            el("h2", "Decisions"),
            views.trail(list(reversed(page.trail)), words),
            class_="decisions",
            aria_label="Decisions, the newest first",
        ),
        id="live",
        data_seq=page.found.session.seq,
    )


def line_of(row: str | StepRow, page: SessionPage, number: int) -> Html:
    if isinstance(row, str):
        return el("div", el("h3", row), class_="heading", role="listitem", data_number=number)
    address = address_of(page.place, page.found.session.session_id, f"/step?id={quoted(row.id)}")
    return el(
        "div",
        el("a", views.step_line(row, page.axis), href=address, data_drawer=True),
        class_="step",
        role="listitem",
        data_number=number,
    )


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


# What can be answered.


def ask_box(page: SessionPage, guards: Guards, words: Words) -> Html:
    needs = views.needs(page.found, words)
    if guards.read_only:
        return needs
    forms = [answer_form(one, page, guards, words) for one in page.asked]
    return join(needs, el("section", forms, id="answers", aria_label="Answers") if any(forms) else None)


BUTTONS = {
    "approve": ("Approve", "good"),
    "deny": ("Deny", "bad"),
    "applied": ("It happened", "plain"),
    "not_applied": ("It did not happen", "plain"),
    "retry": ("Unknown: repeat it", "bad"),
    "pause": ("Pause after the current step", "plain"),
    "cancel": ("Cancel the session", "bad"),
}


def answer_form(one: Asked, page: SessionPage, guards: Guards, words: Words) -> Html:
    session_id = page.found.session.session_id
    name = f"note-{one.kind}-{one.target}"
    body = join(
        shown_above(one, page, words),
        el("label", "Note for the record ", el("input", type="text", name="note", id=name, maxlength=2_000))
        if one.kind != "running"
        else None,
        el("input", type="hidden", name="target", value=one.target),
        el("input", type="hidden", name="digest", value=one.digest),
        el("div", [button(act, one, session_id, guards) for act in acts_of(one)], class_="buttons"),
    )
    form = el(
        "form",
        body,
        method="post",
        action=address_of(page.place, session_id, "/answer"),
        data_key=f"{one.kind}:{one.target}:{one.digest}",
        class_=f"answer {one.kind}",
    )
    return el("details", el("summary", "End this session"), form) if one.kind == "open" else form


def acts_of(one: Asked) -> tuple[str, ...]:
    from acode.ui.answers import ACTS_OF

    return ACTS_OF[one.kind]


def button(act: str, one: Asked, session_id: str, guards: Guards) -> Html:
    """Each button has a nonce of its own: an answer is for one act, and is given once."""
    words, tone = BUTTONS[act]
    nonce = guards.nonce(one.bound(session_id, act))
    return el("button", words, name="answer", value=f"{act} {nonce}", class_=tone)


def shown_above(one: Asked, page: SessionPage, words: Words) -> Html | None:
    """What the answer is about, in full: one answers what one has read."""
    session = page.found.session
    if one.kind == "gate" and session.waiting_for is not None:
        return join(
            el("h3", words.line(session.waiting_for.question, 1_000)),
            el("p", "A yes covers exactly these steps as they are now:") if page.covers else None,
            el("ul", [el("li", el("code", words.line(step, 2_000))) for step in page.covers]),
            el("p", "Digest ", el("code", one.digest[:16]), class_="evidence"),
        )
    if one.kind == "unknown":
        survey = page.found.survey
        flights = survey.continuation.in_flight if survey is not None else ()
        evidence = next((flight.evidence for flight in flights if flight.step == one.target), "")
        return join(
            el("h3", f"Did step {one.target} happen?"),
            el("p", words.line(evidence, 1_000)),
            views.output_block(page.outputs.get(one.target, ""), words, note="The last lines that it printed:"),
        )
    return None


# The step drawer.


class StepDetail(msgspec.Struct, frozen=True, kw_only=True):
    row: StepRow
    definition: str = ""
    output: str = ""
    diff: str = ""
    running: bool = False


def step_page(place: str, session_id: str, detail: StepDetail, words: Words) -> str:
    base = address_of(place, session_id)
    body = el("main", step_body(detail, words), id="content")
    return frame(detail.row.id, body, crumbs=(("Session", base),))


def step_body(detail: StepDetail, words: Words) -> Html:
    row = detail.row
    attempts = [
        el(
            "li",
            el("strong", f"Attempt {one.number}: {views.STATUS_WORDS[one.status]}"),
            f" · began {one.start:%Y-%m-%d %H:%M:%S} UTC",
            el("div", words.line(one.evidence, 1_000), class_="evidence") if one.evidence else None,
            el("div", "Key ", el("code", one.key), class_="evidence") if one.key else None,
        )
        for one in row.attempts
    ]
    return el(
        "article",
        el("h2", el("code", row.id), " ", row.title),
        el("p", views.badge(views.outcome_words(row), "dim"), f" {row.kind}"),
        el("pre", words.block(detail.definition, 200), class_="output", tabindex=0) if detail.definition else None,
        el("ol", attempts, class_="attempts") if attempts else el("p", "It has not started."),
        el("h3", "Output") if detail.output or detail.running else None,
        el(
            "pre",
            words.block(detail.output, 500),
            class_="output",
            id="output",
            tabindex=0,
            aria_label="Output",
            data_follow=detail.running,
        )
        if detail.output or detail.running
        else None,
        join(el("h3", "Files"), views.diff_block(words.block(detail.diff, 2_000))) if detail.diff else None,
        id="step",
    )


# Preview, audit.


def preview_page(place: str, found: Preview, words: Words) -> str:
    session = found.session
    base = address_of(place, session.session_id)
    if found.survey is None:
        body = el("p", "The session has ended: nothing is left to resume.")
    else:
        continuation = found.survey.continuation
        body = join(
            verdict(found.survey.decision, words),
            el("h2", "In flight"),
            el(
                "ul",
                [
                    el(
                        "li",
                        el("strong", f"{one.step}: {one.outcome}"),
                        f" → {ACTIONS[one.action]}. ",
                        words.line(one.evidence),
                    )
                    for one in continuation.in_flight
                ],
            )
            if continuation.in_flight
            else el("p", "Nothing."),
            el("h2", f"Skipped: {count(len(continuation.skipped_steps), 'step')}"),
            el("h2", f"Remaining: {count(len(continuation.pending), 'step')}"),
            el("ol", [el("li", el("code", step)) for step in continuation.pending[:100]]),
            drift(found, words),
            el("h2", "To resume"),
            el("p", el("code", words.line(next_action(found)), class_="command")),
        )
    whole = el("main", el("h1", "Resume preview"), body, id="content")
    return frame("Resume preview", whole, crumbs=(("Session", base),))


ACTIONS = {
    Action.SKIP: "it is not repeated",
    Action.RETRY: "it is run again",
    Action.ROLLBACK_AND_RETRY: "its changes are rolled back and it is run again",
    Action.ASK: "a person must say whether it happened",
    Action.WAIT: "it still runs: a resume waits for it",
}


def verdict(decision: Decision, words: Words) -> Html:
    rules = [
        el("li", "✓ " if rule.met else "✗ ", el("strong", rule.name), f": {words.line(rule.because)}")
        for rule in decision.rules
    ]
    answer = "allowed" if decision.eligible else "refused"
    return join(
        el(
            "p",
            "An automatic resume now: ",
            views.badge(answer, "good" if decision.eligible else "warn"),
            " ",
            el("code", decision.reason_code),
        ),
        el("ul", rules, class_="rules"),
    )


def drift(found: Preview, words: Words) -> Html | None:
    report = found.environment
    if report is None:
        return None
    told = [words.line(one.message) for one in (*report.errors, *report.warnings)]
    told += [f"{words.line(one.path)}: {one.change}" for one in report.changed_files[:100]]
    return join(
        el("h2", "Files"),
        el("ul", [el("li", one) for one in told])
        if told
        else el("p", f"{count(report.total_files, 'file')} as the session left them."),
    )


def audit_page(place: str, session_id: str, verified: Verified, anchors: Sequence[str], words: Words) -> str:
    base, name = address_of(place, session_id), short(session_id)
    body = join(
        el("h1", "Audit"),
        views.audit(verified, anchors, words),
        el("h2", "To take it along"),
        el("p", views.to_type(Command(f"session export SESSION -o {name}.jsonl"), name)),
    )
    return frame("Audit", el("main", body, id="content"), crumbs=(("Session", base),))


def message_page(title: str, text: str, *, back: str = "/") -> str:
    body = el("main", el("h1", title), el("p", text), el("p", el("a", "Back", href=back)), id="content")
    return frame(title, body)
