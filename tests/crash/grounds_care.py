"""Grounds for what people do to a session and to its keys: repair, export, import, undo, supervision."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import acode
from acode.cli.init import SCHEMA_NAME
from tests.crash import grounds
from tests.crash.place import Place

EFFECT = "fetch"


def with_keys_of_another(place: Place) -> None:
    """The keys of another home lie in a file."""
    grounds.at_gate(place)
    other = Place(place.root.parent / "other")
    other.workspace.mkdir(parents=True)
    grounds.at_gate(other)
    (place.root / "keys").write_text(other.acode("key", "export").stdout)
    shutil.rmtree(other.root)


def number_of_keys(place: Place) -> int:
    return len((place.root / "state" / "keys").read_text().splitlines())


def with_startup_file(place: Place) -> None:
    grounds.at_gate(place)
    home = place.root / "home"
    home.mkdir(exist_ok=True)
    place.more_env["XDG_DATA_HOME"] = os.fspath(home / ".local" / "share")
    (home / ".bashrc").write_text("alias ll='ls -l'\n")


def completion_is_installed(place: Place) -> tuple[str, str]:
    """The start-up file with its one line more, and the script: each whole."""
    home = place.root / "home"
    script = home / ".local" / "share" / "acode" / "completion.bash"
    return (home / ".bashrc").read_text().replace(str(home), "HOME"), script.read_text()


def with_agent_settings(place: Place) -> None:
    """An agent with two files of settings that the user has written."""
    grounds.at_gate(place)
    codex = place.root / "home" / ".codex"
    codex.mkdir(parents=True)
    (codex / "config.toml").write_text('model = "gpt-5.4"  # mine\n\n[features]\nweb = true\n')
    (codex / "hooks.json").write_text('{\n  "hooks": {\n    "Stop": []\n  }\n}\n')


def with_hooks(place: Place) -> None:
    with_agent_settings(place)
    assert place.acode("hook", "install", "codex", "--json").exit_code == 0


def agent_settings(place: Place) -> dict[str, str]:
    """Every file of the agent, whole, and whether acode's own programs are there where one of them is named. Programs
    that nobody names harm nobody: a crash, or a disk that does not let them go, may leave them behind."""
    home, doors = place.root / "home" / ".codex", place.root / "state" / "doors"
    found = {path.name: path.read_text().replace(str(place.root), "ROOT") for path in home.iterdir()}
    settings = {name: text for name, text in found.items() if not name.startswith(".")}  # a crash may leave one beside
    named = [
        path
        for path in (doors / "hook", doors / "bash_env.sh")
        if any(f"doors/{path.name}" in text for text in settings.values())
    ]
    return settings | {"missing": ", ".join(path.name for path in named if not is_whole_program(path))}


def is_whole_program(path: Path) -> bool:
    """`bash_env.sh` is read by bash, the others are executed."""
    whole = path.exists() and path.read_text().endswith(("|| exit 0\n", "esac\n"))
    return whole and (path.suffix == ".sh" or os.access(path, os.X_OK))


def is_begun(place: Place) -> tuple[int, int]:
    """The plan that init has written, and its schema, both whole: a plan that is there names a schema that is there."""
    plan, schema = place.root / "first.yml", place.root / SCHEMA_NAME
    return len(plan.read_bytes()) if plan.exists() else 0, len(schema.read_bytes()) if schema.exists() else 0


def is_exported(place: Place) -> bool:
    return place.acode("session", "verify", "--bundle", "../bundle", "--json").exit_code == 0


def put_back_to_older(place: Place) -> None:
    """The database is that of a backup: the anchor knows of more than it holds."""
    grounds.at_gate(place)
    agent = place.workspace / ".agent"
    shutil.copy(agent / "workspace.db", place.root / "backup")
    assert place.acode("session", "approve", place.session_ids()[0], "--json").exit_code == 0
    os.replace(place.root / "backup", agent / "workspace.db")


def approved(place: Place) -> None:
    grounds.at_gate(place)
    assert place.acode("session", "approve", place.session_ids()[0], "--json").exit_code == 0


def undo_lost(place: Place) -> None:
    """The undo of a step was killed with acode and its keeper, after its effect."""
    grounds.plain(place)
    assert place.acode(*grounds.plan("undo lost")).exit_code == 10
    words = ("session", "rollback", place.session_ids()[0], "--yes", "--json", "--no-input")
    grounds.end_when(place, words, lambda: bool(place.effects()["first.2~undo"]))


def roll_back_again(place: Place) -> None:
    ended = place.acode("session", "rollback", place.names["id"], "--yes", "--json", "--no-input")
    assert ended.exit_code == 0, ended


def noted(what: str) -> str:
    """An effect that a power cut cannot take back."""
    with open(os.environ["LEDGER"], "a", encoding="utf-8") as ledger:
        ledger.write(f"k:{what}:\n")
    return what


def taken_back(what: str) -> None:
    noted(f"{what}~undo")


def program_at_gate(place: Place) -> None:
    """A program waits for an approval, behind a step with an undo function and a file."""
    grounds.plain(place)
    with grounds.environment(place):
        try:
            with acode.session("k", workspace=place.workspace) as session:
                session.write("old.txt", "after\n")
                session.step(EFFECT, partial(noted, EFFECT), undo=taken_back)
                session.approve("Go on?")
        except acode.InputRequired:
            return
    raise AssertionError("nobody was asked")


def is_reported(place: Place) -> bool:
    """The whole page, or none: half a report would be believed."""
    text = (place.root / "report.html").read_text(encoding="utf-8") if (place.root / "report.html").exists() else ""
    return text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
