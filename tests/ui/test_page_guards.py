"""Who is let in and whose answer counts: asked by hand, as other programs would ask, and by a browser that another page
has led here.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest

from tests.cli.plans import GATE, save
from tests.driver import Acode
from tests.ui.conftest import Served

Serve = Callable[..., Served]


@pytest.fixture
def served(acode: Acode, workspace: Path, serve: Serve) -> Served:
    acode("run", save(workspace, GATE))
    return serve()


def session_address(served: Served) -> str:
    _, _, body = served.request("GET", "/", Cookie=served.cookie())
    found = re.search(r'href="(/w/[^"]+)"', body)
    assert found is not None
    return found[1]


def approval(served: Served, address: str) -> dict[str, str]:
    """The fields that the button Approve would send."""
    _, _, body = served.request("GET", address, Cookie=served.cookie())
    form = body[body.index("answer gate") :]
    found = re.search(r'value="(approve [^"]+)"', form)
    fields = dict(re.findall(r'<input type="hidden" name="(target|digest)" value="([^"]*)"', form)[:2])
    assert found is not None
    return {"answer": found[1], **fields}


def grants(acode: Acode) -> int:
    return sum(one["type"] == "approval_granted" for one in acode("session", "history", "--json").json)


def test_without_the_cookie_nothing_is_shown(served: Served) -> None:
    for path in ("/", "/static/page.js", "/live"):
        status, _, body = served.request("GET", path)
        assert status == 403, path
        assert "Deploy" not in body


def test_the_token_opens_the_page_once(served: Served) -> None:
    parts = urlsplit(served.address)
    first = served.request("GET", f"/?{parts.query}")
    assert (first[0], first[1]["location"]) == (303, "/")
    assert "HttpOnly" in first[1]["set-cookie"]
    assert "samesite=strict" in first[1]["set-cookie"].lower()
    assert served.request("GET", f"/?{parts.query}")[0] == 403
    assert served.request("GET", "/?token=wrong")[0] == 403


def test_a_name_that_was_rebound_to_this_machine_is_refused(served: Served) -> None:
    cookie = served.cookie()
    for host in ("evil.example", f"evil.example:{urlsplit(served.base).port}", "127.0.0.1", ""):
        assert served.request("GET", "/", Cookie=cookie, Host=host)[0] == 403, host


def test_an_answer_from_another_page_is_not_recorded(acode: Acode, served: Served) -> None:
    address = session_address(served)
    body = urlencode(approval(served, address))
    cookie, good = served.cookie(), served.base
    for headers in (
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": good, "Sec_Fetch_Site": "cross-site"},
    ):
        assert served.request("POST", f"{address}/answer", body, Cookie=cookie, **headers)[0] == 403, headers
    assert grants(acode) == 0


def test_a_browser_that_another_page_leads_here_is_refused_and_the_pages_own_button_is_not(
    acode: Acode, served: Served
) -> None:
    """The other page is of the same site, so that the browser sends the cookie along: only Origin tells them apart."""
    address = session_address(served)
    fields = "".join(f'<input name="{name}" value="{value}">' for name, value in approval(served, address).items())
    form = f'<form method="post" action="{served.base}{address}/answer">{fields}<button>Win</button></form>'
    page = served.window(address)
    page.route("http://127.0.0.1:9/**", lambda route: route.fulfill(body=form, content_type="text/html"))
    page.goto("http://127.0.0.1:9/prize")
    with page.expect_response(f"**{address}/answer") as refused:
        page.get_by_role("button", name="Win").click()
    assert refused.value.status == 403 and "did not come from this page" in page.content()
    assert grants(acode) == 0
    port = urlsplit(served.base).port
    rebound = page.goto(f"http://rebound.localhost:{port}{address}")
    stranger = served.browser.new_page().goto(f"{served.base}{address}")
    assert rebound is not None and stranger is not None
    assert (rebound.status, stranger.status) == (403, 403)
    page.goto(served.base + address)
    with page.expect_response(f"**{address}/answer") as accepted:
        page.get_by_role("button", name="Approve").click()
    assert accepted.value.status == 303 and grants(acode) == 1


def test_an_answer_counts_once_and_only_for_what_was_shown(acode: Acode, served: Served) -> None:
    address = session_address(served)
    cookie, origin = served.cookie(), served.base
    fields = approval(served, address)
    forged = (
        {**fields, "digest": "0" * 64},
        {**fields, "target": "other.1"},
        {**fields, "answer": fields["answer"].replace("approve", "deny")},
        {**fields, "answer": "approve made.up"},
        {},
    )
    for one in forged:
        assert served.request("POST", f"{address}/answer", urlencode(one), Cookie=cookie, Origin=origin)[0] == 403
    assert grants(acode) == 0
    sent = urlencode(fields)
    assert served.request("POST", f"{address}/answer", sent, Cookie=cookie, Origin=origin)[0] == 303
    assert served.request("POST", f"{address}/answer", sent, Cookie=cookie, Origin=origin)[0] == 403
    assert grants(acode) == 1


def test_a_nonce_of_one_session_is_worth_nothing_in_another(acode: Acode, workspace: Path, served: Served) -> None:
    address = session_address(served)
    fields = approval(served, address)
    acode("run", "--new", save(workspace, GATE.replace("Deploy", "Ship"), "other.yml"))
    other = next(one for one in acode("session", "list", "--json").json if one["session_id"] not in address)
    target = f"{address.rsplit('/', 1)[0]}/{other['session_id']}"
    sent = urlencode(fields)
    assert served.request("POST", f"{target}/answer", sent, Cookie=served.cookie(), Origin=served.base)[0] == 403
    assert grants(acode) == 0


def test_read_only_refuses_every_answer(acode: Acode, workspace: Path, serve: Serve) -> None:
    acode("run", save(workspace, GATE))
    served = serve("--read-only")
    address = session_address(served)
    status, _, _ = served.request(
        "POST", f"{address}/answer", "answer=approve", Cookie=served.cookie(), Origin=served.base
    )
    assert status == 403


def test_every_answer_carries_the_headers_that_bind_the_browser(served: Served) -> None:
    cookie = served.cookie()
    for path in ("/", session_address(served), "/static/page.css", "/nothing-here"):
        _, headers, _ = served.request("GET", path, Cookie=cookie)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin"


def test_a_browser_may_keep_the_style_and_the_script_under_the_address_that_names_their_content(served: Served) -> None:
    cookie = served.cookie()
    _, _, page = served.request("GET", "/", Cookie=cookie)
    named = re.findall(r'(?:href|src)="(/static/page\.(?:css|js)\?[0-9a-f]+)"', page)
    assert len(named) == 2
    for address in named:
        _, headers, _ = served.request("GET", address, Cookie=cookie)
        assert "immutable" in headers["cache-control"] and "public" not in headers["cache-control"]
        _, headers, _ = served.request("GET", f"{address}0", Cookie=cookie)
        assert headers["cache-control"] == "no-store"
        assert served.request("GET", address)[0] == 403


def test_strange_addresses_are_answered_and_never_crash(served: Served) -> None:
    cookie, address = served.cookie(), session_address(served)
    place = address.split("/")[2]
    for path in (
        f"/w/{place}/s/nothere",
        "/w/nothere/s/nothere",
        f"{address}/rows?from=99999999999",
        f"{address}/rows?from=-1",
        f"{address}/step?id={quote('../../etc/passwd')}",
        f"{address}/step",
        "/static/../server.py",
        "/static/..%2fserver.py",
    ):
        assert served.request("GET", path, Cookie=cookie)[0] in (200, 404), path


def test_ctrl_c_ends_the_page_without_an_error(acode: Acode) -> None:
    serving = acode.process("ui", "--no-open")
    serving.wait_for_line("Stop it with Ctrl\\+C")
    serving.signal(signal.SIGINT)
    ended = serving.finish()
    assert ended.exit_code == 130 and "error" not in ended.stderr
