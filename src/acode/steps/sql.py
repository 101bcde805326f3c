"""sql: a file of statements, applied exactly once.

The statements and the step's key go into the target database in one transaction, so that either both are there or
none: found in flight, the key is looked up. That holds however the run ended, also between the target's commit and
acode's own log. The key belongs to one attempt; a later attempt finds those of the earlier ones and repeats nothing.
Passwords in URLs never reach a message, an event or the log.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from acode.errors import (
    AcodeError,
    DiskFull,
    IdempotencyConflict,
    NotWritable,
    StoreUnusable,
    UnsafePath,
    WriteFailed,
)
from acode.events import parse_key
from acode.events import types as ev
from acode.events.definition import Sql, Step
from acode.plan import Finding, Outcome
from acode.steps import sql_postgres, sql_sqlite
from acode.steps.interface import Done, Failed, Prediction, Prepared, RolledBack, Site
from acode.steps.sql_scanner import Dialect, refusal
from acode.steps.sql_target import Applied, Order, Refused, StillOpen, Target, Unreachable, Unsure
from acode.store.store import DATABASE
from acode.workspace import hash_file, read_file, restat
from acode.workspace import look as look_at
from acode.workspacepath import Outside, inside_workspace

FILE_BYTES_MAX = 16 * 1_048_576
WATCH_S = 0.1
IDLE_S = 1.0
PATIENCE_S = 10.0  # between asking a server to cancel and cutting the line
ASK_AGAIN_S = 10.0  # for a server that went down in the middle of a commit
ASK_EVERY_S = 0.2
BESIDE = ("", "-wal", "-shm", "-journal")  # the files that make up a SQLite database


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """Where the statements go. `place` may hold a password; `name` is for people."""

    dialect: Dialect
    place: str
    name: str


def database_of(action: Sql, site: Site) -> Database:
    return database_in(action, site.env)


def database_in(action: Sql, env: Mapping[str, str]) -> Database:
    place, said_by = action.database, "database"
    if action.database_env is not None:
        place, said_by = env.get(action.database_env), f"the environment variable {action.database_env}"
    if not place:
        raise StoreUnusable(f"{said_by} is not set", hint="Set it, then resume.")
    if place.startswith(("postgres://", "postgresql://")):
        return Database(dialect="postgres", place=place, name=sql_postgres.describe(place))
    if "://" in place:  # not shown: a URL may hold a password
        raise StoreUnusable(f"{said_by} holds a URL that is neither postgres:// nor a path in the workspace")
    try:
        path = inside_workspace(place, changes=True)
    except Outside as error:
        raise StoreUnusable(f"{said_by} names no file in the workspace: {error}") from error
    return Database(dialect="sqlite", place=path, name=path)


def connect(database: Database, site: Site, *, timeout_s: float) -> Target:
    if database.dialect == "postgres":
        return sql_postgres.connect(database.place)
    return sql_sqlite.open_file(site.root, database.place, site.agent_dir / DATABASE, timeout_s=timeout_s)


# Before.


def predict(step: Step) -> Prediction:
    return Prediction(
        finding=_not_recorded("its database"),
        reason="evidence",
        because="unless the database records its key; asked if it cannot be reached",
    )


def _not_recorded(name: str) -> Finding:
    evidence = f"{name} does not record its key: the transaction was not committed"
    return Finding(outcome=Outcome.NOT_APPLIED, evidence=evidence, repeatable=True)


def prepare(step: Step, site: Site) -> Prepared:
    """The statements and their target, recorded before they are applied. `execute` reports an error in either."""
    assert isinstance(step.action, Sql)
    target: dict[str, Any] = {"file": step.action.file}
    try:
        target["database"] = database_of(step.action, site).name
        target["sha256"] = read_file(site.root, step.action.file, FILE_BYTES_MAX)[1].sha256
    except (AcodeError, OSError):
        pass
    return Prepared(target=target)


# During.


def execute(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    assert isinstance(step.action, Sql)
    try:
        database = database_of(step.action, site)
        order, source = read_order(step, site, started, database)
    except (DiskFull, WriteFailed):
        raise
    except AcodeError as error:
        return Failed(reason="error", message=f"{error.message}. {error.hint}".rstrip(". ") + ".")
    except OSError as error:
        return Failed(reason="error", message=f"{step.action.file} cannot be read: {error.strerror}")
    attended = Attended(step, site)
    rolled_back = attempts_rolled_back(site, step.id) if started.attempt > 1 else 0
    try:
        attended.do(lambda: apply(order, database, site, attended, rolled_back))
    except (Refused, Unreachable, UnsafePath, NotWritable) as error:
        said = clean(error.message if isinstance(error, AcodeError) else str(error), site, database)
        return Failed(reason=attended.why or "error", message=_why_not(step, database, attended, said))
    except Unsure as error:
        said = clean(str(error), site, database)
        return ask_after(order, database, site, source, said=said, rolled_back=rolled_back)
    return Done(files=(source, *database_files(site, database)), result=result_of(started))


def statements_of(data: bytes, file: str, database: Database) -> str:
    """The text of the file; what no transaction can hold is refused."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        raise StoreUnusable(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    if "\0" in text:
        raise StoreUnusable(f"{file} holds a zero byte: everything behind it would be ignored")
    if (found := refusal(text, database.dialect)) is not None:
        raise StoreUnusable(
            f"{file}, line {found.line}: {found.what} cannot be applied exactly once; nothing was executed",
            hint=found.hint,
        )
    return text


def read_order(step: Step, site: Site, started: ev.StepStarted, database: Database) -> tuple[Order, ev.FileState]:
    """The very bytes that were hashed when the step started, or none; what no transaction can hold is refused."""
    assert isinstance(step.action, Sql)
    file, expected = step.action.file, started.target.get("sha256")
    data, state = read_file(site.root, file, FILE_BYTES_MAX, expected_sha256=expected)
    text = statements_of(data, file, database)
    if state.sha256 is None or expected is None:
        raise StoreUnusable(f"{file} appeared while the step was being started", hint="Resume.")
    return Order(started.key, site.session_id, step.id, file, state.sha256, text), state


def apply(order: Order, database: Database, site: Site, attended: Attended, rolled_back: int) -> None:
    """One transaction: the key, then the statements. Runs in a thread of its own, which the other one watches."""
    target = connect(database, site, timeout_s=attended.left_s())
    attended.target = target
    try:
        target.make_table()
        target.begin(order, attended.left_s())
        if recorded(target.applied(order.session_id, order.step), order.sha256, order.step, rolled_back):
            return  # an earlier attempt took effect after all
        target.record(order)
        target.run(order.text)
        target.commit(order)
    finally:
        target.close()


def recorded(rows: list[Applied], sha256: str | None, step: str, rolled_back: int) -> Applied | None:
    """The attempt at this step that took effect, if one did; one with other content is not repeated."""
    standing = [row for row in rows if attempt_of(row.key) > rolled_back]
    for row in standing:
        if row.sha256 != sha256:
            raise IdempotencyConflict(
                f"the target of step {step} records {row.key} with other content: {row.sha256[:12]} was applied,"
                f" {(sha256 or 'nothing')[:12]} was to be",
                hint="The file was changed after it was applied. Restore it, or make a new migration of the change.",
                key=row.key,
                expected=sha256,
                found=row.sha256,
            )
    return standing[-1] if standing else None


def attempt_of(key: str) -> int:
    parsed = parse_key(key)
    return parsed.attempt if parsed else 0


def attempts_rolled_back(site: Site, step: str) -> int:
    """The last attempt that was completed and then undone by a person: its key stands there, its effects do not."""
    last = undone = 0
    with site.turn:
        for envelope, _, _ in site.store.events(site.session_id):
            match envelope.event:
                case ev.StepCompleted(step=name, attempt=attempt) if name == step:
                    last = attempt
                case ev.StepsRolledBack(steps=steps) if step in steps:
                    undone = last
    return undone


class Attended:
    """Work in a thread, watched from this one: timeout, a request to stop, and the log's sync while waiting."""

    def __init__(self, step: Step, site: Site) -> None:
        self._site = site
        self.timeout_s = step.timeout_s or site.timeout_s
        self._until = time.monotonic() + self.timeout_s
        self._error: BaseException | None = None
        self.target: Target | None = None
        self.why: Literal["timeout", "signal"] | None = None

    def left_s(self) -> float:
        return max(0.001, self._until - time.monotonic())

    def do(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._work, args=(work,), name="acode sql", daemon=True)
        thread.start()
        idle_at, cut_at = time.monotonic() + IDLE_S, 0.0
        while True:
            thread.join(WATCH_S)
            if not thread.is_alive():
                break
            now = time.monotonic()
            if self.why is None and (now >= self._until or self._site.stop.at_once()):
                self.why = "timeout" if now >= self._until else "signal"
                cut_at = now + PATIENCE_S
            if self.why is not None and self.target is not None:
                self.target.interrupt(patience_over=now >= cut_at)
            if now >= idle_at:
                self._site.idle()
                idle_at = now + IDLE_S
        if self._error is not None:
            raise self._error

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error


def _why_not(step: Step, database: Database, attended: Attended, reason: str) -> str:
    assert isinstance(step.action, Sql)
    subject = f"{step.action.file} on {database.name}"
    if attended.why == "timeout":
        return f"{subject} ran out of its {attended.timeout_s:g} s and was rolled back"
    if attended.why == "signal":
        return f"{subject} was stopped and rolled back"
    return f"{subject}: {reason}; {'it was rolled back' if attended.target else 'nothing was executed'}"


def clean(text: str, site: Site, database: Database) -> str:
    if database.dialect == "postgres":
        for secret in sql_postgres.secrets_of(database.place):
            text = text.replace(secret, "***")
    return site.redactor.text(text)


def ask_after(
    order: Order, database: Database, site: Site, source: ev.FileState, *, said: str, rolled_back: int
) -> Done | Failed:
    """The answer to the commit was lost: ask by key, for a while; without an answer the step stays open."""
    until = time.monotonic() + ASK_AGAIN_S
    while True:
        try:
            rows = rows_of(order.session_id, order.step, database, site)
            break
        except Unreachable as error:
            if time.monotonic() >= until or site.stop.at_once():
                return Failed(
                    reason="signal",
                    message=f"the answer of {database.name} to the commit was lost ({said}), and it cannot be asked"
                    f" whether it was made: {clean(str(error), site, database)}",
                )
        time.sleep(ASK_EVERY_S)
        site.idle()
    if recorded(rows, order.sha256, order.step, rolled_back) is None:
        return Failed(reason="error", message=f"{database.name} did not commit: {said}; it was rolled back")
    return Done(files=(source,), result={"database": database.name, "sha256": order.sha256})


def rows_of(session_id: str, step: str, database: Database, site: Site) -> list[Applied]:
    """The target's rows about the step, by a connection of its own; Unreachable where it cannot be asked."""
    target: Target | None
    if database.dialect == "postgres":
        target = sql_postgres.connect(database.place)
    else:
        with sql_sqlite.unreachable_where_refused():
            target = sql_sqlite.open_to_look(site.root, database.place, site.agent_dir / DATABASE)
    if target is None:
        return []
    try:
        with sql_sqlite.unreachable_where_refused():
            return target.applied(session_id, step)
    finally:
        target.close()


# Found in flight.


def look(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    assert isinstance(step.action, Sql)
    if not site.probes:
        return Finding(
            outcome=Outcome.UNKNOWN,
            evidence=f"its key in {started.target.get('database', 'the database')} will decide",
            repeatable=True,
            probe_pending=True,
        )
    then = started.target.get("database")
    try:
        database = database_of(step.action, site)
    except AcodeError as error:
        return Finding(outcome=Outcome.UNKNOWN, evidence=f"its database cannot be asked: {error.message}")
    if then is not None and then != database.name:
        return Finding(
            outcome=Outcome.UNKNOWN,
            evidence=f"it was begun on {then}, and the database is {database.name} now",
        )
    try:
        rows = rows_of(site.session_id, step.id, database, site)
    except StillOpen as error:
        evidence = f"{error}: {database.name} has not decided its outcome yet"
        return Finding(outcome=Outcome.UNKNOWN, evidence=evidence, still_running=True)
    except Unreachable as error:
        reason = clean(str(error), site, database)
        return Finding(outcome=Outcome.UNKNOWN, evidence=f"{database.name} cannot be asked: {reason}")
    rolled_back = attempts_rolled_back(site, step.id) if rows and started.attempt > 1 else 0
    found = recorded(rows, started.target.get("sha256"), step.id, rolled_back)
    if found is None:
        return _not_recorded(database.name)
    return Finding(outcome=Outcome.APPLIED, evidence=f"{database.name} records the key {found.key}")


def wait_for_end(step: Step, site: Site, started: ev.StepStarted) -> bool:
    """Wait for a transaction that its server still holds open, at most the step's time, then end it.

    True when it has ended. Each look waits for the transaction itself, so nothing is slept here.
    """
    until = time.monotonic() + (step.timeout_s or site.timeout_s) + sql_postgres.SLACK_S
    while look(step, site, started).still_running:
        if site.stop.at_boundary():
            return False
        if time.monotonic() > until:
            end_open_transaction(step, site)
            return not look(step, site, started).still_running
        site.idle()
    return True


def end_open_transaction(step: Step, site: Site) -> None:
    """Without the permission to end it, or without the server, it stays open; the next look reports it."""
    assert isinstance(step.action, Sql)
    with contextlib.suppress(Refused, Unreachable):
        target = sql_postgres.connect(database_of(step.action, site).place)
        try:
            target.end_others(site.session_id, step.id)
        finally:
            target.close()


def adopt(step: Step, site: Site, started: ev.StepStarted) -> Done:
    """As if it had just been applied: the target is not asked, because a person's answer is enough."""
    assert isinstance(step.action, Sql)
    files: tuple[ev.FileState, ...] = ()
    try:
        source = hash_file(site.root, step.action.file)
        files = (source,) if source.sha256 == started.target.get("sha256") else ()
        files = (*files, *database_files(site, database_of(step.action, site)))
    except AcodeError:
        pass  # the target is unavailable; a person stated its content
    return Done(files=files, result=result_of(started))


def roll_back(step: Step, site: Site, started: ev.StepStarted) -> RolledBack:
    """The target has rolled back by itself."""
    return RolledBack()


def result_of(started: ev.StepStarted) -> dict[str, Any]:
    return {"database": started.target.get("database"), "sha256": started.target.get("sha256")}


def database_files(site: Site, database: Database) -> tuple[ev.FileState, ...]:
    """A database in the workspace that the session knows as a file has changed by this step, not by somebody else."""
    if database.dialect != "sqlite":
        return ()
    paths = [database.place + ending for ending in BESIDE]
    return restat(site.root, {path: site.manifest[path] for path in paths if path in site.manifest})


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence against a finished step's target. `certain` False: the target could not be asked."""

    message: str
    certain: bool
    gone: bool = False  # there is no database at all


def missing_record(step: Step, site: Site, key: str) -> Doubt | None:
    """Whether the target of a finished step still knows it; if not, it was replaced by an older one."""
    assert isinstance(step.action, Sql)
    try:
        database = database_of(step.action, site)
        rows = rows_of(site.session_id, step.id, database, site)
    except AcodeError as error:
        return Doubt(message=f"the database of step {step.id} cannot be asked: {error.message}", certain=False)
    except Unreachable as error:
        why = clean(str(error), site, database)
        return Doubt(message=f"the database of step {step.id} cannot be asked: {why}", certain=False)
    if any(row.key == key for row in rows):
        return None
    if database.dialect == "sqlite" and look_at(site.root, database.place) is None:
        return Doubt(message=f"{database.name} is gone, and what step {step.id} did to it", certain=True, gone=True)
    message = f"{database.name} does not record step {step.id} any more: was it restored from an older copy?"
    return Doubt(message=message, certain=True)
