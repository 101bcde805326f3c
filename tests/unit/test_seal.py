"""Keys, codes and anchors: private, whole or absent, and what is lost or shared is said."""

from __future__ import annotations

import contextlib
import hmac
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from acode import seal
from acode.errors import KeyMissing, KeyUnusable, NotWritable
from acode.seal import Anchor, key_file, load_keyring

SECRET = "a secret of more than sixteen bytes"
NONE: dict[str, str] = {}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "new" / "state"


# The key.


def test_a_first_key_is_made_once_and_is_private(state: Path) -> None:
    old = os.umask(0)
    try:
        first = load_keyring(state, NONE)
    finally:
        os.umask(old)
    assert load_keyring(state, NONE) == first
    assert stat.S_IMODE(key_file(state).stat().st_mode) == 0o600
    assert [stat.S_IMODE(place.stat().st_mode) for place in (state, state.parent)] == [0o700, 0o700]
    assert len(first.key(first.current)) == seal.KEY_BYTES
    assert [path.name for path in state.iterdir()] == ["keys"]


def test_two_homes_have_two_keys(tmp_path: Path) -> None:
    assert load_keyring(tmp_path / "a", NONE).current != load_keyring(tmp_path / "b", NONE).current


def test_looking_makes_no_key(state: Path) -> None:
    found = load_keyring(state, NONE, create=False)
    assert not state.exists()
    with pytest.raises(KeyMissing):
        found.key("anything")


def test_processes_on_their_first_start_agree_on_one_key(state: Path) -> None:
    code = (
        "import sys, pathlib; from acode import seal; print(seal.load_keyring(pathlib.Path(sys.argv[1]), {}).current)"
    )
    start = [sys.executable, "-c", code, str(state)]
    children = [subprocess.Popen(start, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {child.communicate()[0] for child in children}
    assert len(answers) == 1 and [child.returncode for child in children] == [0] * 4


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_a_key_that_others_can_reach_is_refused_and_not_repaired(state: Path, mode: int) -> None:
    load_keyring(state, NONE)
    key_file(state).chmod(mode)
    with pytest.raises(KeyUnusable, match=f"mode {mode:04o}, expected 0600") as caught:
        load_keyring(state, NONE)
    assert (caught.value.code, caught.value.exit_code) == ("ACODE-KEY-001", 20)
    assert "chmod 600" in caught.value.hint
    assert stat.S_IMODE(key_file(state).stat().st_mode) == mode


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives a file away")
def test_a_key_of_another_user_is_refused(state: Path) -> None:
    load_keyring(state, NONE)
    os.chown(key_file(state), 12345, -1)
    with pytest.raises(KeyUnusable, match="belongs to user 12345"):
        load_keyring(state, NONE)


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_a_key_that_is_no_file_of_its_own_is_refused(state: Path, tmp_path: Path, kind: str) -> None:
    load_keyring(state, NONE)
    path = key_file(state)
    path.rename(tmp_path / "elsewhere")
    match kind:
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
        case "directory":
            path.mkdir(mode=0o700)
        case _:
            os.mkfifo(path, 0o600)
    with pytest.raises(KeyUnusable):
        load_keyring(state, NONE)


@pytest.mark.parametrize(
    "text", ["", "\n", "abc", "0" * 63, "0" * 64 + "\nxyz", "G" * 64, "A" * 64, "\0" * 64, "ü" * 64]
)
def test_a_damaged_key_file_is_an_error_and_no_new_key_takes_its_place(state: Path, text: str) -> None:
    load_keyring(state, NONE)
    key_file(state).write_text(text)
    with pytest.raises(KeyUnusable, match="damaged"):
        load_keyring(state, NONE)
    assert key_file(state).read_text() == text


# The secret of the environment.


@pytest.mark.req("CFG-011c-06")
def test_the_secret_of_the_environment_signs_and_stored_keys_still_verify(state: Path) -> None:
    stored = load_keyring(state, NONE)
    both = load_keyring(state, {seal.SECRET_VARIABLE: SECRET})
    assert both.current != stored.current
    assert both.key(stored.current) == stored.key(stored.current)
    assert load_keyring(state, {seal.SECRET_VARIABLE: SECRET}) == both
    assert load_keyring(state, {seal.SECRET_VARIABLE: SECRET + "x"}).current != both.current


def test_with_a_secret_nothing_is_written(state: Path) -> None:
    load_keyring(state, {seal.SECRET_VARIABLE: SECRET})
    assert not state.exists()


@pytest.mark.parametrize("secret", ["", "short", "x" * 15])
def test_a_short_secret_is_refused_without_being_shown(state: Path, secret: str) -> None:
    with pytest.raises(KeyUnusable, match=f"has {len(secret)} bytes, at least 16") as caught:
        load_keyring(state, {seal.SECRET_VARIABLE: secret})
    assert not secret or secret not in caught.value.message


def test_a_secret_of_any_bytes_is_a_secret(state: Path) -> None:
    assert load_keyring(state, {seal.SECRET_VARIABLE: "\udcff" * 16}).current
    assert load_keyring(state, {seal.SECRET_VARIABLE: "ü" * 8}).current


def test_the_name_of_a_key_says_nothing_about_it(state: Path) -> None:
    ring = load_keyring(state, NONE)
    assert ring.current not in ring.key(ring.current).hex()
    assert len(ring.current) == 12


# Rotation, export, import.


def test_after_a_rotation_the_new_key_signs_and_the_old_ones_verify(state: Path) -> None:
    first = load_keyring(state, NONE)
    names = [first.current, seal.rotate_key(state), seal.rotate_key(state)]
    ring = load_keyring(state, NONE)
    assert ring.current == names[-1] and set(ring.keys) == set(names) and len(set(names)) == 3
    assert ring.key(first.current) == first.key(first.current)
    assert stat.S_IMODE(key_file(state).stat().st_mode) == 0o600


def test_a_lost_key_is_named_with_those_that_are_here(state: Path) -> None:
    ring = load_keyring(state, NONE)
    with pytest.raises(KeyMissing, match="key 0123456789ab, which is not here") as caught:
        ring.key("0123456789ab")
    assert caught.value.exit_code == 20
    assert ring.current in caught.value.message
    assert "acode key import" in caught.value.hint


def test_keys_that_were_exported_verify_elsewhere_and_do_not_sign_there(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    mine, theirs = load_keyring(here, NONE), load_keyring(there, NONE)
    assert seal.import_keys(there, seal.export_keys(here)) == (mine.current,)
    both = load_keyring(there, NONE)
    assert both.current == theirs.current
    assert both.key(mine.current) == mine.key(mine.current)
    assert seal.import_keys(there, seal.export_keys(here)) == ()


def test_in_a_new_home_imported_keys_sign(tmp_path: Path) -> None:
    mine = load_keyring(tmp_path / "here", NONE)
    seal.import_keys(tmp_path / "new", seal.export_keys(tmp_path / "here"))
    assert load_keyring(tmp_path / "new", NONE) == mine


@pytest.mark.parametrize("text", ["", "abc", "0" * 63, "0" * 64 + " x"])
def test_what_is_no_key_is_not_imported(state: Path, text: str) -> None:
    with pytest.raises(KeyUnusable, match="as an export of keys has them"):
        seal.import_keys(state, text)
    assert not state.exists()


@contextlib.contextmanager
def tiny_files() -> Iterator[None]:
    """No file may grow beyond a hundred bytes: a write takes a part, and the next one fails.

    Not a fixture: pytest may write its own report to a file, and does so before a fixture ends.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)


def test_a_write_that_takes_only_a_part_does_not_replace_a_whole_key_file(state: Path) -> None:
    first = load_keyring(state, NONE)
    with tiny_files(), pytest.raises(NotWritable):
        seal.rotate_key(state)
    assert load_keyring(state, NONE) == first
    assert [path.name for path in state.iterdir()] == ["keys"]


def test_a_state_directory_that_cannot_be_made_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritable, match="cannot be made") as caught:
        seal.write_anchor(tmp_path / "file" / "state", ANCHOR, durable=False)
    assert "ACODE_HOME" in caught.value.hint


# Codes.


def test_a_code_depends_on_key_predecessor_and_bytes() -> None:
    codes = {
        seal.code(key, before, body)
        for key in (b"k" * 32, b"l" * 32)
        for before in (seal.GENESIS, b"1" * 32)
        for body in (b"a", b"b")
    }
    assert len(codes) == 8


def test_a_seal_for_one_purpose_is_none_for_another() -> None:
    assert seal.seal(b"k" * 32, b"checkpoint", b"x") != seal.seal(b"k" * 32, b"bundle", b"x")
    assert seal.same(b"x", b"x") and not seal.same(b"x", b"y")


# Anchors.

ANCHOR = Anchor(
    session_id="01980000-0000-7000-8000-00000000cafe",
    seq=7,
    head="ab" * 32,
    title="A plan",
    workspace="/somewhere",
    at=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.mark.parametrize("durable", [True, False])
def test_an_anchor_comes_back_and_the_last_one_counts(state: Path, durable: bool) -> None:
    seal.write_anchor(state, ANCHOR, durable=durable)
    later = msgspec.structs.replace(ANCHOR, seq=8, ended=True)
    seal.write_anchor(state, later, durable=durable)
    assert seal.read_anchor(state, ANCHOR.session_id) == later
    assert list(seal.all_anchors(state)) == [later]
    assert stat.S_IMODE((state / ANCHOR.session_id).stat().st_mode) == 0o600


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"seq": 1}', b"\xff\xfe", b"x" * 100_000])
def test_a_torn_anchor_is_none_and_hides_no_other(state: Path, text: bytes) -> None:
    other = msgspec.structs.replace(ANCHOR, session_id="01980000-0000-7000-8000-00000000beef")
    for one in (ANCHOR, other):
        seal.write_anchor(state, one, durable=False)
    (state / ANCHOR.session_id).write_bytes(text)
    assert seal.read_anchor(state, ANCHOR.session_id) is None
    assert list(seal.all_anchors(state)) == [other]


def test_an_anchor_that_cannot_be_read_is_not_taken_for_none(state: Path) -> None:
    (state / ANCHOR.session_id).mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        seal.read_anchor(state, ANCHOR.session_id)
    assert list(seal.all_anchors(state)) == [], "a directory there is nobody's anchor"
    state.joinpath("file").touch()
    with pytest.raises(NotADirectoryError):
        list(seal.all_anchors(state / "file"))


def test_without_anchors_there_are_none(state: Path) -> None:
    assert seal.read_anchor(state, "x") is None
    assert list(seal.all_anchors(state)) == []
    seal.forget_anchor(state, state, "x")


def test_an_anchor_can_be_let_go(state: Path) -> None:
    directory = seal.anchor_directory(state, state)
    seal.note_place(state, state, ANCHOR.session_id)
    seal.write_anchor(directory, ANCHOR, durable=False)
    assert seal.other_places(state, state.parent, ANCHOR.session_id) == [state]
    seal.forget_anchor(state, state, ANCHOR.session_id)
    assert seal.read_anchor(directory, ANCHOR.session_id) is None
    assert seal.other_places(state, state.parent, ANCHOR.session_id) == []


ENDED = msgspec.structs.replace(ANCHOR, session_id="01980000-0000-7000-8000-00000000beef", ended=True)


def as_before_marks(state: Path) -> None:
    """Anchors as an acode left them that knew neither marks nor titles."""
    for one in (ANCHOR, ENDED):
        (state / one.session_id).parent.mkdir(parents=True, exist_ok=True)
        (state / one.session_id).write_bytes(msgspec.json.encode(one))


@pytest.mark.parametrize("older", [True, False])
def test_open_anchors_and_those_of_a_title_are_found_without_a_look_at_the_others(state: Path, older: bool) -> None:
    third = msgspec.structs.replace(ANCHOR, session_id="01980000-0000-7000-8000-00000000f00d", title="Another")
    if older:
        as_before_marks(state)
        assert seal.open_anchors(state) == [ANCHOR.session_id]
        assert seal.anchors_titled(state, "A plan") == [ENDED, ANCHOR]
    else:
        for one in (ENDED, ANCHOR):
            seal.write_anchor(state, one, durable=False)
    seal.write_anchor(state, third, durable=False)
    for one in (ANCHOR, ENDED):
        (state / one.session_id).rename(state / f".{one.session_id}")
    assert sorted(seal.open_anchors(state)) == sorted([ANCHOR.session_id, third.session_id])
    assert seal.anchors_titled(state, "Another") == [third]
    for one in (ANCHOR, ENDED):
        (state / f".{one.session_id}").rename(state / one.session_id)
    assert sorted(one.session_id for one in seal.anchors_titled(state, "A plan")) == [
        ENDED.session_id,
        ANCHOR.session_id,
    ]


def test_a_session_that_has_ended_or_is_let_go_is_open_no_more(state: Path) -> None:
    directory = seal.anchor_directory(state, state)
    seal.write_anchor(directory, ANCHOR, durable=False)
    seal.write_anchor(directory, msgspec.structs.replace(ANCHOR, ended=True), durable=False)
    assert seal.open_anchors(directory) == []
    assert [one.ended for one in seal.anchors_titled(directory, "A plan")] == [True]
    seal.forget_anchor(state, state, ANCHOR.session_id)
    assert seal.anchors_titled(directory, "A plan") == []
    assert [path for path in directory.rglob("*") if path.is_file()] == []


def test_a_workspace_seen_through_a_link_has_the_same_anchors(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    directories = [
        seal.anchor_directory(tmp_path, tmp_path / name) for name in ("real", "link", "real/../real", "other")
    ]
    assert directories[0] == directories[1] == directories[2] != directories[3]


@pytest.mark.parametrize("key_bytes", [0, 1, 32, 63, 64, 65, 200])
@pytest.mark.parametrize("body_bytes", [0, 1, 31, 1_454, 70_000])
def test_a_code_is_the_standard_hmac_of_what_it_covers(key_bytes: int, body_bytes: int) -> None:
    key, head, body = b"k" * key_bytes, b"h" * 32, b"b" * body_bytes
    assert seal.code(key, head, body) == hmac.digest(key, head + body, "sha256")
    assert seal.seal(key, b"p", body) == hmac.digest(key, b"p\0" + body, "sha256")


def test_a_key_that_is_not_here_is_told_with_ways_that_do_without_it() -> None:
    with pytest.raises(KeyMissing) as refused:
        seal.Keyring(current="here", keys={"here": b"k" * 32}).key("gone")
    assert "session history" not in refused.value.hint, "it would be refused for the same reason"
    assert "acode key import FILE" in refused.value.hint and "--accept-lost-key" in refused.value.hint
