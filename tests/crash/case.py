"""A command on its ground: what is there before it, what a person does after it, and how it ends undisturbed.

A case can be begun any number of times from the same bytes. Whatever is done to the command in between, carrying on
must lead to the same end.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from acode.engine.session_list import rows
from acode.engine.undo_command import UNDO
from tests.crash.harness.ptracer import Work
from tests.crash.harness.snapshots import Snapshot
from tests.crash.place import Place
from tests.lives import end_all_in

TURNS_MAX = 14
DONE_BEFORE = (0, 2, 15)  # asked again: done now, nothing to do any more, or ended meanwhile
ACT = ("--json", "--no-input")
STILL_RUNNING, UNKNOWN, WAIT_S, WAITS_MAX = 16, 19, 0.02, 500
Act = Callable[[Place], object]


class NotCarriedOn(AssertionError):
    """A person who does what acode says does not get to the end."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """`words` are the command line; `{id}` stands for the most recent session of the ground.

    A copy of the place is all that a kill leaves, unless a server or another process has a state that no copy can take
    back to the moment of a stop: such a case is killed for real only.
    """

    name: str
    ground: Act
    words: tuple[str, ...] = ()
    program: Act | None = None  # instead of words: a program that uses the library
    ends_with: tuple[int, ...] = (0,)  # what the undisturbed command may answer
    repeated: tuple[int, ...] = ()  # what it may answer when it is asked again after a crash; empty: nobody repeats it
    once: tuple[str, ...] = ()  # steps whose effect must stand in the ledger exactly once
    lively: bool = False  # processes beside it change the place: those that it starts, or others
    followed: bool = False  # the processes that it starts are stopped at their calls too, and killed with it
    ends_sessions: bool = False  # what is left afterwards is not resumed
    shows: Act | None = None  # what else is part of the end, and is there when the last word is heard
    leaves: Act | None = None  # what else is part of the end
    refused: Callable[[Place], bool] | None = None  # a model was told that it may not, which no undisturbed one is
    outside: str = ""  # the fixture of what it reaches outside the place
    beside: Act | None = None  # starts what goes on beside it, anew for each run
    afterwards: Act | None = None  # what becomes of that when the command has ended
    sparse: bool = False  # it takes long, and does what others do too: the gate looks at few of its states
    waits: bool = False  # for a worker or a lease: how often it looks, and so its stops, differ from run to run
    only_for_real: bool = False  # no copy of the place is all that a kill leaves

    def __str__(self) -> str:
        return self.name

    @property
    def alone(self) -> bool:
        """It starts no process."""
        return not self.lively


@dataclass(kw_only=True)
class Prepared:
    """A case with its ground laid, and the end that an undisturbed run of it has."""

    case: Case
    place: Place
    ground: Snapshot
    words: tuple[str, ...]
    expected: dict[str, Any] = field(default_factory=dict)
    recorded: Counter[str] = field(default_factory=Counter)  # the events on record when the command has ended
    ended_before: frozenset[str] = frozenset()  # the starts of steps that had ended when the command began

    def fresh(self) -> None:
        if self.case.lively:
            end_all_in(self.place.root)
        self.ground.put(self.place.root)
        self.place.silence()
        if self.place.outside is not None:
            self.place.outside.restore_outputs()
        if self.case.beside is not None:
            self.case.beside(self.place)

    @property
    def act(self) -> Work:
        """The command, for a child of its own."""
        if self.case.program is not None:
            return partial(self.case.program, self.place)
        return partial(self.place.traced, *self.words)

    def act_here(self) -> None:
        """The command in this process; how it ends must be what the case says."""
        if self.case.program is not None:
            self.case.program(self.place)
            return
        ended = self.place.acode(*self.words)
        assert ended.exit_code in self.case.ends_with, f"{self.case}: {ended}"
        self.place.heard.write_text(ended.stdout)

    def carry_on(self, *, answered: bool = False) -> None:
        """What a person does who finds the place like this: the same command again, then on until nothing is open.

        answered: it was given again before, and who heard that it is done does not ask a third time.
        """
        if self.case.program is not None:
            self.case.program(self.place)
            return
        if self.case.repeated and not answered:
            ended = self.place.acode(*self.words)
            for _ in range(WAITS_MAX if self.case.lively else 0):
                if ended.exit_code == STILL_RUNNING:
                    time.sleep(WAIT_S)  # its command lives on; acode says to wait for it
                elif ended.exit_code == UNKNOWN and UNKNOWN not in self.case.repeated:
                    self._answer(ended.stdout)
                else:
                    break
                ended = self.place.acode(*self.words)
            if ended.exit_code not in self.case.repeated:
                raise NotCarriedOn(f"asked again it answers {ended.exit_code}: {ended.stdout}{ended.stderr}")
            self.place.answered.write_text("yes")
        if self.case.afterwards is not None:
            self.case.afterwards(self.place)
        to_the_end(self.place, self.case, self.words)

    def _answer(self, said: str) -> None:
        """A person is asked about a step, or about the undo that takes it back."""
        last = json.loads(said.splitlines()[-1])
        name = self.place.names.get("id", self.words[1])
        of_its = UNDO if "rollback" in self.words else ""
        say_what_became(self.place, name, last.get("error") or last["data"]["error"], of_its)


def prepared(case: Case, place: Place) -> Prepared:
    """Lay the ground, and see how it ends when nothing happens."""
    from tests.crash.oracle import ended_steps, picture, recorded_events

    place.workspace.mkdir(parents=True)
    (place.root / "home").mkdir()
    place.silence()
    case.ground(place)
    if case.lively:
        end_all_in(place.root)
    if place.outside is not None:
        place.outside.keep()
    for session in place.session_ids()[:1]:
        place.names["id"] = session
    words = tuple(_with_names(word, place.names) for word in case.words)
    ready = Prepared(case=case, place=place, ground=Snapshot.of(place.root), words=words)
    ready.ended_before = ended_steps(place)
    ready.fresh()
    ready.act_here()
    ready.recorded = recorded_events(place)
    if case.program is None:
        if case.afterwards is not None:
            case.afterwards(place)
        to_the_end(place, case, words)
    ready.expected = picture(place, case)
    assert ready.expected["problems"] == [], ready.expected
    return ready


def _with_names(word: str, names: Mapping[str, str]) -> str:
    for name, meant in names.items():
        word = word.replace(f"{{{name}}}", meant)
    return word


def to_the_end(place: Place, case: Case, words: tuple[str, ...]) -> None:
    """Resume, approve, say what became of a step: until no session is open."""
    for _ in range(TURNS_MAX):
        found = rows(place.world())
        if not found and words[:1] == ("run",):
            ended = place.acode(*words)
            if ended.exit_code not in case.ends_with:
                raise NotCarriedOn(f"begun anew it answers {ended.exit_code}: {ended.stdout}{ended.stderr}")
            continue
        broken = [row for row in found if row.error is not None]
        if broken:
            raise NotCarriedOn(f"a session cannot be trusted: {broken[0].error}")
        waiting = [row.session_id for row in found if row.session is not None and not row.session.terminal]
        if not waiting or case.ends_sessions:
            return
        _one_turn(place, waiting[0], commands=case.lively)
    raise NotCarriedOn(f"not finished after {TURNS_MAX} turns")


def _locks_without_owner(said: str, place: Place) -> list[Path]:
    """git's locks that acode has named as those to remove; only empty ones: in the others stands whose they are."""
    message = json.loads(said.splitlines()[-1])["data"]["error"]["message"]
    named = [Path(one) for one in re.findall(r"/\S+\.lock\b", message) if "then resume" in message]
    inside = [one for one in named if one.is_relative_to(place.workspace / ".git") and not one.read_bytes()]
    return inside if len(inside) == len(named) else []


def say_what_became(place: Place, session: str, error: dict[str, Any], of_its: str = "") -> None:
    """The person looks at what is really there, and is believed."""
    step = error["details"]["step"]
    happened = "--applied" if place.effects()[step + of_its] else "--not-applied"
    answer = place.acode("session", "resolve", session, step, happened, "--json")
    if answer.exit_code:
        raise NotCarriedOn(f"the answer is not taken, {answer.exit_code}: {answer.stdout}{answer.stderr}")


def _one_turn(place: Place, session: str, *, commands: bool) -> None:
    for _ in range(WAITS_MAX):
        ended = place.acode("resume", session, "--force", "--reason", "it was cut off", "--json", "--no-input")
        if ended.exit_code != STILL_RUNNING or not commands:
            break
        time.sleep(WAIT_S)  # what was started lives on
    match ended.exit_code:
        case 0 | 143:  # 143: its command has asked it to end, and the next turn resumes it
            return
        case 1 if commands and (locks := _locks_without_owner(ended.stdout, place)):
            for lock in locks:  # nothing runs here any more, so the person does what acode says
                lock.unlink()
            return
        case 10 | 12:
            answer = place.acode("session", "approve", session, "--json")
        case 19:
            error = json.loads(ended.stdout.splitlines()[-1])
            error = error.get("error") or error["data"]["error"]
            step = error["details"]["step"]
            if not commands:
                raise NotCarriedOn(
                    f"a person is asked about {step}, which carries its own evidence: {error['message']}"
                )
            say_what_became(place, session, error)
            return
        case _:
            raise NotCarriedOn(f"resume answers {ended.exit_code}: {ended.stdout[-2000:]}{ended.stderr}")
    if answer.exit_code:
        raise NotCarriedOn(f"the answer is not taken, {answer.exit_code}: {answer.stdout}{answer.stderr}")
