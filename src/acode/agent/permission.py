"""Whether a tool may be used: by the settings alone, without looking at anything.

Patterns are compared with text, and a line that a wildcard would allow is taken apart first: it can hide a second
command, or an option that runs or writes something else, and then no pattern allows it. Files that look like secrets
are asked for;
and a pattern that denies keeps an honest model from a command, not a clever one: that is what `ask` is for.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable
from typing import Literal

from acode.agent.command_line import is_covered
from acode.agent.secret_paths import looks_like_a_secret
from acode.agent.tool_schemas import (
    Arguments,
    AskUser,
    EditFile,
    GitCommit,
    ListFiles,
    ReadFile,
    RunCommand,
    Search,
    Understood,
    WriteFile,
    understand,
)
from acode.config.settings import ToolRule, Tools
from acode.disk.path_names import visible

Answer = Literal["ask", "allow", "deny"]
SHOWN_CHARACTERS_MAX = 500
EXCERPT_CHARACTERS_MAX = 60
PATHS_SHOWN_MAX = 20
# The characters that begin another command, redirect, expand or end the line.
_COMPOUND = re.compile(r"[;&|<>$`\n\r\0]")
_ONE_FOR_BOTH = ("write_file", "edit_file")


def decide(tool: str, arguments: str, settings: Tools) -> Answer:
    """The settings' answer to a call, given its arguments as the model wrote them.

    Arguments that cannot be understood, or that lead out of the workspace, are allowed: the tool itself answers those
    with the error, and does nothing.
    """
    understood = understand(tool, arguments)
    return decide_for(tool, understood.arguments, settings) if isinstance(understood, Understood) else "allow"


def decide_for(tool: str, arguments: Arguments, settings: Tools) -> Answer:
    """The first rule that matches; else the answer for the tool. Tools that only look and ask need none."""
    usual: Answer = getattr(settings, tool, "allow")
    subject = subject_of(arguments)
    rules = [rule for rule in settings.rules if _is_about(rule, tool)]
    compound = isinstance(arguments, RunCommand) and is_compound(subject)
    for rule in rules:
        if not (compound and rule.answer == "allow") and _matches(rule, subject) and _covers(rule, arguments, subject):
            return rule.answer
    if compound and usual == "allow" and any(rule.answer != "allow" for rule in rules):
        return "ask"  # one of these rules may be meant for a command that hides in the line
    if isinstance(arguments, ReadFile) and usual == "allow" and looks_like_a_secret(subject):
        return "ask"
    return usual


def _covers(rule: ToolRule, arguments: Arguments, subject: str) -> bool:
    """A line that is written out is meant as it stands; one that only a wildcard fits is taken apart first."""
    if rule.answer != "allow" or not isinstance(arguments, RunCommand) or rule.match == subject:
        return True
    return is_covered(subject, rule.match)


def may_be_shown(path: str, settings: Tools) -> bool:
    """Whether a file may be read without asking; one that may not is not found by searching either."""
    return decide_for("read_file", ReadFile(path=path), settings) == "allow"


def is_read_only(command: str, settings: Tools) -> bool:
    """Whether the settings declare that the line changes nothing, so that it may be repeated."""
    return not is_compound(command) and any(
        pattern == command or (_fits(pattern, command) and is_covered(command, pattern))
        for pattern in settings.read_only
    )


def is_compound(command: str) -> bool:
    return _COMPOUND.search(command) is not None


def subject_of(arguments: Arguments) -> str:
    """The text that a pattern is compared with."""
    match arguments:
        case RunCommand(command=command):
            return command
        case GitCommit(message=message):
            return message
        case AskUser(question=question):
            return question
        case ReadFile() | ListFiles() | Search() | WriteFile() | EditFile():
            return arguments.path
        case _:
            return ""


def _is_about(rule: ToolRule, tool: str) -> bool:
    """A path that may not be written may not be edited either, and the other way round."""
    return rule.tool == tool or (rule.answer != "allow" and {rule.tool, tool} == set(_ONE_FOR_BOTH))


def _matches(rule: ToolRule, subject: str) -> bool:
    if rule.answer == "allow":
        return _fits(rule.match, subject)
    return _fits(_folded(rule.match), _folded(subject))


def _folded(text: str) -> str:
    """Some disks ignore case, and the shell ignores the number of blanks: a restriction covers all spellings."""
    return re.sub(r"\s+", " ", unicodedata.normalize("NFC", text)).strip().casefold()


def _fits(pattern: str, text: str) -> bool:
    """`*` is any characters, `?` one; brackets are themselves. `ls *` also fits `ls`."""
    literal = pattern.replace("[", "[[]")
    return fnmatch.fnmatchcase(text, literal) or (pattern.endswith(" *") and text == pattern[:-2])


# For the person who is asked.


def question(tool: str, arguments: str, clean: Callable[[str], str]) -> str:
    """One line that says exactly what would happen.

    clean: takes secrets out. It comes before any shortening: of a secret that is cut through, no rule knows the rest.
    """
    understood = understand(tool, arguments)
    if not isinstance(understood, Understood):
        return f"Let {visible(tool)} say what is wrong with its arguments?"
    return question_for(understood.arguments, clean)


def question_for(arguments: Arguments, clean: Callable[[str], str]) -> str:
    match arguments:
        case RunCommand(command=command):
            # Never shortened: what a person cannot see they cannot allow.
            limit = f" for at most {arguments.timeout_s:g} s" if isinstance(arguments.timeout_s, int | float) else ""
            return f"Run{limit}: {visible(clean(command))}"
        case WriteFile(path=path, content=content):
            return f"Write {visible(path)} ({_bytes(content)})?"
        case EditFile(path=path, old=old, new=new):
            times = "every occurrence of " if arguments.all else ""
            return f"Edit {visible(path)}: replace {times}{_excerpt(old, clean)} by {_excerpt(new, clean)}?"
        case GitCommit(message=message, paths=paths):
            what = _some(paths) if paths else "all that was changed"
            return f"Commit {what} to git: {visible(_cut(clean(message), SHOWN_CHARACTERS_MAX))}"
        case ReadFile(path=path):
            return f"Read {visible(path)}?"
        case ListFiles(path=path):
            return f"List the files in {visible(path)}?"
        case Search(path=path, text=text):
            return f"Search {visible(path)} for {_excerpt(text, clean)}?"
        case AskUser(question=text):
            return f"Ask: {visible(_cut(clean(text), SHOWN_CHARACTERS_MAX))}"
        case _:
            return "Continue?"


def _bytes(text: str) -> str:
    count = len(text.encode())
    return f"{count:,} byte{'s' * (count != 1)}"


def _excerpt(text: str, clean: Callable[[str], str]) -> str:
    return f"“{visible(_cut(clean(text), EXCERPT_CHARACTERS_MAX))}” ({_bytes(text)})"


def _some(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - PATHS_SHOWN_MAX} more" if len(paths) > PATHS_SHOWN_MAX else ""
    return ", ".join(map(visible, paths[:PATHS_SHOWN_MAX])) + more


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[:characters_max] + "…"
