"""call: a function of the user's program. Found in flight, only its declaration can say whether it may be repeated.

Nothing here runs the function: the program that asks for the step does, and records what came of it.
"""

from __future__ import annotations

from acode.errors import CannotContinue
from acode.events import types as ev
from acode.events.definition import Step
from acode.plan import Finding, Outcome
from acode.steps.interface import Done, Failed, Prediction, Prepared, RolledBack, Site

MACHINE_WENT_DOWN = "the machine went down while it ran"


def predict(step: Step) -> Prediction:
    finding = _by_declaration(step, MACHINE_WENT_DOWN)
    if step.idempotent:
        return Prediction(finding=finding, reason="idempotent", because="it is declared idempotent")
    return Prediction(finding=finding, reason="none", because="it is not declared idempotent")


def prepare(step: Step, site: Site) -> Prepared:
    return Prepared()


def execute(step: Step, site: Site, started: ev.StepStarted) -> Done | Failed:
    raise CannotContinue(
        f"step {step.id} is a function of a program: only that program can run it",
        hint="Run the program again.",
    )


def look(step: Step, site: Site, started: ev.StepStarted) -> Finding:
    """A function leaves no trace that acode could read; a probe of the program itself is asked before this."""
    lost = "its process ended while it ran" if started.boot_id == site.boot_id else MACHINE_WENT_DOWN
    return _by_declaration(step, lost)


def _by_declaration(step: Step, lost: str) -> Finding:
    if step.idempotent:
        return Finding(outcome=Outcome.UNKNOWN, evidence=f"{lost}; it is declared idempotent", repeatable=True)
    return Finding(outcome=Outcome.UNKNOWN, evidence=f"{lost}; nothing shows whether it took effect")


def adopt(step: Step, site: Site, started: ev.StepStarted) -> Done:
    """A person says that it happened; what it returned nobody knows, so it is null."""
    return Done()


def roll_back(step: Step, site: Site, started: ev.StepStarted) -> RolledBack:
    return RolledBack()
