"""Turn the commands in a hint into calls: a program is told what to call, and only what it cannot call is left to type.

Modules below the engine raise errors without knowing whether a person or a program will read them. Their hints name
commands; a hint that `engine.hints` made from an action has both forms already and is not read here. Pure.
"""

from __future__ import annotations

import re

# A command with its arguments: flags, placeholders in capitals, and names with a digit or a dot, as ids and steps have.
COMMAND = re.compile(
    r"acode (?P<verb>resume|session \w+|sync \w+|key \w+|config \w+|pull|explain|status|run|doctor|supervise|check)\b"
    r"(?P<rest>(?: (?:--[\w-]+|[A-Z]{2,}(?:\.yml)?|continue\b|[\w-]*\d[\w-]*(?:\.[\w-]+)*|[\w-]+(?:\.[\w-]+)+))*)"
)
ANSWERS = {"--applied": "applied", "--not-applied": "not_applied", "--retry": "retry"}


def as_calls(hint: str, key: str) -> str:
    """The hint for the program whose session has this key."""
    return COMMAND.sub(
        lambda found: _call(found["verb"], found["rest"].split(), key) or f"{found[0]} (in a terminal)", hint
    )


def _call(verb: str, rest: list[str], key: str) -> str | None:
    """The call that does the same; None where the library has none."""
    names = [word for word in rest if not word.startswith("--")]
    flags = {word for word in rest if word.startswith("--")}
    match verb:
        case "resume":
            return _resume(flags, key)
        case "session rollback" if flags <= {"--to"}:
            return f"acode.rollback({key!r}, to={names[-1]!r})" if flags else f"acode.rollback({key!r})"
        case "session resolve" if len(names) > 1 and flags and flags <= ANSWERS.keys():
            answers = [ANSWERS[word] for word in rest if word in ANSWERS]
            return f"acode.resolve({key!r}, {names[1]!r}, {' or '.join(repr(one) for one in answers)})"
        case _:
            return None


def _resume(flags: set[str], key: str) -> str | None:
    match sorted(flags):
        case []:
            return "run the program again"
        case ["--wait"]:
            return f"acode.session({key!r}, wait=True)"
        case ["--changed-files"]:
            return f"acode.session({key!r}, changed_files='continue')"
        case ["--force"] | ["--force", "--reason"]:
            return f"acode.session({key!r}, force='the reason')"
        case _:
            return None
