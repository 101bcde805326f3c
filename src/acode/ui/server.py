"""The server behind `acode ui`: routes, what each one reads, and the stream that tells a page that the log has grown.

Every request reads the verified log in this process; nothing is kept between requests but the guards. Answers are the
functions of the commands.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from acode.engine.preview import Preview, preview, verify
from acode.engine.session_list import listed as listed_rows
from acode.engine.workspace_store import opened
from acode.engine.world import Options, World
from acode.errors import AcodeError, Stale
from acode.events.definition import Approve, describe_in_full, execution_order
from acode.plan import covered_by
from acode.state import Session
from acode.store.store import Store
from acode.ui import answers, pages, static_files
from acode.ui.axis import Axis
from acode.ui.change_watch import LIST_TICK_EVERY_S, Watched, changes, mark_of
from acode.ui.conversation import conversation_body, turns_of
from acode.ui.evidence import anchors_of
from acode.ui.guards import HEADERS, IN_WORDS, KEPT_FOR_EVER, Guards
from acode.ui.html import el
from acode.ui.log_window import last_events
from acode.ui.pages import Listed, Remote, SessionPage
from acode.ui.places import Places
from acode.ui.step_detail import detail_of, live_output
from acode.ui.step_window import WINDOW_ROWS, Outline
from acode.ui.timeline import timeline_of
from acode.ui.trail import trail_of
from acode.ui.views import Words

if TYPE_CHECKING:
    from acode.fleet.overview import Overview

TRAIL_EVENTS = 200
CONVERSATION_EVENTS = 400
TRAIL_SHOWN_MAX = 80

ListRemote = Callable[[], list[Remote]]
LookAtFleet = Callable[[], "Overview"]


class Server:
    """The application of one `acode ui`."""

    def __init__(
        self,
        places: Places,
        guards: Guards,
        list_remote: ListRemote | None = None,
        look_at_fleet: LookAtFleet | None = None,
    ) -> None:
        self.places = places
        self.guards = guards
        self.list_remote = list_remote
        self.look_at_fleet = look_at_fleet
        session = "/w/{place}/s/{session}"
        self.app: Guarded = Guarded(
            Starlette(
                routes=[
                    Route("/", self.sessions),
                    Route("/live", self.live_list),
                    Route("/agents", self.agents),
                    *([Route("/fleet", self.fleet)] if look_at_fleet is not None else []),
                    Route("/static/{name}", self.static),
                    Route("/favicon.ico", no_icon),
                    Route(session, self.session),
                    Route(f"{session}/live", self.live_session),
                    Route(f"{session}/part", self.session_part),
                    Route(f"{session}/rows", self.rows),
                    Route(f"{session}/step", self.step),
                    Route(f"{session}/preview", self.preview),
                    Route(f"{session}/audit", self.audit),
                    Route(f"{session}/conversation", self.conversation),
                    Route(f"{session}/answer", self.answer, methods=["POST"]),
                ],
                exception_handlers={AcodeError: refused},
            ),
            guards,
        )

    # The list.

    async def sessions(self, request: Request) -> Response:
        return await run_in_threadpool(self._sessions, request)

    def _sessions(self, request: Request) -> Response:
        query = request.query_params.get("q", "").strip()
        mark = mark_of(self._watched_list())  # before anything is read
        here = self.places.world(self.places.here)
        words, now = Words(here.redactor), here.clock()
        listed, broken, left_out = [], [], 0
        for name, path in self.places.paths.items():
            try:
                found, hidden = listed_of(name, self.places.world(name), everything=bool(query))
                listed += found
                left_out += hidden
            except AcodeError as error:
                broken.append(f"{path}: {error.message}")
        remote, warning = self._remote({one.row.session_id for one in listed})
        chosen = [one for one in listed if fits(one, query)]
        page = pages.list_page(
            chosen,
            [one for one in remote if query.lower() in f"{one.title} {one.session_id} {one.state}".lower()],
            words,
            now,
            query=query,
            mark=mark,
            left_out=left_out,
            warning="; ".join(filter(None, [*broken, warning])),
            fleet=self.look_at_fleet is not None,
        )
        return HTMLResponse(page)

    def _remote(self, known: set[str]) -> tuple[list[Remote], str]:
        if self.list_remote is None:
            return [], ""
        try:
            return [one for one in self.list_remote() if one.session_id not in known], ""
        except AcodeError as error:
            return [], f"The shared server: {error.message}"

    # One session.

    async def session(self, request: Request) -> Response:
        return await run_in_threadpool(self._session, request)

    def _session(self, request: Request) -> Response:
        mark = mark_of(self._watched_session(request))  # before anything is read
        with self._reading(request) as (world, store, found):
            page, words = self._page(request, world, store, found), Words(world.redactor)
            outline = Outline(store, found.session, page.recent)
            page = msgspec.structs.replace(page, lines_total=len(outline))
            start, count = first_lines(request, outline, found.session)
            shown = outline.window(store, start, count, words)
            body = pages.session_page(page, shown, self.guards, words, now=world.clock(), start=start, mark=mark)
            return HTMLResponse(body)

    async def session_part(self, request: Request) -> Response:
        """The live part alone: what the script puts in place of the old one."""
        return await run_in_threadpool(self._session_part, request)

    def _session_part(self, request: Request) -> Response:
        with self._reading(request) as (world, store, found):
            page = self._page(request, world, store, found)
            return HTMLResponse(pages.live_part(page, self.guards, Words(world.redactor), world.clock()))

    async def rows(self, request: Request) -> Response:
        return await run_in_threadpool(self._rows, request)

    def _rows(self, request: Request) -> Response:
        with self._reading(request, quick=True) as (world, store, found):
            page, words = self._page(request, world, store, found), Words(world.redactor)
            outline = Outline(store, found.session, page.recent)
            start = number_in(request, "from", 0, len(outline))
            shown = outline.window(store, start, WINDOW_ROWS, words)
            body = "".join(pages.line_of(row, page, start + n) for n, row in enumerate(shown))
            return HTMLResponse(body, headers={"X-Total": str(len(outline))})

    def _page(self, request: Request, world: World, store: Store, found: Preview) -> SessionPage:
        session = found.session
        tail = list(last_events(store, session.session_id, session.seq, TRAIL_EVENTS))
        timeline = timeline_of(tail)
        now = world.clock()
        end = now if found.lock.held else session.updated_at
        axis = Axis(session.created_at, max(end, session.created_at), timeline.gaps if timeline is not None else ())
        asked = answers.asked_now(found)
        return SessionPage(
            place=request.path_params["place"],
            found=found,
            asked=asked,
            trail=trail_of(tail)[-TRAIL_SHOWN_MAX:],
            axis=axis,
            recent=timeline.steps if timeline is not None else {},
            covers=covers_of(session),
            outputs={one.target: live_output(world, session, one.target) for one in asked if one.kind == "unknown"},
        )

    @contextlib.contextmanager
    def _reading(self, request: Request, *, quick: bool = False) -> Iterator[tuple[World, Store, Preview]]:
        """The session that the address names, verified, with the store to read more of it."""
        world = self.places.world(request.path_params["place"])
        found = preview(
            world, request.path_params["session"], Options(actor="system"), probes=False, environment=not quick
        )
        with opened(world, look_only=True) as store:
            yield world, store, found

    # Steps.

    async def step(self, request: Request) -> Response:
        return await run_in_threadpool(self._step, request)

    def _step(self, request: Request) -> Response:
        wanted = request.query_params.get("id", "")
        with self._reading(request, quick=True) as (world, store, found):
            words = Words(world.redactor)
            detail = detail_of(world, store, found.session, wanted, words)
        if detail is None:
            return HTMLResponse(pages.message_page("No such step", wanted), status_code=404)
        if request.query_params.get("part"):
            return HTMLResponse(pages.step_body(detail, words))
        return HTMLResponse(pages.step_page(request.path_params["place"], found.session.session_id, detail, words))

    # Other views.

    async def preview(self, request: Request) -> Response:
        return await run_in_threadpool(self._preview, request)

    def _preview(self, request: Request) -> Response:
        world = self.places.world(request.path_params["place"])
        found = preview(world, request.path_params["session"], Options(actor="system"), probes=False)
        return HTMLResponse(pages.preview_page(request.path_params["place"], found, Words(world.redactor)))

    async def audit(self, request: Request) -> Response:
        return await run_in_threadpool(self._audit, request)

    def _audit(self, request: Request) -> Response:
        world = self.places.world(request.path_params["place"])
        session_id, verified = verify(world, request.path_params["session"])
        anchors = anchors_of(world, session_id)
        page = pages.audit_page(request.path_params["place"], session_id, verified, anchors, Words(world.redactor))
        return HTMLResponse(page)

    async def conversation(self, request: Request) -> Response:
        return await run_in_threadpool(self._conversation, request)

    def _conversation(self, request: Request) -> Response:
        with self._reading(request, quick=True) as (world, store, found):
            session, words = found.session, Words(world.redactor)
            to = number_in(request, "to", 1, session.seq) if "to" in request.query_params else session.seq
            turns = turns_of(session, last_events(store, session.session_id, to, CONVERSATION_EVENTS))
        place, first = request.path_params["place"], to - CONVERSATION_EVENTS
        base = pages.address_of(place, session.session_id)
        earlier = f"{base}/conversation?to={first}" if first > 0 else ""
        body = el("main", conversation_body(session, turns, words, earlier=earlier), id="content")
        return HTMLResponse(pages.frame("Conversation", body, crumbs=(("Session", base),)))

    async def agents(self, _request: Request) -> Response:
        return await run_in_threadpool(self._agents)

    def _agents(self) -> Response:
        """Sessions of other agents: their transcripts are searched when somebody asks, not with every list."""
        from acode.ui.agents import agents_body, look

        world = self.places.world(self.places.here)
        body = agents_body(look(world.env), Words(world.redactor), world.clock())
        return HTMLResponse(pages.frame("Other agents", el("main", body, id="content")))

    async def fleet(self, _request: Request) -> Response:
        return await run_in_threadpool(self._fleet)

    def _fleet(self) -> Response:
        """Asked of the server when somebody looks, not with every list."""
        from acode.ui.fleet import fleet_body

        assert self.look_at_fleet is not None
        world = self.places.world(self.places.here)
        body = fleet_body(self.look_at_fleet(), Words(world.redactor))
        return HTMLResponse(pages.frame("Fleet", el("main", body, id="content"), crumbs=pages.WITH_FLEET))

    # Answers.

    async def answer(self, request: Request) -> Response:
        form = {key: value for key, value in (await request.form()).items() if isinstance(value, str)}
        return await run_in_threadpool(self._answer, request, form)

    def _answer(self, request: Request, form: dict[str, str]) -> Response:
        """Recorded only if the nonce was made for exactly this, and what it was made for is still there."""
        place, session_id = request.path_params["place"], request.path_params["session"]
        back = pages.address_of(place, session_id)
        act, _, nonce = form.get("answer", "").partition(" ")
        kind = next((kind for kind, acts in answers.ACTS_OF.items() if act in acts), "")
        shown = answers.Asked(kind=kind, target=form.get("target", ""), digest=form.get("digest", ""))  # type: ignore[arg-type]
        if not kind or not self.guards.spend(nonce, shown.bound(session_id, act)):
            text = "This answer was given already, or it was not made on this page. Look again, then answer."
            return HTMLResponse(pages.message_page("Nothing was recorded", text, back=back), status_code=403)
        world = msgspec.structs.replace(self.places.world(place), via="ui")
        found = preview(world, session_id, Options(actor="system"), probes=False, environment=False)
        now = answers.find(found, act, shown.target)
        if now.digest != shown.digest:
            raise Stale("what is asked has changed since it was shown")
        answers.give(world, session_id, shown, {"act": act, "note": form.get("note", "")})
        return RedirectResponse(back, status_code=303)

    # The stream.

    async def live_list(self, request: Request) -> Response:
        return stream(changes(self._watched_list(), last_seen(request), tick_s=LIST_TICK_EVERY_S))

    async def live_session(self, request: Request) -> Response:
        return stream(changes(self._watched_session(request), last_seen(request)))

    def _watched_list(self) -> list[Watched]:
        return [Watched(path / ".agent") for path in self.places.paths.values()]

    def _watched_session(self, request: Request) -> list[Watched]:
        path = self.places.paths.get(request.path_params["place"])
        return [Watched(path / ".agent", request.path_params["session"])] if path is not None else []

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in static_files.MEDIA_TYPES:
            return PlainTextResponse("not found", status_code=404)
        may_keep = request.url.query == static_files.digest(name)
        return Response(
            static_files.content(name),
            media_type=static_files.MEDIA_TYPES[name],
            headers={"Cache-Control": KEPT_FOR_EVER} if may_keep else None,
        )


# What is read.


def listed_of(place: str, world: World, *, everything: bool) -> tuple[list[Listed], int]:
    """The sessions of one workspace, and how many ended ones are left out: each that is shown is verified."""
    found = listed_rows(world, ended_max=None if everything else pages.LISTED_MAX)
    rows = [Listed(place=place, workspace=os.fspath(world.workspace), row=row) for row in found.rows]
    return rows, found.hidden


def fits(one: Listed, query: str) -> bool:
    session = one.row.session
    told = f"{one.row.session_id} {one.workspace} {one.row.attention or ''}"
    if session is not None:
        told += f" {session.title} {session.state}"
    return query.lower() in told.lower()


def first_lines(request: Request, outline: Outline, session: Session) -> tuple[int, int]:
    """Where the page begins and with how many lines: where it is asked to, else a little before the step that is open
    or comes next."""
    total = len(outline)
    if total <= pages.RENDERED_WHOLE_MAX:
        return (number_in(request, "from", 0, total) if "from" in request.query_params else 0), total
    if "from" in request.query_params:
        return number_in(request, "from", 0, total), pages.RENDERED_FIRST
    near = next(iter(session.in_flight), None) or session.last_attempted or ""
    return max(min(outline.position(near) - 20, total - pages.RENDERED_FIRST), 0), pages.RENDERED_FIRST


def number_in(request: Request, name: str, least: int, most: int) -> int:
    text = request.query_params.get(name, "")
    return min(max(int(text), least), most) if text.isdecimal() and len(text) < 10 else least


def covers_of(session: Session) -> tuple[str, ...]:
    """The definitions of the steps that a grant at the open gate allows."""
    if session.waiting_for is None or session.plan is None:
        return ()
    order = execution_order(session.plan)
    wanted = session.waiting_for.step
    gate = next((step for task in order for step in task.steps if step.id == wanted), None)
    if gate is None or not isinstance(gate.action, Approve):
        return ()
    return tuple(f"{one.id}: {describe_in_full(one)}" for _, one in covered_by(order, gate))


def last_seen(request: Request) -> str:
    """The mark of what the window shows: that of the last event it got, or the one that stood in the page."""
    return request.headers.get("last-event-id") or request.query_params.get("mark", "")


def stream(lines: AsyncIterator[str]) -> Response:
    return StreamingResponse(lines, media_type="text/event-stream")


async def no_icon(_request: Request) -> Response:
    return Response(status_code=204)


async def refused(_request: Request, error: Exception) -> Response:
    """A refusal of the engine, as the commands say it."""
    assert isinstance(error, AcodeError)
    status = 409 if isinstance(error, Stale) else 404 if error.exit_code == 14 else 422
    text = f"{error.message} [{error.code}] {error.hint}"
    return HTMLResponse(pages.message_page("Nothing was changed", text), status_code=status)


class Guarded:
    """Every request passes the guards, and every response carries the headers that bind the browser."""

    def __init__(self, app: ASGIApp, guards: Guards) -> None:
        self.app = app
        self.guards = guards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        response = self._answer(request)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    if headers.get(name) != KEPT_FOR_EVER:
                        headers[name] = value
            await send(message)

        await (response or self.app)(scope, receive, with_headers)

    def _answer(self, request: Request) -> Response | None:
        """A refusal, or the exchange of the token for the cookie; None: the request is served."""
        headers, cookies = request.headers, request.cookies
        why = self.guards.refusal(request.method, headers, cookies)
        token = request.query_params.get("token")
        if why in (None, "cookie") and request.method == "GET" and token is not None:
            cookie = self.guards.exchange(token)
            if cookie is not None or why is None:
                opened_page = RedirectResponse("/", status_code=303)
                if cookie is not None:
                    opened_page.set_cookie(self.guards.cookie_name, cookie, httponly=True, samesite="strict", path="/")
                return opened_page
        if why is None:
            return None
        return HTMLResponse(pages.message_page("Refused", IN_WORDS[why]), status_code=403)


def remote_rows(world: World) -> list[Remote]:
    from acode.sync.take_over import shared_sessions

    return [
        Remote(
            session_id=one.session_id,
            title=one.title,
            state=str(one.state),
            steps=f"{one.steps_done}/{one.steps_total}",
            holder=one.holder if one.owner else "nobody",
        )
        for one in shared_sessions(world)
    ]
