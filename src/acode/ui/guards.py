"""Who may look and who may answer: the guards in front of every request of the page.

The page listens on loopback only, yet every other page in the same browser can reach it. So a request needs the cookie
that the token in the first address was exchanged for, a Host that is this server (a name that was rebound to 127.0.0.1
is refused), and for an answer an Origin that is this page and a nonce made for exactly what was shown.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Literal

from acode.hints import Command, Subject

NONCE_BYTES = 16
NONCES_KEPT_MAX = 10_000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
# With `no-referrer` a browser sends `Origin: null` with the page's own forms, and they would be refused.
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KEPT_FOR_EVER = "private, max-age=31536000, immutable"  # only for what shows nothing of a session

UI = Command("ui")
Refusal = Literal["host", "cookie", "origin", "read_only"]
IN_WORDS: dict[Refusal, str] = {
    "host": "This address is not the one that acode listens on.",
    "cookie": f"Open the address that {UI.as_command(Subject())} printed; its token opens this page once.",
    "origin": "The answer did not come from this page.",
    "read_only": "This page only shows sessions: it was started with --read-only.",
}


class Guards:
    """The secrets of one server, and the checks that use them."""

    def __init__(self, port: int, *, read_only: bool) -> None:
        self.hosts: frozenset[str] = frozenset({f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"})
        self.cookie_name: str = f"acode-{port}"
        self.read_only = read_only
        self.token: str = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._secret = secrets.token_bytes(32)
        self._token_spent = False
        self._spent: dict[str, None] = {}

    def exchange(self, token: str) -> str | None:
        """The cookie for the token, once: an address in a history or a log opens nothing a second time."""
        if self._token_spent or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self._token_spent = True
        return self._cookie

    def is_known(self, cookies: Mapping[str, str]) -> bool:
        return hmac.compare_digest(cookies.get(self.cookie_name, "").encode(), self._cookie.encode())

    def refusal(self, method: str, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Refusal | None:
        """Why a request is not served; None: it is."""
        if headers.get("host", "") not in self.hosts:
            return "host"
        if not self.is_known(cookies):
            return "cookie"
        if method in ("GET", "HEAD"):
            return None
        if headers.get("origin", "") not in {f"http://{host}" for host in self.hosts}:
            return "origin"
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "origin"
        return "read_only" if self.read_only else None

    # Nonces.

    def nonce(self, bound: str) -> str:
        """For one answer to exactly this: the session, the act, and the digest of what is shown."""
        name = secrets.token_hex(NONCE_BYTES)
        return f"{name}.{self._code(name, bound)}"

    def spend(self, nonce: str, bound: str) -> bool:
        """Whether the nonce was made for this and was not used before; from now on it is used."""
        name, _, code = nonce.partition(".")
        if not hmac.compare_digest(code.encode(), self._code(name, bound).encode()) or name in self._spent:
            return False
        self._spent[name] = None
        while len(self._spent) > NONCES_KEPT_MAX:
            del self._spent[next(iter(self._spent))]
        return True

    def _code(self, name: str, bound: str) -> str:
        return hmac.new(self._secret, f"{name}\0{bound}".encode(), hashlib.sha256).hexdigest()
