"""A program is told what to call: the commands in hints of modules that know no session become calls."""

from __future__ import annotations

import pytest

from acode.engine.call_hints import as_calls


@pytest.mark.parametrize(
    ("hint", "call"),
    [
        ("Make room, then resume.", "Make room, then resume."),
        ("Then: acode resume cd7eaa51", "Then: run the program again"),
        ("Then: acode resume 01940000-0000-7000-8000-000000000001.", "Then: run the program again."),
        (
            "Wait for it (acode resume cd7eaa51 --wait), or stop it",
            "Wait for it (acode.session('k', wait=True)), or stop it",
        ),
        ("acode resume cd7eaa51 --changed-files continue", "acode.session('k', changed_files='continue')"),
        ("acode resume cd7eaa51 --force --reason TEXT", "acode.session('k', force='the reason')"),
        ("or: acode resume cd7eaa51 --remote", "or: acode resume cd7eaa51 --remote (in a terminal)"),
        ("then acode session rollback cd7eaa51 leaves them alone.", "then acode.rollback('k') leaves them alone."),
        ("acode session rollback cd7eaa51 --to STEP, with it", "acode.rollback('k', to='STEP'), with it"),
        ("acode session rollback cd7eaa51 --to work.ask-1", "acode.rollback('k', to='work.ask-1')"),
        ("acode session resolve cd7eaa51 t.2 --applied.", "acode.resolve('k', 't.2', 'applied')."),
        (
            "Look: acode session verify; or: acode session repair cd7eaa51.",
            "Look: acode session verify (in a terminal); or: acode session repair cd7eaa51 (in a terminal).",
        ),
    ],
)
def test_a_command_in_a_hint_becomes_a_call_where_the_library_has_one(hint: str, call: str) -> None:
    assert as_calls(hint, "k") == call
