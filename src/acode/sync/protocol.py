"""What one side may do, given what the other side says: the rules of the shared copy, and no I/O.

A lease names the node that may write and carries a generation, which only grows. Whoever finds another node's name
there is fenced off, however sure it was. Codes tell whether two logs are one: a code covers everything before it, so
one equal code proves an equal past. Nothing here merges, and nothing here guesses by time.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the server has it: its lease, and how far its log has come. `owner` None: given back."""

    generation: int
    owner: str | None
    seq: int
    head: bytes
    last: str | None = None  # the node that held this generation, also after it gave it back; None: nobody noted it
    holder: str = ""  # the owner in words
    heard_at: str = ""  # when the owner last confirmed its lease; for people, nothing is decided by it


class Mine(msgspec.Struct, frozen=True, kw_only=True):
    """The same session here: who we are, the lease we last held (a log that only came down holds none), our end."""

    node: str
    generation: int
    seq: int


# What a push may do.


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Append what follows `after`, under this generation; `new`: the lease is not ours yet and is taken with it."""

    generation: int
    after: int
    new: bool


class Fenced(msgspec.Struct, frozen=True, kw_only=True):
    """Another machine has the session; what we wrote since stays here."""

    holder: str
    generation: int


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """Another machine carried it on and gave it back: ours is an older part of the same log."""

    seq: int
    generation: int


class Diverged(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides have written after the same past."""

    holder: str
    generation: int


class RolledBack(msgspec.Struct, frozen=True, kw_only=True):
    """Our own events are there and not here any more: the local database is an older one."""

    seq: int


Refusal = Fenced | Behind | Diverged | RolledBack
Verdict = Write | Refusal


def decide(mine: Mine, remote: Remote | None, *, fits: bool) -> Verdict:
    """May we write on? `fits`: at the end of the shorter log both have the same code."""
    if remote is None:
        return Write(generation=mine.generation + 1, after=0, new=True)
    ours = remote.owner == mine.node
    # Whoever gets a lease has all events before it, and only its holder adds some: the last holder once had everything.
    # An older client notes no holder; then the generation tells, which nobody else can have held.
    had_all = remote.last == mine.node if remote.last is not None else remote.generation == mine.generation
    if remote.owner is not None and not ours:
        return Fenced(holder=remote.holder, generation=remote.generation)
    if not fits:
        return Diverged(holder=remote.holder, generation=remote.generation)
    if remote.seq > mine.seq:
        if ours or had_all:
            return RolledBack(seq=remote.seq)
        return Behind(seq=remote.seq, generation=remote.generation)
    # A server that was restored from a backup may know a lower generation than we held: it must never fall.
    known = max(remote.generation, mine.generation)
    return Write(generation=known if ours else known + 1, after=remote.seq, new=not ours)


def fits(
    mine: Mine, remote: Remote | None, here: Callable[[int], bytes | None], there: Callable[[int], bytes | None]
) -> bool:
    """Whether one log is the beginning of the other, asked at the end of the shorter one."""
    if remote is None or remote.seq == 0 or mine.seq == 0:
        return True
    if remote.seq <= mine.seq:
        return here(remote.seq) == remote.head
    return there(mine.seq) == here(mine.seq)


# What a take-over may do.


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """The lease becomes ours with this generation; `forced_from`: somebody who had not given it back."""

    generation: int
    forced_from: str | None = None


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """It is ours already."""

    generation: int


def decide_take(node: str, remote: Remote, *, force: bool) -> Take | Keep | Fenced:
    """Free where the owner gave it back; otherwise only by force, which is recorded."""
    if remote.owner == node:
        return Keep(generation=remote.generation)
    if remote.owner is None:
        return Take(generation=remote.generation + 1)
    if force:
        return Take(generation=remote.generation + 1, forced_from=remote.holder)
    return Fenced(holder=remote.holder, generation=remote.generation)


def may_release(mine: Mine, remote: Remote, *, head: bytes | None) -> bool:
    """Given back only by its owner, and only when nothing is owed: whoever takes it has all there is.

    `head`: the code at our end. As many events are not the same events, if our log was put back and written anew.
    """
    return (remote.owner, remote.generation) == (mine.node, mine.generation) and (
        (remote.seq, remote.head) == (mine.seq, head)
    )


# What coming down may do.


class Bring(msgspec.Struct, frozen=True, kw_only=True):
    """Rows after `after` come down; `aside` events of ours past it are set aside, because a person said so."""

    after: int
    aside: int = 0


class UpToDate(msgspec.Struct, frozen=True, kw_only=True):
    """There is nothing that we do not have."""


def decide_pull(
    here_seq: int, remote: Remote, *, common: int, force: bool, keep_ahead: bool
) -> Bring | UpToDate | Diverged:
    """`common`: the last event that both logs share. `keep_ahead`: what only we have is not given up but sent later."""
    if common < min(here_seq, remote.seq):
        if not force:
            return Diverged(holder=remote.holder, generation=remote.generation)
        return Bring(after=common, aside=here_seq - common)
    if remote.seq > here_seq:
        return Bring(after=here_seq)
    if remote.seq < here_seq and force and not keep_ahead:
        return Bring(after=remote.seq, aside=here_seq - remote.seq)
    return UpToDate()


def common_seq(last: int, same: Callable[[int], bool]) -> int:
    """The last event up to `last` that both logs share; each code proves all before it, so halving finds it."""
    low, high = 0, last
    while low < high:
        middle = (low + high + 1) // 2
        if same(middle):
            low = middle
        else:
            high = middle - 1
    return low
