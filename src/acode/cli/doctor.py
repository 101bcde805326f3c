"""acode doctor: does this machine, and this workspace, keep the promises that acode builds on?"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from acode import __version__, seal
from acode.cli.flags import Command, Flags
from acode.cli.screen import Screen
from acode.cli.world import build_world, find_workspace
from acode.config import load_config, state_dir
from acode.config.platforms import UNPROVEN
from acode.disk import file_lock
from acode.disk.fsync import sync_file
from acode.engine.world import World
from acode.errors import AcodeError
from acode.redact import engine
from acode.store import database
from acode.store.strange_files import refuse_strange_files
from acode.text import one_line

DISK_FREE_BYTES_MIN = 256 * 1_048_576
DISK_FULL_BYTES = 8 * 1_048_576
WRITTEN_BYTES = 1_048_576
PYTHON_MIN = (3, 11)
GIT_TIMEOUT_S = 5.0


class Check(NamedTuple):
    name: str
    ok: bool
    detail: str
    hint: str = ""
    needed: bool = True


@click.command(cls=Command, name="doctor")
@click.pass_obj
def command(flags: Flags) -> int:
    """Check versions, permissions, the signing key, the file system, its locks, disk space and git."""
    env = dict(os.environ)
    screen = Screen(flags, env)
    workspace = find_workspace(flags.directory, env)
    checks = [*examine(workspace, env), *_shared(flags)]
    failed = [check for check in checks if not check.ok and check.needed]
    if flags.json:
        screen.document(
            {"ok": not failed, "workspace": str(workspace), "checks": [check._asdict() for check in checks]}
        )
        return 1 if failed else 0
    for check in checks:
        sign, style = ("✓", "good") if check.ok else ("✗", "bad") if check.needed else ("⚠", "warn")
        screen.data(f"{screen.paint_data(sign, style)} {check.name}: {one_line(check.detail)}")
        if not check.ok and check.hint:
            screen.data(f"    {check.hint}")
    screen.line(_in_sum(checks, failed))
    return 1 if failed else 0


def _in_sum(checks: list[Check], failed: list[Check]) -> str:
    if failed:
        return f"{len(failed)} of {len(checks)} checks failed."
    warned = [check.name for check in checks if not check.ok]
    return f"acode can be used; look at: {', '.join(warned)}." if warned else "All is well."


def examine(workspace: Path, env: Mapping[str, str]) -> list[Check]:
    return [
        Check("acode", True, f"{__version__} at {Path(__file__).parent.parent}"),
        _platform(sys.platform),
        _python(),
        *_sqlite(),
        _redaction(engine()),
        _guarded("file system", lambda: _file_system(workspace)),
        _guarded("locks", lambda: _locks(workspace)),
        _guarded("workspace", lambda: _writable(workspace)),
        _guarded("permissions", lambda: _private(workspace)),
        _guarded("disk space", lambda: _disk(workspace)),
        _guarded("state directory", lambda: _state(env)),
        _guarded("signing key", lambda: _key(env)),
        _guarded("configuration", lambda: _config(workspace, env)),
        _guarded("database", lambda: _database(workspace, env)),
        _git(),
    ]


def _platform(name: str) -> Check:
    detail = {"linux": "Linux, proven", "darwin": UNPROVEN}.get(name, f"{name}, unsupported")
    return Check("platform", name == "linux", detail, "Try it where a loss would not matter.", needed=False)


def _guarded(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except AcodeError as error:
        return Check(name, False, error.message, error.hint)
    except OSError as error:
        return Check(name, False, f"it cannot be examined: {error.strerror or error}")


def _python() -> Check:
    return Check("Python", sys.version_info >= PYTHON_MIN, f"{platform.python_version()} ({sys.executable})")


def _sqlite() -> list[Check]:
    import apsw

    wanted = ".".join(map(str, database.SQLITE_MIN))
    version = apsw.sqlite_lib_version()
    fresh = tuple(int(part) for part in version.split(".")) >= database.SQLITE_MIN
    return [
        Check("apsw", True, apsw.apsw_version()),
        Check("SQLite", fresh, f"{version} (at least {wanted} is needed)", "pip install -U apsw"),
    ]


def _redaction(name: str) -> Check:
    """Both engines mask the same; a machine with much output wants to know which of them reads it."""
    if name == "re2":
        return Check("redaction", True, "by re2")
    return Check("redaction", True, 'by Python\'s re, slower on much output (pip install "acode-cli[re2]" adds re2)')


def _file_system(workspace: Path) -> Check:
    kind = database.file_system(workspace)
    local = kind not in database.NETWORK_FILE_SYSTEMS
    hint = "SQLite's log cannot be shared safely there: use a workspace on a local disk."
    return Check("file system", local, f"{kind} at {workspace}", hint)


def _locks(workspace: Path) -> Check:
    """Asked of the directory itself, so that nothing is made and a disk that is read-only can answer too."""
    if sys.platform == "win32":
        return Check("locks", True, "given by the system")
    hint = "Two acodes could not be kept apart there: use a workspace on a file system with locks."
    try:
        kept_apart = _locks_keep_apart(workspace)
    except OSError as error:
        return Check("locks", False, f"{workspace} cannot be locked: {error.strerror}", hint)
    if not kept_apart:
        return Check("locks", False, f"{workspace} gives the same lock twice", hint)
    return Check("locks", True, f"given at {workspace}, to one at a time")


def _locks_keep_apart(workspace: Path) -> bool:
    """Whether a second one is refused a lock that is held. One that somebody else holds is refused to both."""
    first, second = (os.open(workspace, os.O_RDONLY) for _ in range(2))
    try:
        return not file_lock.try_lock(first) or not file_lock.try_lock(second)
    finally:
        os.close(second)
        os.close(first)


def _writable(workspace: Path) -> Check:
    """Written to, and not only asked: a full disk, a quota and a read-only mount let everybody ask."""
    place = workspace / ".agent" if (workspace / ".agent").is_dir() else workspace
    try:
        with tempfile.TemporaryFile(dir=place, prefix=".acode-tmp-") as file:  # without a name, where the system can
            file.write(bytes(WRITTEN_BYTES))
            file.flush()
            sync_file(file.fileno())
    except OSError as error:
        hint = "Check its permissions and its disk."
        return Check("workspace", False, f"{place} cannot be written: {error.strerror}", hint)
    return Check("workspace", True, f"{place} can be written")


def _private(workspace: Path) -> Check:
    """The files of acode that other users could read."""
    own = workspace / ".agent"
    if not own.exists():
        return Check("permissions", True, ".agent is made with the first session")
    open_to_others: list[str] = []
    if sys.platform != "win32":  # Windows keeps files private by their access lists
        places = [own, *(own / name for name in ("workspace.db", "locks", "blobs", "run", "logs"))]
        open_to_others = [
            f"{place.name} ({stat.S_IMODE(place.lstat().st_mode):04o})"
            for place in places
            if os.path.lexists(place) and place.lstat().st_mode & 0o077
        ]
    detail = f"others can read {', '.join(open_to_others)}" if open_to_others else "only you can read .agent"
    return Check("permissions", not open_to_others, detail, f"chmod -R go-rwx {own}")


def _disk(workspace: Path) -> Check:
    free = shutil.disk_usage(workspace).free
    detail, full = f"{free // 1_048_576:,} MiB free", free < DISK_FULL_BYTES
    hint = "Make room: a run would stop at once." if full else "Make room before a long run."
    return Check("disk space", free >= DISK_FREE_BYTES_MIN, detail, hint, needed=full)


def _state(env: Mapping[str, str]) -> Check:
    place = state_dir(env)
    existing = next(path for path in (place, *place.parents) if path.exists())
    can = os.access(existing, os.W_OK)
    return Check("state directory", can, str(place), "Set ACODE_HOME to a place you can write.")


def _key(env: Mapping[str, str]) -> Check:
    keyring = seal.load_keyring(state_dir(env), env, create=False)
    if not keyring.keys:
        return Check("signing key", True, "made with the first session")
    source = f"from {seal.SECRET_VARIABLE}" if seal.SECRET_VARIABLE in env else "in the state directory"
    return Check("signing key", True, f"{keyring.current} {source}, {len(keyring.keys)} in all")


def _config(workspace: Path, env: Mapping[str, str]) -> Check:
    config = load_config(workspace, env, {})
    return Check("configuration", True, "; ".join(config.warnings) or "valid")


def _database(workspace: Path, env: Mapping[str, str]) -> Check:
    """That it opens, and that the sessions are in it which were recorded here: an emptied one is as good as lost."""
    path = workspace / ".agent" / "workspace.db"
    refuse_strange_files(path)
    recorded = {one.session_id: one.title for one in seal.all_anchors(seal.anchor_directory(state_dir(env), workspace))}
    if path.exists() and path.stat().st_size > 0:
        with contextlib.closing(database.connect_to_look(path)) as db:
            for row in db.execute("SELECT session_id FROM sessions"):
                recorded.pop(row[0], None)
    elif not recorded:
        return Check("database", True, "made with the first session")
    if recorded:
        lost = ", ".join(f"{one[-8:]} “{title}”" for one, title in sorted(recorded.items())[:5])
        hint = "Bring .agent/ back from a backup, or let them go: acode session repair --accept-rollback"
        return Check("database", False, f"{path} does not hold sessions that were recorded here: {lost}", hint)
    return Check("database", True, f"{path} opens, its tables are acode's, every recorded session is in it")


def _shared(flags: Flags) -> list[Check]:
    """Whether the server still has what was pushed to it: it may have been restored from an older backup."""
    try:
        world = build_world(flags)
    except AcodeError:  # the check of the configuration has said it
        return []
    if world.config.settings.sync.url is None:
        return []
    return [_guarded("shared copy", lambda: _server(world))]


def _server(world: World) -> Check:
    from acode.sync.push_now import compare, standings

    heard = standings(world)
    try:
        found = compare(world, heard) if heard else []
    except AcodeError as error:
        return Check("shared copy", False, error.message, "Sessions continue without it.", needed=False)
    lost = [now.sync.reason for now, before in zip(found, heard, strict=True) if now != before]
    hint = "Push again from every machine that has worked with this server: acode sync now"
    return Check("shared copy", not lost, "; ".join(map(str, lost[:5])) or "the server has what was pushed to it", hint)


def _git() -> Check:
    found = shutil.which("git")
    if found is None:
        return Check("git", False, "not found; only commit steps need it", "Install git.", needed=False)
    try:
        answer = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("git", False, str(error), needed=False)
    return Check("git", answer.returncode == 0, answer.stdout.strip() or answer.stderr.strip(), needed=False)
