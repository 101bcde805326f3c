"""The headless start of the agents that people use: for a task, and as the driver of a foreign run.

What an agent may do is between the agent and its user: acode adds no flag that allows anything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Final

from acode.config import Driver
from acode.config.settings import DRIVING_AGENTS
from acode.errors import CannotContinue, Usage

PROMPT: Final = "{prompt}"
# The text of the prompt stands in no definition, log or event: it is read when the agent starts. The system takes at
# most 128 KiB as one argument; a longer prompt is named by its file.
SCRIPT: Final = f"""\
if [ "$(wc -c < "$ACODE_PROMPT_FILE")" -le 100000 ]
then prompt=$(cat "$ACODE_PROMPT_FILE") || exit
else prompt="Read the whole file $ACODE_PROMPT_FILE and do what it says."
fi
for word do
  shift
  [ "$word" = '{PROMPT}' ] && word=$prompt
  set -- "$@" "$word"
done
exec "$@"
"""


def start(agent: str, task: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Without a terminal, until the task is done."""
    match agent:
        case "claude" | "gemini":
            return (agent, "-p", task, *arguments)
        case "codex":
            return ("codex", "exec", *arguments, task)
        case "opencode":
            return ("opencode", "run", *arguments, task)
        case _:
            raise Usage(f"acode starts no agent {agent!r}", hint=f"Agents: {', '.join(DRIVING_AGENTS)}.")


def command_of(driver: Driver, env: Mapping[str, str]) -> tuple[str, ...]:
    """The driver's command; an agent that is not there is no failure of the task, so it is looked for first."""
    if not driver.agent:
        return driver.command
    if shutil.which(driver.agent, path=env.get("PATH", os.defpath)) is None:
        raise CannotContinue(
            f"the driver {driver.agent} is not on the PATH",
            hint=f"Install {driver.agent}, or name another driver in .agent/config.yml; then resume the run.",
        )
    return ("sh", "-c", SCRIPT, "acode-driver", *start(driver.agent, PROMPT, driver.arguments))
