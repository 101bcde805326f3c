"""Open a program's session by its key: begin it, resume it, or return its recorded results. A key names one session
forever. A second process is refused while the first one works, as with any session.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal

from acode import seal
from acode.engine import notices
from acode.engine.create import WAIT_HINT, create_program
from acode.engine.disk_full import lay_ballast, reopen, stop_for_disk
from acode.engine.endings import complete, ending
from acode.engine.held_session import Held, ended, held, load_verified
from acode.engine.missing_checkpoint import missing_checkpoint_on_record
from acode.engine.start_lock import start_lock
from acode.engine.workspace_store import has_database, opened
from acode.engine.world import Options, Result, World, short
from acode.errors import (
    ACCEPT_ROLLBACK,
    AcodeError,
    DiskFull,
    InputRequired,
    LockLost,
    LogRolledBack,
    ModelTrouble,
    OutcomeUnknown,
    StepTimeout,
    Usage,
    WriteFailed,
)
from acode.events import types as ev
from acode.hints import Hint
from acode.library.declarations import OnChange
from acode.library.recorded_steps import Record
from acode.library.session import Session
from acode.library.step_identity import COUNTER, CURRENT, Current
from acode.library.world import LENT, errors_as_calls, show_as_call, world_of
from acode.state import State
from acode.store.session_index import sessions_of_key
from acode.workspace import Root

KEY_CHARACTERS_MAX = 200
OnCompleted = Literal["return", "new"]
Check = Callable[[Held], ev.Noted | None]  # may refuse the session on record, or note what was decided
Probe = Callable[[str], Any]  # given the idempotency key: "applied", "not_applied", None, or ("applied", result)


class PausedForNow(Exception):
    """Leave the block on purpose before the work is done: the session is paused, and the next run resumes it."""


class Opening:
    """The return value of `acode.session`: a block, for `with` and for `async with`."""

    def __init__(self, key: str, workspace: str | os.PathLike[str], **wishes: Any) -> None:
        self._key = key
        self._workspace = workspace
        self._wishes = wishes
        self._stack = contextlib.ExitStack()
        self._session: Session | None = None

    def __enter__(self) -> Session:
        assert self._session is None, "a session is opened once; ask acode.session for another block"
        with errors_as_calls(self._key), contextlib.ExitStack() as stack:
            session = open_session(stack, self._key, self._workspace, **self._wishes)
            session._requests.opened_at = CURRENT.get()
            token = CURRENT.set(Current(session, session._requests.top))
            stack.callback(CURRENT.reset, token)
            OPEN.append(session)
            stack.callback(OPEN.remove, session)
            self._stack = stack.pop_all()
        self._session = session
        return session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        show_as_call(error, self._key)
        with errors_as_calls(self._key), self._stack:
            close(self._session, error)

    async def __aenter__(self) -> Session:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


OPEN: list[Session] = []  # sessions of this process, so that a step outside of any is noticed


def session(
    key: str,
    workspace: str | os.PathLike[str] = ".",
    *,
    on_completed: OnCompleted = "return",
    on_change: OnChange = "raise",
    probes: Mapping[str, Probe] | None = None,
    changed_files: Literal["continue", "abort"] | None = None,
    automatic: bool = False,
    wait: bool = False,
    force: str | None = None,
    entry: str | None = None,
) -> Opening:
    """A block in which steps are durable: `with acode.session("nightly") as s:`, or `async with`.

    key: names the session, forever. Run the program again after a crash, and it is resumed. on_completed: what a
    finished one does: `return` its recorded results, or begin a `new` one. on_change: if the program now asks for other
    steps, arguments or versions than are on record: `raise` NonDeterminism, `keep` the recorded result, or `rerun`;
    `insert` does steps that are new, also where they look like one that was renamed, and raises for all else.
    probes: by step name, functions of the idempotency key that return the outcome of a step that was killed:
    "applied", ("applied", result), "not_applied", or None. changed_files: if files that it wrote were changed by
    somebody else. automatic: obey the resume policy's cool-down and limits like `acode resume --auto`. wait: for the
    lock, if another process holds it. force: why one more attempt is granted to a session whose attempts are used up,
    or whose files were changed. entry: `module:function` that `acode resume` calls to continue it.
    """
    return Opening(
        key,
        workspace,
        on_completed=on_completed,
        on_change=on_change,
        probes=probes or {},
        options=Options(
            actor="system" if automatic else "user",
            changed_files=changed_files,
            wait=wait,
            force=force is not None,
            reason=force,
        ),
        entry=entry,
        arguments={},
    )


def open_session(
    stack: contextlib.ExitStack,
    key: str,
    workspace: str | os.PathLike[str],
    *,
    on_completed: OnCompleted,
    on_change: OnChange,
    probes: Mapping[str, Probe],
    options: Options,
    entry: str | None,
    arguments: dict[str, Any],
    model: dict[str, Any] | None = None,
    check: Check | None = None,
) -> Session:
    lent = LENT.get()
    world = lent.world if lent is not None else with_second_tier(stack, world_of(workspace))
    if lent is not None:
        options = lent.options
    stack.enter_context(missing_checkpoint_on_record(world, options))
    name = f"key-{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
    wait_s = max(world.config.settings.session.lock_timeout_seconds if options.wait else 0.0, 1.0)
    busy = f"another process is just beginning a session under the key {key}, and does not come to an end with it"
    with start_lock(world, name, wait_s=wait_s, busy=busy, hint=WAIT_HINT):
        known = find_lent(world, lent.session_id) if model is not None and lent else find_session(world, key)
        if known is None or (known[1].terminal and on_completed == "new" and lent is None):
            checked_key(world, key)
            kind: Literal["agent", "library"] = "agent" if model is not None else "library"
            run = stack.enter_context(
                create_program(world, key, entry=entry, arguments=arguments, kind=kind, model=model)
            )
            announce(run)
            return made(run, on_change, resumed=False)
    session_id, found = known
    if found.terminal:
        if found.state is not State.COMPLETED:
            raise ended(found)
        ready = stack.enter_context(finished(world, session_id))
        if check is not None:
            check(ready)
        return made(ready, on_change, resumed=True)
    run = stack.enter_context(held(world, session_id, wait=options.wait))
    note = check(run) if check is not None else None  # a call that is refused is no attempt to resume
    settle_and_resume(run, options, probes)
    if note is not None:
        run.append(note, actor="user", durable=False)
    return made(run, on_change, resumed=True)


def with_second_tier(stack: contextlib.ExitStack, world: World) -> World:
    """Where a server is configured, the log is pushed in the background; without one nothing of it is loaded."""
    if world.config.settings.sync.url is None:
        return world
    from acode.sync.pusher import pushing

    return stack.enter_context(pushing(world))


def made(run: Held, on_change: OnChange, *, resumed: bool) -> Session:
    with contextlib.suppress(OSError):
        lay_ballast(run.world.agent_dir)
    return Session(run, on_change=on_change, resumed=resumed)


def checked_key(world: World, key: str) -> None:
    if not key.strip() or len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise Usage(f"{key!r} is no key: expected 1 to {KEY_CHARACTERS_MAX} printable characters")
    if world.redactor.matches(key):
        raise Usage(
            f"the key {world.redactor.text(key)} holds what looks like a secret; keys are shown everywhere",
            hint="Name the session after its work.",
        )


def find_session(world: World, key: str) -> tuple[str, Any] | None:
    """The latest session under the key. One that only an anchor remembers was lost, and that is said.

    Also one that had ended: the key promises its results, and without them every step would be done again.
    """
    known: tuple[str, Any] | None = None
    if has_database(world):
        with opened(world, look_only=True) as store:
            ids = sessions_of_key(store, key)
            if ids:
                known = ids[0], store.peek(ids[0])[0]
    if known is None:
        for anchor in seal.anchors_titled(seal.anchor_directory(world.state_dir, world.workspace), key[:200]):
            raise LogRolledBack(
                f"session {short(anchor.session_id)} was recorded here under the key {key}, at event {anchor.seq}, and"
                " is gone",
                hint=Hint("Bring .agent/ back from a backup, or let it go: {}", ACCEPT_ROLLBACK),
                sessions=[anchor.session_id],
            )
    return known


def find_lent(world: World, session_id: str) -> tuple[str, Any] | None:
    """The session to resume, by its id: an agent's key, the text of its task, may occur twice."""
    if not session_id:
        return None
    with opened(world, look_only=True) as store:
        return session_id, store.peek(session_id)[0]


@contextlib.contextmanager
def finished(world: World, session_id: str) -> Any:
    """A completed session, to be read only: its program is given what it recorded, and nothing is written."""
    with opened(world, look_only=True) as store, Root(world.workspace) as root:
        loaded, _ = load_verified(world, store, session_id)
        yield Held(world, store, store.journal(loaded, store.generation(session_id)), root, None)


def announce(run: Held) -> None:
    run.emit(
        notices.SessionStart(
            title=run.session.title,
            short_id=short(run.session.session_id),
            tasks=0,
            steps=0,
            workspace=str(run.world.workspace),
        )
    )


def settle_and_resume(run: Held, options: Options, probes: Mapping[str, Probe]) -> None:
    """The same way back as that of a plan: settle what is open, decide, validate, and on."""
    from acode.engine.resume import make_ready  # a new session starts faster without it
    from acode.engine.settle import settle_flights

    for step_id, flight in list(run.session.in_flight.items()):
        probe = probes.get(step_id.rpartition(".")[2].partition(COUNTER)[0])
        if probe is not None and flight.started.kind == "call":
            ask_program(run, step_id, probe, flight.started.key)
    found, options = make_ready(run, options)
    stopped = settle_flights(run, found, options)
    if stopped is not None and stopped.error is not None:
        raise stopped.error


def ask_program(run: Held, step_id: str, probe: Probe, key: str) -> None:
    """The program's own evidence on a step that was killed."""
    from acode.engine.program_answers import settle_call

    said = probe(key)
    answer, result = said if isinstance(said, tuple) else (said, None)
    if answer is None:
        return
    if answer not in ("applied", "not_applied"):
        raise Usage(f"the probe of step {step_id} said {answer!r}: expected applied, not_applied or None")
    done = Record(run, "raise").pack(result) if answer == "applied" else None
    settle_call(run, step_id, answer, evidence="the program's probe said so", actor="system", done=done)


# The end.


def close(session: Session, error: BaseException | None) -> None:
    """The block has ended: the session is complete, or paused and can be resumed."""
    if session._requests.forked:  # a copy has left the block: the session continues, in the process that opened it
        return
    run = session._run
    session._requests.close()
    # Where the log is gone or belongs to another process, nothing more is recorded; a try would blame the disk.
    if run.session.terminal or isinstance(error, LogRolledBack | LockLost):
        return
    try:
        with run.turn:
            cut_off = error is not None and run.journal.is_cut_off()
        if cut_off:
            reopen(run)  # for the log says how much of the write there is, and no disk is to be blamed for Ctrl+C
        result = finish(session) if error is None else pause(run, error)
    except (DiskFull, WriteFailed) as trouble:
        result = stop_for_disk(run, trouble)
    if isinstance(error, DiskFull | WriteFailed):
        result = stop_for_disk(run, error)
    lent = LENT.get()
    if lent is not None:
        lent.endings.append(result)
    if error is None and result.error is not None:
        raise result.error


def finish(session: Session) -> Result:
    run = session._run
    if run.session.in_flight:
        names = ", ".join(run.session.in_flight)
        error: AcodeError = Usage(
            f"the block has ended while steps still run: {names}", hint="Wait for the threads or tasks that run them."
        )
        return pause(run, error, told=error)
    try:
        session._requests.record.refuse_unasked()
    except AcodeError as error:
        return pause(run, error, told=error)
    if session._requests.top.failed:
        run.append(*(ev.FailureHandled(step=step) for step in session._requests.top.failed), durable=False)
    if not session.resumed:
        return complete(run, 0)
    from acode.engine.resume import finish_resume

    return finish_resume(run, session.found)


def pause(run: Held, error: BaseException, told: AcodeError | None = None) -> Result:
    """An exception has left the block: the session stands where it stood, and says why."""
    shown = told or (error if isinstance(error, AcodeError) else None)
    if isinstance(error, InputRequired) and run.session.state is State.AWAITING_APPROVAL:
        return ending(run, shown, "approval_required", 0)
    by_signal = is_stop(run, error)
    if run.session.state is not State.PAUSED:
        run.append(pause_event(run, error), actor="user" if by_signal else "system")
    code = (130 if run.world.stop.signal in (None, "SIGINT") else 143) if by_signal else (None if shown else 1)
    result = ending(run, shown, "paused_by_user" if by_signal else "paused", 0, exit_code=code)
    if shown is None:
        return result
    from acode.engine.resume import escalate_if_due

    return escalate_if_due(run, result)


def is_stop(run: Held, error: BaseException) -> bool:
    """Whether a person has stopped the program. In an event loop the interrupt of one task cancels all the others."""
    if isinstance(error, Exception | KeyboardInterrupt):
        return isinstance(error, KeyboardInterrupt)
    return run.world.stop.signal is not None or is_loop_interrupted()


def is_loop_interrupted() -> bool:
    """Whether Ctrl+C has canceled the tasks of `asyncio.run`, which raises KeyboardInterrupt only behind their end.
    Nobody but the handler that it installs knows."""
    handler = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return bool(getattr(runner, "_interrupt_count", 0))


def pause_event(run: Held, error: BaseException) -> ev.SessionPaused:
    if isinstance(error, PausedForNow):
        return ev.SessionPaused(reason="user", message=run.world.redactor.text(str(error)))
    message = run.world.redactor.text(f"{type(error).__name__}: {error}")[:2000]
    if is_stop(run, error):
        name = run.world.stop.signal or "SIGINT"
        return ev.SessionPaused(reason="user" if name == "SIGINT" else "signal", signal=name)
    failure = run.session.failure
    step = failure.step if failure is not None else None
    if isinstance(error, ModelTrouble):
        cls = ev.InterruptionClass(error.interruption)
        return ev.SessionPaused(
            reason=error.pause, interruption=cls, step=step, message=message, retry_after_s=error.retry_after_s
        )
    if isinstance(error, StepTimeout):
        reason, cls = "timeout", ev.InterruptionClass.TIMEOUT
    elif isinstance(error, OutcomeUnknown):
        reason, cls = "outcome_unknown", ev.InterruptionClass.PROCESS_CRASH
    else:
        reason, cls = ("step_failed" if step is not None else "error"), ev.InterruptionClass.TOOL_FAILURE
    return ev.SessionPaused(reason=reason, interruption=cls, step=step, message=message)
