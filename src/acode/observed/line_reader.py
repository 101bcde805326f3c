"""Folds a transcript of JSON lines into one session; the agent's module says what each line means."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from acode.observed.call_tally import CallTally
from acode.observed.session import CallInFlight, Ending, ObservedSession, RecordedProcess
from acode.observed.transcript import Fields, LineCounts, modified_at, objects, open_regular


@dataclass(slots=True)
class LineFold:
    """The session read so far. An agent's module derives from it and gives every line its meaning in `line`."""

    tally: CallTally
    session_id: str = ""
    directory: str = ""
    version: str = ""
    parent_id: str = ""

    def line(self, number: int, fields: Fields) -> None:
        raise NotImplementedError

    def ending(self, counts: LineCounts) -> Ending:
        return self.tally.ending(uncertain=bool(counts.torn_bytes))


def fold_file(path: Path, fold: LineFold, within: Path | None) -> LineCounts | None:
    """Read the whole file; None as soon as the session is seen to belong to another directory than asked for."""
    counts = LineCounts()
    judged = within is None
    with open_regular(path) as file:
        for number, fields in objects(file, counts):
            fold.line(number, fields)
            if not judged and fold.directory:
                judged = True
                if not is_within(fold.directory, within):
                    return None
    return counts if judged else None


def is_within(directory: str, root: Path | None) -> bool:
    """Whether the directory is this one or lies in it, as the file system sees both."""
    if root is None:
        return True
    try:
        return Path(os.path.realpath(directory)).is_relative_to(os.path.realpath(root))
    except (ValueError, OSError):  # text that is no path
        return False


def session_of(
    agent: str,
    path: Path,
    config: Path | None,
    fold: LineFold,
    counts: LineCounts,
    *,
    process: RecordedProcess | None = None,
    more_calls: tuple[CallInFlight, ...] = (),
    notes: tuple[str, ...] = (),
) -> ObservedSession:
    tally, ending = fold.tally, fold.ending(counts)
    if ending == "unknown":
        notes = (*notes, f"None of its {counts.lines:,} lines is a message that acode knows.")
    return ObservedSession(
        agent=agent,
        session_id=fold.session_id,
        transcript=path,
        config=config,
        directory=fold.directory,
        version=fold.version[:100],
        updated_at=modified_at(path),
        prompt=tally.prompt_text,
        ending=ending,
        calls=(*tally.calls, *more_calls),
        calls_left_out=tally.left_out,
        last_message_at=tally.last_at,
        process=process,
        parent_id=fold.parent_id,
        notes=(*counts.notes(), *notes),
    )
