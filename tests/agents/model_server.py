"""A scripted model on the loopback address that speaks to every agent: the Anthropic, OpenAI and Gemini APIs.

`examples/agent/scripted_model.py` follows a script turn by turn, for acode's own agent. This one has a mind
(`wanted_calls`), because an agent of others decides itself what of a conversation it shows after a kill.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Protocol

from tests.agents.wanted_calls import Said, WantedCall, conversation_of

Arguments = Callable[[WantedCall], tuple[str, dict[str, Any] | str]]  # the client's tool, and what it takes
DONE = "DONE"
IN_NAMESPACE = "/"  # between the namespace of a tool and its name, as Codex groups them
Api = Literal["anthropic", "responses", "chat", "gemini"]


class Mind(Protocol):
    def next_call(self, conversation: Sequence[Said], /) -> WantedCall | None: ...


@dataclass(kw_only=True)
class Request:
    """What a client showed the model, and what the model wanted then."""

    conversation: list[Said]
    tools: list[str]
    wanted: WantedCall | None
    at: float = field(default_factory=time.monotonic)


class ModelServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, model: Mind, arguments: Arguments) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.model: Mind = model
        self.arguments = arguments
        self.requests: list[Request] = []
        self.news = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients are killed here; one that went away is no news."""

    def note(self, request: Request) -> None:
        with self.news:
            self.requests.append(request)
            self.news.notify_all()

    def wait_for_call(self, text: str, *, ended: Callable[[], bool], timeout_s: float) -> bool:
        """Until the model has asked for the call with this text; false if the client ended before."""

        def asked() -> bool:
            return any(one.wanted is not None and text in (one.wanted.text, one.wanted.path) for one in self.requests)

        deadline = time.monotonic() + timeout_s
        with self.news:
            while not asked():
                if ended() or time.monotonic() > deadline:
                    return False
                self.news.wait(0.05)
        return True


@contextlib.contextmanager
def serve(model: Mind, arguments: Arguments) -> Iterator[ModelServer]:
    server = ModelServer(model, arguments)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the name is the library's
        pass

    def do_HEAD(self) -> None:
        self.send(b"", "text/plain")

    def do_GET(self) -> None:
        listed = {"id": "scripted", "object": "model", "type": "model", "display_name": "scripted"}
        self.send_json({"object": "list", "data": [listed], "models": []} if "models" in self.path else {})

    def do_POST(self) -> None:
        asked = json.loads(self.body() or b"{}")
        path = self.path.split("?")[0]
        api = api_of(path)
        if api is None:
            self.send_json({"input_tokens": 100, "totalTokens": 100} if "ount" in path else {})
            return
        tools = tools_of(api, asked)
        conversation = conversation_of(api, asked)
        wanted = self.server.model.next_call(conversation) if tools else None
        self.server.note(Request(conversation=conversation, tools=tools, wanted=wanted))
        call = None if wanted is None else self.server.arguments(wanted)
        streams = bool(asked.get("stream")) or "stream" in path
        answer = {"anthropic": anthropic, "responses": responses, "chat": chat, "gemini": gemini}[api]
        whole, events = answer(str(asked.get("model")), call, DONE if tools else plain_answer(asked))
        if streams:
            self.send("".join(events).encode(), "text/event-stream")
        else:
            self.send_json(whole)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def send_json(self, body: Any) -> None:
        self.send(json.dumps(body).encode(), "application/json")

    def send(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def api_of(path: str) -> Api | None:
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/chat/completions"):
        return "chat"
    return "gemini" if "enerateContent" in path else None


def tools_of(api: Api, asked: dict[str, Any]) -> list[str]:
    tools = asked.get("tools") or []
    if api == "gemini":
        return [one["name"] for tool in tools for one in tool.get("functionDeclarations") or []]
    found = []
    for tool in tools:
        name = tool.get("function", tool).get("name") or tool.get("type")
        inside = [one["name"] for one in tool.get("tools") or []] if tool.get("type") == "namespace" else []
        found += [f"{name}{IN_NAMESPACE}{one}" for one in inside] or [name]
    return found


def plain_answer(asked: dict[str, Any]) -> str:
    """Side questions of a client: a title, or which model to use, for which Gemini CLI wants an object."""
    if (asked.get("generationConfig") or {}).get("responseMimeType") == "application/json":
        return json.dumps({"reasoning": "short", "model_choice": "flash", "next_speaker": "user"})
    return "ok"


# An answer in each API: whole, and as the events of a stream.

Call = tuple[str, dict[str, Any] | str] | None
Answer = tuple[dict[str, Any], list[str]]


def event(data: dict[str, Any], *, named: bool) -> str:
    return (f"event: {data['type']}\n" if named else "") + f"data: {json.dumps(data)}\n\n"


def anthropic(model: str, call: Call, text: str) -> Answer:
    id_ = uuid.uuid4().hex[:12]
    block: dict[str, Any] = {"type": "text", "text": text}
    empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
    if call is not None:
        block = {"type": "tool_use", "id": f"toolu_{id_}", "name": call[0], "input": call[1]}
        empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    stop = "end_turn" if call is None else "tool_use"
    usage = {"input_tokens": 10, "output_tokens": 10}
    head = {"id": f"msg_{id_}", "type": "message", "role": "assistant", "model": model, "usage": usage}
    whole = {**head, "content": [block], "stop_reason": stop, "stop_sequence": None}
    events = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return whole, [event(one, named=True) for one in events]


def responses(model: str, call: Call, text: str) -> Answer:
    id_ = uuid.uuid4().hex[:12]
    said = {"type": "output_text", "text": text, "annotations": []}
    item: dict[str, Any] = {"type": "message", "id": f"msg_{id_}", "role": "assistant", "content": [said]}
    if call is not None:
        space, _, name = call[0].rpartition(IN_NAMESPACE)
        item = {"id": f"fc_{id_}", "call_id": f"call_{id_}", "name": name, **({"namespace": space} if space else {})}
        if isinstance(call[1], str):
            item |= {"type": "custom_tool_call", "input": call[1]}
        else:
            item |= {"type": "function_call", "arguments": json.dumps(call[1])}
    item["status"] = "completed"
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 20,
    }
    whole = {"id": f"resp_{id_}", "object": "response", "created_at": int(time.time()), "model": model}
    whole |= {"status": "completed", "output": [item], "usage": usage, "error": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return whole, [event({**one, "sequence_number": number}, named=True) for number, one in enumerate(events)]


def chat(model: str, call: Call, text: str) -> Answer:
    id_ = uuid.uuid4().hex[:12]
    message: dict[str, Any] = {"role": "assistant", "content": text if call is None else None}
    if call is not None:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message["tool_calls"] = [{"index": 0, "id": f"call_{id_}", "type": "function", "function": function}]
    finish = "stop" if call is None else "tool_calls"
    head = {"id": f"chatcmpl-{id_}", "created": int(time.time()), "model": model}
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    pieces = [
        {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage},
    ]
    events = [event({**head, "object": "chat.completion.chunk", **one}, named=False) for one in pieces]
    return whole, [*events, "data: [DONE]\n\n"]


def gemini(model: str, call: Call, text: str) -> Answer:
    part: dict[str, Any] = {"text": text}
    if call is not None:
        part = {"functionCall": {"name": call[0], "args": call[1]}, "thoughtSignature": "c2ln"}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}
    whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}
    return whole, [event(whole, named=False)]
