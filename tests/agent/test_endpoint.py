"""One request to a model: what comes back, what is shown on the way, and what each thing that goes wrong is called."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acode.agent import endpoint_errors
from acode.agent.availability import available, same_model
from acode.agent.endpoint import price, request
from acode.agent.messages import Ask, Call, Message, Reply, Setup, Tool
from acode.errors import (
    AcodeError,
    BadReply,
    ContextTooLong,
    ModelOverloaded,
    ModelRefused,
    ModelTimeout,
    ModelTrouble,
    ModelUnavailable,
    ModelUnknown,
    ModelUnsupported,
)
from tests.agent.scripted import KEY_VARIABLE, Serve, ask_for, setup_of

READ = Tool(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
PLAN = {
    "type": "object",
    "properties": {"tasks": {"type": "array", "items": {"type": "string"}}},
    "required": ["tasks"],
}
SECRET = "sk-live-4f9a8b7c6d5e4f3a2b1c"
LONG_S = 30.0


def asked(
    server: Any,
    ask: Ask | None = None,
    *,
    name: str = "scripted",
    key: str | None = None,
    timeout_s: float = LONG_S,
    show: Callable[[str], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Reply:
    question = ask or ask_for("hello")
    return request(setup_of(server, name), question, api_key=key, timeout_s=timeout_s, show=show, stopped=stopped)


def refusal(server: Any, ask: Ask | None = None, **how: Any) -> ModelTrouble:
    """The error of a request that must fail; nothing of the library's hangs on it, where a key could be found."""
    with pytest.raises(ModelTrouble) as caught:
        asked(server, ask, **how)
    error = caught.value
    assert error.__cause__ is None and error.__context__ is None
    assert error.hint
    return error


# What comes back.


def test_text_is_shown_piece_by_piece_in_order_and_comes_back_whole(serve: Serve) -> None:
    shown: list[str] = []
    reply = asked(serve([{"text": "One two\n three."}]), show=shown.append)
    assert shown == ["One", " two", "\n three."]
    assert reply == Reply(
        text="One two\n three.", finish="stop", input_tokens=reply.input_tokens, output_tokens=3, model="scripted"
    )
    assert reply.input_tokens > 0


def test_a_piece_is_shown_while_the_rest_is_still_to_come(serve: Serve) -> None:
    shown_at: list[float] = []
    asked(serve([{"text": "first last", "pace_s": 0.3}]), show=lambda _: shown_at.append(time.monotonic()))
    assert time.monotonic() - shown_at[0] > 0.5  # two pauses lie between the first piece and the end


def test_tool_calls_come_back_in_order_and_malformed_arguments_as_they_are(serve: Serve) -> None:
    malformed = '{"path": "a.txt'
    calls = [{"tool": "read_file", "arguments": {"path": "é"}}, {"tool": "read_file", "arguments": malformed}]
    reply = asked(serve([{"text": "Let me look.", "calls": calls}]), ask_for("hello", tools=(READ,)))
    assert [(call.tool, call.arguments) for call in reply.calls] == [
        ("read_file", json.dumps({"path": "é"})),
        ("read_file", malformed),
    ]
    assert len({call.id for call in reply.calls}) == 2
    assert (reply.text, reply.finish) == ("Let me look.", "tool_calls")


def test_a_call_to_a_tool_that_nobody_offered_comes_back_too(serve: Serve) -> None:
    reply = asked(serve([{"calls": [{"tool": "rm_rf", "arguments": "[]"}]}]), ask_for("hello", tools=(READ,)))
    assert [(call.tool, call.arguments) for call in reply.calls] == [("rm_rf", "[]")]


def test_a_conversation_is_carried_on_with_its_calls_and_their_answers(serve: Serve) -> None:
    server = serve([{"says": "hello", "turns": [{"text": "never"}, {"text": "It says 7."}]}])
    broken = Call(id="c2", tool="read_file", arguments="{oops")
    messages = (
        Message(role="user", text="hello"),
        Message(role="user", text="and again"),
        Message(
            role="assistant", text="Looking.", calls=(Call(id="c1", tool="read_file", arguments='{"path":"a"}'), broken)
        ),
        Message(role="tool", text="7", call_id="c1", tool="read_file"),
        Message(role="tool", text="malformed arguments", call_id="c2", tool="read_file"),
    )
    with recorded(server) as bodies:
        reply = asked(server, Ask(instructions="Be brief.", messages=messages, tools=(READ,)))
    assert reply.text == "It says 7."
    (body,) = bodies
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert body["messages"][1]["content"] == "hello\n\nand again"  # small models insist on taking turns
    sent = [call["function"]["arguments"] for call in body["messages"][2]["tool_calls"]]
    assert sent[0] == '{"path":"a"}'
    assert "{oops" in json.loads(sent[1]).values()  # servers that parse the history must be able to


def test_the_same_question_is_the_same_request_whenever_it_is_asked(serve: Serve) -> None:
    server = serve([{"text": "yes"}])
    for _ in range(2):
        asked(server, ask_for("hello", tools=(READ,)))
    first, second = (entry["digest"] for entry in server.requests)
    assert first == second


@contextlib.contextmanager
def recorded(server: Any) -> Iterator[list[dict[str, Any]]]:
    """The bodies that the server was sent, as they came."""
    bodies: list[dict[str, Any]] = []
    answer = server.RequestHandlerClass.answer

    class Recording(server.RequestHandlerClass):  # type: ignore[misc,name-defined]
        def answer(self, body: dict[str, Any]) -> None:
            bodies.append(body)
            answer(self, body)

    before, server.RequestHandlerClass = server.RequestHandlerClass, Recording
    yield bodies
    server.RequestHandlerClass = before


# An answer with a schema.


def test_an_answer_with_a_schema_is_asked_for_as_such_and_comes_back_as_json(serve: Serve) -> None:
    server = serve([{"json": {"tasks": ["a", "b"]}}])
    with recorded(server) as bodies:
        reply = asked(server, ask_for("plan", answer=PLAN))
    assert json.loads(reply.text) == {"tasks": ["a", "b"]}
    (body,) = bodies
    assert body["response_format"]["json_schema"]["schema"] == PLAN
    assert '"tasks"' in body["messages"][0]["content"]  # a server that ignores the format still lets the model read it


def test_an_endpoint_without_schemas_is_asked_in_words_and_the_object_is_found_in_the_prose(serve: Serve) -> None:
    prose = 'Sure! Here it is:\n```json\n{"tasks": ["a"]}\n```\nAnything else?'
    server = serve({"response_format": False, "turns": [{"text": prose}]})
    with recorded(server) as bodies:
        reply = asked(server, ask_for("plan", answer=PLAN))
    assert reply.text == '{"tasks": ["a"]}'
    assert ["response_format" in body for body in bodies] == [True, False]


def test_an_answer_that_was_cut_off_is_not_replaced_by_a_part_of_itself(serve: Serve) -> None:
    cut = '{"tasks": [{"a": 1}, {"b"'
    assert asked(serve([{"text": cut, "finish": "length"}]), ask_for("plan", answer=PLAN)).text == cut


# What goes wrong.


def test_nobody_listening_is_an_unavailable_model() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        setup = Setup(name="m", base_url=f"http://127.0.0.1:{free.getsockname()[1]}/v1", api_key_env=KEY_VARIABLE)
        with pytest.raises(ModelUnavailable, match="connection refused") as caught:
            request(setup, ask_for("x"), api_key=None, timeout_s=LONG_S, show=print, stopped=lambda: False)
        found = available(setup, None, LONG_S)
    assert caught.value.exit_code == 17
    assert isinstance(found, ModelUnavailable) and "connection refused" in found.message


def test_a_host_that_cannot_be_resolved_is_an_unavailable_model() -> None:
    setup = Setup(name="m", base_url="http://nowhere.invalid/v1", api_key_env=KEY_VARIABLE)
    with pytest.raises(ModelUnavailable, match=r"nowhere\.invalid"):
        request(setup, ask_for("x"), api_key=None, timeout_s=LONG_S, show=print, stopped=lambda: False)
    assert isinstance(available(setup, None, LONG_S), ModelUnavailable)


def test_an_unknown_model_is_named_with_the_likeliest_of_those_that_are_there(serve: Serve) -> None:
    models = ["llama3.2:latest", "qwen3", "phi4", "gemma3", "mistral", "smollm2", "granite4"]
    server = serve({"models": models, "turns": [{"text": "x"}]})
    error = refusal(server, name="lama3.2")
    assert isinstance(error, ModelUnknown) and error.exit_code == 17
    assert "lama3.2" in error.message
    assert error.hint.startswith(
        "Did you mean llama3.2:latest? It has llama3.2:latest, gemma3, granite4, mistral, phi4"
    )
    assert "and 2 more" in error.hint
    assert error.details["models"] == ["llama3.2:latest", "gemma3", "granite4", "mistral", "phi4"]
    same = available(setup_of(server, "lama3.2"), None, LONG_S)
    assert same is not None and same.as_dict() == error.as_dict()


def test_a_404_from_something_that_is_no_model_server_blames_the_address_not_the_model(serve: Serve) -> None:
    server = serve([{"text": "x"}])
    setup = Setup(name="scripted", base_url=server.base_url.removesuffix("/v1"), api_key_env=KEY_VARIABLE)
    with pytest.raises(ModelUnavailable, match="speaks the OpenAI chat API"):
        request(setup, ask_for("x"), api_key=None, timeout_s=LONG_S, show=print, stopped=lambda: False)
    assert isinstance(available(setup, None, LONG_S), ModelUnavailable)


def test_a_wrong_key_is_refused_by_the_name_of_its_variable_and_never_shown(serve: Serve) -> None:
    server = serve([{"text": "x"}], api_key="the-right-one")
    error = refusal(server, key=SECRET)  # this server repeats the key in its answer
    assert isinstance(error, ModelRefused) and error.exit_code == 3
    assert KEY_VARIABLE in error.message and KEY_VARIABLE in error.hint
    assert SECRET not in json.dumps(error.as_dict())
    found = available(setup_of(server), SECRET, LONG_S)
    assert isinstance(found, ModelRefused) and SECRET not in json.dumps(found.as_dict())


def test_no_key_where_one_is_wanted_says_which_variable_to_set(serve: Serve) -> None:
    error = refusal(serve([{"text": "x"}], api_key="the-right-one"))
    assert isinstance(error, ModelRefused)
    assert f"{KEY_VARIABLE} is not set" in error.message


def test_a_right_key_is_accepted_also_with_the_line_end_that_a_file_left(serve: Serve) -> None:
    server = serve([{"text": "yes"}], api_key=SECRET)
    assert asked(server, key=f"{SECRET}\n").text == "yes"
    assert available(setup_of(server), f"{SECRET}\n", LONG_S) is None


def test_what_no_header_can_carry_is_refused_before_it_is_sent(serve: Serve) -> None:
    server = serve([{"text": "yes"}])
    pasted = "sk-abc\nexport OTHER=1"
    error = refusal(server, key=pasted)
    found = available(setup_of(server), pasted, LONG_S)
    assert isinstance(error, ModelRefused) and isinstance(found, ModelRefused)
    assert "sk-abc" not in json.dumps([error.as_dict(), found.as_dict()])
    assert server.requests == []


FAULTS: list[tuple[dict[str, Any], type[ModelTrouble], int]] = [
    ({"status": 429}, ModelOverloaded, 75),
    ({"status": 503}, ModelOverloaded, 75),
    ({"status": 529}, ModelOverloaded, 75),
    ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, ModelOverloaded, 75),
    ({"status": 504}, ModelTimeout, 75),
    ({"status": 500, "body": "Internal Server Error"}, BadReply, 75),
    ({"status": 502, "headers": {"Content-Type": "text/html"}, "body": "<html>Bad Gateway</html>"}, BadReply, 75),
    ({"cut_after_bytes": 5}, BadReply, 75),
    ({"cut_after_bytes": 500}, BadReply, 75),
    ({"end_after_bytes": 500}, BadReply, 75),
    ({"malformed": True}, BadReply, 75),
    ({"empty": True}, BadReply, 75),
    ({"content_type": "text/html", "body": "<html>Welcome to the hotel's network</html>"}, BadReply, 75),
    ({"error": {"message": "the model runner has stopped"}}, BadReply, 75),
    ({"status": 403}, ModelRefused, 3),
    ({"status": 402}, ModelTrouble, 1),
    ({"status": 429, "body": {"error": {"message": "pay", "code": "insufficient_quota"}}}, ModelTrouble, 1),
    ({"status": 400, "body": {"error": {"message": "tools are not supported"}}}, ModelTrouble, 1),
]


@pytest.mark.parametrize(("fault", "cls", "exit_code"), FAULTS, ids=lambda value: str(value)[:60])
def test_every_fault_of_a_server_has_its_name_and_is_asked_about_once(
    serve: Serve, fault: dict[str, Any], cls: type[ModelTrouble], exit_code: int
) -> None:
    server = serve([{"text": "one two three", "fault": fault}])
    error = refusal(server, key=SECRET)
    assert (type(error), error.exit_code) == (cls, exit_code)
    assert SECRET not in json.dumps(error.as_dict())
    assert len(server.requests) == 1, "asking again is for acode's policy, not for the library"


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}}, 7),
        ({"status": 429, "headers": {"retry-after-ms": "1500"}}, 2),
        ({"status": 503, "body": {"error": {"message": "Please try again in 1m2.5s."}}}, 63),
        ({"status": 429, "body": {"error": {"details": [{"retryDelay": "34s"}]}}}, 34),
        ({"status": 429, "headers": {"Retry-After": "99999999"}}, endpoint_errors.RETRY_AFTER_S_MAX),
        ({"status": 429, "headers": {"Retry-After": "soon"}}, 0),
    ],
    ids=str,
)
def test_how_long_a_server_wants_to_be_left_alone_is_known(serve: Serve, fault: dict[str, Any], seconds: int) -> None:
    error = refusal(serve([{"fault": fault}]))
    assert isinstance(error, ModelOverloaded)
    assert error.retry_after_s == seconds


@pytest.mark.parametrize(
    "body",
    [
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens.",
                "code": "context_length_exceeded",
            }
        },
        {"error": {"code": 400, "message": "request exceeds it", "type": "exceed_context_size_error", "n_ctx": 4096}},
        {"error": {"message": "the request exceeds the available context size, try increasing it"}},
        {"error": "input length exceeds the context length"},
        {
            "object": "error",
            "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096",
        },
        {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}},
    ],
    ids=lambda body: str(body)[:50],
)
@pytest.mark.parametrize("status", [400, 500])
def test_a_conversation_that_is_too_long_is_recognised_in_the_words_of_every_server(
    serve: Serve, body: dict[str, Any], status: int
) -> None:
    error = refusal(serve([{"fault": {"status": status, "body": body}}]))
    assert isinstance(error, ContextTooLong)
    assert (error.exit_code, error.pause, error.interruption) == (1, "context_reset", "context_reset")


def test_a_server_that_never_answers_is_given_up_when_the_time_is_over(serve: Serve) -> None:
    begun = time.monotonic()
    error = refusal(serve([{"fault": {"hang": True}}]), timeout_s=0.3)
    assert isinstance(error, ModelTimeout) and error.exit_code == 75
    assert "0.3 s" in error.message
    assert time.monotonic() - begun < 10


def test_a_slow_model_that_keeps_talking_is_not_cut_off(serve: Serve) -> None:
    text = " ".join("abcdefghij")
    reply = asked(serve([{"text": text, "pace_s": 0.3}]), timeout_s=2.5)
    assert reply.text == text


def test_whoever_wants_it_to_end_is_heard_while_the_server_is_silent(serve: Serve) -> None:
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        asked(serve([{"fault": {"hang": True}}]), stopped=lambda: True)
    assert time.monotonic() - begun < 10


def test_whoever_wants_it_to_end_is_heard_between_two_pieces(serve: Serve) -> None:
    shown: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        asked(
            serve([{"text": " ".join(["word"] * 200), "pace_s": 0.02}]),
            show=shown.append,
            stopped=lambda: len(shown) >= 3,
        )
    assert 3 <= len(shown) < 200


def test_a_screen_that_cannot_be_written_is_not_blamed_on_the_model(serve: Serve) -> None:
    def show(_: str) -> None:
        raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError):
        asked(serve([{"text": "hello"}]), show=show)


def test_a_reply_without_end_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acode.agent.endpoint.REPLY_CHARS_MAX", 20)
    assert isinstance(refusal(serve([{"text": "x" * 21}])), BadReply)
    arguments = {"path": "y" * 21}
    assert isinstance(refusal(serve([{"calls": [{"tool": "read_file", "arguments": arguments}]}])), BadReply)


def test_what_a_server_says_is_shown_short_and_on_one_line(serve: Serve) -> None:
    said = "bad\x1b[31m\r\nnews " * 200
    error = refusal(serve([{"fault": {"status": 500, "body": {"error": {"message": said}}}}]))
    assert error.message.isprintable() and len(error.message) < 500


# Is it there?


def test_a_model_that_is_listed_is_available(serve: Serve) -> None:
    server = serve([{"text": "x"}])
    assert available(setup_of(server), None, LONG_S) is None
    assert server.requests == []


@pytest.mark.parametrize(
    ("wanted", "listed", "same"),
    [
        ("llama3.2", "llama3.2:latest", True),
        ("llama3.2:latest", "llama3.2", True),
        ("gemini-3", "models/gemini-3", True),
        ("llama3.2", "llama3.2:1b", False),
        ("llama3", "llama3.2", False),
    ],
)
def test_a_model_is_the_same_under_the_names_that_servers_list_it_by(wanted: str, listed: str, same: bool) -> None:
    assert same_model(wanted, listed) is same


def test_asking_whether_a_model_is_there_keeps_to_its_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        setup = Setup(name="m", base_url=f"http://127.0.0.1:{silent.getsockname()[1]}/v1", api_key_env=KEY_VARIABLE)
        begun = time.monotonic()
        assert isinstance(available(setup, None, 0.2), ModelUnavailable)
        assert time.monotonic() - begun < 5


@contextlib.contextmanager
def web_server(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    class Page(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def test_a_redirection_is_not_followed_with_the_key(serve: Serve) -> None:
    elsewhere = serve([{"text": "x"}], api_key=SECRET)
    with web_server(302, {"Location": f"{elsewhere.base_url}/models"}, b"") as url:
        found = available(Setup(name="scripted", base_url=url, api_key_env=KEY_VARIABLE), SECRET, LONG_S)
    assert isinstance(found, ModelUnavailable) and elsewhere.base_url in found.message


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": 3}', b'{"data": [{"name": "m"}]}', b"\xff"])
def test_something_else_at_the_address_is_no_model_server(body: bytes) -> None:
    with web_server(200, {}, body) as url:
        found = available(Setup(name="m", base_url=url, api_key_env=KEY_VARIABLE), None, LONG_S)
    assert isinstance(found, ModelUnavailable) and "list of models" in found.message


# The library.


def test_most_commands_load_no_model_library() -> None:
    code = (
        "import sys, acode.agent.endpoint, acode.agent.availability, acode.agent.endpoint_errors;"
        "print([name for name in ('pydantic_ai', 'openai', 'pydantic', 'genai_prices') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, text=True, stdout=subprocess.PIPE)
    assert done.stdout.strip() == "[]"


def test_without_the_library_it_is_said_how_to_install_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ModelUnsupported, match="pydantic_ai") as caught:
        asked(serve([{"text": "x"}]))
    assert (caught.value.exit_code, 'pip install "acode-cli[agent]"' in caught.value.hint) == (3, True)


def test_a_model_of_the_library_s_own_can_take_the_endpoint_s_place() -> None:
    from pydantic_ai.models.function import FunctionModel

    seen: list[Any] = []

    async def answer(messages: Any, info: Any) -> Any:
        seen.append((messages, info))
        for piece in ("Hel", "lo"):
            await asyncio.sleep(0)
            yield piece

    shown: list[str] = []
    reply = request(
        Setup(name="m", base_url="http://127.0.0.1:1/v1", api_key_env=KEY_VARIABLE),
        ask_for("hello", tools=(READ,)),
        api_key=None,
        timeout_s=LONG_S,
        show=shown.append,
        stopped=lambda: False,
        make_model=lambda _setup, _key: FunctionModel(stream_function=answer),
    )
    assert (reply.text, shown) == ("Hello", ["Hel", "lo"])
    ((messages, info),) = seen
    assert [tool.name for tool in info.function_tools] == ["read_file"]
    assert messages[0].parts[0].content == "hello"


def test_a_hosted_model_has_a_price_and_a_model_of_one_s_own_has_none() -> None:
    reply = Reply(text="x", model="gpt-4o", input_tokens=1_000_000, output_tokens=0)
    hosted = Setup(name="gpt-4o", base_url="https://api.openai.com/v1", api_key_env="OPENAI_API_KEY")
    found = price(hosted, reply)
    assert found is not None and 0.1 < found < 100
    assert price(Setup(name="gpt-4o", base_url="http://127.0.0.1:11434/v1", api_key_env="NONE"), reply) is None


def test_what_the_environment_says_for_openai_is_not_told_to_others(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, f"mine-{name}")
    server = serve([{"text": "x"}])
    headers: list[str] = []
    admitted = server.RequestHandlerClass.admitted

    class Reading(server.RequestHandlerClass):  # type: ignore[misc,name-defined]
        def admitted(self) -> bool:
            headers.append(str(self.headers))
            return bool(admitted(self))

    server.RequestHandlerClass = Reading
    asked(server)
    assert len(headers) == 1 and "mine-" not in headers[0]


def test_every_error_says_how_a_session_is_paused() -> None:
    from acode.events.types import InterruptionClass
    from acode.resume_point import PAUSED_BY_ACODE

    def below(cls: type[AcodeError]) -> Iterator[type[AcodeError]]:
        yield cls
        for sub in cls.__subclasses__():
            yield from below(sub)

    for cls in below(ModelTrouble):
        assert issubclass(cls, ModelTrouble)
        assert cls.pause in PAUSED_BY_ACODE and InterruptionClass(cls.interruption)
        assert cls.retryable or cls.exit_code != 75
