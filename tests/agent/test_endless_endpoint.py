"""A model endpoint that never ends a line, an event or an error: memory stays bounded, and the error has a name."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

import pytest

from acode.agent import bounded_response
from acode.agent.endpoint import request
from acode.agent.messages import Setup
from acode.errors import ModelTrouble
from tests.agent.scripted import ask_for

CHUNK = 64 * 1024
SENT_MAX = 64 * 1024 * 1024


@contextlib.contextmanager
def endless(status: int, kind: str, begin: bytes, piece: bytes) -> Iterator[tuple[str, list[int]]]:
    """(its address, how much it was able to send): it stops when nobody reads any more."""
    sent = [0]

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(begin)
                while sent[0] < SENT_MAX:
                    self.wfile.write(piece)
                    sent[0] += len(piece)

        def log_message(self, *_: object) -> None:
            return None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", sent
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "kind", "begin", "piece"),
    [
        (200, "text/event-stream", b"data: ", b"x" * CHUNK),
        (200, "text/event-stream", b"", b"data: " + b"x" * CHUNK + b"\n"),
        (200, "application/json", b'{"a": "', b"x" * CHUNK),
        (500, "text/plain", b"", b"x" * 100 + b"\n" * CHUNK),
    ],
    ids=["one line", "one event", "no stream", "an error"],
)
def test_an_endpoint_that_sends_without_end_is_a_named_error(
    status: int, kind: str, begin: bytes, piece: bytes
) -> None:
    with endless(status, kind, begin, piece) as (base_url, sent):
        setup = Setup(name="m", base_url=base_url, api_key_env="NONE")
        with pytest.raises(ModelTrouble) as refused:
            request(setup, ask_for("hello"), api_key=None, timeout_s=10, show=lambda _: None, stopped=lambda: False)
    assert "bytes" in refused.value.message
    assert sent[0] < 2 * bounded_response.EVENT_BYTES_MAX + SENT_MAX // 4
