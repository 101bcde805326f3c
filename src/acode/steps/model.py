"""model: a request to a model. It changes nothing here, so one that was found in flight is simply asked again.

Nothing here talks to a model: the agent does, and records what it was answered.
"""

from __future__ import annotations

from acode.errors import CannotContinue
from acode.events import types as ev
from acode.events.definition import Step
from acode.plan import Finding, Outcome
from acode.steps.interface import Done, Failed, Prediction, Prepared, RolledBack, Site

NO_ANSWER = Finding(
    outcome=Outcome.NOT_APPLIED,
    evidence="its answer was not recorded; a request has no effect here",
    repeatable=True,
)


def predict(step: Step) -> Prediction:
    return Prediction(finding=NO_ANSWER, reason="evidence", because="a request changes nothing")


def prepare(step: Step, site: Site) -> Prepared:
    return Prepared()


def execute(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    raise CannotContinue(f"step {step.id} is a request of an agent's session: only the agent can make it")


def look(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    return NO_ANSWER


def adopt(step: Step, site: Site, started: ev.StepStarted) -> Done:
    return Done()


def roll_back(step: Step, site: Site, started: ev.StepStarted) -> RolledBack:
    return RolledBack()
