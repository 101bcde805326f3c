"""The end of a session's log, signed with a key that the server does not have. Each code of a log proves the events
before it, and nothing proves those after it: an attacker who can write on the server could cut off the end of a log,
and the rest would look whole. So the lease carries the last event and its code, signed by the machine that pushed it.
This proves only cuts behind the newest such row: an attacker can also restore an older row, or remove it.
"""

from __future__ import annotations

import msgspec

from acode import seal
from acode.errors import ChainBroken
from acode.seal import Keyring

PURPOSE = b"acode end of a shared log"


class SignedEnd(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    head: str
    key_id: str
    mac: str


_decoder = msgspec.json.Decoder(SignedEnd)


def sign_end(keyring: Keyring, session_id: str, seq: int, head: bytes) -> bytes | None:
    """None where there is nothing to sign, or no key: then it is as it was before there were signed ends."""
    if not seq or not keyring.current:
        return None
    mac = seal.seal(keyring.key(keyring.current), PURPOSE, _message(session_id, seq, head.hex()))
    return msgspec.json.encode(SignedEnd(seq=seq, head=head.hex(), key_id=keyring.current, mac=mac.hex()))


def read_end(keyring: Keyring, session_id: str, signed: bytes | None) -> SignedEnd | None:
    """None: nobody signed one (acode 0.1), or with a key that is not here."""
    if signed is None:
        return None
    try:
        end = _decoder.decode(signed)
        found = bytes.fromhex(end.mac)
    except ValueError as error:  # msgspec's own are ValueErrors too
        raise _forged(session_id) from error
    if end.key_id not in keyring.keys:
        return None
    wanted = seal.seal(keyring.key(end.key_id), PURPOSE, _message(session_id, end.seq, end.head))
    if not seal.same(found, wanted):
        raise _forged(session_id)
    return end


def _message(session_id: str, seq: int, head: str) -> bytes:
    return f"{session_id}\0{seq}\0{head}".encode()


def _forged(session_id: str) -> ChainBroken:
    return ChainBroken(
        f"the end of session {session_id[-8:]} that the server shows is not signed with the session's key",
        hint="Nothing of it was kept. Look who changed the server's copy, or bring it back from a backup.",
    )
