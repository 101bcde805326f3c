"""Check that the model is available: ask the endpoint for the list of its models, and nothing else.

A preview asks this too, so it costs a few milliseconds, keeps to its time, and loads no model library. Must never raise
because of an endpoint's answer or silence: the error is the return value.
"""

from __future__ import annotations

import http.client
import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from acode.agent.endpoint_errors import answer_of, reason_of, spoken, trouble, unknown, unreachable, usable_key
from acode.agent.messages import Setup
from acode.errors import ModelTrouble, ModelUnavailable

LIST_BYTES_MAX = 4 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024


def available(setup: Setup, api_key: str | None, timeout_s: float) -> ModelTrouble | None:
    """None: the endpoint answers and lists the model. Else what is wrong, as the error that a request would meet."""
    try:
        api_key = usable_key(setup, api_key)
    except ModelTrouble as error:
        return error
    found = models_of(setup, api_key, timeout_s)
    if isinstance(found, ModelTrouble):
        return found
    return None if any(same_model(setup.name, name) for name in found) else unknown(setup, found)


def same_model(wanted: str, listed: str) -> bool:
    """Ollama lists `llama3.2:latest` for `llama3.2`; Google's list says `models/` before each name."""
    name = listed.removeprefix("models/")
    return wanted in (listed, name) or name == f"{wanted}:latest" or wanted == f"{name}:latest"


def models_of(setup: Setup, api_key: str | None, timeout_s: float) -> list[str] | ModelTrouble:
    """The names that the endpoint lists."""
    try:
        answer = _within(timeout_s, lambda: _fetch(setup, api_key, timeout_s))
    except TimeoutError:
        return unreachable(setup, f"no answer within {timeout_s:g} s", key=api_key)
    except urllib.error.HTTPError as error:
        with error:
            return _refusal(setup, error, key=api_key)
    except urllib.error.URLError as error:
        return unreachable(
            setup,
            reason_of(error.reason) if isinstance(error.reason, BaseException) else str(error.reason),
            key=api_key,
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        return unreachable(setup, reason_of(error), key=api_key)
    try:
        return [str(model["id"]) for model in json.loads(answer)["data"]]
    except (ValueError, TypeError, LookupError):
        said = spoken(answer.decode("utf-8", "replace"), api_key)
        return ModelUnavailable(
            f"{setup.base_url} answers, but not with a list of models: {said}",
            hint="Is model.base_url right? It usually ends in /v1.",
            base_url=setup.base_url,
            model=setup.name,
        )


def _fetch(setup: Setup, api_key: str | None, timeout_s: float) -> bytes:
    headers = {"Accept": "application/json", "User-Agent": "acode"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    request = urllib.request.Request(f"{setup.base_url.rstrip('/')}/models", headers=headers)
    with urllib.request.build_opener(_StayHere).open(request, timeout=timeout_s) as response:
        data: bytes = response.read(LIST_BYTES_MAX)
    return data


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Another address was not configured, and must not be given the key."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _within(timeout_s: float, work: Callable[[], bytes]) -> bytes:
    """Return or raise the result of the work; a resolver that hangs, or a server that sends a byte a second, cannot
    delay it.
    """
    answers: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(work())
        except Exception as error:  # raised again where it was asked for
            answers.put(error)

    # A daemon: should it hang forever, the process can still end.
    threading.Thread(target=run, name="acode-models", daemon=True).start()
    try:
        answer = answers.get(timeout=timeout_s)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _refusal(setup: Setup, error: urllib.error.HTTPError, *, key: str | None) -> ModelTrouble:
    if 300 <= error.code < 400:
        return ModelUnavailable(
            f"{setup.base_url} is elsewhere now: {spoken(error.headers.get('Location', 'it does not say where'), key)}",
            hint="A key is not sent to an address that nobody configured. If it is right, set model.base_url.",
            base_url=setup.base_url,
            model=setup.name,
        )
    try:
        body = error.read(ERROR_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        body = b""
    return trouble(setup, answer_of(error.code, body, dict(error.headers.items())), key=key)
