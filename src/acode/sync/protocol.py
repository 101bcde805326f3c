"""The rules of the shared copy: the actions that one side may take, given the other side's state. No I/O.

A lease names the node that may write and carries a generation, which only grows. A node that finds another node's name
there is fenced off. Codes show whether two logs are one: a code covers everything before it, so one equal code proves
an equal past. Nothing here merges. The time decides only in a fleet, where a lease ends by the server's own clock.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from acode.store.sync_cursor import HOLDERS, Standing


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the server has it: its lease, and how far its log has come. `owner` None: given back."""

    generation: int
    owner: str | None
    seq: int
    head: bytes
    last: str | None = None  # the node that held this generation, also after it gave it back; None: nobody noted it
    holder: str = ""  # the owner's description
    heard_at: str = ""  # when the owner last confirmed its lease; for people, nothing is decided by it
    signed: bytes | None = None  # an end that the log had once, signed; `sync.signed_end` reads it
    renewed_s: float = 0.0  # the same by the server's clock; compared only with a time of the same server
    lease_s: float | None = None  # how long it lasts unless it is renewed, in a fleet; None: it never ends
    age_s: float = 0.0  # since it was renewed, by the server's clock
    up_s: float = 0.0  # since the server was started: an owner that could not reach it must have had the time to

    def ends_in_s(self) -> float | None:
        """Seconds until somebody else may have it; None: never."""
        if self.lease_s is None:
            return None
        return max(0.0, self.lease_s - min(self.age_s, self.up_s))


class Mine(msgspec.Struct, frozen=True, kw_only=True):
    """The same session here: who we are, the newest lease that we held or were refused by, our end."""

    node: str
    generation: int
    seq: int
    pushed: int = 0  # how far this server was seen to have come
    standing: Standing = "owner"  # all others: another machine may have continued the session since
    copied: bool = False  # a copied workspace: the standing is the original's, which may have come further
    whole: bool = False  # our log was verified, and holds all that was pushed
    doubted_since_s: float | None = None  # this server was found restored from an older backup, at this time of its own


# Decisions about a push.


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Append what follows `after`, under this generation; `new`: the lease is not ours yet and is taken with it."""

    generation: int
    after: int
    new: bool
    refill: bool = False  # what the server has lost; the lease stays given back


class Fenced(msgspec.Struct, frozen=True, kw_only=True):
    """Another machine has the session; what we wrote since stays here."""

    holder: str
    generation: int


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """Another machine continued it and gave it back: ours is an older part of the same log."""

    seq: int
    generation: int


class Diverged(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides have written after the same past."""

    holder: str
    generation: int


class RolledBack(msgspec.Struct, frozen=True, kw_only=True):
    """Our own events are there and not here any more: the local database is an older one."""

    seq: int


class Doubtful(msgspec.Struct, frozen=True, kw_only=True):
    """The server was restored from an older backup and may have lost what others did: its answer decides nothing."""

    seq: int
    pushed: int
    lost: bool = False  # of this session the server has less than it was seen to have
    sent: int = 0


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A holder has signed an event that is neither there nor here: the end of the log was cut off on the server."""

    seq: int
    signed: int


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """We gave the session up on another server, and this one does not hold what was pushed there: it knows no owner."""


Refusal = Fenced | Behind | Diverged | RolledBack | Doubtful | Cut | Elsewhere
Verdict = Write | Refusal


def decide(mine: Mine, remote: Remote | None, *, fits: bool) -> Verdict:
    """May we write on? `fits`: at the end of the shorter log both have the same code."""
    if lost_by_server(mine, remote):
        return _decide_lost(mine, remote, fits=fits)
    if remote is None:
        return Write(generation=mine.generation + 1, after=0, new=True)
    if (mine.standing != "owner" or mine.copied) and in_doubt(mine.doubted_since_s, remote):
        return Doubtful(seq=remote.seq, pushed=mine.pushed)
    ours = remote.owner == mine.node
    # A machine that gets a lease has all events before it, and only its holder adds some: the last holder had
    # everything. An older client notes no holder; then the generation decides, which no other machine can have held.
    held = mine.standing in HOLDERS and remote.generation == mine.generation
    had_all = remote.last == mine.node if remote.last is not None else held
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


def lost_by_server(mine: Mine, remote: Remote | None) -> bool:
    """Whether the server has less than it was seen to have: it was restored from an older backup. Where another
    machine has held the session since, it is that machine's history which counts, not what we once pushed."""
    if remote is None or mine.pushed == 0:
        return mine.pushed > 0
    held = mine.standing in HOLDERS and remote.generation == mine.generation
    return remote.generation < mine.generation or (held and remote.seq < mine.pushed)


def _decide_lost(mine: Mine, remote: Remote | None, *, fits: bool) -> Verdict:
    """Push rows that the server lost again, from a log that is whole. Only an owner gets the lease with it; a machine
    that knows of another owner since pushes nothing, because that one's history counts."""
    seq = remote.seq if remote is not None else 0
    if not fits:
        return Diverged(holder=remote.holder if remote is not None else "", generation=mine.generation)
    if remote is not None and remote.owner not in (None, mine.node) and remote.generation >= mine.generation:
        return Fenced(holder=remote.holder, generation=remote.generation)
    if not mine.whole or seq > mine.seq or mine.standing not in HOLDERS:
        return Doubtful(seq=seq, pushed=mine.pushed, lost=True)
    ours = remote is not None and remote.owner == mine.node and remote.generation == mine.generation
    if mine.standing == "released":
        return Write(generation=mine.generation, after=seq, new=False, refill=True)
    return Write(generation=mine.generation if ours else mine.generation + 1, after=seq, new=not ours)


def in_doubt(doubted_since_s: float | None, remote: Remote) -> bool:
    """Whether the server was found restored, and nobody has held this session there since."""
    return doubted_since_s is not None and remote.renewed_s <= doubted_since_s


def fits(
    mine: Mine, remote: Remote | None, here: Callable[[int], bytes | None], there: Callable[[int], bytes | None]
) -> bool:
    """Whether one log is the beginning of the other, asked at the end of the shorter one."""
    if remote is None or remote.seq == 0 or mine.seq == 0:
        return True
    if remote.seq <= mine.seq:
        return here(remote.seq) == remote.head
    return there(mine.seq) == here(mine.seq)


# Decisions about a take-over.


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """The lease becomes ours with this generation; `forced_from`: somebody who had not given it back; `expired`: his
    lease had ended."""

    generation: int
    forced_from: str | None = None
    expired: bool = False


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """It is ours already."""

    generation: int


def decide_take(
    node: str, remote: Remote, *, force: bool, known: int = 0, take_over: bool = False
) -> Take | Keep | Fenced:
    """Free where the owner gave it back; otherwise only by force, or where a lease that ends has ended (`take_over`);
    both are recorded. `known`: the newest generation that was seen here; a server that was restored from a backup may
    know a lower one."""
    generation = max(remote.generation, known) + 1
    if remote.owner == node:
        return Keep(generation=remote.generation)
    if remote.owner is None:
        return Take(generation=generation)
    if take_over and remote.ends_in_s() == 0:
        return Take(generation=generation, forced_from=remote.holder, expired=True)
    if force:
        return Take(generation=generation, forced_from=remote.holder)
    return Fenced(holder=remote.holder, generation=remote.generation)


def may_release(mine: Mine, remote: Remote, *, head: bytes | None) -> bool:
    """Given back only by its owner, and only when nothing is pending: the next owner has everything.

    `head`: the code at our end. As many events are not the same events, if our log was rolled back and written again.
    """
    return (remote.owner, remote.generation) == (mine.node, mine.generation) and (
        (remote.seq, remote.head) == (mine.seq, head)
    )


# Decisions about a pull.


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
