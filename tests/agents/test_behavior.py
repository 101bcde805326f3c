"""The front changes nothing of what a command does, prints or leaves behind: the same steps, with it and without it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.agents.client import NAMES, client_of
from tests.agents.trial import FIRST_PROMPT, install_acode, trial
from tests.agents.wanted_calls import Model, WantedCall

pytestmark = pytest.mark.agents

STEPS = (
    "echo plain",
    "echo out; sleep 0.5; echo err >&2",  # two pipes: what comes at once has no order
    "printf 'no newline'",
    "false",
    "exit 7",
    "(exit 3); echo status $?",
    "set -e; false; echo not reached",
    "[[ abc == a* ]] && echo bashism; a=(1 2 3); echo ${#a[@]} ${a[-1]}",
    "cat <<'END'\nheredoc with 'quotes' and $dollar\nEND",
    "echo 'single \"double\" inside' \"and 'single'\" \\\\backslash",
    "f() { echo function $1; }; f called",
    "shopt -s expand_aliases; alias hi='echo alias'; eval hi",
    "export VARIABLE=exported; sh -c 'echo $VARIABLE'",
    "mkdir -p sub && cd sub && pwd | sed 's|.*/||'",
    "pwd | sed 's|.*/||'",
    "cat; echo stdin ended",
    "read line; echo read $?",
    "yes 0123456789 | head -c 300000 | wc -c",
    "head -c 40000 /dev/zero | tr '\\0' z",
    "{ sh -c 'kill -TERM $$'; } 2>/dev/null; echo after $?",
    "kill -KILL $$",
    "(sleep 0.2; echo late) & wait; echo background done",
    "yes | head -1; echo ${PIPESTATUS[0]}",
    "echo $- | tr -d '\\n' | wc -c; umask; ulimit -n | grep -c .",
    "ps -o pgid= -p $$ | tr -d ' ' | grep -c .; test -t 0; echo tty $?",
    "env | grep -c ACODE; env | cut -d= -f1 | grep -E '^(BASH_ENV|CLAUDE_CODE_SHELL_PREFIX|SHLVL)$'",
    "trap 'echo trapped' EXIT; echo body",
    "printf 'ctrl \\033[1mbold\\033[0m \\a bell\\n'",
    "echo ünïcode 🙂",
)
NOISE = (
    (re.compile(r"(?<!\S)\S*/tool-(?:results|outputs)/\S+"), "FILE"),
    (re.compile(r"(?m)^(Wall time|Chunk ID|Process Group PGID|Original token count).*$"), ""),
    (re.compile(r"/\S*/(home|workspace)\b"), "PLACE"),
    (re.compile(r"line \d+: +\d+ (Killed|Terminated)"), r"line N: PID \1"),
    (re.compile(r"\b\d{4,}\b"), "N"),
)


@pytest.mark.timeout(900)  # opencode notices only after two minutes that its shell was killed, with and without acode
@pytest.mark.parametrize("name", NAMES)
def test_every_step_shows_the_model_the_same_with_and_without_the_front(name: str, tmp_path: Path) -> None:
    shown = {acode: results(name, tmp_path / str(acode), acode=acode) for acode in (False, True)}
    for step, without, with_acode in zip(STEPS, shown[False], shown[True], strict=True):
        if "grep -c ACODE" not in step:
            assert with_acode == without, step


def results(name: str, directory: Path, *, acode: bool) -> list[str]:
    client = client_of(name)
    with trial(name, client, directory) as one:
        if acode:
            install_acode(one)
        one.server.model = Model(calls=tuple(WantedCall(kind="command", text=step) for step in STEPS), trusting=True)
        one.run(client.start(FIRST_PROMPT))
        one.wait_for_quiet()
        last = one.server.requests[-1].conversation
        assert one.server.requests[-1].wanted is None, one.log()
    calls = {said.call_id: said.text for said in last if said.kind == "call"}
    found = []
    for step in STEPS:
        ids = [id_ for id_, text in calls.items() if text.split("\n20000")[0].removesuffix("\nas asked") == step]
        texts = [said.text for said in last if said.kind == "result" and said.call_id in ids]
        assert len(texts) == 1, (step, texts)
        found.append(cleaned(texts[0]))
    return found


def cleaned(text: str) -> str:
    for pattern, instead in NOISE:
        text = pattern.sub(instead, text)
    return text
