"""Turn an endpoint's failure into one of acode's named errors.

It judges the response of any OpenAI-compatible server: a status, headers, a body. A key never gets into an error, not
even where a server repeats the key that it refuses.
"""

from __future__ import annotations

import json
import math
import re
import socket
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from acode.agent.messages import Setup
from acode.errors import (
    BadReply,
    ContextTooLong,
    ModelOverloaded,
    ModelRefused,
    ModelTimeout,
    ModelTrouble,
    ModelUnavailable,
    ModelUnknown,
)
from acode.hints import Command, Hint

MESSAGE_CHARS_MAX = 300
BODY_CHARS_MAX = 20_000
MODELS_SHOWN_MAX = 5
KEY_CHARS_MIN = 4
RETRY_AFTER_S_MAX = 24 * 3600

# Ollama, llama.cpp, vLLM, LM Studio, TGI and the hosted ones use texts of their own, mostly without a code.
_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|maximum model length|max_model_len|max_new_tokens"
    r"|(prompt|input|conversation|request) (is|was) too (long|large)|too many (input )?tokens|reduce the length of"
    r"|exceeds? the (maximum|max) (number of )?tokens"
)
_TRY_AGAIN_IN = re.compile(
    r"(?:try again in|retry[ _-]?(?:after|delay)[\"':= ]+)\s*((?P<minutes>\d{1,5})m)?(?P<number>\d{1,9}(?:\.\d{1,9})?)"
    r"(?P<unit>ms|s)?",
    re.IGNORECASE,
)
_OVERLOADED = (429, 503, 529)
_REFUSED = (401, 403)
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "credit_balance_exhausted")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's response other than a reply. `status` 0: inside a stream, which has no status any more."""

    status: int
    said: str = ""
    code: str = ""  # the server's own machine-readable one
    headers: Mapping[str, str] = {}
    retry_after_s: float | None = None


def answer_of(status: int, body: object, headers: Mapping[str, str] | None = None) -> Answer:
    """Read an error body: OpenAI's form, FastAPI's `detail`, Ollama's plain `error`, or any text."""
    data: Any = body
    if isinstance(body, str | bytes):
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        try:
            data = json.loads(text)
        except ValueError:
            data = text
    inner = data.get("error", data) if isinstance(data, dict) else data
    fields: dict[str, Any] = inner if isinstance(inner, dict) else {}
    said = fields.get("message") or fields.get("detail") or inner or ""
    codes = (fields.get("code"), fields.get("type"))
    code = next((text for text in codes if isinstance(text, str) and text), "")
    lowered = {name.lower(): value for name, value in (headers or {}).items()}
    whole = data if isinstance(data, str) else json.dumps(data, default=str)
    return Answer(
        status=status,
        said=said if isinstance(said, str) else json.dumps(said, default=str),
        code=code,
        headers=lowered,
        retry_after_s=_retry_after_s(lowered, whole[:BODY_CHARS_MAX]),
    )


def _retry_after_s(headers: Mapping[str, str], body: str) -> float | None:
    """From the headers in seconds or milliseconds, else from a sentence such as "try again in 1m2.5s"."""
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", headers.get(name, "").strip()):
            return float(headers[name]) / per_second
    found = _TRY_AGAIN_IN.search(body)
    if found is None:
        return None
    number = float(found["number"]) / (1000 if found["unit"] == "ms" else 1)
    return number + 60 * int(found["minutes"] or 0)


def trouble(setup: Setup, answer: Answer, *, key: str | None) -> ModelTrouble:
    """The error for the endpoint's response; the list of its models decides the meaning of a 404, see `unknown`."""
    said, status = spoken(answer.said, key), answer.status
    where = f"{setup.base_url} (model {setup.name})"
    shown = f"{f'HTTP {status}' if status else 'an error'}{f': {said}' if said else ''}"
    details: dict[str, Any] = {"base_url": setup.base_url, "model": setup.name, "status": status, "said": said}
    if status not in _OVERLOADED and too_long(answer):
        return ContextTooLong(f"the conversation is too long for {setup.name}: {said or answer.code}", **details)
    if status in _REFUSED or answer.code == "invalid_api_key":
        return refused(setup, said, key=key, status=status)
    if status == 402 or answer.code in _NO_CREDIT:
        hint = "Waiting does not help: the account behind the key needs credit, or a higher limit. Then resume."
        return ModelTrouble(f"the account for {where} has no credit left: {shown}", hint=hint, **details)
    if status in _OVERLOADED or answer.code in ("rate_limit_exceeded", "rate_limit_error", "overloaded_error"):
        return _overloaded(setup, shown, answer.retry_after_s, details)
    if status in (408, 504):
        return ModelTimeout(f"{where} gave up waiting for its own model: {shown}", **details)
    if status == 404:
        return ModelUnavailable(f"nothing at {setup.base_url} speaks the OpenAI chat API: {shown}", **details)
    if status >= 500 or status == 0:
        return BadReply(f"{where} failed at the request: {shown}", **details)
    return ModelTrouble(
        f"{where} did not take the request: {shown}",
        hint="Resuming sends the same request; see the model server's documentation for the missing feature.",
        **details,
    )


def too_long(answer: Answer) -> bool:
    return bool(_TOO_LONG.search(f"{answer.said} {answer.code}".lower()))


def refused(setup: Setup, said: str, *, key: str | None, status: int) -> ModelRefused:
    """Names the variable, never its value."""
    variable = setup.api_key_env
    if key:
        message = f"{setup.base_url} does not accept the key in {variable}"
        hint = f"Put a valid key for {setup.base_url} into the environment variable {variable}, then resume."
    else:
        message = f"{setup.base_url} wants a key, and {variable} is not set"
        hint = f"Set the environment variable {variable} (or name another one: model.api_key_env), then resume."
    return ModelRefused(
        f"{message}: HTTP {status}{f': {said}' if said else ''}",
        hint=hint,
        base_url=setup.base_url,
        model=setup.name,
        status=status,
        variable=variable,
    )


def _overloaded(setup: Setup, shown: str, wait_s: float | None, details: dict[str, Any]) -> ModelOverloaded:
    message = f"{setup.base_url} takes no request for {setup.name} now: {shown}"
    if wait_s is None:
        return ModelOverloaded(message, **details)
    # Rounded up: one that comes back half a second early is only sent away again.
    seconds = min(math.ceil(wait_s), RETRY_AFTER_S_MAX)
    return ModelOverloaded(
        message,
        hint=Hint(f"Nothing is lost: resume in {seconds} s, or let acode wait: {{}}", Command("supervise --last")),
        retry_after_s=seconds,
        **details,
    )


def unknown(setup: Setup, models: Sequence[str]) -> ModelUnknown:
    """The endpoint answers and has other models: name some, the likeliest first."""
    close = get_close_matches(setup.name, models, n=1, cutoff=0.5)
    others = [name for name in sorted(models) if name not in close]
    shown = [*close, *others][:MODELS_SHOWN_MAX]
    more = f" and {len(models) - len(shown)} more" if len(models) > len(shown) else ""
    has = f"It has {', '.join(shown)}{more}. " if shown else "It has none. "
    likely = f"Did you mean {close[0]}? " if close else ""
    return ModelUnknown(
        f"{setup.base_url} does not have the model {setup.name}",
        hint=f"{likely}{has}{ModelUnknown.default_hint}.",
        base_url=setup.base_url,
        model=setup.name,
        models=shown,
    )


def usable_key(setup: Setup, api_key: str | None) -> str | None:
    """The key without the line end that `echo` or an editor left; None: there is none.

    One that no header can hold is refused here: the clients below would show it in their errors.
    """
    key = (api_key or "").strip()
    if all("!" <= char <= "~" for char in key):
        return key or None
    raise ModelRefused(
        f"the value of {setup.api_key_env} is no key: it has spaces or characters that no header can hold",
        hint=f"Set the environment variable {setup.api_key_env} again, then resume.",
        base_url=setup.base_url,
        model=setup.name,
        variable=setup.api_key_env,
    )


def silent(setup: Setup, timeout_s: float) -> ModelTimeout:
    return ModelTimeout(
        f"{setup.base_url} (model {setup.name}) was silent for {timeout_s:g} s",
        base_url=setup.base_url,
        model=setup.name,
        timeout_s=timeout_s,
    )


def unreachable(setup: Setup, reason: str, *, key: str | None) -> ModelUnavailable:
    said = spoken(reason, key)
    return ModelUnavailable(
        f"{setup.base_url} does not answer: {said}", base_url=setup.base_url, model=setup.name, said=said
    )


def broken(setup: Setup, reason: str, *, key: str | None) -> BadReply:
    said = spoken(reason, key)
    message = f"{setup.base_url} (model {setup.name}) gave no whole reply: {said}"
    return BadReply(message, base_url=setup.base_url, model=setup.name, said=said)


def reason_of(error: BaseException) -> str:
    """The deepest reason that an error names, as a text for people."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    return str(error) or type(error).__name__


def spoken(text: str, key: str | None) -> str:
    """A server's words as they may be shown: short, on one line, and without the key, should it repeat it."""
    if key and len(key) >= KEY_CHARS_MIN:
        text = text.replace(key, "***")
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MESSAGE_CHARS_MAX else line[: MESSAGE_CHARS_MAX - 1] + "…"
