"""Pushing to a real PostgreSQL: whatever breaks in between, the shared copy is the local log, byte for byte."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from acode.errors import AcodeError, NewerSchema, SyncFailed
from acode.store import sync_cursor
from acode.store.store import Store
from acode.sync import outbox as sync_outbox
from acode.sync import schema
from acode.sync.delivery import Delivery
from acode.sync.exchange import Contradiction
from acode.sync.postgres import ServerFailure, connect
from acode.sync.push_now import deliver_now
from tests.line import Cut, Line, Way
from tests.machines import Machine, assert_level, everything, lease, shared_log, socket_of, undo_migrations, url_of
from tests.postgres import Server, find_programs, lesser_user, missing, temporary_server
from tests.variants import first_of

KILL_BLOCKS, KILLS_IN_BLOCK = 4, 250  # a thousand, by four who may work at the same time
PLAN = """
title: Make and greet
tasks:
  - title: Make
    steps:
      - write: {path: a.txt, content: "a\\n"}
      - run: echo greetings
      - read: a.txt
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has no server yet."""
    return Machine(tmp_path / "machine", None)


def forget(machine: Machine, dsn: str, session_id: str) -> None:
    """As if nothing had ever been pushed."""
    with machine.store(look_only=False) as store:
        store.db.execute("DELETE FROM sync_cursor WHERE session_id = ?", (session_id,))
    with psycopg.connect(dsn, autocommit=True) as connection:
        empty(connection)


def empty(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    names = ("events", "checkpoints", "snapshots", "session_blobs", "blob_parts", "blobs", "sessions")
    connection.execute(";".join(f"DELETE FROM acode_{name}" for name in names))


def pushed_at_last(machine: Machine, *, tries_max: int = 6) -> int:
    """Try until it succeeds, as the thread in the background does; how many tries it took."""
    for number in range(1, tries_max + 1):
        try:
            deliver_now(machine.world(), None)
            return number
        except SyncFailed:
            continue
    raise AssertionError(f"not even the {tries_max}th try succeeded")


@pytest.mark.req("FR-011c-052", "FR-011c-053")
def test_everything_arrives_as_it_stands_and_again_changes_nothing(machine: Machine, database: str) -> None:
    session_id = machine.run(PLAN)
    machine.connect(url_of(database))
    assert machine("sync", "now").stdout == f"Pushed {len(machine.log(session_id))} events of 1 session.\n"
    assert_level(machine, database, session_id)
    before = everything(database)
    assert machine("sync", "now").exit_code == 0
    assert everything(database) == before
    assert lease(database, session_id) == (1, None), "a session that has ended is given back"


COMMITTING = 8  # the last messages of a push


class Cutting:
    """Push one session again and again over lines that are cut; everything that can stay open stays open."""

    def __init__(self, machine: Machine, server: Server, dsn: str, session_id: str) -> None:
        self.machine, self.server, self.dsn, self.session_id = machine, server, dsn, session_id
        self.world = machine.world()
        self.store = machine.store(look_only=False)
        self.admin = psycopg.connect(dsn, autocommit=True)
        self.last = sync_cursor.last_seq(self.store, session_id)
        self.local = list(self.store.rows(session_id))

    def close(self) -> None:
        self.store.close()
        self.admin.close()

    def push(self, cut: Cut | None) -> tuple[Line, int]:
        """The line, and how often it had to be tried until everything was there."""
        empty(self.admin)
        self.store.db.execute("DELETE FROM sync_cursor")
        with Line(socket_of(self.server), cut=cut) as line:
            for number in range(1, 5):
                try:
                    self._deliver(line)
                    return line, number
                except (ServerFailure, Contradiction):  # the cut line's transaction may still be at work: that passes
                    continue
        raise AssertionError("not even the fourth try succeeded")

    def push_through(self, cut: Cut) -> None:
        """The cut kills the server, and the client notices: it is started again, and then everything must arrive."""
        empty(self.admin)
        self.store.db.execute("DELETE FROM sync_cursor")
        with Line(socket_of(self.server), cut=cut) as line:
            with pytest.raises(ServerFailure):
                self._deliver(line)
            assert line.was_cut.wait(30)
            self.server.restart()
            self.admin.close()
            self.admin = psycopg.connect(self.dsn, autocommit=True)
            self._deliver(line)

    def _deliver(self, line: Line) -> None:
        ledger = connect(url_of(self.dsn, line.port), lambda: False)
        try:
            Delivery(self.world, self.store, ledger).deliver(self.session_id, self.last)
        finally:
            ledger.close()

    def assert_level(self) -> None:
        query = "SELECT seq, body, mac FROM acode_events ORDER BY session_id, seq"
        assert self.admin.execute(query).fetchall() == self.local
        anchor = self.admin.execute("SELECT seq, head FROM acode_sessions").fetchall()
        assert anchor == [(self.local[-1][0], self.local[-1][2])]
        kept = self.admin.execute("SELECT (SELECT count(*) FROM acode_checkpoints), (SELECT count(*) FROM acode_blobs)")
        wanted = (len(self.store.checkpoint_rows(self.session_id)), 1)
        assert kept.fetchone() == wanted


def cut_everywhere(machine: Machine, server: Server, dsn: str, way: Way, *, both: bool) -> int:
    """both: at each message before and after it has arrived; else so only where it commits, elsewhere in turns."""
    session_id = machine.run(PLAN)
    connect(url_of(dsn), lambda: False).close()  # the tables are made; what is cut is the push
    work = Cutting(machine, server, dsn, session_id)
    try:
        total = work.push(None)[0].messages[way]
        noticed = 0
        in_turns = range(0 if both else total - COMMITTING)
        cuts = [(at, late) for at in range(total) for late in ((at % 2 == 1,) if at in in_turns else (False, True))]
        for message, delivered in cuts:
            line, tries = work.push(Cut(way=way, message=message, delivered=delivered))
            noticed += tries > 1
            assert line.cuts == 1, f"message {message} was never there"
            work.assert_level()
        assert noticed > len(cuts) / 2, "hardly any cut was noticed: nothing was tested"
        return total
    finally:
        work.close()


@pytest.mark.req("FR-011c-053", "FR-011c-054")
@pytest.mark.parametrize("way", first_of("to the server", "to the client"))
def test_a_line_cut_at_any_message_neither_loses_nor_repeats_an_event(
    machine: Machine, postgres_server: Server, database: str, way: Way
) -> None:
    """Also where the server has committed and its answer is lost."""
    assert cut_everywhere(machine, postgres_server, database, way, both=False) > 20


@pytest.mark.release
@pytest.mark.parametrize("way", ["to the server", "to the client"])
def test_a_line_cut_at_any_message_of_many_small_batches_neither_loses_nor_repeats_an_event(
    machine: Machine, postgres_server: Server, database: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_outbox, "BATCH_ROWS_MAX", 2)
    assert cut_everywhere(machine, postgres_server, database, way, both=True) > 60


def long_session(machine: Machine, events: int) -> str:
    session_id = machine.run(PLAN.replace("Make and greet", "Long") + "      - approve: Go on?\n")
    with machine.store(look_only=False) as store:
        from acode.events import types as ev

        journal = store.journal(store.load(session_id), store.generation(session_id))
        for _ in range(events // 50):
            journal.append(*(ev.Noted(what="one of many", data={"text": "x" * 200}) for _ in range(50)), durable=False)
        journal.flush()
    return session_id


@pytest.mark.req("FR-011c-051", "FR-011c-053")
def test_a_server_killed_in_the_middle_of_a_batch_gets_the_rest_when_it_is_back(
    machine: Machine, postgres_server: Server, database: str
) -> None:
    session_id = long_session(machine, 5_000)
    connect(url_of(database), lambda: False).close()
    with Line(socket_of(postgres_server)) as line:
        machine.connect(url_of(database, line.port))
        pushed_at_last(machine)
        total = line.messages["to the server"]
    for part in (0.5, 0.9):
        forget(machine, database, session_id)
        cut = Cut(way="to the server", message=int(total * part), delivered=False, then=postgres_server.kill)
        with Line(socket_of(postgres_server), cut=cut) as line:
            machine.connect(url_of(database, line.port))
            with pytest.raises(SyncFailed):
                deliver_now(machine.world(), None)
            assert line.was_cut.wait(30)
            held = outbox_of(machine, session_id)
            postgres_server.restart()
            there = len(shared_log(database, session_id))
            assert there >= held, "what was acknowledged is gone"
            pushed_at_last(machine)
        assert_level(machine, database, session_id)


@pytest.mark.release
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("block", range(KILL_BLOCKS))
def test_a_server_killed_a_thousand_times_loses_and_repeats_nothing(
    machine: Machine, postgres_server: Server, database: str, block: int
) -> None:
    """At every message of a push, again and again: before the server hears it, and after it has answered."""
    session_id = machine.run(PLAN)
    connect(url_of(database), lambda: False).close()
    work = Cutting(machine, postgres_server, database, session_id)
    kills = 0

    def kill() -> None:
        nonlocal kills
        kills += 1
        postgres_server.kill()

    try:
        messages = work.push(None)[0].messages
        # The last message to the server is a farewell: whoever dies of it is not missed.
        places: list[tuple[Way, int]] = [("to the server", one) for one in range(messages["to the server"] - 1)]
        places += [("to the client", one) for one in range(messages["to the client"])]
        mine = range(block * KILLS_IN_BLOCK, (block + 1) * KILLS_IN_BLOCK)
        for way, message in (places[number % len(places)] for number in mine):
            work.push_through(Cut(way=way, message=message, delivered=False, then=kill))
            work.assert_level()
    finally:
        work.close()
    assert kills == KILLS_IN_BLOCK


def outbox_of(machine: Machine, session_id: str) -> int:
    with machine.store() as store:
        return sync_cursor.cursor_of(store, session_id).pushed_seq


def test_a_repaired_session_is_shared_and_can_be_brought_elsewhere(
    machine: Machine, database: str, tmp_path: Path
) -> None:
    """A repair makes new checkpoints; those that it does not believe go from the shared copy too."""
    machine.connect(url_of(database))
    session_id = machine.run(PLAN + "      - approve: Go on?\n")
    assert_level(machine, database, session_id)
    with machine.store(look_only=False) as store:
        store.db.execute("DELETE FROM checkpoints WHERE seq > 1")
    assert machine("session", "verify", session_id).exit_code == 20 or machine("resume", session_id).exit_code == 20
    assert machine("session", "repair", session_id, "--yes").exit_code == 0
    assert machine("sync", "now").exit_code == 0
    assert_level(machine, database, session_id)
    other = Machine(tmp_path / "other", url_of(database))
    assert other("pull", session_id).exit_code == 0
    assert other.log(session_id) == machine.log(session_id)
    assert other("session", "verify", session_id).exit_code == 0


def test_several_who_push_the_same_at_once_write_it_once(machine: Machine, database: str) -> None:
    session_id = long_session(machine, 1_000)
    machine.connect(url_of(database))
    mismatches: list[Exception] = []

    def push() -> None:
        try:
            pushed_at_last(machine)
        except Exception as error:
            mismatches.append(error)

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mismatches == []
    assert_level(machine, database, session_id)


# Secrets.

CANARIES = ("ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8", "AKIA" + "IOSFODNN7EXAMPLQ", "hunter2-the-canary")


@pytest.mark.req("NFR-011c-013", "THREAT-011c-04")
def test_no_secret_reaches_the_second_tier(machine: Machine, database: str) -> None:
    (machine.workspace / "config.env").write_text(f"TOKEN={CANARIES[0]}\n")
    machine.env["DEPLOY_TOKEN"] = CANARIES[2]
    machine.connect(url_of(database))
    session_id = machine.run(f"""
title: With secrets
tasks:
  - title: Work
    steps:
      - write: {{path: config.env, content: "TOKEN=changed\\n"}}
      - write: {{path: aws.txt, content: "{CANARIES[1]}\\n"}}
      - run: echo "the token is {CANARIES[0]} and $DEPLOY_TOKEN"
        secret_env: [DEPLOY_TOKEN]
      - approve: Go on?
""")
    machine("sync", "now")
    heap = everything(database)
    assert session_id.encode() in heap and len(shared_log(database, session_id)) == len(machine.log(session_id))
    assert [canary for canary in CANARIES if canary.encode() in heap] == []


# The server's own tables.


def test_clients_that_come_first_together_make_the_tables_once(database: str) -> None:
    mismatches: list[Exception] = []

    def come() -> None:
        try:
            connect(url_of(database), lambda: False).close()
        except Exception as error:
            mismatches.append(error)

    threads = [threading.Thread(target=come) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mismatches == []
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT version, min_client FROM acode_migrations").fetchall()
    assert rows == [(number, least) for number, (least, _) in enumerate(schema.MIGRATIONS, 1)]


def test_tables_of_the_first_version_are_brought_up_with_all_they_hold(machine: Machine, database: str) -> None:
    machine.connect(url_of(database))
    session_id = machine.run(PLAN)
    machine("sync", "now")
    undo_migrations(database, 1)  # as the first version has made and filled them
    before = shared_log(database, session_id)
    other = machine.run(PLAN.replace("Make and greet", "Another"))
    assert shared_log(database, session_id) == before
    for one in (session_id, other):
        assert_level(machine, database, one)


# What the first version's acode says to the server, word for word: it must be understood for ever.
FIRST_CLIENT = (
    """INSERT INTO acode_sessions(generation, owner, holder, seq, head, session_id)
VALUES (1, 'node', 'somebody', 1, '\\x00', 's') ON CONFLICT DO NOTHING""",
    """INSERT INTO acode_events(session_id, seq, generation, body, mac) SELECT 's', 1,
(SELECT generation FROM acode_sessions WHERE session_id = 's'), '\\x7b7d', decode(repeat('00', 32), 'hex')
ON CONFLICT DO NOTHING""",
    """UPDATE acode_sessions SET generation = 2, owner = NULL, holder = 'somebody', seq = 1, head = '\\x00',
renewed_at = now() WHERE session_id = 's'""",
    """SELECT generation, owner, seq, head, holder, renewed_at FROM acode_sessions WHERE session_id = 's' FOR UPDATE""",
    "INSERT INTO acode_checkpoints(session_id, seq, body, mac) SELECT 's', 1, '\\x00', '\\x00' ON CONFLICT DO NOTHING",
    "INSERT INTO acode_snapshots(session_id, seq, body) SELECT 's', 1, '\\x00' ON CONFLICT DO NOTHING",
    f"INSERT INTO acode_blobs VALUES ('{'0' * 64}', 1) ON CONFLICT DO NOTHING",
    f"INSERT INTO acode_blob_parts VALUES ('{'0' * 64}', 0, '\\x00')",
    f"INSERT INTO acode_session_blobs VALUES ('s', '{'0' * 64}', 'output') ON CONFLICT DO NOTHING",
)


def test_what_the_first_client_says_is_still_understood(database: str) -> None:
    connect(url_of(database), lambda: False).close()
    with psycopg.connect(database) as connection:
        for words in FIRST_CLIENT:
            assert connection.execute(words.encode()).rowcount == 1, words
    ledger = connect(url_of(database), lambda: False)
    try:
        with ledger.transaction():
            found = ledger.look("s")
    finally:
        ledger.close()
    assert found is not None and (found.generation, found.owner, found.last) == (2, None, None)


def test_an_older_client_works_with_newer_tables_unless_they_say_otherwise(machine: Machine, database: str) -> None:
    connect(url_of(database), lambda: False).close()
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO acode_migrations(version, min_client) VALUES (99, 1)")
        connection.execute("ALTER TABLE acode_sessions ADD COLUMN later text")
    session_id = machine.run(PLAN)
    machine.connect(url_of(database))
    assert machine("sync", "now").exit_code == 0
    assert_level(machine, database, session_id)
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO acode_migrations(version, min_client) VALUES (100, 99)")
    with pytest.raises(NewerSchema):
        connect(url_of(database), lambda: False)


# The line is the user's: what libpq understands stands in the URL.


def certify(place: Path) -> tuple[Path, Path]:
    """A key of its own, and a certificate for this machine that only itself proves."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    key, certificate = place / "key.pem", place / "certificate.pem"
    make = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a test"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True)
    return key, certificate


@pytest.fixture(scope="module")
def encrypting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """A server that speaks TLS on a port of this machine; the port, and the certificate that proves it."""
    key, certificate = certify(tmp_path_factory.mktemp("certificate"))
    programs = find_programs()
    if programs is None:
        missing("no PostgreSQL: neither in the system nor in a wheel")
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with temporary_server(programs, port=str(port), listen_addresses="127.0.0.1") as server:
        who = lesser_user()
        for path in (key, certificate):
            copy = server.place / "data" / path.name
            shutil.copyfile(path, copy)
            copy.chmod(0o600)
            if who:
                os.chown(copy, who["user"], who["group"])
        server.stop()
        server.settings |= {"ssl": "on", "ssl_cert_file": certificate.name, "ssl_key_file": key.name}
        server.start()
        yield port, certificate


def test_a_line_is_encrypted_and_the_server_proved_where_the_url_says_so(
    machine: Machine, encrypting: tuple[int, Path], tmp_path: Path
) -> None:
    port, certificate = encrypting
    session_id = machine.run(PLAN)
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert="
    _, another = certify(tmp_path)
    machine.connect(url + str(another))
    refused = machine("sync", "now", "--json")
    assert refused.exit_code == 1 and refused.json["error"]["details"]["kind"] == "permanent"
    assert "certificate verify failed" in refused.json["error"]["message"]
    machine.connect(url + str(certificate))
    assert machine("sync", "now").exit_code == 0
    ledger = connect(url + str(certificate), lambda: False)
    try:
        assert [row[0] for row in ledger.events(session_id, 0, 10**6)] == [row[0] for row in machine.log(session_id)]
    finally:
        ledger.close()


# What can be wrong with a server.


@pytest.mark.parametrize(
    ("url", "kind", "reason"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/x", "transient", "Connection refused"),
        ("postgresql://me:hun%ter2@127.0.0.1:1/x", "permanent", "cannot be read"),
    ],
    ids=["nobody listens", "a URL that is none"],
)
def test_a_reason_is_a_few_words_and_never_a_password(url: str, kind: str, reason: str) -> None:
    with pytest.raises(ServerFailure) as caught:
        connect(url, lambda: False)
    assert caught.value.kind == kind and reason in caught.value.reason
    assert "hun" not in caught.value.reason and len(caught.value.reason) < 120


def test_what_will_not_mend_itself_is_told_apart_from_what_may(database: str) -> None:
    missing = url_of(database).replace("test_", "no_such_")
    with pytest.raises(ServerFailure, match="does not exist") as caught:
        connect(missing, lambda: False)
    assert caught.value.kind == "permanent"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger LOGIN")
    try:
        with pytest.raises(ServerFailure, match="permission denied") as caught:
            connect(url_of(database).replace("postgres@", "stranger@"), lambda: False)
        assert caught.value.kind == "permanent"
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP ROLE stranger")


def test_a_damaged_local_database_is_an_error_of_its_own(machine: Machine, database: str) -> None:
    machine.run(PLAN)
    machine.connect(url_of(database))
    (machine.workspace / ".agent" / "workspace.db").write_bytes(b"no database" * 100)
    with pytest.raises(AcodeError) as caught:
        deliver_now(machine.world(), None)
    assert not isinstance(caught.value, SyncFailed) and caught.value.exit_code == 20


def test_events_that_are_not_durable_are_made_so_before_they_are_sent(machine: Machine, database: str) -> None:
    """The push of `sync now` begins with a full commit, whoever wrote the rows and however."""
    from tests.stores import WatchedSyncs

    session_id = machine.run(PLAN)
    machine.connect(url_of(database))
    watch = WatchedSyncs()
    try:
        deliver_now(machine.world(), None)
        assert watch.of_the_log() >= 1
    finally:
        watch.unregister()
    assert_level(machine, database, session_id)
    assert isinstance(machine.store(), Store)
