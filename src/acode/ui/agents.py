"""Sessions of other agents on this machine as a page: which died, what was in flight, what to type next.

The same look as `acode inspect`; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from acode.hints import Command
from acode.observed import AGENTS
from acode.observed.inspect import InspectedCall, InspectedSession, Inspection, find_target, inspect
from acode.observed.session_words import ENDINGS, OUTCOMES, STATES, effect_words
from acode.text.durations import ago, count
from acode.ui.html import Html, el, join
from acode.ui.views import Words, badge, to_type

CALLS_MAX = 10
SHOWN_MAX = 100
TONES = {"alive": "good", "dead": "bad"}


def look(environment: Mapping[str, str]) -> Inspection:
    return inspect(find_target(None, environment), environment=environment, all_sessions=False)


def agents_body(inspection: Inspection, words: Words, now: datetime) -> Html:
    found = inspection.sessions[:SHOWN_MAX]
    return join(
        el("h1", "Other agents"),
        el("p", "Sessions of other agents on this machine that have not ended in order. acode only reads them."),
        [agent_card(one, words, now) for one in found],
        el("p", "No session of another agent needs a look.") if not found else None,
        el(
            "p",
            f"{count(inspection.looked_at, 'session')} looked at: {inspection.finished} finished,"
            f" {inspection.alive} alive, {inspection.not_understood} not understood. To see all: ",
            to_type(Command("inspect --all")),
            class_="evidence",
        ),
        el(
            "ul",
            [el("li", f"{words.line(str(one.path))}: {words.line(one.message)}") for one in inspection.problems[:10]],
        ),
    )


def agent_card(each: InspectedSession, words: Words, now: datetime) -> Html:
    session = each.session
    state = each.liveness.state
    return el(
        "article",
        el("h2", AGENTS[session.agent].TITLE, " ", el("code", words.line(session.session_id, 60) or "(no id)")),
        el(
            "p",
            badge(STATES[state], TONES.get(state, "warn")),
            f" {ENDINGS[session.ending]}, {ago(session.updated_at, now)}",
        ),
        el("p", words.line(each.liveness.reason), class_="evidence"),
        el("p", "Directory: ", el("code", words.line(session.directory))) if session.directory else None,
        el("p", "Prompt: ", words.line(session.prompt)) if session.prompt else None,
        el("ul", [call_item(one, words, now) for one in each.calls[-CALLS_MAX:]]) if each.calls else None,
        [el("p", words.line(one.text), class_="evidence") for one in each.traces],
        [el("p", el("strong", "Check first: "), words.line(one, 600)) for one in each.checks],
        el("p", "To resume: ", el("code", words.line(each.resume.line, 1_000), class_="command"))
        if each.resume
        else None,
        class_="card",
    )


def call_item(each: InspectedCall, words: Words, now: datetime) -> Html:
    call = each.call
    when = f", {ago(call.at, now)}" if call.at is not None else ""
    label = "Given up earlier" if call.abandoned else "In flight"
    return el(
        "li",
        f"{label}: ",
        el("strong", words.line(call.tool, 60)),
        when,
        [el("div", el("code", words.line(text))) for text in map(effect_words, call.effects) if text],
        [el("div", words.line(one.text, 600), class_="evidence") for one in each.evidence],
        None if call.abandoned else el("div", "→ ", el("strong", OUTCOMES[each.outcome])),
    )
