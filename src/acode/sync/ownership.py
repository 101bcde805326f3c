"""Ask the server who has a session that was given back, and wait for the answer.

Used before anything is appended to such a session: another machine may have finished it meanwhile. A slow server is
waited for; what it does not say in time is unknown, never a yes.
"""

from __future__ import annotations

from acode.engine.lease_state import server_id
from acode.engine.world import World, short
from acode.errors import SyncUnsupported
from acode.store import sync_cursor
from acode.store.store import Store
from acode.sync.delivery import Delivery, as_error
from acode.sync.exchange import Contradiction, Pushed
from acode.sync.postgres import PostgresLedger, Trouble, connect
from acode.sync.protocol import Doubtful

ANSWER_S_MAX = 10.0


def ask_server(world: World, url: str, store: Store, session_id: str) -> str | None:
    """None: the server has given us the lease again. Else why it did not tell; another owner is raised as an error."""
    world.on_waiting(
        f"Asking the server whether another machine has continued session {short(session_id)}"
        f" (at most {ANSWER_S_MAX:g} s)"
    )
    until = world.monotonic() + ANSWER_S_MAX
    try:
        ledger = connect(url, lambda: world.monotonic() > until)
    except SyncUnsupported as error:
        return error.message
    except Trouble as trouble:
        return world.redactor.text(trouble.reason)
    try:
        if not knows_what_we_pushed(ledger, store, session_id):
            return "it was given back to another server than the one that is configured now"
        delivery = Delivery(world, store, ledger)
        delivery.find_lost()  # any session that was lost there makes the answer to this one doubtful
        done = delivery.deliver(session_id, 0)
    except Trouble as trouble:
        late = world.monotonic() > until
        return f"no answer for {ANSWER_S_MAX:g} s" if late else world.redactor.text(trouble.reason)
    except Contradiction as error:
        return str(error)
    finally:
        ledger.close()
    if isinstance(done, Doubtful):
        return as_error(session_id, done).message
    if not isinstance(done, Pushed):
        raise as_error(session_id, done)
    return None


def knows_what_we_pushed(ledger: PostgresLedger, store: Store, session_id: str) -> bool:
    """A server under another name may be the same one, or have moved with all it holds; another one tells nothing."""
    cursor = sync_cursor.cursor_of(store, session_id)
    if not sync_cursor.is_given_back_elsewhere(cursor, server_id(ledger.url)):
        return True
    with ledger.transaction():
        remote = ledger.look(session_id)
        if remote is None or remote.seq < cursor.pushed_seq or remote.generation < cursor.generation:
            return False
        return ledger.code_at(session_id, cursor.pushed_seq) == sync_cursor.code_at(
            store, session_id, cursor.pushed_seq
        )
