"""Grounds with a shared copy in PostgreSQL: what is pending here, what another machine has left there."""

from __future__ import annotations

import shutil

from acode.engine.workspace_store import opened
from acode.events import types as ev
from acode.seal import SECRET_VARIABLE
from acode.store.sync_cursor import last_seq
from acode.sync.delivery import Delivery
from acode.sync.exchange import Pushed
from acode.sync.push_now import connected
from tests.crash.grounds import at_gate, plain, with_script
from tests.crash.place import Place
from tests.machines import assert_copied, lease

SECRET = "one secret for both machines"


def share(place: Place) -> None:
    """From here on there is a server."""
    place.more_env |= {"ACODE_POSTGRES_URL": place.outside.url, SECRET_VARIABLE: SECRET}


def with_target(place: Place) -> None:
    """A migration for the database on the server."""
    with_script(place)
    place.more_env["DATABASE_URL"] = place.outside.url


def shared(place: Place) -> None:
    plain(place)
    share(place)


def pending(place: Place) -> None:
    """A session waits at its gate, and the server has heard nothing of it."""
    place.more_env[SECRET_VARIABLE] = SECRET
    at_gate(place)
    share(place)


def elsewhere(place: Place) -> None:
    """Another machine has pushed its session and given it back at a gate; this one has the keys and no session."""
    place.put("kept.txt", "1\n2\n3\n")
    share(place)
    other = another(place)
    at_gate(other)
    assert other.acode("sync", "now", "--json").exit_code == 0
    place.names["there"] = other.session_ids()[0]


def another(place: Place) -> Place:
    """A second machine with the same server and the same keys."""
    other = Place(place.root.parent / "elsewhere")
    shutil.rmtree(other.root, ignore_errors=True)
    other.workspace.mkdir(parents=True)
    other.more_env = dict(place.more_env)
    return other


def kept_elsewhere(place: Place) -> None:
    """The other machine has not given it back: as one that died behind its last push."""
    elsewhere(place)
    other = Place(place.root.parent / "elsewhere")
    other.more_env = dict(place.more_env)
    world, session_id = other.world(), place.names["there"]
    with connected(world) as ledger, opened(world, look_only=False) as store:
        assert isinstance(Delivery(world, store, ledger).deliver(session_id, last_seq(store, session_id)), Pushed)
    assert lease(place.outside.dsn, session_id)[1] is not None


OFFLINE = ("--offline", "--reason", "nobody else has it")


def parted(place: Place) -> None:
    """The session was carried on here without a server, and on the other machine."""
    pending(place)
    (session_id,) = place.session_ids()
    assert place.acode("sync", "now", "--json").exit_code == 0
    other = another(place)
    other.put("kept.txt", "1\n2\n3\n")
    assert other.acode("resume", session_id, "--remote", "--yes", "--json").exit_code == 10
    assert other.acode("sync", "now", "--json").exit_code == 0
    server = place.more_env.pop("ACODE_POSTGRES_URL")
    assert place.acode("session", "checkpoint", session_id, "--label", "offline", *OFFLINE, "--json").exit_code == 0
    place.more_env["ACODE_POSTGRES_URL"] = server
    assert place.acode("sync", "now", "--json").exit_code == 20


def level(place: Place) -> list[str | None]:
    """Both logs are the same byte for byte, in every session; and who may write each of them.

    How often a lease changed hands is left out: whoever gave it back and was killed before noting that takes it again.
    """
    owners = []
    with opened(place.world(), look_only=True) as store:
        for session_id in store.session_ids():
            assert_copied(store, place.outside.dsn, session_id)
            owners.append(lease(place.outside.dsn, session_id)[1])
    return owners


def level_in_the_end(place: Place) -> list[str | None]:
    """A run gives the server a second and no more: what is pending then goes with the next push."""
    ended = place.acode("sync", "now", "--json")
    assert ended.exit_code == 0, ended
    return level(place)


def decided(place: Place) -> list[tuple[str, str]]:
    """What the log says of decisions about the session's place."""
    level_in_the_end(place)
    with opened(place.world(), look_only=True) as store:
        events = [envelope.event for one in store.session_ids() for envelope, _, _ in store.events(one)]
    forced = [(event.what, event.reason) for event in events if isinstance(event, ev.Forced)]
    # Whoever forces the same again accepts the files again.
    about_it = [one for one in forced if one[0] != "changed files"]
    return about_it + [(event.what, "") for event in events if isinstance(event, ev.Noted)]


def decided_when_taken(place: Place) -> list[tuple[str, str]]:
    """A copy is not written on: what was decided is said by whoever carries the session on."""
    assert place.acode("resume", place.names["id"], "--remote", "--yes", "--json").exit_code == 10
    return decided(place)


def rows_there(place: Place) -> dict[str, list[str]]:
    found: dict[str, list[str]] = place.outside.rows()
    return found
