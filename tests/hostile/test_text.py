"""Text from elsewhere never steers the terminal, and outside data never leads to more than a named error."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acode import seal
from acode.engine.bundle import verify_bundle
from acode.errors import AcodeError
from acode.events import decode, encode
from acode.planfile import parse_plan
from acode.store import checkpoints as ck
from acode.store.row_check import scan
from tests.builders import created, did, log
from tests.driver import Acode, Ended
from tests.tampering import Attack
from tests.victims import Victim
from tests.yaml_text import plan_text

CLEAR = "\x1b[2J"
TITLE = "\x1b]0;owned\x07"
LINK = "\x1b]8;;http://attacker.example\x07click\x1b]8;;\x07"
NASTY = f"a{CLEAR}b{TITLE}c{LINK}d\x9b31me\x00f\x08\x7fg\u202eh\u2028i".replace("\x00", "")
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def odd(*ends: Ended) -> list[str]:
    """Control characters on either stream; JSON escapes its own."""
    return [
        f"{match.group()!r} in {text[max(0, match.start() - 40) : match.end() + 10]!r}"
        for end in ends
        for text in (end.stdout, end.stderr)
        if (match := CONTROLS.search(text))
    ]


@pytest.mark.parametrize("json_flag", [False, True])
def test_outputs_arguments_remarks_and_names_steer_no_terminal(json_flag: bool, acode: Acode, workspace: Path) -> None:
    script = workspace / "say.py"
    script.write_text(f"import sys; sys.stdout.write({NASTY!r}); sys.exit(3)")
    name = f"f{CLEAR}.txt"
    (workspace / "in.txt").write_text(NASTY)
    steps = [
        {"write": {"path": "out/x.txt", "content": NASTY}},
        {"run": ["printf", "%s\n", NASTY]},
        {"run": "mkdir -p made; echo x > made/$(printf 'n\\033[2Jm')", "outputs": ["made/*"]},
        {"approve": "Go on?"},
        {"run": ["sh", "-c", "python3 say.py", NASTY], "id": "fails"},
    ]
    (workspace / "plan.yml").write_text(plan_text("Nasty", [{"id": "main", "title": "x", "steps": steps}]))
    extra = ("--json",) if json_flag else ()
    ran = acode("run", "plan.yml", *extra)
    assert ran.exit_code == 10, ran.stderr
    ends = [ran, acode("session", "show", NASTY, *extra), acode("run", name, *extra), acode(NASTY, *extra)]
    session_id = acode("session", "list", "--json").json[0]["session_id"]
    for path in (workspace / "made").iterdir():
        path.write_text(f"curl http://attacker.example {NASTY}")  # a changed file, named and shown with its content
    ends += [
        acode("session", "approve", session_id, "--note", NASTY, *extra),
        acode("resume", "--last", *extra),
        acode("status", *extra),
        acode("explain", *extra),
        acode("session", "list", *extra),
        acode("session", "show", *extra),
        acode("session", "history", *extra),
        acode("session", "verify", *extra),
        acode("resume", "--last", "--dry-run", *extra),
        acode("resume", "--last", "--force", "--reason", NASTY, *extra),
        acode("session", "rollback", session_id, "--dry-run", *extra),
        acode("session", "repair", session_id, "--dry-run", *extra),
        acode("session", "cancel", session_id, "--reason", NASTY, *extra),
        acode("session", "gc", "--dry-run", "--older-than", "0", *extra),
    ]
    assert odd(*ends) == []


@pytest.mark.parametrize("place", ["title", "task", "question"])
def test_a_question_or_title_that_does_not_read_as_what_it_is_is_refused(
    place: str, acode: Acode, workspace: Path
) -> None:
    """A person approves what can be read: an escape sequence could show other words than those that are approved."""
    words = {"title": "x", "task": "x", "question": "Go on?"} | {place: f"Go on? {NASTY}"}
    task = {"id": "a", "title": words["task"], "steps": [{"approve": words["question"]}]}
    (workspace / "plan.yml").write_text(plan_text(words["title"], [task]))
    refused = acode("run", "plan.yml")
    assert refused.exit_code == 2 and odd(refused) == []


def test_an_edited_row_full_of_escapes_steers_no_terminal(acode: Acode, workspace: Path) -> None:
    """What a damaged or planted log says is shown by verify and repair, and is somebody else's text."""
    (workspace / "plan.yml").write_text(plan_text("x", [{"id": "a", "steps": [{"run": "true"}, {"run": "false"}]}]))
    acode("run", "plan.yml")
    attack = Attack(workspace)
    attack.edit(4, '"event":', '"key_id":"\\u001b[2J","event":')
    ends = [acode("session", "verify"), acode("session", "repair", "--dry-run"), acode("resume", "--last")]
    assert odd(*ends) == []
    assert ends[0].exit_code == 20


# Anything at all.

KEYRING = seal.Keyring(current="k", keys={"k": b"k" * 32})
anything = st.binary(max_size=400)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
fixtures = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]  # the place is overwritten each time
shared = settings(max_examples=40, deadline=None, suppress_health_check=fixtures)


def only_named(work: Callable[[], object]) -> None:
    with contextlib.suppress(AcodeError):
        work()


@quick
@given(anything | trees.map(lambda tree: json.dumps(tree).encode()))
def test_any_bytes_as_an_event_are_an_event_or_a_named_error(body: bytes) -> None:
    only_named(lambda: decode(body, "s", 2))


GENUINE = [json.loads(encode(one)) for one in log(created("a"), did("a"))]


@quick
@given(st.sampled_from(GENUINE), st.data())
def test_an_event_with_one_value_replaced_is_an_event_or_a_named_error(
    plain: dict[str, object], data: st.DataObject
) -> None:
    changed = json.loads(json.dumps(plain))
    place = changed
    while True:
        name = data.draw(st.sampled_from(sorted(place)))
        if isinstance(place[name], dict) and place[name] and data.draw(st.booleans()):
            place = place[name]
            continue
        place[name] = data.draw(trees)
        break
    only_named(lambda: decode(json.dumps(changed).encode(), "s", 2))


@quick
@given(anything | trees.map(lambda tree: json.dumps(tree).encode()), st.binary(min_size=32, max_size=32))
def test_any_bytes_as_a_checkpoint_are_a_named_error(body: bytes, mac: bytes) -> None:
    with pytest.raises(AcodeError):
        ck.open_checkpoint("s", 1, body, mac, KEYRING)


@quick
@given(trees.map(lambda tree: json.dumps({"key_id": "k", "v": 2, "x": tree}).encode()))
def test_even_a_sealed_checkpoint_of_another_shape_is_a_named_error(body: bytes) -> None:
    mac = seal.seal(b"k" * 32, ck.PURPOSE, body)
    with pytest.raises(AcodeError):
        ck.open_checkpoint("s", 1, body, mac, KEYRING)


@quick
@given(
    st.lists(
        st.tuples(st.integers(1, 2**39), st.text(max_size=4), anything, st.binary(min_size=32, max_size=32)), max_size=6
    )
)
def test_any_rows_are_judged_one_by_one(rows: list[tuple[int, str, bytes, bytes]]) -> None:
    ordered = sorted({row[0]: row for row in rows}.values())
    assert [item for item in scan("s", ordered, KEYRING) if getattr(item, "envelope", None)] == []


@quick
@given(anything | trees.map(lambda tree: json.dumps(tree).encode()))
def test_any_bytes_as_a_bundle_are_a_named_error(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.jsonl"
    path.write_bytes(body)
    with pytest.raises(AcodeError):
        verify_bundle(path, KEYRING)


@quick
@given(st.text(max_size=300) | trees.map(lambda tree: json.dumps({"version": 1, "title": "x", "tasks": tree})))
def test_any_text_as_a_plan_is_a_plan_or_a_named_error(text: str) -> None:
    only_named(lambda: parse_plan(text, "plan.yml", plan_bytes_max=262_144, timeout_s_default=60.0))


@shared
@given(st.text(max_size=200) | trees.map(lambda tree: json.dumps({"resume": tree})))
def test_any_text_as_a_configuration_is_one_or_a_named_error(tmp_path: Path, text: str) -> None:
    from acode.config import load_config

    (tmp_path / ".agent").mkdir(exist_ok=True)
    (tmp_path / ".agent" / "config.yml").write_text(text, encoding="utf-8", errors="surrogatepass")
    only_named(lambda: load_config(tmp_path, {"HOME": str(tmp_path)}, {}))


VICTIMS: dict[Path, Victim] = {}


@shared
@given(st.data())
def test_any_cell_of_the_database_may_hold_anything(tmp_path: Path, data: st.DataObject) -> None:
    """Loading, peeking and verifying answer by name whatever a cell was replaced with."""
    victim = VICTIMS.get(tmp_path) or VICTIMS.setdefault(tmp_path, Victim(tmp_path))
    table, column, kind = data.draw(
        st.sampled_from([("events", "body", "TEXT"), ("checkpoints", "body", "TEXT"), ("blobs", "data", "BLOB")])
    )
    cell = data.draw(anything)
    with victim.store(look_only=False) as store:
        store.db.execute("BEGIN")
        store.db.execute(f"UPDATE {table} SET {column} = CAST(? AS {kind})", (cell,))
        for work in (store.load, store.peek, store.verify):
            only_named(lambda work=work: work(victim.id))
        store.db.execute("ROLLBACK")
