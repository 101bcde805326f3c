"""The fleet as a page: who needs a person and what to type, what runs and waits, and which workers there are.

The same look as `acode fleet status`; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from acode.engine.world import short
from acode.fleet.overview import Overview, needs_of, state_of_worker, way_of
from acode.fleet.server import Member
from acode.hints import Command
from acode.text.durations import ago, count
from acode.ui.html import Html, el, join
from acode.ui.views import Words, badge, to_type

TONES = {"parked": "warn", "running": "good", "alive": "good", "silent": "bad"}


def fleet_body(seen: Overview, words: Words) -> Html:
    parked = [one for one in seen.members if one.state == "parked"]
    others = [one for one in seen.members if one.state != "parked"]
    left_out = sum(seen.counts.values()) - len(seen.members)
    return join(
        el("h1", "Fleet"),
        el("p", ", ".join(f"{number:,} {state}" for state, number in seen.counts.items()), id="counts"),
        el("p", badge("paused", "warn"), f" queues: {words.line(', '.join(seen.paused_queues))}")
        if seen.paused_queues
        else None,
        el("h2", "Needs you"),
        [parked_card(one, seen, words) for one in parked],
        el("p", "No session needs a person.") if not parked else None,
        el("h2", "Queued and running"),
        sessions_table(others, seen, words) if others else el("p", "Nothing is queued."),
        el("p", f"{count(left_out, 'session')} more: ", to_type(Command("fleet status"))) if left_out > 0 else None,
        el("h2", "Workers"),
        workers_table(seen.workers, seen.now, words)
        if seen.workers
        else el("p", "No worker is known. Start one: ", to_type(Command("worker"))),
        timetable_part(seen, words),
    )


def title_of(member: Member, seen: Overview, words: Words) -> str:
    about = seen.about.get(member.session_id)
    return words.line(about.title) if about is not None else ""


def steps_of(member: Member, seen: Overview) -> str:
    about = seen.about.get(member.session_id)
    return f"{about.steps_done}/{about.steps_total}" if about is not None else ""


def parked_card(member: Member, seen: Overview, words: Words) -> Html:
    way, said = way_of(member).as_command(), member.next_action
    return el(
        "article",
        el("h3", title_of(member, seen, words), " ", el("code", short(member.session_id))),
        el(
            "p",
            badge("parked", TONES["parked"]),
            f" {ago(member.changed_at, seen.now)}, {steps_of(member, seen)} steps, queue {words.line(member.queue)}",
        ),
        el("p", words.line(needs_of(member), 600)),
        el("p", words.line(said, 600), class_="evidence") if said and said not in way else None,
        el("p", "To type: ", el("code", words.line(way, 600), class_="command")),
        class_="card",
    )


def sessions_table(members: list[Member], seen: Overview, words: Words) -> Html:
    names = {one["worker"]: one["name"] for one in seen.workers}
    rows = []
    for one in members:
        due = f", due {stamp(one.due_at)}" if one.due_at is not None and one.due_at > seen.now else ""
        where = names.get(one.worker, "") if one.state == "running" else ""
        rows.append(
            (
                el("code", short(one.session_id)),
                join(badge(one.state, TONES.get(one.state, "")), due),
                steps_of(one, seen),
                words.line(one.queue),
                words.line(str(where)),
                ago(one.changed_at, seen.now),
                words.line(f"{title_of(one, seen, words)}: {one.reason}" if one.reason else title_of(one, seen, words)),
            )
        )
    return table("Sessions", ("ID", "State", "Steps", "Queue", "Worker", "Since", "Task"), rows)


def workers_table(workers: list[dict[str, Any]], now: datetime, words: Words) -> Html:
    rows = [
        (
            words.line(one["name"]),
            badge(state_of_worker(one), TONES.get(state_of_worker(one), "")),
            f"{one['running']}/{one['slots']}",
            words.line(", ".join(one["queues"])),
            words.line(", ".join(one["labels"])),
            ago(one["seen_at"], now),
            words.line(one["host"]),
        )
        for one in workers
    ]
    return table("Workers", ("Name", "State", "Slots", "Queues", "Labels", "Heard of", "Host"), rows)


def timetable_part(seen: Overview, words: Words) -> Html | None:
    if not seen.timetable:
        return None
    rows = [
        (el("code", short(one.schedule_id)), words.line(one.cron), stamp(one.next_at), words.line(one.title))
        for one in seen.timetable
    ]
    return join(el("h2", "Timetable"), table("Timetable", ("ID", "Cron", "Next", "Task"), rows))


def table(name: str, heads: tuple[str, ...], rows: Sequence[tuple[str | Html, ...]]) -> Html:
    head = el("tr", [el("th", one, scope="col") for one in heads])
    body = [el("tr", [el("td", cell) for cell in row]) for row in rows]
    return el("table", el("caption", name, class_="skip"), el("thead", head), el("tbody", body), class_="sessions")


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
