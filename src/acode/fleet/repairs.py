"""What a person repairs before a parked session is tried again: where, by the error that stopped it. Pure.

The errors speak to somebody who stands in the workspace; a person of a fleet stands elsewhere, and has no session there
to resume or to repair.
"""

from __future__ import annotations

from acode import errors
from acode.fleet.schedule import FILES_MISSING, Parked
from acode.hints import Command, Hint

LOG_DAMAGED = errors.ChainBroken.exit_code
REPAIRED_FIRST = (FILES_MISSING, LOG_DAMAGED)  # nothing that an attempt does would change these
FILES = {one.code for one in (errors.EnvironmentInvalid, errors.FileModified, errors.UnsafePath)}
ROOM = {errors.DiskFull.code}
# Their own hints say what is to be given to the worker, or who can read the log.
TOLD = {one.code for one in (errors.SourceUnavailable, errors.StaysAtHome, errors.NewerSchema, errors.UnknownEventType)}
KEYS = {one.code for one in (errors.KeyMissing, errors.KeyUnusable)}


def with_repair(parked: Parked, *, workspace: str, worker: str) -> Parked:
    """The same, with what is to be repaired as its next action, where a retry alone would end alike."""
    if parked.exit_code not in REPAIRED_FIRST:
        return parked
    return Parked(
        exit_code=parked.exit_code,
        why=parked.why,
        next_action=repair_of(parked, workspace, worker),
        error_code=parked.error_code,
    )


def repair_of(parked: Parked, workspace: str, worker: str) -> str:
    code, told = parked.error_code, parked.next_action
    if code in ROOM:
        return f"make room on the disk of {worker}, below {workspace}"
    if code in KEYS:
        words = "give {} the key that is named ({}, or ACODE_CHECKPOINT_SECRET)"
        return Hint(words, worker, Command("key import FILE")).as_command()
    if code in FILES:
        return (
            f"restore the files that are named, in {workspace} of {worker}; to accept them as they are, add --force"
            " --reason TEXT"
        )
    if told and (code in TOLD or parked.exit_code == FILES_MISSING):
        return told[:1].lower() + told[1:].rstrip(".")
    if parked.exit_code == LOG_DAMAGED:
        words = (
            "restore the log of the session on the server from a backup, or push it again from the machine that has it"
            " whole ({}); the last one was {}, in {}"
        )
        return Hint(words, Command("sync now"), worker, workspace).as_command()
    return f"repair what is named, in {workspace} of {worker}"
