"""read: look at a file and remember what it was. Nothing changes, so a read found in flight is simply done again."""

from __future__ import annotations

from acode.errors import AcodeError
from acode.events import types as ev
from acode.events.definition import Read, Step
from acode.plan import Finding, Outcome
from acode.steps.shape import Done, Failed, Prepared, RolledBack, Site
from acode.workspace import hash_file


def prepare(step: Step, site: Site) -> Prepared:
    return Prepared()


def execute(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    assert isinstance(step.action, Read)
    try:
        state = hash_file(site.root, step.action.path)
    except AcodeError as error:
        return Failed(reason="error", message=error.message)
    if state.sha256 is None:
        return Failed(reason="error", message=f"{step.action.path} does not exist")
    return Done(files=(state,))


def look(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    return Finding(outcome=Outcome.NOT_APPLIED, evidence="a read changes nothing; it is read again", repeatable=True)


def adopt(step: Step, site: Site, started: ev.StepStarted) -> Done:
    done = execute(step, site, started)
    return done if isinstance(done, Done) else Done()


def roll_back(step: Step, site: Site, started: ev.StepStarted) -> RolledBack:
    return RolledBack()
