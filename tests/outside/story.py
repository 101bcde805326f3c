"""One random story from one seed: what a session is to do, what happens to it, and what may be asked about it.

Nothing here knows acode. A story is text: a plan, a program or a run of another tool, the files before it, the kills.
Each effect appends its idempotency key to a ledger outside the workspace and syncs it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any, Literal

NOTE = 'echo "$ACODE_IDEMPOTENCY_KEY" >> "$LEDGER"; sync "$LEDGER"'
KILLS_MAX = 4
Source = Literal["plan", "program", "async", "threads", "foreign"]
SOURCES: tuple[Source, ...] = ("plan", "plan", "plan", "plan", "program", "async", "threads", "foreign")
KINDS = (
    "read", "write", "rewrite", "undeclared", "probed", "outputs", "patterns", "idempotent", "flaky", "half",
    "sql", "commit", "approve",
)  # fmt: skip
UNDOABLE = ("read", "write", "rewrite", "outputs", "patterns", "undone", "undone")
CALLS = ("call", "call", "idempotent", "write", "run", "probed")


@dataclass(frozen=True, kw_only=True)
class Kill:
    """At a system call, told as a part of all those of an undisturbed run; as soon as the ledger has so many lines
    more; or as soon as the command has said so often that a step began, which may have had no effect yet.

    everything: with its keeper and its commands, as if the machine had gone down.
    """

    at: float = 0.0
    lines: int = 0
    starts: int = 0
    everything: bool = False


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A step that leaves a line in the ledger. once: no attempt may be added to those of an undisturbed run."""

    once: bool
    may_be_unknown: Literal["never", "machine", "always"] = "never"


@dataclass(frozen=True, kw_only=True)
class Story:
    seed: int
    source: Source
    text: str  # of the plan or the program; of a foreign run its name
    corrected: str = ""
    files: dict[str, str] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict)
    behind: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of each gate, the effects that wait for it
    rollback: str = ""  # at the first gate, once: this step is kept, "-" none
    moved: bool = False  # the workspace has another name after the first kill
    older: bool = False  # an older copy of acode's directory is laid there after an approval, and must be refused
    kills: tuple[Kill | None, ...] = ()  # of one command after the other


def story(seed: int) -> Story:
    dice = random.Random(seed)
    source = dice.choice(SOURCES)
    if source == "plan":
        made = _plan(seed, dice)
    elif source == "foreign":
        made = _foreign(seed)
    else:
        made = _program(seed, dice, source)
    more: dict[str, Any] = {"kills": _kills(dice, len(made.effects), source), "moved": dice.random() < 0.15}
    if source == "plan" and made.behind:
        more["older"] = dice.random() < 0.3
    return Story(**{**made.__dict__, **more})


def _kills(dice: random.Random, effects: int, source: Source) -> tuple[Kill | None, ...]:
    """The first command is killed, or the story may be over; seldom one between two that are killed is left alone.

    Later commands are shorter than the first, whose calls are counted, so that early calls are hit more often in them.
    """
    found: list[Kill | None] = []
    for number in range(dice.randint(1, KILLS_MAX)):
        everything = dice.random() < 0.5
        kind = dice.random()
        if number and kind < 0.1:
            found.append(None)
        elif effects and kind < 0.35:
            found.append(Kill(lines=dice.randint(1, max(1, effects // 2)), everything=everything))
        elif kind < 0.7 and source in ("plan", "foreign"):
            found.append(Kill(starts=dice.randint(1, 4), everything=everything))
        else:
            found.append(Kill(at=dice.random() ** (2 if number else 1), everything=everything))
    return tuple(found)


# Plans.


class _Plan:
    """Steps are numbered through the whole plan, so that no two of them touch the same file."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.number = 0
        self.files = {"in.txt": "1\n2\n", "same.txt": "before\n"}
        self.effects: dict[str, Effect] = {}
        self.rewriter = ""  # one task alone writes the shared file, so that no order of tasks changes the end

    def step(self, task: str, kind: str) -> list[dict[str, Any]]:
        self.number += 1
        n = self.number
        name = f"{task}.s{n}"
        match kind:
            case "read":
                return [{"id": f"s{n}", "read": "in.txt"}]
            case "write":
                mode = {"mode": "0600"} if self.dice.random() < 0.3 else {}
                return [{"id": f"s{n}", "write": {"path": f"w{n}/made.txt", "content": f"made {n}\n", **mode}}]
            case "rewrite":
                self.rewriter = self.rewriter or task
                path = "same.txt" if self.rewriter == task else f"same-{task}.txt"
                return [{"id": f"s{n}", "write": {"path": path, "content": f"version {n}\n"}}]
            case "sql":
                self.files[f"change{n}.sql"] = f"INSERT INTO rows VALUES ({n});\n"
                return [{"id": f"s{n}", "sql": {"database": f"{task}.db", "file": f"change{n}.sql"}}]
            case "commit":
                self.number += 1
                write = {"id": f"s{n}", "write": {"path": f"c{n}.txt", "content": f"committed {n}\n"}}
                return [write, {"id": f"s{n + 1}", "commit": {"message": f"Change {n}", "paths": [f"c{n}.txt"]}}]
            case "approve":
                return [{"id": f"s{n}", "approve": f"Continue after {n}?"}]
        return [{"id": f"s{n}", **self._command(kind, n, name)}]

    def _command(self, kind: str, n: int, name: str) -> dict[str, Any]:
        once = kind not in ("outputs", "patterns", "idempotent", "half")
        unknown: Literal["never", "machine"] = "machine" if once and kind != "probed" else "never"
        self.effects[name] = Effect(once=once, may_be_unknown=unknown)
        pause = f"sleep 0.0{self.dice.randint(0, 4)}; " if self.dice.random() < 0.5 else ""
        late = self.dice.randint(1, 2)
        done = f"{NOTE}"
        match kind:
            case "probed":
                return {"run": f"{pause}{done}", "probe": f'grep -q ":{name}:" "$LEDGER"'}
            case "outputs":
                if self.dice.random() < 0.5:
                    self.files[f"o{n}.txt"] = "somebody's\n"
                act = f"echo half >> o{n}.txt; {done}; {pause}cat in.txt >> o{n}.txt"
                return {"run": act, "outputs": [f"o{n}.txt"]}
            case "patterns":
                act = f"test ! -e p{n}/made || exit 9; mkdir -p p{n}; echo half > p{n}/made; {done}; {pause}"
                return {"run": f"{act}echo whole > p{n}/made; echo more > p{n}/more.o", "outputs": [f"p{n}/**"]}
            case "idempotent":
                return {"run": f"{pause}{done}", "idempotent": True}
            case "flaky":
                return {"run": f'[ "$ACODE_ATTEMPT" -gt {late} ] || exit 1; {pause}{done}', "retry": {"attempts": 12}}
            case "half":
                act = f"test ! -e h{n}.txt || exit 9; echo half > h{n}.txt; "
                act += f'[ "$ACODE_ATTEMPT" -gt {late} ] || exit 1; {done}; {pause}echo whole > h{n}.txt'
                return {"run": act, "outputs": [f"h{n}.txt"], "retry": {"attempts": 12}}
            case "undone":
                self.effects[f"{name}~undo"] = Effect(once=True, may_be_unknown="machine")
                return {"run": f"{pause}{done}", "undo": done}
        return {"run": f"{pause}{done}"}


def _plan(seed: int, dice: random.Random) -> Story:
    made = _Plan(dice)
    rolled_back = dice.random() < 0.25
    tasks = [_task(made, dice, number, rolled_back) for number in range(dice.randint(1, 3))]
    parallel = dice.choice((1, 1, 2, 3)) if len(tasks) > 1 and not rolled_back else 1
    for task in tasks if parallel > 1 else ():
        task["needs"] = []
    last = {"id": "last", "needs": [task["id"] for task in tasks], "steps": []}
    if rolled_back or dice.random() < 0.4:
        last["steps"] += made.step("last", "approve")
    for kind in ("undeclared", "write"):
        last["steps"] += made.step("last", kind)
    tasks.append(last)
    text, corrected = _text(tasks, parallel), ""
    if dice.random() < 0.25:
        text, corrected = _broken(tasks, parallel, made, dice)
    kept = dice.choice(["-", f"t0.{tasks[0]['steps'][0]['id']}"]) if rolled_back else ""
    return Story(
        seed=seed,
        source="plan",
        text=text,
        corrected=corrected,
        files=made.files,
        effects=made.effects,
        behind=_behind(tasks, made.effects),
        rollback=kept,
    )


def _task(made: _Plan, dice: random.Random, number: int, rolled_back: bool) -> dict[str, Any]:
    name = f"t{number}"
    kinds = UNDOABLE if rolled_back else KINDS
    steps = [step for _ in range(dice.randint(1, 3)) for step in made.step(name, dice.choice(kinds))]
    return {"id": name, "steps": steps}


def _broken(tasks: list[dict[str, Any]], parallel: int, made: _Plan, dice: random.Random) -> tuple[str, str]:
    """A step in the last task fails until the plan is corrected, which also gets a step more."""
    n = made.number + 1
    last = tasks[-1]["steps"]
    name = f"last.s{n}"
    made.effects[name] = Effect(once=True, may_be_unknown="machine")
    made.number = n
    wrong = {"id": f"s{n}", "run": f"echo half > broken{n}.txt; exit 1", "outputs": [f"broken{n}.txt"]}
    right = {"id": f"s{n}", "run": f"test ! -e broken{n}.txt && {{ {NOTE}; }}"}
    at = dice.randint(1, len(last))
    text = _text([*tasks[:-1], {**tasks[-1], "steps": [*last[:at], wrong, *last[at:]]}], parallel)
    added = made.step("last", "write")
    tasks[-1]["steps"] = [*last[:at], right, *last[at:], *added]
    return text, _text(tasks, parallel)


def _behind(tasks: list[dict[str, Any]], effects: dict[str, Effect]) -> dict[str, tuple[str, ...]]:
    """What waits for a gate: the rest of its task; the last task needs all others."""
    found: dict[str, tuple[str, ...]] = {}
    for task in tasks:
        names = [f"{task['id']}.{step['id']}" for step in task["steps"]]
        after = [name for name in effects if name.startswith("last.")] if task["id"] != "last" else []
        for number, step in enumerate(task["steps"]):
            if "approve" in step:
                found[names[number]] = (*(name for name in names[number + 1 :] if name in effects), *after)
    return found


def _text(tasks: list[dict[str, Any]], parallel: int) -> str:
    """JSON is YAML."""
    return json.dumps({"title": "A story", "parallel": parallel, "tasks": tasks}, indent=1)


# Programs.

HEAD = """
import asyncio, json, os, sys, threading
import acode

def note(name):
    line = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND)
    os.write(line, f"program:{name}:0\\n".encode())
    os.fsync(line)
    os.close(line)
    return name

async def note_later(name):
    await asyncio.sleep(0)
    return note(name)

def asked(error):
    print(json.dumps({"error": {"details": error.details, "message": str(error)}}))
    sys.exit(19)
"""
SYNC = """
try:
    with acode.session("story", force="it was cut off") as s:
{body}
except acode.OutcomeUnknown as error:
    asked(error)
"""
ASYNC = """
async def main():
    async with acode.session("story", force="it was cut off") as s:
{body}

try:
    asyncio.run(main())
except* acode.OutcomeUnknown as found:
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    asked(found)
"""
THREADS = """
def in_thread(s, n, work, unknown):
    try:
        with s.branch(f"b{{n}}"):
            work(s)
    except acode.OutcomeUnknown as error:
        unknown.append(error)

{functions}
try:
    with acode.session("story", force="it was cut off") as s:
        unknown = []
        threads = [threading.Thread(target=in_thread, args=(s, n, work, unknown)) for n, work in enumerate(WORKS)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        if unknown: raise unknown[0]
        s.write("end.txt", "the end\\n", name="end")
except acode.OutcomeUnknown as error:
    asked(error)
"""


def _program(seed: int, dice: random.Random, source: Source) -> Story:
    effects: dict[str, Effect] = {}
    if source == "threads":
        works = []
        for thread in range(dice.randint(2, 4)):
            lines = [_line(dice, f"b{thread}.", n, effects) for n in range(dice.randint(1, 3))]
            works.append(f"def work{thread}(s):\n" + "".join(f"    {line}\n" for line in lines))
        names = ", ".join(f"work{thread}" for thread in range(len(works)))
        body = THREADS.format(functions="\n".join(works) + f"\nWORKS = [{names}]\n")
    elif source == "async":
        lines = []
        for n in range(dice.randint(2, 4)):
            group = [f"p{n}_{k}" for k in range(dice.randint(1, 4))]
            for name in group:
                effects[name] = Effect(once=True, may_be_unknown="always")
            calls = ", ".join(f's.step("{name}", note_later, "{name}")' for name in group)
            lines.append(f"await asyncio.gather({calls})")
        lines.append('s.write("end.txt", "the end\\n", name="end")')
        body = ASYNC.format(body="".join(f"        {line}\n" for line in lines))
    else:
        lines = [_line(dice, "", n, effects) for n in range(dice.randint(2, 5))]
        body = SYNC.format(body="".join(f"        {line}\n" for line in lines))
    return Story(seed=seed, source=source, text=HEAD + body, files={"in.txt": "1\n"}, effects=effects)


def _line(dice: random.Random, branch: str, n: int, effects: dict[str, Effect]) -> str:
    """One statement; what a function has returned is written down, so that a wrong result shows."""
    name, short = f"{branch}s{n}", f"s{n}"
    file = f"{branch.replace('.', '-')}{short}.txt"
    match dice.choice(CALLS):
        case "call":
            effects[name] = Effect(once=True, may_be_unknown="always")
            return f's.write("{file}", s.step("{short}", note, "{name}") + "\\n", name="{short}w")'
        case "idempotent":
            effects[name] = Effect(once=False)
            return f's.step("{short}", note, "{name}", idempotent=True)'
        case "run":
            effects[name] = Effect(once=True, may_be_unknown="machine")
            return f's.run({NOTE!r}, name="{short}")'
        case "probed":
            effects[name] = Effect(once=True)
            probe = f'grep -q ":{name}:" "$LEDGER"'
            return f's.run({NOTE!r}, name="{short}", probe={probe!r})'
    return f's.write("{file}", "made\\n", name="{short}")'


# A run of another tool.

DRIVER = f"""#!/bin/sh
{NOTE}
"""


def _foreign(seed: int) -> Story:
    names = ("T001.drive", "T002.drive", "clean_up.drive", "consolidate.drive")
    effects = {name: Effect(once=True, may_be_unknown="machine") for name in names}
    return Story(seed=seed, source="foreign", text="agent-memory", files={"in.txt": "1\n"}, effects=effects)
