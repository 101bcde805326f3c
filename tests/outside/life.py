"""A story as it is lived: a person gives commands, is killed in between, looks at what is there and answers.

The person knows the command line, its exit statuses and the ledger, and nothing else. What is left in the end is one
JSON document, which the oracle compares with that of an undisturbed life.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.outside.story import DRIVER, Kill, Story

ROOT = Path(__file__).resolve().parents[2]
TURNS_MAX = 40
SAME_MAX = 5  # as often a person does what acode says; a command that is flaky fails twice
WAIT_S, WAITS_MAX = 0.02, 1500
ENDED, RUNNING, DAMAGED = 15, 16, 20
STEP_FAILED = "ACODE-STEP-001"
RUN = "20260115-1430-add-email-check-a1b2"
NOT_THE_USERS = (".agent", ".git", ".agent-memory")
GIT_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "You"), ("EMAIL", "you@example.org"))
}


class Stuck(Exception):
    """A person who does what acode says does not get to the end."""


@dataclass(frozen=True)
class Answer:
    status: int
    stdout: str
    stderr: str
    stops: int

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    @property
    def last(self) -> dict[str, Any]:
        """The last line of stdout, which says how it ended."""
        lines = self.stdout.splitlines()
        found: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": {"code": "", "message": self.stderr}}
        return found

    @property
    def error(self) -> dict[str, Any]:
        last = self.last
        found: dict[str, Any] = last.get("error") or last["data"]["error"]
        return found


class Server:
    """The process that runs acode's commands; this one never loads acode."""

    def __init__(self, planted: str = "") -> None:
        words = [sys.executable, "-m", "tests.outside.server", *([planted] if planted else [])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        self._process = subprocess.Popen(
            words, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass
class Life:
    story: Story
    root: Path
    server: Server
    kills: list[Kill | None]
    calls: int = 0  # of the first command of an undisturbed life
    count: bool = False
    acts: list[str] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    answers: int = 0
    kills_done: int = 0
    everything_killed: bool = False
    rolled_back: bool = False
    older_refused: bool = False
    approved: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.workspace = self.root / "workspace"
        self.ledger = self.root / "ledger"

    # The ground.

    def begin(self) -> None:
        self.workspace.mkdir(parents=True)
        (self.root / "home").mkdir()
        self.ledger.touch()
        for path, text in self.story.files.items():
            (self.workspace / path).write_text(text)
        (self.root / "plan.yml").write_text(self.story.text)
        (self.root / "corrected.yml").write_text(self.story.corrected)
        (self.root / "program.py").write_text(self.story.text)
        if self.story.source == "foreign":
            self._lay_foreign()
        for name in ("t0", "t1", "t2"):
            with contextlib.closing(sqlite3.connect(self.workspace / f"{name}.db")) as database:
                database.execute("CREATE TABLE rows (n)")
                database.commit()
        for words in (("init", "-q", "-b", "main", "--template="), ("add", "in.txt"), ("commit", "-qm", "first")):
            self._git(*words)

    def _lay_foreign(self) -> None:
        (self.root / "driver.sh").write_text(DRIVER)
        (self.root / "driver.sh").chmod(0o755)
        (self.workspace / ".agent").mkdir()
        driver = {"command": ["../driver.sh"], "idempotent": False}
        (self.workspace / ".agent" / "config.yml").write_text(json.dumps({"drivers": {"agent-memory": driver}}))
        self.server.ask({"lay": os.fspath(self.workspace)})
        self.look("config", "trust")

    def _git(self, *words: str) -> str:
        env = {**self.env(), "GIT_CONFIG_GLOBAL": os.devnull}
        return subprocess.run(
            ["git", *words], cwd=self.workspace, env=env, check=True, capture_output=True, text=True
        ).stdout

    def env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        own = {"HOME": "home", "ACODE_HOME": "state", "LEDGER": "ledger"}
        paths = {name: os.fspath(self.root / path) for name, path in own.items()}
        source = {"PYTHONPATH": os.fspath(ROOT / "src"), "GIT_CONFIG_NOSYSTEM": "1"}
        return {**kept, **paths, **source, **GIT_IDENTITY}

    # Commands.

    def look(self, *words: str) -> Answer:
        """A command that is left alone."""
        return self._ask({"argv": [*words]})

    def act(self, *words: str) -> Answer:
        """A command that may be killed; empty: the program."""
        kill = self.kills.pop(0) if self.kills else None
        request: dict[str, Any] = {"argv": [*words]} if words else {"program": os.fspath(self.root / "program.py")}
        if self.count:
            request["call"], self.count = -1, False
        if kill is not None and kill.lines:
            request["lines"] = self.ledger.read_bytes().count(b"\n") + kill.lines
        elif kill is not None and kill.starts:
            request["starts"] = kill.starts
        elif kill is not None:
            request["call"] = int(kill.at * self.calls)
        answer = self._ask(request)
        self.acts.append(f"{' '.join(words) or 'program'} -> {'killed' if answer.killed else answer.status}")
        self.calls = self.calls or answer.stops
        self._hear(answer)
        if answer.killed and kill is not None:
            self.kills_done += 1
            if kill.everything:
                self.end_everything()
            if self.story.moved and self.kills_done == 1:
                self._move()
        return answer

    def _ask(self, request: dict[str, Any]) -> Answer:
        files = {name: self.root / name for name in ("stdout", "stderr")}
        paths = {name: os.fspath(path) for name, path in files.items()}
        told = self.server.ask({**request, **paths, "cwd": os.fspath(self.workspace), "env": self.env()})
        texts = {name: path.read_text() if path.exists() else "" for name, path in files.items()}
        return Answer(told["status"], texts["stdout"], texts["stderr"], told["stops"])

    def _hear(self, answer: Answer) -> None:
        """What acode has said cannot be lost: the lines are kept, for the oracle."""
        for line in answer.stdout.splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n"):
                said = json.loads(line)
                if said.get("seq"):
                    self.heard.append({name: said[name] for name in ("event", "seq", "step", "session_id")})

    def end_everything(self) -> None:
        self.everything_killed = True
        mark = f"ACODE_HOME={self.root / 'state'}\0".encode()
        while sum(_ended(int(name), mark) for name in os.listdir("/proc") if name.isdigit()):
            time.sleep(0.005)  # until none is left: a shell may have forked between the look and the kill

    def _move(self) -> None:
        self.end_everything()  # a command that lives on holds its directory, wherever that is moved
        other = self.root / "moved"
        self.workspace.rename(other)
        self.workspace = other

    # The person.

    def live(self) -> None:
        answer = self._first()
        for _ in range(TURNS_MAX):
            if answer.status in (0, ENDED) and not self._open():
                return
            if len(self.acts) >= SAME_MAX and len(set(self.acts[-SAME_MAX:])) == 1:
                raise Stuck(f"the same answer {SAME_MAX} times: {self.acts[-1]}: {answer.stdout[-600:]}")
            answer = self._next(answer)
        raise Stuck(f"not finished after {TURNS_MAX} turns: {self.acts[-6:]}")

    def _first(self) -> Answer:
        match self.story.source:
            case "plan":
                return self.act("run", "../plan.yml", "--json", "--no-input")
            case "foreign":
                return self._resume()
        return self.act()

    def _sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.look("session", "list", "--all", "--json").stdout)
        return [one for one in found if one["source"] == "native" or self.story.source == "foreign"]

    def _open(self) -> list[dict[str, Any]]:
        return [one for one in self._sessions() if one["state"] not in ("COMPLETED", "FAILED", "CANCELLED")]

    def _next(self, answer: Answer) -> Answer:
        match answer.status:
            case 0 | -9:
                return self._resume() if self._sessions() else self._first()
            case 10:
                return self._at_gate(answer)
            case 12:
                return self._resume()
            case 16:
                return self._wait()
            case 19:
                self._resolve(answer)
                return self._resume()
            case 1 if answer.error["code"] == STEP_FAILED:  # a command that may not be repeated is not retried unasked
                broken = self.story.corrected and answer.error["message"].startswith("step last.")
                return self._resume(*(("--plan", "../corrected.yml") if broken else ()))
        raise Stuck(f"{self.acts[-1]}: {answer.stdout[-1500:]}{answer.stderr[-1500:]}")

    def _resume(self, *more: str) -> Answer:
        if self.story.source in ("program", "async", "threads"):
            return self.act()
        if self.story.source == "foreign":
            return self.act("resume", RUN, "--yes", "--force", "--reason", "it was cut off", "--json", "--no-input")
        force = ("--force", "--reason", "it was cut off", "--json", "--no-input")
        return self.act("resume", self._sessions()[0]["session_id"], *more, *force)

    def _wait(self) -> Answer:
        """A command lives on; acode says to wait for it."""
        for _ in range(WAITS_MAX):
            time.sleep(WAIT_S)
            answer = self._resume()
            if answer.status != RUNNING:
                return answer
        raise Stuck("its command never ends")

    def _at_gate(self, answer: Answer) -> Answer:
        session = self._sessions()[0]["session_id"]
        gate = answer.error["details"]["gate"]
        early = {step for step, _ in self.lines()} & set(self.story.behind.get(gate, ()))
        if early and gate not in self.approved:  # asked again after a rollback, or under an edited plan
            self.wrong.append(f"{gate} is not answered, and these were done: {sorted(early)}")
        if self.story.rollback and not self.rolled_back and gate.startswith("last."):
            self._roll_back(session)
            self.approved.add(gate)
            return self._resume()
        before = self._copy("older") if self.story.older and not self.older_refused else None
        answer = self.act("session", "approve", session, gate, "--json")
        self.approved.add(gate)
        if before is not None and answer.status == 0:
            self._lay_older(before, session)
        return self._resume()

    def _roll_back(self, session: str) -> None:
        to = () if self.story.rollback == "-" else ("--to", self.story.rollback)
        for _ in range(WAITS_MAX):
            answer = self.act("session", "rollback", session, *to, "--yes", "--json", "--no-input")
            match answer.status:
                case 0 | 2:
                    break
                case 16:
                    time.sleep(WAIT_S)
                case 19:
                    self._resolve(answer, of_its="~undo")
                case -9:
                    pass
                case _:
                    raise Stuck(f"{self.acts[-1]}: {answer.stdout[-1500:]}{answer.stderr[-1500:]}")
        self.rolled_back = True

    def _resolve(self, answer: Answer, of_its: str = "") -> None:
        """The person looks at the ledger, and is believed."""
        step = answer.error["details"]["step"]
        self._may_be_unknown(step + of_its)
        session = self._sessions()[0]["session_id"]
        words = ["session", "resolve", session, step, "--json"]
        if self._happened(session, step, of_its):
            result = ["--result", json.dumps(step)] if self.story.source in ("program", "async", "threads") else []
            is_call = self.story.effects[step].may_be_unknown == "always" if step in self.story.effects else False
            words += ["--applied", *(result if is_call else [])]
        else:
            words += ["--not-applied"]
        self.answers += 1
        answer = self.act(*words)
        if answer.status not in (0, -9):
            raise Stuck(f"the answer is not taken: {self.acts[-1]}: {answer.stdout}{answer.stderr}")

    def _may_be_unknown(self, step: str) -> None:
        allowed = self.story.effects[step].may_be_unknown if step in self.story.effects else "never"
        if allowed == "never" or (allowed == "machine" and not self.everything_killed):
            self.wrong.append(f"a person was asked about {step}, of which there is evidence")

    def _happened(self, session: str, step: str, of_its: str) -> bool:
        history = json.loads(self.look("session", "history", session, "--json").stdout)
        undo = bool(of_its)
        begun = [
            one
            for one in history
            if one["step"] == step and one["type"] == ("undo_started" if undo else "step_started")
        ]
        key = begun[-1]["data"].get("key", "")
        keys = self.ledger.read_text().split()
        if self.story.effects.get(step + of_its) and self.story.effects[step + of_its].may_be_unknown == "always":
            return f"program:{step}:0" in keys
        return key in keys

    # Places.

    def _copy(self, name: str) -> Path:
        place = self.root / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.workspace / ".agent", place, symlinks=True)
        return place

    def _lay_older(self, before: Path, session: str) -> None:
        """The approval is not in this copy: whatever would be done on it is done on a past that is over."""
        newer, effects = self._copy("newer"), self.ledger.read_text()
        self._lay(before)
        answer = self.look("resume", session, "--force", "--reason", "it was cut off", "--json", "--no-input")
        if answer.status != DAMAGED or self.ledger.read_text() != effects:
            self.wrong.append(f"an older copy of the log was used: {answer.status} {answer.stdout[-600:]}")
        self._lay(newer)
        self.older_refused = True

    def _lay(self, copied: Path) -> None:
        shutil.rmtree(self.workspace / ".agent")
        copied.rename(self.workspace / ".agent")

    # What is left.

    def lines(self) -> list[tuple[str, str]]:
        """Each effect as (step, attempt), in the order in which they were made."""
        keys = [line.split(":", 1)[1] for line in self.ledger.read_text().split()]
        return [(key.rpartition(":")[0], key.rpartition(":")[2]) for key in keys]

    def document(self) -> dict[str, Any]:
        """Everything that an outsider can know, as JSON."""
        sessions = self._sessions()
        return {
            "ledger": self.lines(),
            "sessions": [self._public(one) for one in sessions],
            "files": dict(sorted(self._files())),
            "databases": {path.name: _rows(path) for path in sorted(self.workspace.glob("*.db"))},
            # Tasks at the same time commit in any order.
            "commits": sorted(self._git("log", "--format=%s").splitlines()),
            "tree": self._git("rev-parse", "HEAD^{tree}"),
            "status": self._git("status", "--porcelain", "-uno"),
            "heard": self.heard,
            "wrong": self.wrong,
            "everything_killed": self.everything_killed,
            "answers": self.answers,
            "kills": self.kills_done,
            "acts": self.acts,
        }

    def _public(self, row: dict[str, Any]) -> dict[str, Any]:
        session = row["session_id"]
        asked = {name: self.look("session", name, session, "--json") for name in ("history", "verify")}
        asked["explain"] = self.look("explain", session, "--json")
        return {"row": row, **{name: json.loads(answer.stdout) for name, answer in asked.items()}}

    def _files(self) -> list[tuple[str, list[Any]]]:
        found = []
        for place, directories, names in os.walk(self.workspace):
            if place == os.fspath(self.workspace):
                directories[:] = [name for name in directories if name not in NOT_THE_USERS]
            here = os.path.relpath(place, self.workspace)
            found += [(f"{here}/{name}/", ["directory"]) for name in directories]
            for name in names:
                if ".db" not in name:
                    path = Path(place) / name
                    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
                    found.append((f"{here}/{name}", [path.stat().st_mode & 0o777, digest]))
        return found


def _ended(pid: int, mark: bytes) -> bool:
    """Was it alive, and of this life?"""
    try:
        if mark not in Path(f"/proc/{pid}/environ").read_bytes() + b"\0":
            return False
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _rows(path: Path) -> dict[str, list[str]]:
    """acode's own table by the steps in it: an attempt's number may differ."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {name: sorted(str(row) for row in database.execute(f'SELECT * FROM "{name}"')) for name in names}
        if "acode_applied" in found:
            keys = [key for (key,) in database.execute("SELECT key FROM acode_applied")]
            found["acode_applied"] = sorted(key.split(":")[1] for key in keys)
    return found
