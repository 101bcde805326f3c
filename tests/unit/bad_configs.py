"""Everything that can be wrong with a configuration file: the text, and how the sentence about it begins."""

# ruff: noqa: E501 (a case is one line, to be read beside its neighbours)

from __future__ import annotations

# fmt: off
# What is wrong with a file. {f} is its path.
BAD_FILES = {
    "unknown section": ("resum: {}", '{f}:1:1: unknown key "resum"; did you mean "resume"?'),
    "unknown key": ("resume:\n  max_attempts: 3", '{f}:2:3: resume: unknown key "max_attempts"; did you mean "max_resume_attempts"?'),
    "unknown class": ("resume: {cooldown_seconds: {crash: 1}}", '{f}:1:29: resume.cooldown_seconds: unknown key "crash"'),
    "duplicate": ("sync: {}\nsync: {}", '{f}:2:1: the key "sync" is there twice, first in line 1'),
    "list": ("- a", "{f}:1:1: expected a mapping with settings, found a list"),
    "section text": ("resume: yes", '{f}:1:9: resume: expected a mapping with the settings of resume, found the text "yes"'),
    "malformed": ("resume: {", "{f}:1:10: is not YAML: "),
    "anchor": ("resume: &a {}", "{f}:1:9: anchors and aliases are not supported"),
    "no attempts": ("resume: {max_resume_attempts: 0}", "{f}:1:31: resume.max_resume_attempts: expected a whole number from 1 to 1000, found a number (0)"),
    "true attempts": ("resume: {max_resume_attempts: true}", "{f}:1:31: resume.max_resume_attempts: expected a whole number from 1 to 1000, found true"),
    "no time": ("steps: {timeout_seconds: 0}", "{f}:1:26: steps.timeout_seconds: expected a number of seconds more than 0"),
    "negative wait": ("resume: {cooldown_seconds: {timeout: -1}}", "{f}:1:38: resume.cooldown_seconds.timeout: expected a number of seconds from 0 to"),
    "endless": ("steps: {timeout_seconds: .inf}", "{f}:1:26: steps.timeout_seconds: expected a finite number"),
    "huge plans": ("limits: {plan_bytes: 99999999999}", "{f}:1:22: limits.plan_bytes: expected a whole number from 1024 to 67108864"),
    "tool": ("tools: {run_command: yes}", "{f}:1:22: tools.run_command: expected ask, allow or deny"),
    "unknown tool": ("tools: {rm: allow}", '{f}:1:9: tools: unknown key "rm"'),
    "tool rule list": ("tools: {rules: {}}", "{f}:1:16: tools.rules: expected a list of rules, found an empty mapping"),
    "tool rule key": ("tools:\n  rules:\n    - {tool: run_command, mach: x, answer: deny}", '{f}:3:27: tools.rules[0]: unknown key "mach"; did you mean "match"?'),
    "tool rule without match": ("tools: {rules: [{tool: run_command, answer: deny}]}", '{f}:1:17: tools.rules[0]: expected the key "match", found none'),
    "tool rule for no tool": ("tools: {rules: [{tool: run_comand, match: x, answer: deny}]}", "{f}:1:24: tools.rules[0].tool: expected read_file, list_files, search, write_file, edit_file, run_command, git_commit or ask_user"),
    "tool rule answer": ("tools: {rules: [{tool: search, match: x, answer: no}]}", "{f}:1:50: tools.rules[0].answer: expected ask, allow or deny"),
    "tool rule of two lines": ('tools: {rules: [{tool: search, match: "a\\nb", answer: deny}]}', "{f}:1:39: tools.rules[0].match: expected a pattern in one line"),
    "read only number": ("tools: {read_only: [1]}", "{f}:1:21: tools.read_only[0]: expected a pattern, found a number (1)"),
    "no context": ("model: {context_tokens: 0}", "{f}:1:25: model.context_tokens: expected a whole number from 1024 to 100000000"),
    "no budget": ("model: {budget_usd: 0}", "{f}:1:21: model.budget_usd: expected a number of US dollars more than 0"),
    "budget of half a token": ("model: {budget_tokens: 0.5}", "{f}:1:24: model.budget_tokens: expected a whole number from 1 to"),
    "base url": ("model: {base_url: 'ftp://x'}", "{f}:1:19: model.base_url: expected a URL such as http://127.0.0.1:11434/v1"),
    "base url with a password": ("model: {base_url: 'https://u:hunter2@x/v1'}", "{f}:1:19: model.base_url: expected a URL"),
    "a key instead of its name": ("model: {api_key_env: sk-hunter2}", "{f}:1:22: model.api_key_env: expected the name of an environment variable"),
    "sync url": ("sync: {url: 'mysql://u:hunter2@x'}", "{f}:1:13: sync.url: expected a URL that begins with postgresql://"),
    "notify number": ("notify: {command: 3}", "{f}:1:19: notify.command: expected text, a list of texts or null, found a number (3)"),
    "notify nothing": ("notify: {command: []}", "{f}:1:19: notify.command: expected a program and its arguments, found an empty list"),
    "unknown driver": ("drivers: {ark: {command: [x]}}", '{f}:1:11: drivers: unknown key "ark"; did you mean "arc"?'),
    "driver without command": ("drivers: {arc: {timeout: 3}}", '{f}:1:16: drivers.arc: expected the key "command" or "agent", found none'),
    "driver twice": ("drivers: {arc: {command: [x], agent: claude}}", "{f}:1:38: drivers.arc.agent: expected either command or agent, found command and agent"),
    "driver arguments": ("drivers: {arc: {command: [x], arguments: [y]}}", "{f}:1:42: drivers.arc.arguments: expected either command or agent, found command and arguments"),
    "driver agent": ("drivers: {arc: {agent: cloude}}", '{f}:1:24: drivers.arc.agent: expected claude, codex, gemini or opencode, found the text "cloude"; did you mean "claude"?'),
    "driver agent's arguments": ("drivers: {arc: {agent: codex, arguments: [1]}}", "{f}:1:43: drivers.arc.arguments[0]: expected text, found a number (1)"),
    "driver line": ("drivers: {arc: {command: x}}", '{f}:1:26: drivers.arc.command: expected a list of texts, found the text "x"'),
    "driver number": ("drivers: {arc: {command: [x, 1]}}", "{f}:1:30: drivers.arc.command[1]: expected text, found a number (1)"),
    "driver elsewhere": ("drivers: {arc: {command: [x], cwd: ../y}}", '{f}:1:36: drivers.arc.cwd: expected a path inside the workspace, found "../y": it leaves'),
    "driver key": ("drivers: {arc: {command: [x], idempotant: true}}", '{f}:1:31: drivers.arc: unknown key "idempotant"; did you mean "idempotent"?'),
}
# fmt: on
