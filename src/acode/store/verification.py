"""Verify one session whole: chain, seals, snapshots, blobs; damage that a repair has noted is named and no problem. It
reads everything and changes nothing. A load verifies only the rows it uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from acode.errors import AcodeError, BlobDamaged, ChainBroken, CheckpointMissing, SequenceGap
from acode.events import Envelope
from acode.events import types as ev
from acode.events.codec import NAMES_ITS_PLACE
from acode.seal import GENESIS
from acode.store import checkpoints as ck
from acode.store import sync_cursor
from acode.store.removal import GO_WITH_THE_END
from acode.store.row_check import Gap, Judged, Noted, Past, scan

if TYPE_CHECKING:
    from acode.store.store import Store


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: str
    seq: int | None
    message: str
    hint: str = ""  # where the way out is another one than a repair


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The verified rows and the problems; `noted` was found bad before and is quarantined or accepted."""

    events: int
    checkpoints: int
    blobs: int
    head: bytes
    problems: tuple[Problem, ...]
    noted: tuple[Problem, ...] = ()


def verify(store: Store, session_id: str) -> Verified:
    macs, wanted, completions, ended, problems, noted = _events(store, session_id)
    checkpoints, bad_checkpoints = _checkpoints(store, session_id, macs, completions)
    blobs, bad_blobs = _blobs(store, session_id, wanted, ended=ended)
    return Verified(
        events=len(macs),
        checkpoints=checkpoints,
        blobs=blobs,
        head=macs[max(macs)] if macs else GENESIS,
        problems=(*problems, *bad_checkpoints, *bad_blobs),
        noted=tuple(noted),
    )


def noted_of(store: Store, session_id: str) -> Noted:
    """The notes of a repair, from the newest sealed checkpoint; nothing, where it cannot be opened."""
    try:
        return Noted(store.last_checkpoint(session_id).session)
    except AcodeError:
        return Noted(None)


def head_at(store: Store, session_id: str, seq: int, noted: Noted) -> bytes | None:
    """The code of an event as a checkpoint with a good seal knows it, or knew it when a repair put it down."""
    if seq in noted.heads:
        return noted.heads[seq]
    row = store.checkpoint_row(session_id, seq)
    if row is None:
        return None
    try:
        return bytes.fromhex(ck.open_checkpoint(session_id, seq, *row, store.keyring).head)
    except (AcodeError, ValueError):
        return None


def judged(store: Store, session_id: str, noted: Noted | None = None) -> Iterator[Judged | Gap]:
    """Every row of the session, judged."""
    known = noted or noted_of(store, session_id)
    rows = store.stored(session_id)
    return scan(session_id, rows, store.keys_of(session_id), lambda seq: head_at(store, session_id, seq, known))


def believed(store: Store, session_id: str) -> Iterator[tuple[Envelope, bytes, int]]:
    """All events that may be used, from the first: what a repair has set aside is left out, what is bad stops it."""
    noted = noted_of(store, session_id)
    past = Past()
    for item in judged(store, session_id, noted):
        if isinstance(item, Judged) and item.envelope is not None:
            yield item.envelope, item.mac, len(item.body)
        elif not noted.covers(item):
            raise as_error(item, session_id)
        elif isinstance(item, Judged) and noted.accepts(item) and item.claimed is not None:
            past.add(item)
            yield item.claimed, item.mac, len(item.body)
    if noted.accepted is not None and past.rows and past.sha256 != noted.accepted.past_sha256:
        raise past_changed(session_id, noted.accepted.through)


def as_error(item: Judged | Gap, session_id: str) -> AcodeError:
    if isinstance(item, Gap):
        return SequenceGap(f"session {session_id[-8:]}: {item} missing", seq=item.first)
    assert item.error is not None
    return item.error


def past_changed(session_id: str, through: int) -> ChainBroken:
    return ChainBroken(
        f"session {session_id[-8:]}: the events up to {through} are not those that a person accepted without their key",
        seq=1,
    )


def _events(
    store: Store, session_id: str
) -> tuple[dict[int, bytes], set[str], list[int], bool, list[Problem], list[Problem]]:
    noted, past = noted_of(store, session_id), Past()
    macs: dict[int, bytes] = {}
    wanted: set[str] = set()
    completions: list[int] = []  # that are checkpoints by themselves
    problems: list[Problem] = []
    known: list[Problem] = []
    ended = False
    taken_seq = sync_cursor.cursor_of(store, session_id).taken_seq
    for item in judged(store, session_id, noted):
        if isinstance(item, Judged):
            macs[item.seq] = item.mac
            if item.envelope is not None:
                # The pre-images of another machine's files stay there.
                if item.seq > taken_seq or not isinstance(item.envelope.event, ev.StepStarted):
                    wanted |= blobs_named(item.envelope)
                if item.envelope.v > NAMES_ITS_PLACE and isinstance(item.envelope.event, ev.StepCompleted):
                    completions.append(item.seq)
                ended = ended or isinstance(
                    item.envelope.event, ev.SessionCompleted | ev.SessionFailed | ev.SessionCancelled
                )
                continue
            if noted.accepts(item):
                past.add(item)
        error = as_error(item, session_id)
        seq = item.first if isinstance(item, Gap) else item.seq
        (known if noted.covers(item) else problems).append(Problem(code=error.code, seq=seq, message=error.message))
    if noted.accepted is not None and past.sha256 != noted.accepted.past_sha256:
        changed = past_changed(session_id, noted.accepted.through)
        problems.append(Problem(code=changed.code, seq=1, message=changed.message))
    return macs, set() if ended else wanted, completions, ended, problems, known


def blobs_named(envelope: Envelope) -> set[str]:
    """Blobs that an unfinished session may need; of a finished one, pre-images and secrets are gone by intent."""
    match envelope.event:
        case (
            ev.SessionCreated(plan_blob=str() as name)
            | ev.PlanChanged(plan_blob=name)
            | ev.PlanReplaced(plan_blob=name)
        ):
            return {name}
        case ev.StepStarted(before=before):
            return {image.blob for image in before if image.kind == "file" and image.blob}
        case ev.StepCompleted(output=ev.Output(blob=str() as name)):
            return {name}
        case _:
            return set()


def _checkpoints(
    store: Store, session_id: str, macs: dict[int, bytes], completions: list[int]
) -> tuple[int, list[Problem]]:
    """How many there are, rows and the completions behind the last one; each row is read."""
    problems: list[Problem] = []
    last_id, last_seq = -1, 0
    for count, (seq, body, mac) in enumerate(store.checkpoint_rows(session_id)):
        try:
            checkpoint = ck.open_checkpoint(session_id, seq, body, mac, store.keyring)
            if seq not in macs:
                raise SequenceGap(f"the event of the checkpoint at {seq} is missing", seq=seq)
            if macs[seq].hex() != checkpoint.head:
                raise ChainBroken(f"event {seq} is not the one that the checkpoint at {seq} was made for", seq=seq)
            if checkpoint.row_number != count:
                raise CheckpointMissing(f"checkpoint row {count} is missing before the one at event {seq}", seq=seq)
            if checkpoint.snapshot is not None:
                ck.open_snapshot(checkpoint.snapshot, store.snapshot_body(session_id, checkpoint.snapshot.seq))
            last_id, last_seq = checkpoint.id, seq
        except AcodeError as error:
            problems.append(Problem(code=error.code, seq=seq, message=error.message))
    return last_id + 1 + sum(seq > last_seq for seq in completions), problems


def _blobs(store: Store, session_id: str, wanted: set[str], *, ended: bool) -> tuple[int, list[Problem]]:
    problems: list[Problem] = []
    stored: dict[str, set[str]] = {}
    for sha256, purpose in store.blob_purposes(session_id):
        stored.setdefault(sha256, set()).add(purpose)
    for sha256, purposes in stored.items():
        if ended and purposes.issubset(GO_WITH_THE_END) and not store.has_blob(session_id, sha256):
            continue  # its file went with the end, and a crash kept the row from going too
        try:
            for _ in store.blob_in_pieces(session_id, sha256):
                pass
        except AcodeError as error:
            problems.append(Problem(code=error.code, seq=None, message=error.message))
    for sha256 in sorted(wanted.difference(stored)):
        message = f"blob {sha256[:12]} of session {session_id[-8:]} is named by the log and is not there"
        problems.append(Problem(code=BlobDamaged.code, seq=None, message=message))
    return len(stored), problems
