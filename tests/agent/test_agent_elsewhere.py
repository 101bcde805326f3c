"""An agent's session that is carried on by another machine: its conversation comes along, its secrets do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.agent.town import GOAL, call, plan_turn, served, task_turns
from tests.machines import Machine, url_of

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
ASKS = {"calls": [call("run_command", command="cat a.txt > b.txt")]}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def machines(stack: ExitStack, place: Path, dsn: str, *turns: dict[str, Any]) -> tuple[Machine, Machine, Path]:
    script = {"models": ["scripted"], "turns": [plan_turn({"id": "work"}), task_turns("Work", *turns)]}
    url, ledger = stack.enter_context(served(script, place / "model"))
    made = Machine(place / "one", url_of(dsn)), Machine(place / "two", url_of(dsn))
    for machine in made:
        machine.env |= {"ACODE_MODEL": "scripted", "ACODE_MODEL_BASE_URL": url}
        stack.callback(machine.stop)
    return (*made, ledger)


def begun(machine: Machine) -> str:
    waiting = machine("run", GOAL, "--approve-plan")
    assert waiting.exit_code == 10, waiting.stderr
    found: str = machine("session", "list", "--json").json[0]["short_id"]
    return found


def test_another_machine_goes_on_with_the_same_conversation(
    stack: ExitStack, tmp_path: Path, postgres_dsn: str
) -> None:
    wrote = {"text": "Look.", "calls": [call("write_file", path="a.txt", content="a\n"), call("list_files")]}
    one, two, ledger = machines(stack, tmp_path, postgres_dsn, wrote, ASKS, {"text": "Done."})
    name = begun(one)
    (two.workspace / "a.txt").write_text("a\n")  # files come by git, or by hand
    taken = two("resume", name, "--remote", "--yes")
    assert taken.exit_code == 10, f"it was given back although its task is in the middle: {taken.stderr}"
    two("session", "approve", name)
    ended = two("resume", name)
    assert ended.exit_code == 0, ended.stderr
    assert (two.workspace / "b.txt").read_text() == "a\n"
    assert len(ledger.read_text().splitlines()) == 4, "nothing that was answered there was asked for again here"


def test_a_secret_that_the_model_read_stays_on_its_machine_and_the_way_on_is_said(
    stack: ExitStack, tmp_path: Path, postgres_dsn: str
) -> None:
    one, two, _ = machines(
        stack, tmp_path, postgres_dsn, {"calls": [call("read_file", path="env")]}, ASKS, {"text": "Done."}
    )
    (one.workspace / "env").write_text(f"TOKEN={TOKEN}\n")
    name = begun(one)
    with psycopg.connect(postgres_dsn) as server:
        tables = [row[0] for row in server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'acode'")]
        tables = tables or [
            row[0] for row in server.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        ]
        told = b""
        for table in tables:
            rows = server.execute(f'SELECT t::text FROM "{table}" t').fetchall()  # type: ignore[call-overload]
            told += "".join(row[0] for row in rows).encode()
    assert tables and not any(spelling in told for spelling in (TOKEN.encode(), TOKEN.encode().hex().encode()))
    (two.workspace / "env").write_text("TOKEN=of its own\n")
    taken = two("resume", name, "--remote", "--yes", "--changed-files", "continue")
    assert "work.read_file-1-1 held a secret" in taken.stderr and "Resume the session there" in taken.stderr
    assert "Traceback" not in taken.stderr and TOKEN not in taken.stderr
    assert two("session", "rollback", name, "--to", "work.ask-1", "--yes").exit_code == 0
    assert two("resume", name, "--changed-files", "continue").exit_code == 10, "read anew, and asked about the command"
