"""Secrets end to end: a hundred kinds, in every place where one can enter; then every byte is searched.

While a session is unfinished a secret may stand in a sensitive blob and nowhere else; after its end, nowhere at all.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from acode import session as acode_session
from tests.driver import Acode, Ended
from tests.unit.test_redact import NAMED, SHAPED, Maker, pem
from tests.yaml_text import plan_text

LENGTH_MIN = 8  # shorter values turn up in hashes by chance
GROUP = 12


class Corpus:
    """Phrases as they stand in text, and the values in them that nobody may find again."""

    def __init__(self, seed: int) -> None:
        maker = Maker(seed)
        self.phrases: list[str] = []
        self.values: list[str] = []
        for make in SHAPED.values():
            self._add("{}", make(maker))
        for template, make in NAMED.values():
            value = make(maker)
            if len(value) >= LENGTH_MIN:
                self._add(template, value)
        key, body = pem(maker)
        self.key, self.key_lines = key, body
        self.values += body

    def _add(self, template: str, value: str) -> None:
        self.phrases.append(template.format(value))
        self.values.append(value)

    def groups(self) -> list[list[str]]:
        return [self.phrases[at : at + GROUP] for at in range(0, len(self.phrases), GROUP)]


CORPUS = Corpus(11)
OLD = Corpus(12)  # what stood in files before


def leaks(values: list[str], places: dict[str, bytes]) -> list[str]:
    return [f"{where}: {value}" for where, raw in places.items() for value in values if value.encode() in raw]


def kept(workspace: Path, home: Path, *, sensitive: bool) -> dict[str, bytes]:
    """All that acode keeps: database, WAL, blobs, logs, run files, locks, anchors. Not the user's own files."""
    found = [path for place in (workspace / ".agent", home) for path in place.rglob("*") if path.is_file()]
    secret = workspace / ".agent" / "blobs" / "sensitive"
    chosen = [path for path in found if sensitive or not path.is_relative_to(secret)]
    return {str(path.relative_to(path.parents[1])): path.read_bytes() for path in chosen if path.name != "config.yml"}


def said(*ends: Ended) -> dict[str, bytes]:
    return {f"output {number}": (end.stdout + end.stderr).encode() for number, end in enumerate(ends)}


def looks(acode: Acode, *, bundle: Path) -> list[Ended]:
    """Everything that shows a session."""
    commands = [
        ("status",),
        ("explain",),
        ("session", "list"),
        ("session", "show"),
        ("session", "history"),
        ("resume", "--dry-run", "--last"),
    ]
    told = [acode(*command, *extra) for command in commands for extra in ((), ("--json",), ("-v",))]
    assert acode("session", "export", "-o", bundle).exit_code == 0
    return told


def sensitive_blobs(workspace: Path) -> list[Path]:
    return [path for path in (workspace / ".agent" / "blobs" / "sensitive").rglob("*") if path.is_file()]


def search(acode: Acode, home: Path, values: list[str], *ends: Ended, ended: bool) -> list[str]:
    """Every place, before and after a look at the session with every command that shows one."""
    bundle = acode.workspace.parent / "bundle.jsonl"
    told = looks(acode, bundle=bundle)
    places = {**kept(acode.workspace, home, sensitive=ended), **said(*ends, *told), "bundle": bundle.read_bytes()}
    return leaks(values, places)


@pytest.mark.req("THREAT-011c-04", "NFR-011c-013", "SEC-040b-04")
def test_secrets_in_titles_contents_and_questions_are_kept_nowhere(acode: Acode, home: Path) -> None:
    """As the plan says them: title, task titles, what is written, what is asked, arguments of commands."""
    tasks = [
        {"id": f"t{number}", "title": phrase, "steps": [{"read": "in.txt"}]}
        for number, phrase in enumerate(CORPUS.phrases)
    ]
    tasks += [
        {
            "id": f"w{number}",
            "title": "Write",
            "steps": [{"write": {"path": f"out/{number}.txt", "content": "\n".join(group) + "\n"}}],
        }
        for number, group in enumerate(CORPUS.groups())
    ]
    tasks.append({"id": "key", "title": "Key", "steps": [{"write": {"path": "id_rsa", "content": CORPUS.key}}]})
    tasks.append({"id": "ask", "title": "Ask", "steps": [{"approve": "\n".join(some)} for some in CORPUS.groups()]})
    (acode.workspace / "in.txt").write_text("in\n")
    (acode.workspace / "out").mkdir()
    for number, group in enumerate(OLD.groups()):
        (acode.workspace / "out" / f"{number}.txt").write_text("\n".join(group))
    (acode.workspace / "id_rsa").write_text(OLD.key)
    (acode.workspace / "plan.yml").write_text(plan_text(CORPUS.phrases[0], tasks))
    values = CORPUS.values + OLD.values

    ran = acode("run", "plan.yml", "--json")
    assert ran.exit_code == 10, ran.stderr
    assert search(acode, home, values, ran, ended=False) == []
    raw = b"".join(path.read_bytes() for path in sensitive_blobs(acode.workspace))
    assert [value for value in values if value.encode() not in raw and "\\" not in value and '"' not in value] == []

    ends = []
    for _ in CORPUS.groups():
        ends.append(acode("session", "approve", ran.lines[0]["session_id"], "--note", "\n".join(CORPUS.phrases)))
        ends.append(acode("resume", "--last"))
    assert ends[-1].exit_code == 0, ends[-1].stderr
    assert search(acode, home, values, *ends, ended=True) == []
    assert sensitive_blobs(acode.workspace) == []
    assert (acode.workspace / "id_rsa").read_text() == CORPUS.key, "what is used is never altered"


SLOW = """
import sys
data = open(sys.argv[1], "rb").read()
for at in range(0, len(data), 7):
    sys.stdout.buffer.write(data[at:at + 7])
    sys.stdout.buffer.flush()
"""


@pytest.mark.req("THREAT-011c-04", "NFR-011c-013")
def test_secrets_in_the_output_of_commands_are_kept_nowhere(acode: Acode, home: Path) -> None:
    """Printed whole, printed in pieces of seven bytes, printed before a failure, and in the failed command itself."""
    (acode.workspace / "slow.py").write_text(SLOW)
    steps: list[dict[str, object]] = []
    for number, group in enumerate(CORPUS.groups()):
        (acode.workspace / f"{number}.txt").write_text("\n".join(group) + "\n")
        steps.append({"run": [sys.executable, "slow.py", f"{number}.txt"]})
    (acode.workspace / "key.txt").write_text(CORPUS.key)
    steps.append({"run": f"cat key.txt; {shlex.quote(sys.executable)} slow.py key.txt"})
    arguments = "\n".join(CORPUS.phrases)
    steps.append({"run": ["sh", "-c", "cat *.txt; test -f go", arguments], "id": "fails"})
    (acode.workspace / "plan.yml").write_text(plan_text("Print", [{"id": "main", "title": "x", "steps": steps}]))

    ran = acode("run", "plan.yml")
    assert ran.exit_code == 1, ran.stderr
    reason = "\n".join(CORPUS.phrases)
    (acode.workspace / "go").touch()
    assert search(acode, home, CORPUS.values, ran, ended=False) == []
    label = acode("session", "checkpoint", ran.stderr.split()[-1], "--label", reason)
    done = acode("resume", "--last", "--json", "--force", "--reason", reason)
    assert done.exit_code == 0, done.stderr
    assert search(acode, home, CORPUS.values, label, done, ended=True) == []
    assert sensitive_blobs(acode.workspace) == []


@pytest.mark.req("THREAT-011c-04", "NFR-011c-013")
def test_values_that_are_said_to_be_secret_are_kept_nowhere(acode: Acode, home: Path) -> None:
    """By `secret_env`, by the name of a variable, by the name of a step's setting; acode's own are not passed on."""
    values = {
        "PLAIN_NAME": "correct-horse-battery",
        "SERVICE_TOKEN": "staple-of-the-week",
        "ACODE_CHECKPOINT_SECRET": "a signing secret that is long",
    }
    step = {
        "run": "printenv; echo $PLAIN_NAME | base64; echo $MY_PASSWORD",
        "secret_env": ["PLAIN_NAME"],
        "env": {"MY_PASSWORD": "tuesday-afternoon"},
    }
    written = {"write": {"path": "a.txt", "content": f"uses {values['PLAIN_NAME']}\n"}}
    tasks = [{"id": "main", "title": "x", "steps": [step, written, {"run": "test -f go"}]}]
    (acode.workspace / "plan.yml").write_text(plan_text("Environment", tasks))
    secrets = [*values.values(), "tuesday-afternoon"]
    ran = acode("run", "plan.yml", "--json", env=values)
    assert ran.exit_code == 1, ran.stderr
    assert leaks(secrets, {**kept(acode.workspace, home, sensitive=False), **said(ran)}) == []
    (acode.workspace / "go").touch()
    done = acode("resume", "--last", env=values)
    assert done.exit_code == 0, done.stderr
    shown = acode("session", "show", env=values)
    assert leaks(secrets, {**kept(acode.workspace, home, sensitive=True), **said(done, shown)}) == []


@pytest.mark.req("THREAT-011c-04")
def test_outputs_that_are_put_back_leave_no_secret_behind(acode: Acode, home: Path) -> None:
    """A killed command's half-made outputs are saved before the rollback: what they hold is as secret as the rest."""
    (acode.workspace / "new.txt").write_text("\n".join(CORPUS.phrases))
    (acode.workspace / "build").mkdir()
    (acode.workspace / "build" / "env").write_text("\n".join(OLD.phrases))
    line = "cp new.txt build/env; cp new.txt build/other; test -f go || kill -9 $PPID $$"
    tasks = [{"id": "main", "title": "x", "steps": [{"run": line, "outputs": ["build/**"]}, {"run": "test -f on"}]}]
    (acode.workspace / "plan.yml").write_text(plan_text("Outputs", tasks))
    values = CORPUS.values[: len(CORPUS.phrases)] + OLD.values[: len(OLD.phrases)]
    first = acode("run", "plan.yml")
    assert first.exit_code == 1
    (acode.workspace / "go").touch()
    second = acode("resume", "--last")
    assert second.exit_code == 1, second.stderr
    assert (acode.workspace / "build" / "other").exists()
    assert search(acode, home, values, first, second, ended=False) == []
    (acode.workspace / "on").touch()
    third = acode("resume", "--last")
    assert third.exit_code == 0, third.stderr
    assert search(acode, home, values, third, ended=True) == []
    assert sensitive_blobs(acode.workspace) == []


@pytest.mark.parametrize("ending", ["cancel", "abandon", "abort"])
@pytest.mark.req("THREAT-011c-04")
def test_every_way_to_end_removes_the_secrets(ending: str, acode: Acode, home: Path) -> None:
    value = CORPUS.values[2]
    (acode.workspace / "a.txt").write_text(f"{OLD.values[2]}\n")
    steps = [{"write": {"path": "a.txt", "content": f"{value}\n"}}, {"run": "false"}]
    text = plan_text("End", [{"id": "main", "title": "x", "steps": steps}])
    (acode.workspace / "plan.yml").write_text(text + ("on_failure: abort\n" if ending == "abort" else ""))
    ran = acode("run", "plan.yml")
    if ending != "abort":
        assert sensitive_blobs(acode.workspace) != []
        name = acode("session", "list", "--json").json[0]["session_id"]
        ran = acode("session", ending, name, "--reason", f"because of {value}")
    assert sensitive_blobs(acode.workspace) == []
    assert leaks([value, OLD.values[2]], {**kept(acode.workspace, home, sensitive=True), **said(ran)}) == []


def test_a_crash_right_behind_the_end_keeps_no_secret_for_long(acode: Acode, home: Path) -> None:
    """Killed between the last event and the cleaning up: the next command that meets the session does it."""
    value = CORPUS.values[2]
    (acode.workspace / "plan.yml").write_text(
        plan_text("End", [{"id": "main", "title": "x", "steps": [{"write": {"path": "a", "content": value}}]}])
    )
    script = (
        "import os, sys\n"
        "from acode.store.store import Store\n"
        "Store.forget_preimages = lambda *_: os._exit(9)\n"
        "from acode.cli import main\n"
        "main(['run', 'plan.yml'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=acode.workspace, check=False, capture_output=True)
    assert ended.returncode == 9 and sensitive_blobs(acode.workspace) != []
    name = acode("session", "list", "--json").json[0]["session_id"]
    assert acode("resume", name).exit_code == 15
    assert sensitive_blobs(acode.workspace) == []
    assert leaks([value], kept(acode.workspace, home, sensitive=True)) == []


@pytest.mark.req("THREAT-011c-04")
def test_errors_and_settings_show_no_secret(acode: Acode, home: Path) -> None:
    """In a plan that cannot be read, an argument that is none, a configuration with an address and a password."""
    value = CORPUS.values[2]
    (acode.workspace / "plan.yml").write_text(f"version: 1\ntitle: x\n{value}: 1\ntasks: []\n")
    (acode.workspace / ".agent").mkdir()
    (acode.workspace / ".agent" / "config.yml").write_text("sync: {url: 'postgresql://app:s3cr3tpassw0rd@db/x'}\n")
    ends = [
        acode("run", "plan.yml"),
        acode("run", "plan.yml", "--json"),
        acode("session", "show", value),
        acode("session", "show", value, "--json"),
        acode("config", "show"),
        acode("config", "show", "--json", "--origin"),
        acode("doctor"),
    ]
    assert leaks([value, "s3cr3tpassw0rd"], {**said(*ends), **kept(acode.workspace, home, sensitive=True)}) == []


def test_an_id_that_would_be_a_secret_is_refused(acode: Acode) -> None:
    """Ids stand in every event and cannot be masked."""
    title = "Use " + "da" + "pi" + "0123456789abcdef0123456789abcdef"
    (acode.workspace / "plan.yml").write_text(plan_text("x", [{"title": title, "steps": [{"run": "true"}]}]))
    refused = acode("run", "plan.yml")
    assert refused.exit_code == 2 and "0123456789abcdef" not in refused.stderr
    assert not (acode.workspace / ".agent" / "workspace.db").exists()


ELSEWHERE = {"PLAIN_NAME": "correct-horse-battery", "MY_PASSWORD": "tuesday-afternoon"}


@pytest.mark.req("THREAT-011c-04", "NFR-011c-013")
def test_a_value_that_one_step_declares_is_secret_in_every_other_step(acode: Acode, home: Path) -> None:
    """In steps before and behind it, in a gate, in a failure, in titles, before and after a resume."""
    value = ELSEWHERE["PLAIN_NAME"]
    steps: list[object] = [
        {"run": "echo early $PLAIN_NAME; echo $PLAIN_NAME >&2"},
        {"approve": f"May {value} be used?"},
        {"run": "true", "secret_env": ["PLAIN_NAME"]},
        {"run": "true", "env": {"MY_PASSWORD": ELSEWHERE["MY_PASSWORD"]}},
        {"run": f"echo late $PLAIN_NAME {ELSEWHERE['MY_PASSWORD']}; echo {value} > made.txt; exit 3", "undo": "true"},
    ]
    tasks = [{"id": "main", "title": f"uses {value}", "steps": steps}]
    (acode.workspace / "plan.yml").write_text(plan_text(f"About {value}", tasks))
    env = {"PLAIN_NAME": value}
    secrets = list(ELSEWHERE.values())
    ran = acode("run", "plan.yml", "--json", "--no-input", env=env)
    assert ran.exit_code == 10, ran.stderr
    asked = [
        acode("session", "approve", ran.lines[0]["session_id"], "--json", env=env),
        acode("resume", "--last", "-v", env=env),
    ]
    assert [one.exit_code for one in asked] == [0, 1], asked
    shown = [acode(*words, env=env) for words in (("session", "show"), ("explain",), ("session", "history", "-v"))]
    assert leaks(secrets, {**kept(acode.workspace, home, sensitive=False), **said(ran, *asked, *shown)}) == []


def test_a_value_that_a_programs_command_declares_is_secret_in_the_rest_of_it(
    acode: Acode, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIN_NAME", ELSEWHERE["PLAIN_NAME"])
    value = ELSEWHERE["PLAIN_NAME"]

    def fail() -> None:
        raise ValueError(f"{value} was refused")

    for _ in range(2):  # the second time the declaring step is not executed, and declares it all the same
        with pytest.raises(ValueError, match="was refused"), acode_session("k", workspace=acode.workspace) as session:
            session.run("true", secret_env=["PLAIN_NAME"])
            assert value not in session.run("echo late $PLAIN_NAME")
            session.step("keep", lambda: f"result {value}")
            session.step("fail", fail)
    shown = [acode("session", "show", "--json"), acode("session", "history", "-v"), acode("explain")]
    assert leaks([value], {**kept(acode.workspace, home, sensitive=False), **said(*shown)}) == []
    resolved = acode("session", "resolve", "k", "fail", "--applied", "--note", f"{value} is right", "--json")
    assert leaks([value], {**kept(acode.workspace, home, sensitive=False), **said(resolved)}) == []
