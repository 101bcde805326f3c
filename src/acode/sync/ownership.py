"""Ask the server for the owner of a session that was given back, and wait for the answer.

Used before anything is appended to such a session: another machine may have finished it meanwhile. A slow server is
waited for; no answer in time means unknown, never a yes.
"""

from __future__ import annotations

from acode.engine.world import World, short
from acode.errors import SyncUnsupported
from acode.store.store import Store
from acode.sync.delivery import Delivery, as_error
from acode.sync.exchange import Contradiction, Pushed
from acode.sync.postgres import ServerFailure, connect
from acode.sync.protocol import Doubtful, Elsewhere

ANSWER_S_MAX = 10.0


def ask_server(world: World, url: str, store: Store, session_id: str) -> str | None:
    """None: the server has given us the lease again. Else the reason for no answer; another owner is raised as an
    error.
    """
    world.on_waiting(
        f"Asking the server whether another machine has continued session {short(session_id)}"
        f" (at most {ANSWER_S_MAX:g} s)"
    )
    until = world.monotonic() + ANSWER_S_MAX
    try:
        ledger = connect(url, lambda: world.monotonic() > until)
    except SyncUnsupported as error:
        return error.message
    except ServerFailure as failure:
        return world.redactor.text(failure.reason)
    try:
        delivery = Delivery(world, store, ledger)
        delivery.find_lost()  # any session that was lost there makes the answer to this one doubtful
        done = delivery.deliver(session_id, 0)
    except ServerFailure as failure:
        late = world.monotonic() > until
        return f"no answer for {ANSWER_S_MAX:g} s" if late else world.redactor.text(failure.reason)
    except Contradiction as error:
        return str(error)
    finally:
        ledger.close()
    if isinstance(done, Doubtful | Elsewhere):
        return as_error(session_id, done).message
    if not isinstance(done, Pushed):
        raise as_error(session_id, done)
    return None
