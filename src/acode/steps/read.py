"""read: look at a file and remember what it was. Nothing changes, so a read found in flight is simply done again.

A link in the workspace is remembered with all that it leads to; one that leads out of it is not followed.
"""

from __future__ import annotations

import stat

from acode.errors import AcodeError, FileModified
from acode.events import types as ev
from acode.events.definition import Read, Step
from acode.plan import Finding, Outcome
from acode.steps.interface import Done, Failed, Prediction, Prepared, RolledBack, Site
from acode.workspace import Root, hash_file, visible, way_of

NOTHING_CHANGED = Finding(
    outcome=Outcome.NOT_APPLIED, evidence="a read changes nothing; it is read again", repeatable=True
)


def predict(step: Step) -> Prediction:
    return Prediction(finding=NOTHING_CHANGED, reason="evidence", because="a read changes nothing")


def prepare(step: Step, site: Site) -> Prepared:
    return Prepared()


def execute(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    assert isinstance(step.action, Read)
    path = step.action.path
    try:
        states = seen(site.root, path)
    except AcodeError as error:
        return Failed(reason="error", message=". ".join(filter(None, (error.message, error.hint))))
    if states[-1].sha256 is None:
        leads = f" leads to {visible(states[-1].path)}, which" if len(states) > 1 else ""
        return Failed(reason="error", message=f"{path}{leads} does not exist")
    return Done(files=states)


def seen(root: Root, path: str) -> tuple[ev.FileState, ...]:
    """The file; where it is a link, all that decides what is read through it: each link, and the file at the end."""
    state = hash_file(root, path)
    if not stat.S_ISLNK(state.mode):
        return (state,)
    way = way_of(root, path)
    states = tuple(hash_file(root, name) for name in way if name != ".")
    if way_of(root, path) != way:
        raise FileModified(
            f"{path} was made to lead elsewhere while it was read", hint="Look at it, then resume.", path=path
        )
    # A directory has no content to remember: of a link to one, it is remembered where it leads.
    return states[:-1] if len(states) > 1 and states[-1].sha256 == "" else states


def look(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    return NOTHING_CHANGED


def adopt(step: Step, site: Site, started: ev.StepStarted) -> Done:
    done = execute(step, site, started)
    return done if isinstance(done, Done) else Done()


def roll_back(step: Step, site: Site, started: ev.StepStarted) -> RolledBack:
    return RolledBack()
