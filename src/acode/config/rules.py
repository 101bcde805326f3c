"""The values that each setting accepts: one rule per key, the same for a file, the environment and a flag."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from acode.config.settings import NOTIFY_CAUSES, TOOLS, ToolRule
from acode.yamlfile import Node, schema
from acode.yamlfile.schema import Schema

DAY_S = 24 * 3600
DAYS_MAX = 36_500
TIMEOUT_S_MAX = 30 * DAY_S
NAME_CHARS_MAX = 200
URL_CHARS_MAX = 2_000
COMMAND_CHARS_MAX = 10_000
ARGUMENTS_MAX = 200
PLAN_BYTES_MAX = 64 * 1024 * 1024
OUTPUT_BYTES_MAX = 1024 * 1024 * 1024
CONTEXT_TOKENS_MAX = 100_000_000
BUDGET_TOKENS_MAX = 1_000_000_000_000
BUDGET_USD_MAX = 1_000_000
TOOL_RULES_MAX = 1_000
PATTERN_CHARS_MAX = 1_000

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
COMMAND_SCHEMA = {
    **schema.items({"type": "string"}, items_min=1, items_max=ARGUMENTS_MAX),
    "prefixItems": [schema.text(chars_max=COMMAND_CHARS_MAX)],
}
# No password, no query: the key is sent as a header, and a URL is shown and logged.
_HTTP_URL = re.compile(r"https?://[^\s/@?#]{1,255}(/[^\s@?#]{0,1000})?")
_POSTGRES_URL = re.compile(r"postgres(ql)?://\S{1,1980}")
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
LABELS_MAX = 8  # a worker looks at a queue for every set of its labels
PRIORITY_MAX = 1_000_000
LEASE_S_MIN, LEASE_S_MAX = 3, 24 * 3600  # below it, one lost packet is a lost session
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Rule(msgspec.Struct, frozen=True):
    """`read` turns a node into the value or raises the source's error; `of_text` gives a variable's text a type.

    `schema` says the same as `read` to an editor, as far as a schema can; {} accepts everything.
    """

    read: Callable[[Node], object]
    of_text: Callable[[str], object] = str
    schema: Schema = {}


def _flag_of(text: str) -> object:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else text


def _number_of(text: str) -> object:
    """A number if it is one; what is left as text is refused by the rule, which says what it wants."""
    plain = text.strip()
    if re.fullmatch(r"[-+]?[0-9]{1,18}", plain):
        return int(plain)
    return float(plain) if re.fullmatch(r"[-+]?[0-9]{1,18}\.[0-9]{0,18}", plain) else text


FLAG = Rule(lambda node: node.flag(), _flag_of, schema.flag())


def seconds(*, zero: bool = False, high: float = TIMEOUT_S_MAX) -> Rule:
    accepts = schema.duration(0, high, above_low=not zero)
    return Rule(lambda node: node.duration(0, high, above_low=not zero), _number_of, accepts)


def whole(low: int, high: int) -> Rule:
    return Rule(lambda node: node.whole(low, high), _number_of, schema.whole(low, high))


def one_of(*choices: str) -> Rule:
    return Rule(lambda node: node.choice(*choices), schema=schema.choice(*choices))


def _days(node: Node) -> float:
    return node.duration(0, DAYS_MAX, above_low=True, unit="days")


def _name(node: Node) -> str:
    text = node.text("a name", chars_max=NAME_CHARS_MAX)
    if not text.isprintable():
        raise node.wrong("a name")
    return text.strip()


def _env_name(node: Node) -> str:
    # Not shown: a key pasted here by mistake must not end in a log.
    if not isinstance(node.data, str) or not ENV_NAME.fullmatch(node.data):
        raise node.problem(
            "expected the name of an environment variable, found something else",
            hint="The key itself belongs in the environment, not in a file.",
        )
    return node.data


def _http_url(node: Node) -> str:
    if not isinstance(node.data, str) or not _HTTP_URL.fullmatch(node.data):
        raise node.problem(
            "expected a URL such as http://127.0.0.1:11434/v1, without user, password or query, found something else"
        )
    return node.data


def _postgres_url(node: Node) -> str | None:
    if node.data is None:
        return None
    if not isinstance(node.data, str) or not _POSTGRES_URL.fullmatch(node.data):
        raise node.problem("expected a URL that begins with postgresql://, or null, found something else")
    return node.data


def _command_or_none(node: Node) -> str | tuple[str, ...] | None:
    if node.data is None:
        return None
    if isinstance(node.data, str):
        return node.text(chars_max=COMMAND_CHARS_MAX)
    if not isinstance(node.data, tuple):
        raise node.wrong("text, a list of texts or null")
    return arguments(node)


def arguments(node: Node) -> tuple[str, ...]:
    found = texts(node)
    if not found:
        raise node.wrong("a program and its arguments")
    node.items("a list of texts", items_max=ARGUMENTS_MAX)[0].text("a program", chars_max=COMMAND_CHARS_MAX)
    return found


def texts(node: Node) -> tuple[str, ...]:
    items = node.items("a list of texts", items_max=ARGUMENTS_MAX)
    for item in items:
        if not isinstance(item.data, str):
            raise item.wrong("text", hint="Quote it.")
    return tuple(str(item.data) for item in items)


def _or_none(rule: Rule) -> Rule:
    return Rule(
        lambda node: None if node.data is None else rule.read(node),
        lambda text: _none_of(text, rule),
        schema.one_of(schema.NULL, rule.schema),
    )


def _none_of(text: str, rule: Rule) -> object:
    return None if text.strip().lower() in ("null", "none") else rule.of_text(text)


def _usd(node: Node) -> float:
    return node.number(0, BUDGET_USD_MAX, above_low=True, unit="US dollars")


# Rules for tools.

ANSWERS = ("ask", "allow", "deny")
TOOL_RULE_KEYS = ("tool", "match", "answer")


def _list_of(text: str) -> object:
    """A list in a variable is JSON; anything else is refused by the rule."""
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text
    return found


def _tool_rules(node: Node) -> tuple[ToolRule, ...]:
    items = node.items("a list of rules", items_max=TOOL_RULES_MAX)
    return tuple(_tool_rule(item) for item in items)


def _tool_rule(node: Node) -> ToolRule:
    entries = node.mapping(TOOL_RULE_KEYS, "a mapping with tool, match and answer")
    missing = next((key for key in TOOL_RULE_KEYS if key not in entries), None)
    if missing is not None:
        raise node.problem(
            f'expected the key "{missing}", found none',
            hint='For example: {tool: run_command, match: "pytest *", answer: allow}',
        )
    return ToolRule(
        tool=entries["tool"].choice(*TOOLS),
        match=_pattern(entries["match"]),
        answer=entries["answer"].choice(*ANSWERS),  # type: ignore[arg-type]  # it is one of these
    )


def _patterns(node: Node) -> tuple[str, ...]:
    return tuple(_pattern(item) for item in node.items("a list of patterns", items_max=TOOL_RULES_MAX))


def _pattern(node: Node) -> str:
    text = node.text("a pattern", chars_max=PATTERN_CHARS_MAX)
    if not text.isprintable():
        raise node.wrong("a pattern in one line")
    return text


def _causes(node: Node) -> tuple[str, ...]:
    items = node.items("a list of causes", items_max=len(NOTIFY_CAUSES))
    return tuple(dict.fromkeys(item.choice(*NOTIFY_CAUSES) for item in items))


def _words_of(text: str) -> object:
    """Words with commas between them, as people type them; or JSON, as every list in a variable."""
    if text.lstrip().startswith("["):
        return _list_of(text)
    return [word for part in text.split(",") if (word := part.strip())]


def _label(node: Node) -> str:
    if not isinstance(node.data, str) or not LABEL.fullmatch(node.data):
        raise node.wrong("a word of letters, digits, dots, dashes and underscores, at most 40 characters")
    return node.data


def _labels(node: Node) -> tuple[str, ...]:
    return tuple(sorted({_label(item) for item in node.items("a list of labels", items_max=LABELS_MAX)}))


def _text_or_none(what: str) -> Callable[[Node], str | None]:
    def read(node: Node) -> str | None:
        if node.data is None:
            return None
        text = node.text(what, chars_max=URL_CHARS_MAX)
        if not text.isprintable():
            raise node.wrong(what)
        return text.strip()

    return read


_ANSWER = one_of(*ANSWERS)
_LABEL = schema.matching(LABEL.pattern)
_TEXT_OR_NULL = schema.one_of(schema.NULL, schema.text(chars_max=URL_CHARS_MAX))
_PATTERN = schema.text(chars_max=PATTERN_CHARS_MAX)
_TOOL_RULE = schema.mapping(
    {
        key: {"tool": schema.choice(*TOOLS), "match": _PATTERN, "answer": schema.choice(*ANSWERS)}[key]
        for key in TOOL_RULE_KEYS
    },
    required=TOOL_RULE_KEYS,
)

RULES: Mapping[str, Rule] = {
    "resume.enabled": FLAG,
    "resume.in_progress_strategy": one_of("rollback", "retry", "prompt"),
    "resume.unknown_outcome": one_of("ask", "retry"),
    "resume.validate_environment": FLAG,
    "resume.validation": one_of("strict", "lenient"),
    "resume.changed_files_action": one_of("prompt", "continue", "abort"),
    "resume.validation_timeout_seconds": seconds(),
    "resume.recovery_timeout_seconds": seconds(),
    "resume.max_resume_attempts": whole(1, 1_000),
    "resume.attempts": one_of("since_progress", "per_run"),
    "resume.attempts_total_max": whole(1, 100_000),
    "resume.cooldown_seconds.tool_failure": seconds(zero=True),
    "resume.cooldown_seconds.timeout": seconds(zero=True),
    "resume.cooldown_seconds.context_reset": seconds(zero=True),
    "resume.cooldown_seconds.process_crash": seconds(zero=True),
    "resume.stale_after_days": Rule(_days, _number_of, schema.duration(0, DAYS_MAX, above_low=True)),
    "resume.backup": FLAG,
    "session.lock_timeout_seconds": seconds(zero=True),
    "steps.timeout_seconds": seconds(),
    "steps.output_limit_bytes": whole(1_024, OUTPUT_BYTES_MAX),
    "steps.stop_grace_seconds": seconds(zero=True),
    "limits.plan_bytes": whole(1_024, PLAN_BYTES_MAX),
    "redaction.strict": FLAG,
    "model.name": Rule(_name, schema=schema.text(chars_max=NAME_CHARS_MAX)),
    "model.base_url": Rule(_http_url, schema=schema.matching(_HTTP_URL.pattern)),
    "model.api_key_env": Rule(_env_name, schema=schema.matching(ENV_NAME.pattern)),
    "model.context_tokens": whole(1_024, CONTEXT_TOKENS_MAX),
    "model.timeout_seconds": seconds(),
    "model.budget_tokens": _or_none(whole(1, BUDGET_TOKENS_MAX)),
    "model.budget_usd": _or_none(Rule(_usd, _number_of, schema.number(0, BUDGET_USD_MAX, above_low=True))),
    "tools.run_command": _ANSWER,
    "tools.write_file": _ANSWER,
    "tools.edit_file": _ANSWER,
    "tools.git_commit": _ANSWER,
    "tools.rules": Rule(_tool_rules, _list_of, schema.items(_TOOL_RULE, items_max=TOOL_RULES_MAX)),
    "tools.read_only": Rule(_patterns, _list_of, schema.items(_PATTERN, items_max=TOOL_RULES_MAX)),
    "sync.url": Rule(_postgres_url, schema=schema.one_of(schema.NULL, schema.matching(_POSTGRES_URL.pattern))),
    "sync.release": one_of("on_pause", "never"),
    "notify.command": Rule(
        _command_or_none,
        schema=schema.one_of(schema.NULL, schema.text(chars_max=COMMAND_CHARS_MAX), COMMAND_SCHEMA),
    ),
    "notify.on": Rule(_causes, _list_of, schema.items(schema.choice(*NOTIFY_CAUSES), items_max=len(NOTIFY_CAUSES))),
    "fleet.queue": Rule(_label, schema=_LABEL),
    "fleet.priority": whole(-PRIORITY_MAX, PRIORITY_MAX),
    "fleet.labels": Rule(_labels, _words_of, schema.items(_LABEL, items_max=LABELS_MAX)),
    "fleet.key": Rule(_text_or_none("a name"), schema=_TEXT_OR_NULL),
    "fleet.source": Rule(_text_or_none("git+URL@COMMIT or a directory"), schema=_TEXT_OR_NULL),
    "fleet.lease_seconds": Rule(
        lambda node: node.duration(LEASE_S_MIN, LEASE_S_MAX),
        _number_of,
        schema.duration(LEASE_S_MIN, LEASE_S_MAX),
    ),
    "fleet.store": Rule(_text_or_none("a URL"), schema=_TEXT_OR_NULL),
    "hooks.on_error": one_of("block", "allow"),
    "hooks.front": one_of("auto", "never"),
    "hooks.unknown": one_of("ask", "block"),
}

DRIVERS = "drivers"
TELEMETRY = "telemetry"  # a section without settings: OTEL_* of the environment decide
DRIVER_NAMES = ("arc", "agent-memory")
