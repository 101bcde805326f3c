"""Every setting there is, with its type and default. Nothing here reads anything."""

from __future__ import annotations

from typing import Literal

import msgspec

Answer = Literal["ask", "allow", "deny"]
TOOLS = (
    "read_file",
    "list_files",
    "search",
    "write_file",
    "edit_file",
    "run_command",
    "git_commit",
    "ask_user",
)  # all that an agent can be given


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The root of the settings types: values, compared and stored by their fields."""


class Cooldown(Section, frozen=True, kw_only=True):
    """How long an automatic resume waits after an interruption, by its class."""

    tool_failure: float = 30
    timeout: float = 120
    context_reset: float = 10
    process_crash: float = 60


class Resume(Section, frozen=True, kw_only=True):
    enabled: bool = True
    in_progress_strategy: Literal["rollback", "retry", "prompt"] = "rollback"
    unknown_outcome: Literal["ask", "retry"] = "ask"
    validate_environment: bool = True
    validation: Literal["strict", "lenient"] = "strict"
    changed_files_action: Literal["prompt", "continue", "abort"] = "prompt"
    validation_timeout_seconds: float = 10
    recovery_timeout_seconds: float = 300
    max_resume_attempts: int = 3
    attempts: Literal["since_progress", "per_run"] = "since_progress"
    attempts_total_max: int = 20
    cooldown_seconds: Cooldown = Cooldown()
    stale_after_days: float = 7
    backup: bool = False


class SessionSection(Section, frozen=True, kw_only=True):
    lock_timeout_seconds: float = 60


class Steps(Section, frozen=True, kw_only=True):
    timeout_seconds: float = 600
    output_limit_bytes: int = 1_048_576
    stop_grace_seconds: float = 30


class Limits(Section, frozen=True, kw_only=True):
    plan_bytes: int = 262_144


class Redaction(Section, frozen=True, kw_only=True):
    strict: bool = False


class Model(Section, frozen=True, kw_only=True):
    name: str = "llama3.2"
    base_url: str = "http://127.0.0.1:11434/v1"
    api_key_env: str = "OPENAI_API_KEY"
    context_tokens: int = 32_768
    timeout_seconds: float = 300
    budget_tokens: int | None = None  # of a session; None: no limit
    budget_usd: float | None = None


class ToolRule(Section, frozen=True, kw_only=True):
    """An answer for some uses of a tool: `match` is compared with its command line, path or commit message."""

    tool: str
    match: str
    answer: Answer


# Commands that change nothing, whatever follows: no redirection gets past the matching, and none of these programs has
# an option that writes. `git diff` and `git log` have one (--output), so they stand here word for word.
READ_ONLY = (
    "git status",
    "git status *",
    "git diff",
    "git diff --stat",
    "git diff --cached",
    "git log --oneline",
    "git branch --show-current",
    "git rev-parse HEAD",
    "pwd",
    "ls *",
    "cat *",
    "head *",
    "tail *",
    "wc *",
    "grep *",
)


class Tools(Section, frozen=True, kw_only=True):
    run_command: Answer = "ask"
    write_file: Answer = "allow"
    edit_file: Answer = "allow"
    git_commit: Answer = "ask"
    rules: tuple[ToolRule, ...] = ()  # the first that matches decides, before the answers above
    read_only: tuple[str, ...] = READ_ONLY  # commands that may be repeated after a crash without asking


class Sync(Section, frozen=True, kw_only=True):
    url: str | None = None
    release: Literal["on_pause", "never"] = "on_pause"  # never: the machine stays the owner while the session waits


NOTIFY_CAUSES = ("gate", "unknown", "escalated", "mismatch", "failed", "parked", "done")


class Notify(Section, frozen=True, kw_only=True):
    command: str | tuple[str, ...] | None = None
    on: tuple[str, ...] = NOTIFY_CAUSES[:-1]  # the end of a session that went well is nobody's business by default


class Hooks(Section, frozen=True, kw_only=True):
    """Agents of others, observed by hooks."""

    on_error: Literal["block", "allow"] = "block"  # of a call whose start cannot be recorded
    front: Literal["auto", "never"] = "auto"
    unknown: Literal["ask", "block"] = "ask"  # block: nothing changes anything until every outcome is known


class Fleet(Section, frozen=True, kw_only=True):
    """Many machines with one queue: what `acode submit` asks for, and how long a worker that is not heard of keeps its
    sessions."""

    queue: str = "default"
    priority: int = 0
    labels: tuple[str, ...] = ()
    key: str | None = None  # of sessions with the same key one runs at a time
    source: str | None = None  # where a worker gets the workspace from
    lease_seconds: float = 60
    store: str | None = None  # where files go that are too large for the database


DRIVING_AGENTS = ("claude", "codex", "gemini", "opencode")  # those that acode can start without a terminal


class Driver(Section, frozen=True, kw_only=True):
    """The program that does the tasks of a foreign run: a command, or an agent that acode knows how to start.
    Idempotent unless said otherwise: those formats define re-running.
    """

    command: tuple[str, ...] = ()
    agent: str = ""  # in place of a command
    arguments: tuple[str, ...] = ()  # for the agent
    idempotent: bool = True
    timeout_s: float = 3600
    probe: str | None = None
    cwd: str | None = None


class Settings(Section, frozen=True, kw_only=True):
    resume: Resume = Resume()
    session: SessionSection = SessionSection()
    steps: Steps = Steps()
    limits: Limits = Limits()
    redaction: Redaction = Redaction()
    model: Model = Model()
    tools: Tools = Tools()
    sync: Sync = Sync()
    notify: Notify = Notify()
    hooks: Hooks = Hooks()
    fleet: Fleet = Fleet()
    drivers: dict[str, Driver] = {}
