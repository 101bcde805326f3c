"""Grounds with a shared copy in PostgreSQL: what is pending here, what another machine has left there."""

from __future__ import annotations

import shutil

from acode.engine.opening import opened
from acode.seal import SECRET_VARIABLE
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
    other = Place(place.root.parent / "elsewhere")
    shutil.rmtree(other.root, ignore_errors=True)
    other.workspace.mkdir(parents=True)
    other.more_env = place.more_env
    at_gate(other)
    assert other.acode("sync", "now", "--json").exit_code == 0
    place.names["there"] = other.session_ids()[0]


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


def rows_there(place: Place) -> dict[str, list[str]]:
    found: dict[str, list[str]] = place.outside.rows()
    return found
