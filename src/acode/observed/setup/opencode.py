"""opencode: a plugin of its own for the hooks, and the shell in opencode.json or opencode.jsonc."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from acode.observed.doors import Doors
from acode.observed.setup import json_text
from acode.observed.setup.config_file import ConfigFile, Step, Version, Where

TESTED: Final = Version(tested="1.18.33", command=("opencode", "--version"))
NAMES: Final = ("opencode.jsonc", "opencode.json", "config.json")
SHELLS: Final = ("bash", "zsh", "sh", "ksh", "dash")
SHELL, OUR_SHELLS = ("shell",), "/doors/shells/"
TIMEOUT_MS: Final = 60_000
MARK: Final = "// Written by `acode hook install opencode`; `acode hook uninstall opencode` removes it.\n"

PLUGIN: Final = """import { spawnSync } from "node:child_process"

const HOOK = %(hook)s
const EVENTS = ["session.idle", "session.deleted"]

function ask(event, place, input, output) {
  const payload = JSON.stringify({ agent: "opencode", event, ...place, input, output })
  const done = spawnSync(HOOK, [], { input: payload, timeout: %(timeout_ms)d, encoding: "utf8" })
  if (done.status === 2) return { failed: done.stderr.trim() }
  try {
    return done.status === 0 && done.stdout ? JSON.parse(done.stdout) : {}
  } catch {
    return {}
  }
}

export const Acode = async ({ directory, worktree }) => {
  const place = { directory, worktree }
  return {
    event: async ({ event }) => {
      if (EVENTS.includes(event.type)) ask(event.type, place, event.properties, null)
    },
    "chat.message": async (input, output) => {
      const { context } = ask("chat.message", place, input, output)
      const like = output.parts.at(-1)
      if (!context || !like) return
      const { id, sessionID, messageID } = like
      output.parts.push({ id: id + "a", sessionID, messageID, type: "text", text: context, synthetic: true })
    },
    "tool.execute.before": async (input, output) => {
      const { deny, failed } = ask("tool.execute.before", place, input, output)
      if (deny || failed) throw new Error(deny || failed)
    },
    "tool.execute.after": async (input, output) => {
      ask("tool.execute.after", place, input, output)
    },
  }
}
"""


def files(where: Where, doors: Doors, *, front: bool) -> tuple[ConfigFile, ...]:
    user = Path(where.environment.get("XDG_CONFIG_HOME") or where.home / ".config") / "opencode"
    plugins = user / "plugin" if where.scope == "user" else where.project / ".opencode" / "plugin"
    plugin = ConfigFile(path=plugins / "acode.js", add=(_plugin(doors),), remove=_remove_plugin)
    if not front:
        return (plugin,)
    directory = user if where.scope == "user" else where.project
    names = NAMES if where.scope == "user" else NAMES[:2]
    existing = next((directory / name for name in names if (directory / name).is_file()), None)
    path = existing or directory / "opencode.json"
    shell = os.path.basename(where.environment.get("SHELL", ""))
    usual = shell if shell in SHELLS else "bash"
    settings = ConfigFile(path=path, add=(_front(doors, usual),), remove=_remove, replaced=_own_shell, restore=_restore)
    return plugin, settings


def _plugin(doors: Doors) -> Step:
    made = MARK + PLUGIN % {"hook": json.dumps(str(doors.hook)), "timeout_ms": TIMEOUT_MS}

    def step(text: str) -> str:
        if text and not text.startswith(MARK):
            raise ValueError("a plugin of that name is there, and acode has not written it")
        return made

    return step


def _remove_plugin(text: str) -> str:
    return "" if text.startswith(MARK) else text


def _front(doors: Doors, usual: str) -> Step:
    def step(text: str) -> str:
        current, real = _shell(text), _own_shell(text)
        if current == str(doors.directory / "shells" / os.path.basename(current or "")):
            return text
        ours = doors.shell(os.path.basename(current) if current else usual, real=real or "")
        return json_text.set_member(text, SHELL, str(ours))

    return step


def _shell(text: str) -> str | None:
    found = json_text.find(json_text.parse(text), SHELL) if text.strip() else None
    return found.data if found is not None and isinstance(found.data, str) else None


def _own_shell(text: str) -> str | None:
    current = _shell(text)
    return current if current and OUR_SHELLS not in current else None


def _remove(text: str) -> str:
    return json_text.remove_member(text, SHELL) if OUR_SHELLS in (_shell(text) or "") else text


def _restore(text: str, theirs: str) -> str:
    return text if _shell(text) is not None else json_text.set_member(text, SHELL, theirs)


def probe(prompt: str, command: str) -> list[str]:
    return ["opencode", "run", "--format", "json", prompt]


def notes(where: Where) -> list[str]:
    found = []
    if where.environment.get("OPENCODE_CONFIG"):
        found.append("OPENCODE_CONFIG names another configuration file, which may set another shell")
    if where.environment.get("OPENCODE_PURE"):
        found.append("OPENCODE_PURE is set: opencode loads no plugins")
    return found
