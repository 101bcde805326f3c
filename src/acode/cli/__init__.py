"""The command line: parse, call, render, exit. Imported by nobody.

stdout is data, stderr is talk. Every command is a file of its own that is loaded when it is called, so that a short
one starts quickly. Nothing happens at import.
"""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit status; never raises, never leaves a traceback."""
    import os
    import sys

    words = sys.argv[1:] if argv is None else argv
    if argv is None and "_ACODE_COMPLETE" in os.environ:
        return _completed(os.environ["_ACODE_COMPLETE"])
    try:
        if list(words) == ["hook"]:
            return _hooked()
        if "session" in words and "list" in words and sys.platform != "win32":
            code = _listed(words, own_process=argv is None)
            if code is not None:
                return code
        from acode.cli.app import run

        return run(list(words), own_process=argv is None)
    except KeyboardInterrupt:  # while it was still loading: nobody else is there yet to say so
        return _stopped(json="--json" in words)


def _hooked() -> int:
    """Agents call it twice for every tool, so no parser is loaded; its subcommands are ordinary ones."""
    import os

    from acode.config import state_dir
    from acode.hook_entry import run
    from acode.observed.doors import doors_in

    return run(os.fspath(doors_in(state_dir(os.environ)).directory), os.getppid())


def _stopped(*, json: bool) -> int:
    import os

    message, code, status = "stopped before anything was done", "ACODE-CLI-003", 130
    told = f'{{"code":"{code}","message":"{message}","hint":"","exit_code":{status},"details":{{}}}}'
    line = f'{{"error":{told}}}\n' if json else f"\nerror: {message} [{code}]\n"
    os.write(1 if json else 2, line.encode())
    return status


def _completed(instruction: str) -> int:
    """A person pressed Tab. An error would be printed into the line that they are typing: there is no answer then."""
    import contextlib
    import gc
    import os
    import sys

    gc.disable()
    with contextlib.suppress(BaseException):
        from acode.cli.app import root
        from acode.cli.completion import answer

        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            answer(root(), instruction)
            sys.stdout.flush()
    os._exit(0)  # taking the interpreter apart takes as long as the answer


def _listed(words: list[str], *, own_process: bool) -> int | None:
    """The one command that prompts and status bars call all the time. It makes no garbage and leaves nothing open."""
    import gc
    import os

    gc.disable()
    try:
        from acode.cli.listing import without_parser
        from acode.cli.screen import close_streams

        code = without_parser(words)
        if code is None:
            return None
        code = close_streams(code)
    finally:
        gc.enable()
    if own_process:
        os._exit(code)  # taking the interpreter apart takes as long as the list
    return code
