"""Write the version-3 golden database: the session of version 2, and what its machine knew of a shared copy.

    PYTHONPATH=src:. python3 tests/golden/make_v3.py tests/golden/sessions/v3.db

The file is committed, and every later version must read it and carry it on. A new one is made only until the version
is shipped; afterwards the next version gets a script of its own.
"""

from __future__ import annotations

import sys

import apsw

from tests.golden import make_v2


def main(target: str) -> None:
    make_v2.main(target)
    db = apsw.Connection(target)
    (session_id,) = next(iter(db.execute("SELECT session_id FROM sessions")))
    db.execute(
        "INSERT INTO sync_cursor(session_id, pushed_seq, generation, standing, attempted_at, reason)"
        " VALUES (?, 5, 2, 'owner', '2026-02-01T09:01:00Z', 'Connection refused')",
        (session_id,),
    )
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    db.close()


if __name__ == "__main__":
    main(sys.argv[1])
