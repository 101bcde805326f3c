"""Send one request to a model, at any endpoint that speaks the OpenAI chat API, and return its whole answer.

It asks once. acode's policy decides about a retry and records it in the log, so the library's own retries are off. A
failure is one of the named errors; a key is never part of one. Importing this module loads no model library: that takes
a second, and most commands need no model.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from acode.agent import bounded_response, endpoint_errors
from acode.agent.availability import models_of
from acode.agent.messages import Ask, Reply, Setup
from acode.errors import ModelTrouble, ModelUnsupported

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from acode.agent.model_messages import Mode

LOOK_S = 0.1  # how soon a request to stop is noticed while nothing arrives
CLOSING_S_MAX = 2.0
LIST_S_MAX = 5.0
REPLY_CHARS_MAX = 8 * 1024 * 1024
NOT_UNDERSTOOD = (400, 422, 501)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """All that one request is made of."""

    setup: Setup
    ask: Ask
    key: str | None
    timeout_s: float
    make_model: Callable[[Setup, str | None], Any]


def request(
    setup: Setup,
    ask: Ask,
    *,
    api_key: str | None,
    timeout_s: float,
    show: Callable[[str], None],
    stopped: Callable[[], bool],
    make_model: Callable[[Setup, str | None], Model[Any]] | None = None,
) -> Reply:
    """The model's whole answer. Text goes to `show` piece by piece as it arrives.

    timeout_s: how long the endpoint may be silent; a slow model that keeps talking is not cut off.
    stopped: asked between pieces and while waiting; once it says yes the request is dropped with KeyboardInterrupt.
    """
    require_support()
    # Before the request's time runs: the first import takes a second.
    from acode.agent import model_messages  # noqa: F401

    key = endpoint_errors.usable_key(setup, api_key)
    question = Question(setup=setup, ask=ask, key=key, timeout_s=timeout_s, make_model=make_model or chat_model)
    outcome = asyncio.run(_watched(question, show, stopped))
    # Raised only here, where no error of the library is at hand to be chained: those hold the request, and so the key.
    if outcome is None:
        raise KeyboardInterrupt
    if isinstance(outcome, ModelTrouble):
        raise _explained(question, outcome)
    return outcome


def require_support() -> None:
    """Refuse before anything is begun where the model library is not installed; finding out loads nothing."""
    missing = [name for name in ("pydantic_ai", "openai") if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelUnsupported(f"asking a model needs a library that is not installed: {', '.join(missing)}")


def _explained(question: Question, found: ModelTrouble) -> ModelTrouble:
    """A 404 is an unknown model or a wrong address; an endpoint that lists its models is at the right one."""
    if found.details.get("status") != 404:
        return found
    models = models_of(question.setup, question.key, LIST_S_MAX)
    return found if isinstance(models, ModelTrouble) else endpoint_errors.unknown(question.setup, models)


def price(setup: Setup, reply: Reply) -> float | None:
    """The cost of the reply in US dollars by the public price list; None: this endpoint or model is not on it. A
    self-hosted model has no listed price, so None is not zero.
    """
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    usage = Usage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
    try:
        found = calc_price(usage, reply.model or setup.name, provider_api_url=setup.base_url)
    except (LookupError, ValueError):
        return None
    return float(found.total_price)


class _Ear:
    """When something was last heard of the endpoint."""

    heard_at: float = 0


async def _watched(
    question: Question, show: Callable[[str], None], stopped: Callable[[], bool]
) -> Reply | ModelTrouble | None:
    """The outcome of the request; None: somebody wanted it to end."""
    loop = asyncio.get_running_loop()
    ear = _Ear()
    ear.heard_at = loop.time()
    task = asyncio.ensure_future(_heard(question, show, ear))
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=min(LOOK_S, question.timeout_s))
            if task.done():
                break
            if stopped():
                return None
            if loop.time() - ear.heard_at > question.timeout_s:
                return endpoint_errors.silent(question.setup, question.timeout_s)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSING_S_MAX)


async def _heard(question: Question, show: Callable[[str], None], ear: _Ear) -> Reply | ModelTrouble:
    loop = asyncio.get_running_loop()
    async with contextlib.aclosing(_spoken(question)) as pieces:
        async for piece in pieces:
            ear.heard_at = loop.time()
            if not isinstance(piece, str):
                return piece
            if piece:
                show(piece)
                # The watch has its turn between two pieces, also where they come faster than it looks.
                await asyncio.sleep(0)
    return endpoint_errors.broken(question.setup, "it said nothing", key=question.key)


async def _spoken(question: Question) -> AsyncGenerator[str | Reply | ModelTrouble, None]:
    """The pieces of text, and at the end the reply or what went wrong. "": something else was heard."""
    async with contextlib.aclosing(_asked(question, "native")) as pieces:
        async for piece in pieces:
            if question.ask.answer is None or not _not_understood(piece):
                yield piece
                continue
            break
        else:
            return
    # It has no notion of an answer with a schema: then the model reads the schema, and nobody but it keeps to it.
    async with contextlib.aclosing(_asked(question, "prompted")) as pieces:
        async for piece in pieces:
            yield piece


def _not_understood(piece: str | Reply | ModelTrouble) -> bool:
    return type(piece) is ModelTrouble and piece.details.get("status") in NOT_UNDERSTOOD


async def _asked(question: Question, mode: Mode) -> AsyncGenerator[str | Reply | ModelTrouble, None]:
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.settings import ModelSettings

    from acode.agent.model_messages import messages_of, parameters_of, piece_of, reply_of, weight_of

    ask, setup = question.ask, question.setup
    weight = 0
    try:
        async with (
            question.make_model(setup, question.key) as model,
            model_request_stream(
                model,
                messages_of(ask),
                model_settings=ModelSettings(timeout=question.timeout_s),
                model_request_parameters=parameters_of(ask, mode),
            ) as stream,
        ):
            async for event in stream:
                weight += weight_of(event)
                if weight > REPLY_CHARS_MAX:
                    yield endpoint_errors.broken(setup, f"more than {REPLY_CHARS_MAX} characters", key=question.key)
                    return
                yield piece_of(event)
            reply = reply_of(stream.get(), wants_object=ask.answer is not None)
    except Exception as error:  # whatever a server makes the library trip over is a bad reply, not a bug of acode's
        yield _named(question, error)
        return
    yield reply if reply.text.strip() or reply.calls else _nothing(question, reply)


def _nothing(question: Question, reply: Reply) -> ModelTrouble:
    reasons = {
        "length": "it used up its tokens before it said anything",
        "content_filter": "the endpoint's filter withheld the answer",
    }
    return endpoint_errors.broken(question.setup, reasons.get(reply.finish, "it said nothing"), key=question.key)


def chat_model(setup: Setup, api_key: str | None) -> Model[Any]:
    """The library's client for any endpoint, limited to the features that small local servers have."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    profile = OpenAIModelProfile(
        supports_json_schema_output=True,
        supports_json_object_output=False,
        native_output_requires_schema_in_instructions=True,
        json_schema_transformer=None,
        openai_supports_strict_tool_definition=False,
        openai_chat_supports_multiple_system_messages=False,
        # Without it, a stream that a dying server ended in good order would be taken for a whole answer.
        openai_chat_streaming_requires_finish_reason=True,
    )
    provider = OpenAICompatibleProvider("acode", base_url=setup.base_url, api_key=api_key, profile=profile)
    # Set here and not per request: that would copy the client, and a copy reads the environment again.
    provider.client.max_retries = 0
    _bound_responses(provider.client)
    if not (urlsplit(setup.base_url).hostname or "").endswith("openai.com"):
        # The client reads these from the environment; they are nobody else's business.
        provider.client.organization = provider.client.project = None
    return OpenAIChatModel(setup.name, provider=provider)


def _too_long(error: BaseException | None) -> str | None:
    while error is not None and not isinstance(error, bounded_response.ResponseTooLong):
        error = error.__cause__ or error.__context__
    return str(error) if error is not None else None


def _bound_responses(client: Any) -> None:
    """The HTTP client may be shared by all models of this process: it is given the hook once."""
    hooks = client._client.event_hooks
    if bounded_response.bound not in hooks["response"]:
        client._client.event_hooks = {**hooks, "response": [*hooks["response"], bounded_response.bound]}


def _named(question: Question, error: Exception) -> ModelTrouble:
    """The library's error as one of acode's."""
    from pydantic_ai import exceptions as lib

    setup, key = question.setup, question.key
    if (endless := _too_long(error)) is not None:
        return endpoint_errors.broken(setup, f"it sends {endless}", key=key)
    match error:
        case lib.ModelConnectionError(phase="connect" | "pool"):
            return endpoint_errors.unreachable(setup, endpoint_errors.reason_of(error), key=key)
        case lib.ModelTimeoutError() | lib.ModelRequestTimeout():
            return endpoint_errors.silent(setup, question.timeout_s)
        case lib.ModelConnectionError():
            return endpoint_errors.broken(
                setup, f"the connection broke off ({endpoint_errors.reason_of(error)})", key=key
            )
        case lib.ModelHTTPError():
            answer = endpoint_errors.answer_of(error.status_code, error.body, error.headers)
            code = answer.code or error.provider_error_code or ""
            wait_s = answer.retry_after_s if error.retry_after is None else error.retry_after
            return endpoint_errors.trouble(
                setup, msgspec.structs.replace(answer, code=code, retry_after_s=wait_s), key=key
            )
        case lib.ModelAPIError(body=body) if body is not None:
            return endpoint_errors.trouble(setup, endpoint_errors.answer_of(0, body), key=key)
        case lib.ModelAPIError() | lib.UnexpectedModelBehavior():
            return endpoint_errors.broken(setup, error.message, key=key)
    return endpoint_errors.broken(setup, f"what came cannot be read ({type(error).__name__}: {error})", key=key)
