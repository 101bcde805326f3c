"""run: a command under a keeper. Found in flight, the keeper is asked first, then the declarations of the step.

The place of the notes is made before the start is said, and the lock on `alive` is taken before the keeper is started
and handed to it, so there is no moment at which a command could begin without the lock being held: the place, no lock,
no mark and the same boot prove that the command never ran.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from acode import lock
from acode.disk import file_lock
from acode.disk.own_files import open_own, read_own
from acode.disk.write_errors import refusing_write_errors
from acode.errors import AcodeError, BlobDamaged, DiskFull, NotWritable, WriteFailed
from acode.events import types as ev
from acode.events.definition import Run, Step, command_line, declared_outputs
from acode.events.keys import traceparent
from acode.hints import ChooseStrategy, Hint, Resolve
from acode.lease_file import LEASE_VARIABLE
from acode.plan import Finding, Outcome
from acode.redact import Redactor, redactor
from acode.steps import keeper, probe
from acode.steps.command_evidence import by_declaration, by_probe_status, predict_command
from acode.steps.declared_secrets import secret_values
from acode.steps.interface import Done, Failed, Prepared, RolledBack, Site, kept_before
from acode.steps.keeper_notes import (
    Status,
    alive_lock_held,
    claimed,
    how_it_was_lost,
    never_began,
    place_is_there,
    read_mark,
    read_status,
    read_unredacted,
    run_directory,
    still_running,
)
from acode.steps.keeper_start import reap, start_keeper
from acode.steps.set_aside import Aside
from acode.steps.shared_contents import contents_to_share
from acode.steps.step_outputs import outputs_directory
from acode.workspace import (
    Captured,
    Listing,
    capture_outputs,
    hash_file,
    matching_paths,
    outputs_in,
    restat,
    restore_outputs,
    sync_paths,
    visible,
)
from acode.workspace.declared_outputs import Patterns

PROBE_TIMEOUT_S = 30.0
OUTPUT_FILES_MAX = 10_000
PREIMAGES_MAX = 1_000  # they stand in one event, the step's start; more of them count as over the budget
WATCH_S = 0.2
LOOKS_TAKE_S_MAX = 1.0  # a process that checks whether a command lives holds its lock for an instant, and is no keeper
LOOK_EVERY_S = 0.005
IDLE_S = 1.0
# acode's own secrets, and what a worker tells its children, are no command's business.
WITHHELD = ("ACODE_CHECKPOINT_SECRET", "ACODE_POSTGRES_URL", LEASE_VARIABLE)


# Before.

predict = predict_command


def prepare(step: Step, site: Site) -> Prepared:
    assert isinstance(step.action, Run)
    _missing_secrets(step.action, site.env)
    if not step.action.outputs:
        return Prepared(warning=None if step.idempotent or step.action.probe else _undeclared(step))
    captured = capture_outputs(
        site.root,
        step.action.outputs,
        blobs=site.store.blobs,
        budget_bytes=site.preimage_budget_bytes,
        files_max=PREIMAGES_MAX,
        sensitive=True,  # what is too large to be looked through is treated as if it held a secret
    )
    named = [image.blob for image in captured.images if image.kind == "file" and image.blob]
    blobs = kept_before(site, {name: captured.inline.get(name) for name in named})
    return Prepared(
        before=captured.images,
        before_complete=captured.complete,
        astray=captured.astray,
        blobs=blobs,
        warning=_why_not_restored(captured),
    )


def _why_not_restored(captured: Captured) -> str | None:
    if captured.astray:
        through = visible(captured.astray[0])
        return f"what it writes through the link {through} is not kept: an interrupted run cannot be rolled back"
    if not captured.complete:
        return "its outputs are too large to keep: an interrupted run cannot be rolled back"
    return None


def _undeclared(step: Step) -> str:
    undo = "a rollback runs its undo command" if step.undo is not None else "a rollback leaves its changes in place"
    return (
        "no probe, no outputs, not idempotent: if the machine goes down while it runs, a person must say whether it"
        f" took effect; {undo}"
    )


def _missing_secrets(action: Run, env: Mapping[str, str]) -> None:
    missing = [name for name in action.secret_env if name not in env]
    if missing:
        raise AcodeError(f"secret_env: {', '.join(missing)} is not set in the environment", hint="Set it, then resume.")


# During.


def execute(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    assert isinstance(step.action, Run)
    directory = run_directory(site.agent_dir, started.key)
    try:
        watch = start(step, site, started, directory)
    except (DiskFull, WriteFailed):
        raise  # the disk, not the step
    except AcodeError as error:
        return Failed(reason="error", message=error.message)
    try:
        _follow(step, site, directory, watch)
    finally:
        os.close(watch)
    try:
        return collect(step, site, started)
    except OSError as error:  # it has run: the next start settles by the keeper's notes
        return Failed(reason="signal", message=f"its outcome cannot be read: {error.strerror}")


def start(step: Step, site: Site, started: ev.StepStarted, directory: Path) -> int:
    """Start the keeper; returns the descriptor that reads as long as it lives."""
    assert isinstance(step.action, Run)
    with refusing_write_errors(f"{directory} cannot be made"):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        alive = open_own(directory / "alive", os.O_RDWR | os.O_CREAT)
    watch, wake = os.pipe()
    try:
        with refusing_write_errors(f"{directory / 'alive'} cannot be locked"):
            locked = file_lock.lock_within(alive, wait_s=LOOKS_TAKE_S_MAX, every_s=LOOK_EVERY_S)
        if not locked:
            raise AcodeError(f"the command of step {step.id} runs already under another keeper")
        request, env = _request(step, site, directory), command_env(step, site, started)
        start_keeper(request, env, os.fspath(site.root.path), alive, wake)
    finally:
        os.close(alive)
        os.close(wake)
    return watch


def _request(step: Step, site: Site, directory: Path) -> dict[str, Any]:
    assert isinstance(step.action, Run)
    command = step.action.command
    shell = ["/bin/sh", "-c", command] if sys.platform != "win32" else ["cmd", "/c", command]
    return {
        "directory": os.fspath(directory),
        "argv": list(command) if not isinstance(command, str) else shell,
        "cwd": os.path.join(site.root.path, step.action.cwd or ""),
        "timeout_s": step.timeout_s or site.timeout_s,
        "output_limit_bytes": site.output_limit_bytes,
        "secrets": secret_values(step, site.env, site.redactor.learned),
        "strict": site.strict_redaction,
        "path": sys.path,
        "outputs_in": [os.path.join(site.root.path, place) for place in outputs_in(step.action.outputs)],
        "where": {"boot_id": lock.boot_id(), "pid_namespace": lock.pid_namespace()},
        "lease": {"path": site.lease.path, "stop_s": site.lease.stop_s} if site.lease is not None else None,
    }


def command_env(step: Step, site: Site, started: ev.StepStarted) -> dict[str, str]:
    """The caller's environment less acode's own secrets, the step's settings, and who it is."""
    assert isinstance(step.action, Run)
    env = {name: value for name, value in site.env.items() if name not in WITHHELD}
    if any(name.startswith("OTEL_") for name in env):
        env["TRACEPARENT"] = traceparent(site.session_id, started.key)
    return {
        **env,
        **step.action.env,
        "ACODE_SESSION_ID": site.session_id,
        "ACODE_STEP_ID": step.id,
        "ACODE_ATTEMPT": str(started.attempt),
        "ACODE_IDEMPOTENCY_KEY": started.key,
        "ACODE_OUTPUTS": os.fspath(outputs_directory(site)),
    }


def _follow(step: Step, site: Site, directory: Path, watch: int) -> None:
    """Show the output as it comes, until the keeper is gone; pass a wish to stop on to it."""
    shown, asked, idle_at = 0, False, time.monotonic() + IDLE_S
    while True:
        ended = _wait(watch, directory)
        shown = _show(step, site, directory, shown)
        if ended:
            return
        if site.stop.at_once() and not asked:
            asked = _ask_to_stop(directory)
        if time.monotonic() >= idle_at:
            site.idle()
            idle_at = time.monotonic() + IDLE_S


def _wait(watch: int, directory: Path) -> bool:
    """Wait a moment; True when the keeper has ended."""
    if sys.platform == "win32":  # pipes cannot be selected there: look for the status instead
        time.sleep(WATCH_S)
        return read_status(directory) is not None
    ready, _, _ = select.select([watch], [], [], WATCH_S)
    return bool(ready) and os.read(watch, 65_536) == b""


def _show(step: Step, site: Site, directory: Path, shown: int) -> int:
    try:
        with open(open_own(directory / "output", os.O_RDONLY), "rb") as file:
            file.seek(shown)
            piece = file.read()
    except OSError:
        return shown
    if piece:
        site.show(step.id, piece)
    return shown + len(piece)


def _ask_to_stop(directory: Path) -> bool:
    """False where nobody can be asked yet: then it is tried again a moment later."""
    mark = None
    with contextlib.suppress(OSError):
        mark = read_mark(directory)
    if mark is None:
        return False
    import signal

    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(mark.keeper, signal.SIGTERM)
    return True


# After.


def collect(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    """The keeper's notes, as the outcome of the step."""
    directory = run_directory(site.agent_dir, started.key)
    reap()
    status = read_status(directory)
    if status is None:
        told = "start the command; is the disk full?" if never_began(directory) else "note how the command ended"
        return Failed(reason="signal", message=f"its keeper ended before it could {told}")
    if status.unbegun is not None:
        return Failed(reason="signal", message=f"its keeper could not start the command: {status.unbegun}")
    output, blobs = _output(site, directory, status)
    done = status.by_itself and status.exit == 0 and status.synced is not False
    seen = _seen(step, site, durably=done and status.synced is None)
    if done:
        return msgspec.structs.replace(
            seen, output=output, blobs={**seen.blobs, **blobs}, duration_ms=status.duration_ms
        )
    reason, message = _why(step, status, site)
    return Failed(
        reason=reason,
        message=message,
        exit_status=status.exit,
        signal=status.signal,
        output=output,
        files=seen.files,
        touched=seen.touched,
        blobs=blobs,
    )


def as_ended(failed: Failed) -> Done:
    """A command that ended without success, for a caller that only asked for its end."""
    how = {"reason": failed.reason, "exit": failed.exit_status, "message": failed.message}
    return Done(output=failed.output, files=failed.files, touched=failed.touched, blobs=failed.blobs, result={"v": how})


def _why(step: Step, status: Status, site: Site) -> tuple[Any, str]:
    assert isinstance(step.action, Run)
    line = site.redactor.text(command_line(step.action.command))
    if status.stopped == "timeout":
        return "timeout", f"`{line}` ran out of its {step.timeout_s or site.timeout_s:g} s and was stopped"
    if status.stopped is not None:
        why = ": the lease of the session had ended" if status.stopped == "lease" else ""
        return "signal", f"`{line}` was stopped{why}"
    if status.exit is None:
        return "signal", f"`{line}` was killed by {status.signal}"
    if status.exit == 0:
        return "signal", f"`{line}` ended, but its outputs cannot be brought to the disk"
    return "exit", f"`{line}` ended with exit status {status.exit}"


def _output(site: Site, directory: Path, status: Status) -> tuple[ev.Output, dict[str, tuple[str, bytes | None]]]:
    try:
        text = read_own(directory / "output")
    except FileNotFoundError:
        text = read_unredacted(directory, site.redactor)
    if not text:
        return ev.Output(bytes=status.bytes), {}
    sha256, blob = site.store.keep(text, "output")
    tail = text[-keeper.TAIL_BYTES :].decode("utf-8", "replace")
    return ev.Output(blob=sha256, bytes=status.bytes, truncated=status.bytes > status.kept, tail=tail), {sha256: blob}


def _seen(step: Step, site: Site, *, durably: bool) -> Done:
    """Changes between start and completion belong to the step: known files that changed, and its outputs.

    durably: the outputs are about to be vouched for, and nobody has brought them to the disk yet.
    """
    assert isinstance(step.action, Run)
    changed = restat(site.root, site.manifest)
    present = _present(step.action, site)
    if durably:
        sync_paths(site.root, present.paths)
    outputs = _states(site, present.paths[:OUTPUT_FILES_MAX])
    travelling = contents_to_share(site, outputs) if site.lease is not None else {}
    declared = {state.path for state in outputs}
    others = tuple(state for state in changed if state.path not in declared)
    return Done(
        files=(*outputs, *others),
        touched=tuple(state.path for state in others if _content_changed(site, state)),
        unrecorded=max(0, len(present.paths) - OUTPUT_FILES_MAX) + len(present.unreadable),
        blobs=travelling,
    )


def _present(action: Run, site: Site) -> Listing:
    """All of them: a rollback that knew only some would leave the others behind, and nobody would see it."""
    return matching_paths(site.root, action.outputs) if action.outputs else Listing(paths=(), complete=True)


def _states(site: Site, paths: tuple[str, ...]) -> tuple[ev.FileState, ...]:
    states = []
    for path in paths:
        with contextlib.suppress(AcodeError):  # a FIFO or a socket among the outputs is no content to remember
            states.append(hash_file(site.root, path))
    return tuple(states)


def _content_changed(site: Site, state: ev.FileState) -> bool:
    known = site.manifest[state.path]
    return (known.sha256, known.mode) != (state.sha256, state.mode)


# Found in flight.


def look(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    assert isinstance(step.action, Run)
    directory = run_directory(site.agent_dir, started.key)
    status, mark = read_status(directory), read_mark(directory)
    same_boot = started.boot_id == site.boot_id
    if status is not None and status.unbegun is not None:
        evidence = f"the command was never started: {status.unbegun}"
        return Finding(outcome=Outcome.NOT_APPLIED, evidence=evidence, repeatable=True)
    if status is not None and status.by_itself and not _outputs_may_be_lost(step, status, same_boot):
        return _by_status(step, status, "front" if started.performer is not None else "keeper")
    running = still_running(directory, mark)
    if status is None and running is not None:
        return Finding(outcome=Outcome.UNKNOWN, evidence=running, still_running=True)
    if started.performer is not None:
        return _of_performer(directory, started, how_it_was_lost(status, mark, same_boot), same_boot=same_boot)
    gone = same_boot and started.place_made and not place_is_there(directory)
    if same_boot and never_began(directory) and not gone:
        return Finding(outcome=Outcome.NOT_APPLIED, evidence="the command was never started", repeatable=True)
    ended = f"the notes of its keeper in {directory} are gone" if gone else how_it_was_lost(status, mark, same_boot)
    if step.action.probe is not None:
        return _by_probe(step, site, started, ended)
    lasting = _lasting_effects(step.action, site, started)
    return by_declaration(step, ended, lasting=lasting, rolls_back=bool(started.astray) and started.before_complete)


def _of_performer(directory: Path, started: ev.StepStarted, ended: str, *, same_boot: bool) -> Finding:
    """A command that another agent runs. That no front took it shows something only where each one passes the front."""
    assert started.performer is not None
    taken = claimed(directory)
    if same_boot and place_is_there(directory) and not taken and started.call is not None and started.call.fronted:
        evidence = "the command never began: no front took it, and every command of this agent passes one"
        return Finding(outcome=Outcome.NOT_APPLIED, evidence=evidence, repeatable=True)
    who = started.performer.name or "its agent"
    if not taken:
        ended = f"{who} ended while the command may have run, and no front was there to see it"
    return Finding(outcome=Outcome.UNKNOWN, evidence=f"{ended}; nothing shows whether it took effect")


def _lasting_effects(action: Run, site: Site, started: ev.StepStarted) -> str | None:
    """Describe the effects that no rollback can undo; None: its only effects are its outputs."""
    if started.astray:
        return f"; the bytes that it wrote through the link {visible(started.astray[0])} cannot be restored"
    if not action.outputs or not started.before_complete:
        return ""
    unseen = _present(action, site).unreadable
    return f"; its outputs cannot be restored, because {visible(unseen[0])} cannot be read" if unseen else None


def forestall(site: Site, started: ev.StepStarted) -> bool:
    """Keep an attempt that left no mark from beginning later; False where its keeper was faster and lives. Its process
    may only be suspended, and would start the command when it wakes up, beside the next attempt.
    """
    directory = run_directory(site.agent_dir, started.key)
    if not never_began(directory) or read_status(directory) is not None:
        return True
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / keeper.CLAIM).mkdir(mode=0o700)
    except FileExistsError:
        return (directory / keeper.CLAIM).is_dir() or not alive_lock_held(directory)
    except OSError as error:
        raise NotWritable(f"{directory} cannot be written: {error.strerror}") from error
    return True


def _by_status(step: Step, status: Status, witness: str) -> Finding:
    if status.exit == 0:
        return Finding(outcome=Outcome.APPLIED, evidence=f"the {witness} noted exit status 0")
    return Finding(
        outcome=Outcome.NOT_APPLIED,
        evidence=f"the {witness} noted exit status {status.exit}: the step failed",
        repeatable=step.idempotent,
        rolls_back=isinstance(step.action, Run) and bool(step.action.outputs),
    )


def _outputs_may_be_lost(step: Step, status: Status, same_boot: bool) -> bool:
    """The note that it succeeded is on the disk; whether its outputs are, is another question."""
    assert isinstance(step.action, Run)
    kept = status.synced or (status.synced is None and same_boot)
    return status.exit == 0 and bool(step.action.outputs) and not kept


def wait_for_end(step: Step, site: Site, started: ev.StepStarted) -> bool:
    """Wait for a command that lives on without its acode, at most its timeout; True when it has ended."""
    directory = run_directory(site.agent_dir, started.key)
    mark = read_mark(directory)
    began = mark.since if mark is not None else time.time()
    until = began + (step.timeout_s or site.timeout_s) + keeper.KILL_AFTER_S + 1.0
    shown = 0
    while still_running(directory, read_mark(directory)) is not None:
        if time.time() > until or site.stop.at_boundary():
            return False
        shown = _show(step, site, directory, shown)
        site.idle()
        time.sleep(WATCH_S)
    _show(step, site, directory, shown)
    return True


def _by_probe(step: Step, site: Site, started: ev.StepStarted, ended: str) -> Finding:
    assert isinstance(step.action, Run) and step.action.probe is not None
    if not site.probes:
        return Finding(
            outcome=Outcome.UNKNOWN, evidence=f"{ended}; its probe will decide", repeatable=True, probe_pending=True
        )
    line = site.redactor.text(step.action.probe)
    rolls_back = bool(step.action.outputs) and started.before_complete
    try:
        code = probe.ask(
            step.action.probe,
            cwd=os.path.join(site.root.path, step.action.cwd or ""),
            env=command_env(step, site, started),
            timeout_s=PROBE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        said = f"{ended}; the probe `{line}` took over {PROBE_TIMEOUT_S:g} s"
        return Finding(outcome=Outcome.UNKNOWN, evidence=said, rolls_back=rolls_back)
    except OSError as error:
        said = f"{ended}; the probe `{line}` failed: {error.strerror}"
        return Finding(outcome=Outcome.UNKNOWN, evidence=said, rolls_back=rolls_back)
    return by_probe_status(code, f"{ended}; the probe `{line}` answered {code}", rolls_back=rolls_back)


def adopt(step: Step, site: Site, started: ev.StepStarted) -> Done:
    """Applied by evidence: with the keeper's record where there is one, else with the state of the workspace."""
    if read_status(run_directory(site.agent_dir, started.key)) is not None:
        collected = collect(step, site, started)
        if isinstance(collected, Done):
            return collected
    return _seen(step, site, durably=True)


def roll_back(step: Step, site: Site, started: ev.StepStarted) -> RolledBack:
    """Restore the outputs as they were before; the present content is set aside, and reported."""
    assert isinstance(step.action, Run)
    if not step.action.outputs:
        return RolledBack()
    present = _present(step.action, site)
    if started.before_complete and present.unreadable:  # what is in there may be new, and would stay
        raise NotWritable(
            f"the outputs of step {step.id} cannot be restored: {present.unreadable[0]} cannot be read",
            hint="Make it readable or remove it, then resume. Nothing was restored.",
        )
    aside = Aside(site.store.blobs, _rules_for(step.action, step, site))
    try:
        put = restore_outputs(
            site.root,
            started.before,
            present.paths,
            lambda sha256: site.store.blob_in_pieces(site.session_id, sha256),
            aside.save,
            complete=started.before_complete,
            announce=lambda saved: site.keeping(
                ev.RollbackStarted(step=step.id, attempt=started.attempt, saved=aside.named(saved))
            ),
        )
    except BlobDamaged as error:
        hint = Hint(
            "Restore the blob from a backup of .agent/blobs, or restore the file yourself. Or do the step by hand and"
            " record that: {}. A step that was cut off can also be repeated on the files as they are now: {}",
            Resolve(step.id, "--applied"),
            ChooseStrategy(step.id, only_retry=True),
            of=site.session_id[-8:],
        )
        raise BlobDamaged(error.message, hint=hint, **error.details) from error
    # A directory that went has no content: recorded as absent, it would look changed when it is made again.
    states = tuple(one for one in _states(site, put.restored) if one.sha256 or one.path in site.manifest)
    earlier = _restored_earlier(step, site, started, set(put.restored))
    return RolledBack(restored=put.restored, saved=aside.named(put.saved), files=(*states, *earlier))


def _restored_earlier(step: Step, site: Site, started: ev.StepStarted, restored: set[str]) -> list[ev.FileState]:
    """Known outputs that an interrupted rollback restored: unrecorded they look like somebody's change."""
    declared, before = Patterns(declared_outputs(step)), {image.path for image in started.before}
    mine = (path for path in site.manifest if path not in restored and (path in before or declared(path)))
    states = restat(site.root, {path: site.manifest[path] for path in mine})
    return [state for state in states if _content_changed(site, state)]


def _rules_for(action: Run, step: Step, site: Site) -> Redactor | None:
    """Those by which its output is masked; None where the value of a declared secret is not at hand."""
    if any(name not in site.env for name in action.secret_env):
        return None
    return redactor(secret_values(step, site.env, site.redactor.learned), strict=site.strict_redaction)
