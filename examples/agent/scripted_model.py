"""A model server that says what a script tells it to: the OpenAI chat API, offline, with nothing but Python.

    python scripted_model.py SCRIPT.json [--port 0] [--ledger FILE] [--api-key-env NAME]

It prints its base URL and answers until it is stopped. Which turn of the script is given depends only on what a
request contains (how many answers its conversation holds, and what stands in its instructions), never on how many
requests came before: a client that was killed and asks again is told the same again.

The script is a list of turns, or {"models": [...], "response_format": true, "turns": [...]}. A turn:

    {"says": "text of the task", "answers": 0,         which requests it is for; both may be left out
     "text": "Let me look.",                           what the model says,
     "json": {...},                                    or an object as text
     "calls": [{"tool": "read_file", "arguments": {"path": "a"}}],   arguments may be text, to be malformed
     "finish": "stop", "pace_s": 0.1,                  pace: the pause between two pieces of a stream
     "fault": {...}}                                   instead: see FAULTS
    {"says": "text of the task", "turns": [...]}       a conversation: the n-th turn is for n answers

It must never be reachable from elsewhere: it listens on the loopback address only.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import hmac
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REQUEST_BYTES_MAX = 64 * 1024 * 1024
HANG_S_MAX = 3600
ASKING = ("system", "developer", "user")
FAULTS = {
    "status": "answer with this HTTP status; with headers and body, if given",
    "content_type": "answer 200 with this content type and body",
    "delay_s": "be silent for so long, then give the turn",
    "cut_after_bytes": "break the connection after so many bytes of the stream",
    "end_after_bytes": "end the stream in good order after so many bytes, in the middle of the answer",
    "malformed": "send a piece that is no JSON",
    "error": "send this error object inside the stream",
    "empty": "say nothing at all, in good form",
    "hang": "never answer",
    "times": "only the first so many requests of this turn meet the fault; later ones are given the turn",
}


class Script:
    """The turns, and the choice among them."""

    def __init__(self, data: Any) -> None:
        whole = data if isinstance(data, dict) else {"turns": data}
        self.models: list[str] = list(whole.get("models", ["scripted"]))
        self.takes_response_format: bool = whole.get("response_format", True)
        self.turns: list[dict[str, Any]] = [turn for entry in whole["turns"] for turn in spread(entry)]

    def choose(self, messages: list[dict[str, Any]]) -> int | None:
        answers = sum(message.get("role") == "assistant" for message in messages)
        asked = "\n".join(text_of(message) for message in messages if message.get("role") in ASKING)
        for number, turn in enumerate(self.turns):
            says = turn.get("says", [])
            wanted = [says] if isinstance(says, str) else says
            if turn.get("answers", answers) == answers and all(text in asked for text in wanted):
                return number
        return None


def spread(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """A conversation as turns of their own: the n-th is for a request that holds n answers."""
    if "turns" not in entry:
        return [entry]
    shared = {name: value for name, value in entry.items() if name != "turns"}
    return [{**shared, "answers": number, **turn} for number, turn in enumerate(entry["turns"])]


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class Ledger:
    """What was asked, one line per request: in memory, and in a file that a later server reads again."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.entries: list[dict[str, Any]] = []
        if path is not None and path.exists():
            self.entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def write(self, entry: dict[str, Any]) -> int:
        """Returns how often this turn was asked for before."""
        with self.lock:
            before = len([known for known in self.entries if known["turn"] == entry["turn"]])
            self.entries.append(entry)
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
        return before


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Any, *, port: int = 0, ledger: Path | None = None, api_key: str | None = None) -> None:
        super().__init__(("127.0.0.1", port), Conversation)
        self.script = Script(script)
        self.ledger = Ledger(ledger)
        self.api_key = api_key
        self.ending = threading.Event()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        return list(self.ledger.entries)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what this server is for; anything else is a mistake in a script."""
        if not isinstance(sys.exception() if sys.version_info >= (3, 12) else sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serve(script: Any, *, port: int = 0, ledger: Path | None = None, api_key: str | None = None) -> Iterator[Server]:
    """The server in a thread of this process, until the block is left."""
    server = Server(script, port=port, ledger=ledger, api_key=api_key)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Conversation(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the name is the library's
        pass

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            self.refuse(404, f"there is nothing at {self.path}")
        elif self.admitted():
            names = self.server.script.models
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "script"} for name in names]
            self.send(200, {"object": "list", "data": models})

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length", "0")), REQUEST_BYTES_MAX)
        body = self.rfile.read(length)
        if self.path != "/v1/chat/completions":
            self.refuse(404, f"there is nothing at {self.path}")
        elif self.admitted():
            self.answer(json.loads(body))

    def answer(self, asked: dict[str, Any]) -> None:
        script = self.server.script
        number = script.choose(asked["messages"])
        turn = {} if number is None else script.turns[number]
        before = self.server.ledger.write(entry(asked, number, turn))
        fault = turn.get("fault", {})
        if asked.get("model") not in script.models:
            self.refuse(404, f"model '{asked.get('model')}' not found", code="model_not_found")
        elif "response_format" in asked and not script.takes_response_format:
            self.refuse(400, "response_format is not supported by this model")
        elif number is None:
            self.refuse(500, "the script has no turn for this request")
        else:
            self.give(asked, turn, fault if before < fault.get("times", before + 1) else {})

    def admitted(self) -> bool:
        key = self.server.api_key
        if key is None or hmac.compare_digest(self.headers.get("Authorization", ""), f"Bearer {key}"):
            return True
        # Some servers repeat the key that they refuse, so a client must never show what a server said as it is.
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.refuse(401, f"Incorrect API key provided: {given}", code="invalid_api_key")
        return False

    def give(self, asked: dict[str, Any], turn: dict[str, Any], fault: dict[str, Any]) -> None:
        if "hang" in fault:
            self.server.ending.wait(HANG_S_MAX)
            self.close_connection = True
        elif "status" in fault:
            self.send(fault["status"], fault.get("body", {"error": {"message": "as scripted"}}), fault.get("headers"))
        elif "content_type" in fault:
            self.send(200, fault.get("body", ""), {"Content-Type": fault["content_type"]})
        elif asked.get("stream"):
            self.server.ending.wait(fault.get("delay_s", 0))
            self.stream(pieces(asked, turn, fault), turn.get("pace_s", 0), fault)
        else:
            self.server.ending.wait(fault.get("delay_s", 0))
            self.send(200, whole(asked, turn))

    def stream(self, events: list[bytes], pace_s: float, fault: dict[str, Any]) -> None:
        left = fault.get("cut_after_bytes", fault.get("end_after_bytes"))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            piece = event if left is None else event[:left]
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            if left is not None:
                left -= len(piece)
                if left == 0:
                    break
            if pace_s:
                self.server.ending.wait(pace_s)
        if "cut_after_bytes" in fault:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(b"0\r\n\r\n")

    def refuse(self, status: int, message: str, code: str | None = None) -> None:
        self.send(status, {"error": {"message": message, "type": "invalid_request_error", "code": code}})

    def send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, str(value))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


# What is said.


def entry(asked: dict[str, Any], number: int | None, turn: dict[str, Any]) -> dict[str, Any]:
    """A line of the ledger. The digest covers all that a model would read."""
    read = {name: asked.get(name) for name in ("messages", "tools", "response_format")}
    return {
        "turn": number,
        "answers": answers_in(asked),
        "digest": hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest(),
        "stream": bool(asked.get("stream")),
        **tokens(asked, turn),
    }


def tokens(asked: dict[str, Any], turn: dict[str, Any]) -> dict[str, int]:
    said = said_by(turn) + "".join(argument_text(call) for call in turn.get("calls", []))
    prompt, completion = (max(1, len(text) // 4) for text in (json.dumps(asked["messages"]), said))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def said_by(turn: dict[str, Any]) -> str:
    return json.dumps(turn["json"]) if "json" in turn else str(turn.get("text", ""))


def argument_text(call: dict[str, Any]) -> str:
    arguments = call.get("arguments", {})
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def finish_of(turn: dict[str, Any]) -> str:
    return str(turn.get("finish", "tool_calls" if turn.get("calls") else "stop"))


def whole(asked: dict[str, Any], turn: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said_by(turn) or None}
    if turn.get("calls"):
        message["tool_calls"] = calls_of(asked, turn)
    choice = {"index": 0, "message": message, "finish_reason": finish_of(turn)}
    return {**head(asked, "chat.completion"), "choices": [choice], "usage": tokens(asked, turn)}


def head(asked: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-scripted", "object": kind, "created": int(time.time()), "model": asked["model"]}


def calls_of(asked: dict[str, Any], turn: dict[str, Any]) -> list[dict[str, Any]]:
    """Ids are unique in a conversation, as real endpoints make them, and the same whenever the turn is given."""
    calls = []
    for index, call in enumerate(turn.get("calls", [])):
        id_ = call.get("id", f"call_{answers_in(asked)}_{index}")
        function = {"name": call["tool"], "arguments": argument_text(call)}
        calls.append({"id": id_, "type": "function", "function": function})
    return calls


def answers_in(asked: dict[str, Any]) -> int:
    return sum(message.get("role") == "assistant" for message in asked["messages"])


def pieces(asked: dict[str, Any], turn: dict[str, Any], fault: dict[str, Any]) -> list[bytes]:
    """The stream's events: text word by word, each call's name and then its arguments in halves, the end, the usage."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if "empty" not in fault:
        deltas += [{"content": word} for word in re.findall(r"\s*\S+\s*$|\s*\S+", said_by(turn))]
        for index, call in enumerate(calls_of(asked, turn)):
            deltas += call_deltas(index, call)
    frame = head(asked, "chat.completion.chunk")
    events = [{**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": finish_of(turn)}]})
    if (asked.get("stream_options") or {}).get("include_usage"):
        events.append({**frame, "choices": [], "usage": tokens(asked, turn)})
    lines = [json.dumps(event) for event in events]
    if "malformed" in fault:
        lines[1] = lines[1][:-7]
    if "error" in fault:
        lines[2:] = [json.dumps({"error": fault["error"]})]
    return [f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"]]


def call_deltas(index: int, call: dict[str, Any]) -> list[dict[str, Any]]:
    arguments = call["function"]["arguments"]
    half = len(arguments) // 2
    first = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
    rest = [{"index": index, "function": {"arguments": part}} for part in (arguments[:half], arguments[half:])]
    return [{"tool_calls": [delta]} for delta in (first, *rest)]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="A model server that says what a script tells it to.")
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--ledger", type=Path, help="append a line for every request to this file")
    parser.add_argument("--api-key-env", metavar="NAME", help="refuse requests without the key in this variable")
    args = parser.parse_args(argv)
    key = os.environ.get(args.api_key_env) if args.api_key_env else None
    if args.api_key_env and not key:
        parser.error(f"the environment variable {args.api_key_env} is empty")
    script = json.loads(args.script.read_text(encoding="utf-8"))
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with serve(script, port=args.port, ledger=args.ledger, api_key=key) as server:
        print(server.base_url, flush=True)
        while not ended.wait(0.5):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
