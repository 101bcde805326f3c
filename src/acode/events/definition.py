"""The definition of a plan: tasks in a graph, steps in a row, and one action per step.

A plan is stored with its session and never read from the file again, so these types are part of the log's format:
fields may be added with a default, never renamed. The types only describe work; nothing here executes it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, get_args

import msgspec

from acode.errors import CannotContinue

Command = str | tuple[str, ...]  # a line for the shell, or a list of arguments
NAMED_MAX = 3  # files in a line for people


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Common settings of the definition types; defaults are part of the stored format and never change."""


class Read(Definition, frozen=True, kw_only=True, tag="read"):
    path: str


class Write(Definition, frozen=True, kw_only=True, tag="write"):
    path: str
    content: str
    mode: str | None = None  # octal text such as "0644"; None keeps the mode of an existing file


class Run(Definition, frozen=True, kw_only=True, tag="run"):
    command: Command
    probe: str | None = None
    outputs: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] = {}
    secret_env: tuple[str, ...] = ()


class Sql(Definition, frozen=True, kw_only=True, tag="sql"):
    file: str
    database: str | None = None  # a path in the workspace or a postgres URL
    database_env: str | None = None  # the environment variable that holds it


class Commit(Definition, frozen=True, kw_only=True, tag="commit"):
    message: str
    paths: tuple[str, ...] = ()


class Approve(Definition, frozen=True, kw_only=True, tag="approve"):
    question: str


class NamedFile(Definition, frozen=True, kw_only=True):
    """A file that a call says it will change."""

    path: str
    after_sha256: str | None = None  # what it will leave behind; None: nothing, it removes the file
    foreseen: bool = True  # False: what it will leave cannot be told beforehand


class Call(Definition, frozen=True, kw_only=True, tag="call"):
    """A function that a program runs as a step, or a tool of an observed agent; only the caller can run it again."""

    function: str  # module:name, for people
    undo: str | None = None  # module:name of the function that undoes it, given its result
    files: tuple[NamedFile, ...] = ()  # of a tool that names the files it changes
    more: bool = False  # it may change other things too: those files alone do not settle it


class Model(Definition, frozen=True, kw_only=True, tag="model"):
    """A request to a model. In a plan that a model made, a piece of work as text: it is never executed as such."""

    name: str = ""
    text: str = ""


Action = Read | Write | Run | Sql | Commit | Approve | Call | Model
_KINDS: dict[type[Definition], str] = {one: str(one.__struct_config__.tag) for one in get_args(Action)}
Kind = Literal["read", "write", "run", "sql", "commit", "approve", "call", "model"]


class Retry(Definition, frozen=True, kw_only=True):
    attempts: int
    backoff_s: float = 0.0


class Step(Definition, frozen=True, kw_only=True):
    id: str  # <task>.<id>
    action: Action
    idempotent: bool = False
    timeout_s: float | None = None
    retry: Retry | None = None
    undo: Command | None = None
    title: str = ""  # for people; it changes no action, so no digest covers it

    @property
    def kind(self) -> str:
        return _KINDS[type(self.action)]

    @property
    def task(self) -> str:
        return self.id.partition(".")[0]


def declared_outputs(step: Step) -> tuple[str, ...]:
    """The patterns of a command's outputs; the pre-images say nothing of them where nothing stood there."""
    return step.action.outputs if isinstance(step.action, Run) else ()


class Task(Definition, frozen=True, kw_only=True):
    id: str
    title: str
    needs: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    origin: dict[str, Any] = {}  # the origin of the request, quoted from the run it was taken from; never executed


class Plan(Definition, frozen=True, kw_only=True):
    title: str
    tasks: tuple[Task, ...]
    version: int = 1
    on_failure: Literal["pause", "abort"] = "pause"
    parallel: int = 1  # so many tasks whose needs are done may run at the same time


def execution_order(plan: Plan) -> tuple[Task, ...]:
    """The one order in which tasks run: always the first task in file order whose needs are done.

    The order is a function of the plan alone, so that every resume of every machine walks the same way.
    """
    waiting, done, order = list(plan.tasks), set[str](), list[Task]()
    while waiting:
        ready = next((task for task in waiting if done.issuperset(task.needs)), None)
        if ready is None:
            stuck = ", ".join(task.id for task in waiting)
            raise CannotContinue(f"the plan's tasks wait for each other: {stuck}")
        waiting.remove(ready)
        done.add(ready.id)
        order.append(ready)
    return tuple(order)


def describe(step: Step) -> str:
    """One line for people: the title of the step, or else what it does."""
    return step.title or describe_action(step)


def describe_in_full(step: Step) -> str:
    """The title and the step's action, for the person who approves it: a title alone could promise something else."""
    return f"{step.title}: {describe_action(step)}" if step.title else describe_action(step)


def describe_action(step: Step) -> str:
    """One line for people: what the step does."""
    match step.action:
        case Read(path=path):
            return f"Read {path}"
        case Write(path=path):
            return f"Write {path}"
        case Run(command=command):
            return f"Run {command_line(command)}"
        case Sql(file=file):
            return f"Apply {file}"
        case Commit(message=message):
            return f"Commit {message.splitlines()[0] if message else ''}".rstrip()
        case Approve(question=question):
            return f"Approve: {question}"
        case Call(function=function, files=files):
            return f"Call {function}{_named(files)}".rstrip()
        case Model(name=name, text=text):
            return text or f"Ask {name}"


def _named(files: tuple[NamedFile, ...]) -> str:
    if not files:
        return ""
    more = f" and {len(files) - NAMED_MAX} more" if len(files) > NAMED_MAX else ""
    return f": {', '.join(one.path for one in files[:NAMED_MAX])}{more}"


def command_line(command: Command) -> str:
    return command if isinstance(command, str) else " ".join(command)


def definition_digest(step: Step) -> str:
    """SHA-256 over the definition as it is encoded here; equal for equal steps of one version of acode."""
    return hashlib.sha256(_deterministic.encode(untitled(step))).hexdigest()


def untitled(step: Step) -> Step:
    """The step as digests see it: another title is no other step, so that it makes no approval void."""
    return msgspec.structs.replace(step, title="") if step.title else step


def digest_of_plan(plan: Plan) -> str:
    """The hash by which a plan is known again; titles of steps are no part of it."""
    tasks = tuple(
        msgspec.structs.replace(task, steps=tuple(map(untitled, task.steps)))
        if any(step.title for step in task.steps)
        else task
        for task in plan.tasks
    )
    return digest(msgspec.structs.replace(plan, tasks=tasks))


_deterministic = msgspec.json.Encoder(order="deterministic")
SAFE_INTEGER_MAX = 2**53 - 1


def digest(value: Any) -> str:
    """SHA-256 over the canonical JSON (RFC 8785) of a definition or of plain data."""
    import rfc8785

    return hashlib.sha256(rfc8785.dumps(_canonical(msgspec.to_builtins(value)))).hexdigest()


def _canonical(value: Any) -> Any:
    """Integers beyond 2⁵³ as tagged strings: RFC 8785 numbers are doubles and would make two of them equal."""
    match value:
        case bool() | None | str() | float():
            return value
        case int():
            return value if abs(value) <= SAFE_INTEGER_MAX else {"$int": str(value)}
        case dict():
            return {key: _canonical(item) for key, item in value.items()}
        case _:
            return [_canonical(item) for item in value]
