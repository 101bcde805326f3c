"""Where a workspace of the fleet comes from: a commit of a git repository, a directory that was uploaded, or nothing.

A worker makes the workspace of a session from its source, then puts there what finished steps left. What cannot be
made again is named, never guessed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Literal

import msgspec

from acode.engine.world import World
from acode.errors import SourceUnavailable, StaysAtHome, Usage
from acode.sync.postgres import PostgresLedger
from acode.workspacepath import OWN_DIRECTORY

PURPOSE = "workspace"
UPLOAD_BYTES_MAX = 64 * 1024 * 1024
GIT_S_MAX = 600
_GIT = re.compile(r"git\+(?P<url>\S+)@(?P<commit>[0-9a-fA-F]{7,64})")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """`directory` is where the files are uploaded from; a worker finds them under `sha256`."""

    kind: Literal["none", "git", "upload"] = "none"
    url: str = ""
    commit: str = ""
    sha256: str = ""
    directory: str = ""


def read_source(text: str | None) -> Source:
    """The source as a person types it: git+URL@COMMIT, or a directory."""
    if text is None:
        return Source()
    if text.startswith("git+"):
        found = _GIT.fullmatch(text)
        if found is None:
            raise Usage(
                f"--source {text}: expected git+URL@COMMIT with the digits of a commit",
                hint="A branch moves, and a session that is taken over would get other files.",
            )
        return Source(kind="git", url=found["url"], commit=found["commit"].lower())
    if not Path(text).is_dir():
        raise Usage(f"--source {text}: there is no such directory", hint="Or name a commit: git+URL@COMMIT")
    return Source(kind="upload", directory=os.path.realpath(text))


# Submitting.


def keep_source(world: World, ledger: PostgresLedger, session_id: str, source: Source) -> Source:
    """What the server holds of it; the files of a directory are read now, as they are."""
    if source.kind != "upload":
        return source
    data = packed(world, Path(source.directory))
    sha256 = hashlib.sha256(data).hexdigest()
    ledger.put_blob(session_id, sha256, PURPOSE, data)
    return Source(kind="upload", sha256=sha256)


def packed(world: World, directory: Path) -> bytes:
    """All files but acode's own."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=3) as archive:
        for path in sorted(directory.rglob("*")):
            name = path.relative_to(directory)
            if name.parts[0] == OWN_DIRECTORY:
                continue
            _refuse_secret(world, path, str(name))
            archive.add(path, arcname=str(name), recursive=False, filter=_plain)
            if made.tell() > UPLOAD_BYTES_MAX:
                raise Usage(
                    f"{directory} is larger than {UPLOAD_BYTES_MAX:,} bytes when packed",
                    hint="Submit a commit of a repository instead: --source git+URL@COMMIT",
                )
    return made.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _refuse_secret(world: World, path: Path, name: str) -> None:
    if path.is_symlink() or not path.is_file():
        return
    if world.redactor.matches(path.read_bytes().decode("utf-8", "surrogateescape")):
        raise StaysAtHome(
            f"{name} holds what looks like a secret, and secrets never leave their machine",
            hint="Leave it out of the directory; name variables with secret_env, and set them where the workers run.",
        )


# Making a workspace.


def make_workspace(source: Source, place: Path, archive: bytes | None) -> None:
    """Fill a new directory. `archive`: the upload, as it came with the session."""
    if source.kind == "git":
        _check_out(source, place)
    elif source.kind == "upload":
        if archive is None or hashlib.sha256(archive).hexdigest() != source.sha256:
            raise SourceUnavailable(
                "the directory that was uploaded with the session is not on the server",
                hint="Restore the server's database from a backup that has it.",
            )
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as packed_files:
            packed_files.extractall(place, filter="data")


def _check_out(source: Source, place: Path) -> None:
    _git(place, "init", "-q")
    _git(place, "remote", "add", "origin", source.url)
    try:
        _git(place, "fetch", "-q", "--depth", "1", "origin", source.commit)
    except SourceUnavailable:  # not every server gives out a commit by its name
        _git(place, "fetch", "-q", "origin")
    _git(place, "checkout", "-q", "--detach", source.commit)


def _git(place: Path, *words: str) -> None:
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *words], cwd=place, env=env, capture_output=True, text=True, timeout=GIT_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceUnavailable(
            f"git {words[0]} could not be run: {error}", hint="Install git on the workers, or look why it hangs."
        ) from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SourceUnavailable(
            f"the source of the workspace cannot be fetched: git {words[0]}: {said}",
            hint="Give the workers access to the repository, or the repository that commit.",
        )
