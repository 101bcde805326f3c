"""The digest of the settings in force: a session of acode 0.1 finds its configuration unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from acode.config import Config, effective, load_config, workspace_config_path

# As acode 0.1 recorded them in its sessions.
DEFAULTS_OF_0_1 = "52de2ae1ccce02edcf6ee97b2aa25b790458c791f33e2598678f491719bc11c7"
SHARED_OF_0_1 = "e12c3a4c8ef045642c8fe2b3d75ffdf899f158aca7f25927511d6c67436efc53"
SHARED = "sync: {url: 'postgresql://me:secret@db/x'}\nnotify: {command: beep}\n"


def in_force(workspace: Path, text: str) -> Config:
    place = workspace_config_path(workspace)
    place.parent.mkdir(exist_ok=True)
    place.write_text(text, encoding="utf-8")
    return effective(load_config(workspace, {"HOME": str(workspace / "no-home")}, {}), trusted=True)


@pytest.mark.parametrize(("text", "digest"), [("", DEFAULTS_OF_0_1), (SHARED, SHARED_OF_0_1)])
def test_settings_that_acode_0_1_knew_have_the_digest_that_it_recorded(tmp_path: Path, text: str, digest: str) -> None:
    """Or whoever upgrades would be warned of a change that nobody made."""
    assert in_force(tmp_path, text).digest == digest


@pytest.mark.parametrize(
    "text",
    [
        "sync: {release: never}",
        "notify: {on: [gate]}",
        "hooks: {front: never}",
        "fleet: {queue: nightly}",
        "session: {lock_timeout_seconds: 61}",
    ],
)
def test_a_setting_that_was_changed_changes_the_digest(tmp_path: Path, text: str) -> None:
    assert in_force(tmp_path, text).digest != DEFAULTS_OF_0_1
