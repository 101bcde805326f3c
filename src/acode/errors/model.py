"""The errors between acode and the model of an agent's session. No message here ever holds a key."""

from __future__ import annotations

from typing import ClassVar

from acode.errors.root import AcodeError
from acode.hints import Command, Hint


class ModelTrouble(AcodeError):
    """The model's endpoint did not take the request, for a reason that has no other name here."""

    code = "ACODE-MODEL-001"
    # How the session is paused, in the log's own words: the reason of the pause, and the class of the interruption.
    pause: ClassVar[str] = "error"
    interruption: ClassVar[str] = "tool_failure"
    # Whether the same request may succeed later without anybody having changed something.
    retryable: ClassVar[bool] = False

    @property
    def retry_after_s(self) -> int:
        """How long the endpoint asked to be left alone; 0: it did not say."""
        return int(self.details.get("retry_after_s", 0))


class ModelUnavailable(ModelTrouble):
    """Nothing answers at the model's address, or nothing that speaks the OpenAI chat API."""

    code = "ACODE-MODEL-002"
    exit_code = 17
    pause = "environment"
    retryable = True
    default_hint: ClassVar[Hint | str] = (
        "Start the model server (Ollama: ollama serve), or set model.base_url or ACODE_MODEL_BASE_URL; then resume."
    )


class ModelUnknown(ModelTrouble):
    """The endpoint does not have the model."""

    code = "ACODE-MODEL-003"
    exit_code = 17
    pause = "environment"
    default_hint: ClassVar[Hint | str] = (
        "Name one that it has: model.name, ACODE_MODEL or --model; with Ollama fetch it first: ollama pull NAME"
    )


class ModelRefused(ModelTrouble):
    """The endpoint does not accept the key, or gives it no access to the model."""

    code = "ACODE-MODEL-004"
    exit_code = 3
    pause = "environment"
    default_hint: ClassVar[Hint | str] = (
        "Put a valid key into the environment variable that model.api_key_env names, then resume."
    )


class ModelOverloaded(ModelTrouble):
    """The endpoint takes no more requests for now: a rate limit, or too much load."""

    code = "ACODE-MODEL-005"
    exit_code = 75
    pause = "rate_limit"
    retryable = True
    default_hint: ClassVar[Hint | str] = Hint(
        "Nothing is lost: resume later, or let acode wait: {}", Command("supervise --last")
    )


class ModelTimeout(ModelTrouble):
    """The endpoint was silent for too long in the middle of a request."""

    code = "ACODE-MODEL-006"
    exit_code = 75
    pause = "timeout"
    interruption = "timeout"
    retryable = True
    default_hint: ClassVar[Hint | str] = (
        "Nothing is lost: resume later; a large model on a small machine may need a longer timeout."
    )


class ContextTooLong(ModelTrouble):
    """The conversation is longer than the model can read."""

    code = "ACODE-MODEL-007"
    pause = "context_reset"
    interruption = "context_reset"
    default_hint: ClassVar[Hint | str] = (
        "Resume: the conversation is shortened first; or use a model with a larger context."
    )


class BadReply(ModelTrouble):
    """The endpoint broke off in the middle, failed by itself, or what it answered is no reply."""

    code = "ACODE-MODEL-008"
    exit_code = 75
    retryable = True
    default_hint: ClassVar[Hint | str] = (
        "Nothing is lost: resume to ask again; if it happens every time, see the model server's own log."
    )


class BudgetSpent(ModelTrouble):
    """The session has used up the tokens or the money that it was given."""

    code = "ACODE-MODEL-009"
    exit_code = 13
    default_hint: ClassVar[Hint | str] = Hint(
        "Look at its work: {}; to continue, raise the session's budget and resume.", Command("status")
    )


class ModelLoops(ModelTrouble):
    """The model asks for the same call again and again, and learns nothing from the answers."""

    code = "ACODE-MODEL-010"
    default_hint: ClassVar[Hint | str] = Hint(
        "Look at the call: {}; a clearer task or a larger model usually helps.", Command("session show")
    )


class ModelChanged(ModelTrouble):
    """The session was begun with another model than the configuration names now."""

    code = "ACODE-MODEL-011"
    exit_code = 17
    pause = "environment"
    default_hint: ClassVar[Hint | str] = "Restore the configuration, or confirm the change."


class ModelUnsupported(AcodeError):
    """A model is asked for and the support for models is not installed."""

    code = "ACODE-MODEL-012"
    exit_code = 3
    default_hint: ClassVar[Hint | str] = 'Install it: pip install "acode-cli[agent]"'
