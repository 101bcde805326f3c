"""Grounds for an agent's session: a script plays the model, and every request is noted in a file of the place."""

from __future__ import annotations

import errno
import os
from collections import Counter
from typing import Any

from acode.engine.workspace_store import opened
from acode.events import types as ev
from tests.agent.town import GOAL, call, plan_turn, task_turns
from tests.crash.grounds import NOTE, plain
from tests.crash.place import Place

SETTINGS = "resume: {max_resume_attempts: 1000}\ntools: {run_command: allow}\n"
TASK = ("run", GOAL, "--json", "--no-input")
SCRIPT: dict[str, Any] = {
    "models": ["scripted"],
    "turns": [
        plan_turn({"id": "work"}),
        task_turns(
            "Work",
            {"text": "I look.", "calls": [call("read_file", path="kept.txt")]},
            {"calls": [call("write_file", path="made.txt", content="made\n"), call("run_command", command=NOTE)]},
            {"calls": [call("edit_file", path="old.txt", old="before", new="after")]},
            {"text": "Done."},
        ),
    ],
}
COMMAND = "work.run_command-2-2"


def with_model(place: Place) -> None:
    plain(place)
    place.more_env |= {"ACODE_MODEL": "scripted", "ACODE_MODEL_BASE_URL": place.outside.url}
    place.put(".agent/config.yml", SETTINGS)
    assert place.acode("config", "trust").exit_code == 0


def planned(place: Place) -> None:
    """The model has made its plan, and a person has approved it."""
    with_model(place)
    assert place.acode(*TASK).exit_code == 10
    assert place.acode("session", "approve", place.session_ids()[0], "--json").exit_code == 0


def was_refused(place: Place) -> bool:
    """The model heard that it may not touch something, and nobody can say what it does then."""
    words = [os.strerror(code) for code in (errno.EACCES, errno.EPERM, errno.EROFS)]
    with opened(place.world(), look_only=True) as store:
        events = [envelope.event for one in store.session_ids() for envelope, _, _ in store.events(one)]
    told = [str(event.result) for event in events if isinstance(event, ev.StepCompleted)]
    return any(word in text for text in told for word in words)


def asked_undecided(place: Place) -> dict[str, int]:
    """Requests that were made more often than the log has a decision for: once, and once more for each settlement."""
    decided: Counter[str] = Counter()
    with opened(place.world(), look_only=True) as store:
        for session_id in store.session_ids():
            for envelope, _, _ in store.events(session_id):
                event = envelope.event
                if isinstance(event, ev.StepStarted) and event.kind == "model" and event.step not in decided:
                    decided[event.step] = 1
                elif isinstance(event, ev.StepSettled) and event.step in decided:
                    decided[event.step] += 1
    asked = Counter(request["digest"] for request in place.outside.requests())
    # Both in the order of their first time: a step that was begun is asked for before the next one is.
    assert len(asked) == len(decided), f"{len(asked)} different requests for {len(decided)} steps"
    pairs = zip(asked.values(), decided.items(), strict=True)
    return {step: times - allowed for times, (step, allowed) in pairs if times > allowed}
