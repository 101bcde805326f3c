"""Report an error: one sentence with its code, the hint, and the traceback only for developers."""

from __future__ import annotations

import errno
from typing import Any

from acode.cli.early_flags import Flags
from acode.cli.screen import Screen, as_json
from acode.errors import OF_THE_MACHINE, AcodeError, MachineRefused
from acode.text import one_line

# Errors of the machine about a file. Any other (a missing name, a wrong kind of file) is a bug of acode.
REFUSALS = OF_THE_MACHINE | {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINTR}

OTHERS_SHOWN_MAX = 10  # of one file; a screen full of them hides the first


def report(screen: Screen, error: AcodeError) -> int:
    """An error in the form that was asked for, and in the workspace's log file."""
    flags = screen.flags
    log = flags.log()
    if log is not None and not flags.error_printed:
        log.error(error, session_id=flags.session_id)
    if not flags.json:
        print_error(screen, error)
    elif not flags.error_printed:
        try:
            screen.json_text(as_json({"error": clean(flags, error.as_dict())}))
        except BrokenPipeError:
            pass  # the reader has gone; the exit status remains
        except AcodeError:
            print_error(screen, error)
    if flags.resume_line:
        screen.insist(flags.resume_line)
    return error.exit_code


def clean(flags: Flags, value: Any) -> Any:
    """An error quotes what it was given: a plan, an argument, an address may hold a secret."""
    match value:
        case str():
            return flags.redacted(value)
        case dict():
            return {key: clean(flags, item) for key, item in value.items()}
        case list() | tuple():
            return [clean(flags, item) for item in value]
        case _:
            return value


def print_error(screen: Screen, error: AcodeError) -> None:
    message = "\n".join(one_line(line) for line in screen.flags.redacted(error.message).splitlines())
    screen.insist(f"{screen.paint('error:', 'bad')} {message} [{error.code}]")
    if error.hint:
        hint = "\n".join(one_line(line) for line in screen.flags.redacted(error.hint).splitlines())
        screen.insist(f"{screen.paint('hint:', 'now')} {hint}")
    for other in error.others[:OTHERS_SHOWN_MAX]:
        also = one_line(screen.flags.redacted(other.message))
        screen.insist(f"{screen.paint('error:', 'bad')} {also} [{other.code}]")
    if (more := len(error.others) - OTHERS_SHOWN_MAX) > 0:
        screen.insist(f"... and {more} more; acode check shows all of them")
    if "last_output" in error.details:
        from acode.cli.output import output_lines

        for line in output_lines(screen.flags.redacted(str(error.details["last_output"]))):
            screen.insist(line)
    if "remedy" in error.details:
        from acode.cli.remediation import show_remedy

        show_remedy(screen, error.details["remedy"])


def unexpected(screen: Screen, error: BaseException) -> AcodeError:
    """Report an unexpected exception: one sentence for the user, the traceback for a developer."""
    import traceback

    flags = screen.flags
    if isinstance(error, OSError) and error.errno in REFUSALS:
        what = f" ({error.filename})" if isinstance(error.filename, str) else ""
        return MachineRefused(flags.redacted(f"the machine refuses a file: {error.strerror}{what}"))
    trace = flags.redacted("".join(traceback.format_exception(error)))
    log = flags.log()
    if log is not None:
        log.crash(trace, session_id=flags.session_id)
    if flags.verbose:
        screen.insist(trace)
    summary = flags.redacted(f"{type(error).__name__}: {error}".splitlines()[0][:300])
    where = f"The traceback is in {log.path}." if log is not None else "See the traceback with -v."
    return AcodeError(
        f"acode met something it did not expect: {summary}",
        hint=f"This is a bug in acode; what sessions have recorded is safe. {where}",
    )
